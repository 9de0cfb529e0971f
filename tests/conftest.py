"""Settings of the whole suite: one CPU device, repeatable hypothesis runs, who runs what."""

import gc
import os
import tempfile
from collections.abc import Generator
from importlib.metadata import version
from typing import Any

# Before JAX is imported. An explicit choice, such as JAX_PLATFORMS=cuda, is kept.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")
# The processes of a run have the cores: threads of NumPy that wait for work would take from these.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from tests.repetitions import check_table, mark_repetitions

# Compilation makes the first example slow, so there is no deadline. The default profile draws the
# same examples on every run; HYPOTHESIS_PROFILE=explore draws new and more ones.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore",
    deadline=None,
    max_examples=500,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_configure(config: pytest.Config) -> None:
    """Most of the suite's time is XLA's, so its fast part is compiled without optimisation.

    This changes no number beyond rounding; `make test-slow`, docstrings and benchmarks compile what
    users do.
    """
    gc.disable()  # what is imported stays; see `pytest_collection_finish`
    if hasattr(config, "workerinput"):  # it has the environment of the process that started it
        return
    folder = tempfile.TemporaryDirectory(prefix="lowerbound-compiled-")
    config.add_cleanup(folder.cleanup)
    os.environ[FOLDER] = folder.name
    if config.getoption("markexpr") == "not slow":
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
        os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"
        os.environ.setdefault(STORED, "0")  # the name of a program in it is computed in any case
        if version("jaxlib").startswith("0.10."):  # a flag that XLA does not know ends the process
            os.environ["XLA_FLAGS"] = f"{UNFUSED} {os.environ.get('XLA_FLAGS', '')}".strip()


FOLDER = "LOWERBOUND_TESTS_COMPILED"
STORED = "JAX_ENABLE_COMPILATION_CACHE"
# One small module of machine code, as `lowerbound.compiled.quickly` has it.
UNFUSED = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Verdicts have tests of their own, `judged`, and examples; elsewhere they compile for nothing.

    Around all of a test: fixtures of a session come before those of a test.
    """
    from lowerbound.compute.computing import computing

    judged = isinstance(item, pytest.DoctestItem) or item.get_closest_marker("judged")
    with computing(verdicts=bool(judged)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, Any, Any]:
    """Examples in docstrings are those of the library: the modules of tests have none."""
    return [one for one in (yield) if not isinstance(one, DoctestModule)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What repeats a law at length is slow; before the slow ones are left out."""
    check_table(config, mark_repetitions(items))


def pytest_collection_finish() -> None:
    """Tracing makes objects by the million, few of them in cycles: look for these less often.

    What is imported by now stays until the end, and is not looked at again.

    Processes that tests start from now on share what they compile, in a folder of this run: they
    run the same programs. The tests themselves hardly do, and to keep a program costs a fifth of
    what it takes to compile it.
    """
    if os.environ.get(STORED) == "0":
        os.environ[STORED] = "1"  # JAX has read it here
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.environ[FOLDER])
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


# Files whose tests share no compiled program: long ones that run pages, or processes of their own.
APART = (
    "tests/compute/test_devices.py",
    "tests/run/test_interrupt.py",
    "tests/store/test_kill.py",
    "tests/test_bench_programs.py",
    "tests/test_docs.py",
    "tests/test_examples.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that share compiled programs run in one process: one model's laws, one file's tests.

    What has many tests begins first, then what is apart: a long test that begins last would keep
    one process busy and leave the others with nothing to do.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByProgram(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            model = test.partition("[")[2]
            if file in APART:
                return nodeid
            return model if file.startswith("tests/laws/") and model else file

        def schedule(self) -> None:
            first = self.collection is None
            super().schedule()
            if first:
                apart = [scope for scope in self.workqueue if scope.startswith(APART)]
                for scope in reversed(apart):
                    self.workqueue.move_to_end(scope, last=False)

    return ByProgram(config, log)

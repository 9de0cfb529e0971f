"""Settings of the whole suite: one CPU device, repeatable hypothesis runs."""

import os
from typing import Any

# Before JAX is imported. An explicit choice, such as JAX_PLATFORMS=cuda, is kept.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")

import pytest
from hypothesis import HealthCheck, settings

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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that share compiled programs run in one process: one model's laws, one file's tests."""
    from xdist.scheduler import LoadScopeScheduling

    class ByProgram(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            model = test.partition("[")[2]
            return model if file.startswith("tests/laws/") and model else file

    return ByProgram(config, log)

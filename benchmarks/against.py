"""Processor seconds of this tree over those of an earlier revision, measured in turn.

    python -m benchmarks.against REV [name ...] [--repetitions 3]

REV is laid out in a temporary folder. Every measurement is a process of its own, old and new by
turns, and counts processor seconds of all threads: other work on the machine hardly matters. A
fit of today has a verdict, which the old one may not have had; `+ verdict` has it in.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
KERNELS = Path("src/lowerbound/topics/native")
ALLOWED = 1.05  # the ratio up to which nothing has become slower
# What differs most in what is derived and compiled, of the zoo of the tests.
MODELS = ("linear_regression", "diagonal_mixture", "lda", "poisson_effects", "matrix_factorisation")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.against",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("revision", metavar="REV", help="a revision that git knows")
    parser.add_argument("names", nargs="*", metavar="name", help=f"among {', '.join(WORK)}")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(WORK)):
        parser.error(f"no work {', '.join(unknown)}; expected some of {', '.join(WORK)}")
    with laid_out(options.revision) as old:
        for name in options.names or WORK:
            compare(name, old, options.repetitions)


def compare(name: str, old: Path, repetitions: int) -> None:
    """Print the ratios of one kind of work, part by part."""
    seconds: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
    for _ in range(repetitions):
        for which, tree in (("old", old), ("new", ROOT)):
            seconds[which].append(in_fresh_process(tree, name))
    before, after = (
        {part: float(np.median([run[part] for run in runs])) for part in runs[0]}
        for runs in seconds.values()
    )
    print(f"{name}: medians of {repetitions}, processor seconds", flush=True)
    for part, value in after.items():
        base = before[part.removesuffix(" + verdict")]
        ratio = value / base
        against = "" if part not in before else "met" if ratio <= ALLOWED else "NOT MET"
        print(f"  {part:34s} old {base:8.2f}   new {value:8.2f}   ratio {ratio:5.2f}   {against}")


def in_fresh_process(tree: Path, name: str) -> dict[str, float]:
    """What the work takes in a tree, part by part."""
    paths = os.pathsep.join([str(tree / "src"), str(tree)])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--measure", name],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=tree,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{name} failed in {tree}:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    if not Path(found.pop("package")).is_relative_to(tree):
        raise RuntimeError(f"the package that was measured does not lie in {tree}")
    return found


@contextlib.contextmanager
def laid_out(revision: str) -> Iterator[Path]:
    """The files of a revision in a folder, with the compiled kernels if their source is today's."""
    git = ["git", "-C", str(ROOT)]
    files = subprocess.run([*git, "archive", revision], check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory(prefix="lowerbound-against-") as folder:
        with tarfile.open(fileobj=io.BytesIO(files)) as archive:
            archive.extractall(folder, filter="data")
        tree = Path(folder).resolve()
        sources = [path.name for path in (ROOT / KERNELS).glob("*pp")]
        if all((tree / KERNELS / s).read_bytes() == (ROOT / KERNELS / s).read_bytes()
               for s in sources if (tree / KERNELS / s).exists()):  # fmt: skip
            for library in (ROOT / KERNELS).glob("*.so"):
                (tree / KERNELS / library.name).write_bytes(library.read_bytes())
        yield tree


# --------------------------------------------------------------------------------------------------
# The work: only names that both trees have


def busy(call: Callable[[], Any]) -> float:
    """Processor seconds of a call, of all threads."""
    before = time.process_time()
    call()
    return time.process_time() - before


def unjudged() -> Any:
    """A context without verdicts, where fits have them."""
    import lowerbound as lb

    _ = lb.fit  # which imports what it needs

    computing = getattr(lb, "computing", None)
    knows = computing is not None and "verdicts" in inspect.signature(computing).parameters
    return computing(verdicts=False) if knows else contextlib.nullcontext()


def judged() -> bool:
    """Whether fits have verdicts."""
    return not isinstance(unjudged(), contextlib.nullcontext)


def compilation() -> dict[str, float]:
    """First fits of models of the zoo, all in one process: what is derived and compiled."""
    import lowerbound as lb

    _ = lb.fit  # which imports what it needs
    from tests.models.zoo import CASES

    found: dict[str, float] = {}
    cases = {case.name: case for case in CASES}
    lb.fit(cases["normal_normal"].model, *cases["normal_normal"].arguments(0)[0])  # JAX starts
    for name in MODELS:
        args, kwargs = cases[name].arguments(0)
        method = lb.CAVI(max_sweeps=50)

        def fit(case=cases[name], args=args, kwargs=kwargs, method=method) -> None:
            lb.fit(case.model, *args, **kwargs, method=method)

        with unjudged():
            found[name] = busy(fit)
        if judged():  # the fit is compiled by now: what is left is one run of it, and the verdict
            found[f"{name} + verdict"] = found[name] + busy(fit)
    found["all"] = sum(found[name] for name in MODELS)
    return found


def image_mixture() -> dict[str, float]:
    """Sweeps of the mixture of the paper's images at half their rows, and the compilation."""
    from benchmarks import images

    with contextlib.redirect_stdout(sys.stderr):
        x, _ = images.load(5_000)
    return sweeps(images.model, x, images.start(x), 40)


def large_mixture() -> dict[str, float]:
    """Sweeps over a fifth of the large mixture's rows, and the compilation."""
    from benchmarks.large_mixture import K, mixture, simulate

    x = simulate(200_000)
    rows = np.random.default_rng(0).choice(len(x), K, replace=False)
    return sweeps(mixture, x, {"mu": x[rows], "tau": np.ones((K, x.shape[1]))}, 30)


def sweeps(model: Any, x: np.ndarray, start: dict[str, np.ndarray], count: int) -> dict[str, float]:
    """The first fit, of one sweep, and a later one of many."""
    import lowerbound as lb

    _ = lb.fit  # which imports what it needs

    def fit(most: int) -> None:
        lb.fit(model, x, method=lb.CAVI(init=start, tolerance=0.0, max_sweeps=most))

    with unjudged():
        found = {"first fit, 1 sweep": busy(lambda: fit(1))}
        found[f"a fit of {count} sweeps"] = busy(lambda: fit(count))
    return found


def topics() -> dict[str, float]:
    """Two passes of stochastic steps over simulated documents, 50 topics."""
    import lowerbound.estimators as estimators
    from benchmarks.topics_corpora import synthetic

    corpus = synthetic(40_000, 8000, 50, 60)
    settings = {"batch_size": 4096, "max_passes": 2, "validation_fraction": 0.0}
    grouped = getattr(estimators, "Inference", None)
    inference = {"inference": grouped("svi", **settings)} if grouped else {
        "inference": "svi", **settings}  # fmt: skip
    lda = estimators.LatentDirichletAllocation(
        50, document_prior=0.1, topic_prior=0.01, **inference
    )
    return {"two passes": busy(lambda: lda.fit(corpus.train))}


WORK: dict[str, Callable[[], dict[str, float]]] = {
    "compile": compilation,
    "image_mixture": image_mixture,
    "large_mixture": large_mixture,
    "topics": topics,
}


def measure(name: str) -> dict[str, Any]:
    """One kind of work in the tree that is on the path."""
    import lowerbound

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {**WORK[name](), "package": str(Path(lowerbound.__file__).resolve())}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2])))
    else:
        main()

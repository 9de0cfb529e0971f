"""One Gaussian with a sparse precision, at the sizes of hierarchies: seconds beside SuperLU's.

InstEval's ratings (73,421 of 2,972 students, 1,128 lecturers and 14 departments; an intercept and a
slope), and simulated rows of two crossed factors with slopes (`--rows 1000000` takes 1.5 GB).
Targets are for two quiet cores; where others work, threads of BLAS wait for each other, and
`OPENBLAS_NUM_THREADS=1` is faster.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.linalg import splu

from benchmarks.timing import verdict
from lowerbound.family.sparse.elimination import Factor, Pattern
from lowerbound.family.sparse.gram import gram_pattern

PATH = Path(__file__).resolve().parents[2] / "shared" / "data" / "mixed" / "insteval.npz"
REPETITIONS = 7
FACTOR, COVARIANCE = 0.08, 0.15  # seconds on two quiet cores, of InstEval


def insteval() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The columns and entries of A, (n, 5), and the group of each column."""
    if not PATH.exists():
        print(f"(no {PATH.name}: ratings of its sizes are simulated)")
        return simulated(73_421, 2972, 1128)
    data = {name: np.asarray(array, int) for name, array in np.load(PATH).items()}
    sizes = [2972, 1128, 14, 2]
    begins = np.cumsum([0, *sizes])
    codes = [data["student"], data["lecturer"], data["dept"], 0, 1]
    columns = np.stack(np.broadcast_arrays(*codes), 1) + begins[[0, 1, 2, 3, 3]]
    values = np.ones(columns.shape)
    values[:, 4] = data["service"]
    return columns, values, np.repeat(np.arange(4), sizes)


def simulated(count: int, many: int, few: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two crossed factors, each with an intercept and a slope, and three slopes of all rows."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, many, count), rng.integers(0, few, count)
    sizes = [many, many, few, few, 3]
    begins = np.cumsum([0, *sizes])
    codes = [first, first, second, second, 0, 1, 2]
    columns = np.stack(np.broadcast_arrays(*codes), 1) + begins[[0, 1, 2, 3, 4, 4, 4]]
    values = np.ones(columns.shape)
    values[:, [1, 3, 5, 6]] = rng.normal(size=(count, 4))
    return columns, values, np.repeat(np.arange(5), sizes)


def least(function: Callable[[], Any], repetitions: int = REPETITIONS) -> tuple[float, float, Any]:
    """Seconds, and those of the processor, of the fastest call, and what it returns."""
    seconds, result = [], None
    for _ in range(repetitions):
        start, used = time.perf_counter(), time.process_time()
        result = function()
        seconds.append((time.perf_counter() - start, time.process_time() - used))
    return *min(seconds), result


Design = tuple[np.ndarray, np.ndarray, np.ndarray]


def measure(name: str, design: Design, peer: bool) -> list[float]:
    """Print the seconds of every step; those of the factor and of the covariances."""
    columns, values, groups = design
    count, width = columns.shape
    rows, size, entries = np.repeat(np.arange(count), width), len(groups), values.ravel()
    weights = np.random.default_rng(0).uniform(0.5, 1.5, count)
    steps: dict[str, tuple[float, float]] = {}

    def step(label: str, function: Callable[[], Any], repetitions: int = REPETITIONS) -> Any:
        *steps[label], result = least(function, repetitions)
        return result

    gram = step("pairs, once", lambda: gram_pattern(rows, columns.ravel(), count, size), 1)
    pattern = step("pattern, once", lambda: Pattern.of(gram.rows, gram.columns, size, groups), 1)
    pairs = step("products of entries", lambda: gram.products(entries))
    products = step("A' W A", lambda: gram.values(pairs, weights))
    precision = products + (gram.rows == gram.columns)
    factor: Factor = step("factor, log-determinant", lambda: pattern.factor(precision))
    rhs = np.random.default_rng(1).normal(size=(size, 8))
    step("solve, one", lambda: factor.solve(rhs[:, 0]))
    step("solve, eight", lambda: factor.solve(rhs))
    step("draws, eight", lambda: factor.coloured(rhs))
    covariance = step("covariances", factor.covariance)
    step("diagonal of A C A'", lambda: gram.quadratic(pairs, covariance))
    if peer:
        lower = coo_array((precision, (gram.rows, gram.columns)), (size, size)).tocsc()
        whole = (lower + lower.T).tocsc()
        whole.setdiag(lower.diagonal())
        step("SuperLU's factor (scipy)", lambda: splu(whole, permc_spec="MMD_AT_PLUS_A"), 2)
    print(f"{name}: {count:,} rows, {len(gram.rows):,} entries; {pattern}")
    for label, (seconds, used) in steps.items():
        print(f"  {label:28s}{1e3 * seconds:10.1f} ms{1e3 * used:10.1f} ms of the processor")
    if peer:
        ratio = steps["SuperLU's factor (scipy)"][0] / steps["factor, log-determinant"][0]
        print(f"  SuperLU's factor / this: {ratio:.1f}")
    return [steps["factor, log-determinant"][0], steps["covariances"][0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 100_000])
    rows = parser.parse_known_args()[0].rows
    factor, covariance = measure("InstEval", insteval(), peer=True)
    print(f"  factor {verdict(factor, FACTOR)}; covariances {verdict(covariance, COVARIANCE)}")
    for count in rows:
        measure("crossed, slopes", simulated(count, count // 10, count // 1000), peer=False)


if __name__ == "__main__":
    main()

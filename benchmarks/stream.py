"""Rows per second of stochastic inference from Parquet files, against rows in memory.

    python -m benchmarks stream

The same mixture (D = 16, K = 32, batches of 8192) sees the same number of rows from an array and
from a Parquet set of the same rows, by turns, compiled beforehand. Target: a ratio of at least 0.7.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import lowerbound.names as lb
from benchmarks.large_mixture import mixture
from benchmarks.parquet_set import columns, write

ROWS, BATCH, TURNS = 2_000_000, 8192, 5


def main() -> None:
    """Fit by turns and compare the rates of the steps, and of whole fits."""
    folder = Path(tempfile.mkdtemp(prefix="lowerbound-stream-"))
    try:
        size = write(folder, ROWS)
        print(
            f"{ROWS:,} rows, {size / 1e6:.0f} MB of Parquet in {len(list(folder.iterdir()))} files"
        )
        stream = lb.stream(folder, x=columns())
        x = in_memory(folder)
        method = lb.SVI(batch_size=BATCH, steps=ROWS // BATCH, monitor=None)
        rates: dict[str, list[float]] = {"array": [], "Parquet": []}
        whole: dict[str, list[float]] = {"array": [], "Parquet": []}
        for turn in range(TURNS + 1):
            for name, data in (("array", {"x": x}), ("Parquet", stream)):
                began = time.perf_counter()
                fit = lb.fit(mixture, **data, method=method, seed=turn)
                if turn:  # the first compiles
                    whole[name].append(time.perf_counter() - began)
                    rates[name].append(fit.history.rows[-1] / fit.history.seconds[-1])
        middle = {name: statistics.median(values) for name, values in rates.items()}
        for name, rate in middle.items():
            print(f"{name:8s} {rate / 1e6:.2f} million rows/s (steps); whole fit "
                  f"{statistics.median(whole[name]):.2f} s")  # fmt: skip
        ratios = [p / a for p, a in zip(rates["Parquet"], rates["array"], strict=True)]
        print(f"ratio Parquet / array: {statistics.median(ratios):.2f} (from {min(ratios):.2f} to "
              f"{max(ratios):.2f}; target >= 0.70)")  # fmt: skip
    finally:
        shutil.rmtree(folder)


def in_memory(folder: Path) -> np.ndarray:
    """All rows of the set as one array."""
    import pyarrow.parquet as pq

    table = pq.read_table(folder)
    return np.stack([table.column(name).to_numpy() for name in columns()], axis=1)


if __name__ == "__main__":
    main()

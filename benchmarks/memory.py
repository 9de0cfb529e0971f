"""Peak memory of one process: `python -m benchmarks.memory fit|load data.npy precision`.

`load` imports everything, fits a few rows (so that compiling is counted) and reads the data; `fit`
also fits them. The difference of the two peaks is what a fit needs beside its data.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import lowerbound.names as lb
from benchmarks import images


def peak_of_fit(x: np.ndarray, precision: str) -> tuple[float, float]:
    """Bytes at the peak without and with the fit of x, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        np.save(path, x)
        command = [sys.executable, "-m", "benchmarks.memory"]
        root = Path(__file__).resolve().parents[1]
        load, fit = (
            subprocess.run(
                [*command, what, str(path), precision],
                check=True, capture_output=True, text=True, cwd=root,
            ).stdout
            for what in ("load", "fit")
        )  # fmt: skip
    return float(load.split()[-1]), float(fit.split()[-1])


def main() -> None:
    what, path, precision = sys.argv[1:]
    x = np.load(path)
    method = {"tolerance": 0.0, "max_sweeps": 10, "precision": precision}
    for rows in (x[:200], x)[: 1 + (what == "fit")]:
        lb.fit(images.model, rows, method=lb.CAVI(init=images.start(rows), **method))
    print(peak())


def peak() -> int:
    """Bytes of memory at the process's own peak.

    Linux starts `ru_maxrss` of a new process at what its parent held; `VmHWM` counts its own.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()

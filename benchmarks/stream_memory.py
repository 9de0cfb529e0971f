"""Peak memory of a fit from Parquet sets of different sizes: it depends on the batch, not on N.

    python -m benchmarks.stream_memory [--gigabytes 0.1 1 10] [--folder FOLDER] [--steps 400]

Every fit runs in a process of its own, for the same number of steps, or with --pass for one pass
over the set. The sets are written first and removed at the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.large_mixture import D
from benchmarks.parquet_set import write

BATCH = 8192

CHILD = """
import json, resource, sys, time
import lowerbound.names as lb
from benchmarks.large_mixture import mixture
from benchmarks.parquet_set import columns

folder, steps = sys.argv[1], int(sys.argv[2])
stream = lb.stream(folder, x=columns())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.perf_counter()
fit = lb.fit(mixture, **stream, method=lb.SVI(batch_size=BATCH, steps=steps))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({
    "before": before / 1024, "after": after / 1024, "seconds": time.perf_counter() - began,
    "rows": int(fit.history.rows[-1]), "steps": fit.history.seconds[-1],
    "held_out": fit.history.held_out[-1], "elbo_error": fit.elbo_error,
}))
"""


def main(arguments: list[str] | None = None) -> None:
    """Write each set, fit it in a fresh process, and compare the peaks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.1, 0.3, 1.0])
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pass", dest="whole", action="store_true", help="one pass over the last")
    options = parser.parse_args(arguments or [])
    root = Path(tempfile.mkdtemp(prefix="lowerbound-", dir=options.folder))
    peaks = []
    try:
        for number, gigabytes in enumerate(options.gigabytes):
            rows = int(gigabytes * 1e9 / (8 * D))
            folder = root / f"{gigabytes:g}"
            size = write(folder, rows)
            print(f"{rows:,} rows, {size / 1e9:.2f} GB", flush=True)
            last = number == len(options.gigabytes) - 1
            steps = -(-rows // BATCH) if options.whole and last else options.steps
            child = CHILD.replace("BATCH", str(BATCH))
            out = subprocess.run(
                [sys.executable, "-c", child, str(folder), str(steps)],
                check=True,
                capture_output=True,
                text=True,
            )
            found = json.loads(out.stdout.splitlines()[-1])
            peaks.append(found["after"])
            print(
                f"  peak {found['after']:.0f} MB ({found['before']:.0f} MB before the fit); "
                f"{found['rows']:,} rows in {found['steps']:.1f} s of steps, fit "
                f"{found['seconds']:.1f} s; held out {found['held_out']:.4f} nats a row",
                flush=True,
            )
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(root)
    print(f"largest / smallest peak: {max(peaks) / min(peaks):.2f}, for sets in the ratio "
          f"{max(options.gigabytes) / min(options.gigabytes):g}")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])

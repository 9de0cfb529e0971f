"""Topics of a corpus ten times larger than the memory that the process may have.

The corpus lies in a temporary folder as .npz files of counts: documents drawn once from latent
Dirichlet allocation, then rotated by another offset in every file. A fresh process sets a limit on
its data (RLIMIT_DATA: beyond it allocations fail), fits one pass, and reports its peak.

    python -m benchmarks.topics_memory [--allowed 0.6] [--times 10]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.timing import verdict
from benchmarks.topics_corpora import synthetic

SHARD = 100_000  # documents in a file
TOPICS = 20

CHILD = """
import json, resource, sys, time
folder, limit = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
from lowerbound.estimators import Inference, LatentDirichletAllocation
began = time.perf_counter()
lda = LatentDirichletAllocation({topics}, inference=Inference(max_passes=1))
lda.fit(folder, progress=False)
print(json.dumps({{
    "seconds": time.perf_counter() - began,
    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "documents": int(lda._run.documents),
    "score": float(lda._run.held_out),
}}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.topics_memory", description=__doc__)
    parser.add_argument("--allowed", type=float, default=0.6, help="GiB of data")
    parser.add_argument("--times", type=float, default=10.0, help="corpus / allowed")
    alone = sys.argv[0].endswith("topics_memory.py")
    options = parser.parse_args(sys.argv[1:] if alone else [])
    allowed = int(options.allowed * 2**30)
    with tempfile.TemporaryDirectory() as folder:
        size, documents = write(Path(folder), int(options.times * allowed))
        print(f"{documents:,} documents, {size / 2**30:.2f} GiB; allowed {options.allowed:g} GiB",
              flush=True)  # fmt: skip
        began = time.perf_counter()
        run = subprocess.run(
            [sys.executable, "-c", CHILD.format(topics=TOPICS), folder, str(allowed)],
            capture_output=True, text=True,
        )  # fmt: skip
        if run.returncode:
            print(f"the fit failed after {time.perf_counter() - began:.0f} s: NOT MET")
            print(run.stderr[-2000:])
            return
        found = json.loads(run.stdout.splitlines()[-1])
    times = size / allowed
    print(f"fitted {found['documents']:,} documents in {found['seconds']:.1f} s, "
          f"{found['documents'] / found['seconds']:,.0f} a second; held out {found['score']:.4f}; "
          f"peak resident {found['peak'] / 2**20:.0f} MB")  # fmt: skip
    print(f"corpus / allowed memory: {times:.2f}; {verdict(times, 10, at_most=False)}", flush=True)


def write(folder: Path, size: int) -> tuple[int, int]:
    """Files of at least `size` bytes in all; their bytes and documents."""
    counts = synthetic(SHARD, 5000, TOPICS, 60).train
    written, number = 0, 0
    while written < size:
        cut = (number * 7919) % SHARD
        part = sp.vstack([counts[cut:], counts[:cut]]).tocsr()
        part = sp.csr_matrix(
            (part.data.astype(np.float32), part.indices.astype(np.int32), part.indptr),
            shape=part.shape,
        )
        path = folder / f"part_{number:05d}.npz"
        sp.save_npz(path, part, compressed=False)
        written += path.stat().st_size
        number += 1
    return written, number * SHARD


if __name__ == "__main__":
    main()

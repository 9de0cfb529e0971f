"""Write a Parquet set of the rows of a mixture, of any size, a piece at a time.

python -m benchmarks.parquet_set FOLDER [--gigabytes 10]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from benchmarks.large_mixture import D, K

GROUP = 131_072  # rows of a row group
GROUPS = 16  # row groups of a file: about 270 MB


def write(folder: Path, rows: int, seed: int = 0) -> int:
    """Write so many rows as float64 columns x0, x1, ...; the number of bytes on disk."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(K, D)) * 1.2
    scales = rng.gamma(20.0, 1 / 20.0, size=(K, D))
    weights = rng.dirichlet(np.full(K, 5.0))
    schema = pa.schema([(f"x{d}", pa.float64()) for d in range(D)])
    size = written = 0
    for number in range(-(-rows // (GROUP * GROUPS))):
        path = folder / f"part-{number:04d}.parquet"
        # Random numbers do not compress.
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
            for _ in range(GROUPS):
                count = min(GROUP, rows - written)
                if count <= 0:
                    break
                z = rng.choice(K, size=count, p=weights)
                x = centres[z] + scales[z] * rng.standard_normal((count, D))
                columns = [pa.array(np.ascontiguousarray(x[:, d])) for d in range(D)]
                file.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=GROUP)
                written += count
        size += path.stat().st_size
    return size


def columns() -> list[str]:
    """The names of the columns."""
    return [f"x{d}" for d in range(D)]


def main(arguments: list[str] | None = None) -> None:
    """Write the set and say how large it is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    options = parser.parse_args(arguments)
    rows = int(options.gigabytes * 1e9 / (8 * D))
    size = write(options.folder, rows)
    print(f"{rows:,} rows of {D} columns in {options.folder}: {size / 1e9:.2f} GB")


if __name__ == "__main__":
    main(sys.argv[1:])

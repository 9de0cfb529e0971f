"""Which files a path stands for, and what reads Parquet."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from lowerbound.errors import PathError
from lowerbound.errors.storage import needed


def file_paths(source: Any, kinds: Collection[str], error: type[PathError]) -> list[Path]:
    """The files of a path or a list of paths; those of a folder at any depth, sorted by name."""
    given = [source] if isinstance(source, str | os.PathLike) else source
    paths: list[Path] = []
    for path in map(Path, given):
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix in kinds and p.is_file())
            if not inside:
                raise error.empty_folder(str(path))
            paths += inside
        elif path.exists():
            paths.append(path)
        else:
            raise error.no_file(str(path))
    return paths


def pyarrow() -> Any:
    """Pyarrow with what reads Parquet, or an error that says how to install it."""
    with needed("Reading Parquet files needs pyarrow", "stream"):
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
        import pyarrow.types
    return pyarrow

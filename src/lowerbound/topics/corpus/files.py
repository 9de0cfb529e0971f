"""Corpora in files: sparse counts of SciPy, a shard at a time."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lowerbound.errors import CorpusFileError
from lowerbound.errors.wording import first_line, quoted
from lowerbound.source.files_read import file_paths
from lowerbound.topics.corpus.counts import from_sparse, require_width
from lowerbound.topics.corpus.parquet_corpus import stream_parquet
from lowerbound.topics.corpus.streams import Stream
from lowerbound.topics.corpus.tally import Tally
from lowerbound.topics.corpus.vocabulary import Vocabulary
from lowerbound.topics.documents import Documents

KINDS = (".npz", ".parquet")


def is_paths(source: Any) -> bool:
    """Whether a source is a path or a list of paths: a string is one if it names a file or could.

    Other strings are text.
    """
    if isinstance(source, list | tuple):
        return (
            len(source) > 0
            and all(isinstance(s, str | os.PathLike) for s in source)
            and all(is_paths(path) for path in source)
        )
    if isinstance(source, os.PathLike):
        return True
    return isinstance(source, str) and (source.endswith(KINDS) or os.path.isdir(source))


def stream_files(source: Any, known: Vocabulary | None, what: str) -> Stream:
    """Files in the order given, those of a folder sorted by name."""
    paths = file_paths(source, KINDS, CorpusFileError)
    suffix = paths[0].suffix
    for path in paths:
        if path.suffix not in KINDS:
            raise CorpusFileError.other_kind(str(path))
        if path.suffix != suffix:
            raise CorpusFileError.two_kinds(str(paths[0]), str(path))
    if suffix == ".parquet":
        return stream_parquet(paths, known, what)
    return _stream_npz(paths, known, what)


def _stream_npz(paths: list[Path], known: Vocabulary | None, what: str) -> Stream:
    shapes = [_shape(path) for path in paths]
    width = shapes[0][1]
    for path, (_, found) in zip(paths, shapes, strict=True):
        if found != width:
            raise CorpusFileError.widths(str(paths[0]), width, str(path), found)
    words = known or Vocabulary(width)
    require_width((sum(rows for rows, _ in shapes), width), known, what)

    def read(size: int, tally: Tally) -> Iterator[Documents]:
        for path in paths:
            yield from_sparse(_load(path), words, tally)

    return Stream(words, sum(rows for rows, _ in shapes), read)


def _shape(path: Path) -> tuple[int, int]:
    """The shape of a sparse matrix, without reading its entries."""
    if not zipfile.is_zipfile(path):
        raise CorpusFileError.unreadable(str(path), "it is not an archive of arrays")
    try:
        with np.load(path, allow_pickle=False) as file:
            if not {"format", "shape"} <= set(file.files):
                held = f"its arrays are {quoted(file.files)}"
                raise CorpusFileError.unreadable(str(path), held)
            rows, columns = (int(n) for n in file["shape"])
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise CorpusFileError.unreadable(str(path), first_line(error)) from error
    except ValueError as error:
        if isinstance(error, CorpusFileError):
            raise
        raise CorpusFileError.unreadable(str(path), first_line(error)) from error
    return rows, columns


def _load(path: Path) -> Any:
    from scipy.sparse import load_npz

    try:
        return load_npz(path)  # it refuses pickled objects
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise CorpusFileError.unreadable(str(path), first_line(error)) from error

"""Matrices of counts as documents: sparse in any format, dense, or named by columns."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from lowerbound.errors import CorpusError, CorpusTypeError, CountError, VocabularyError
from lowerbound.model.inputs.leaves import (
    column_array,
    column_names,
    table_columns,
    whole_array,
)
from lowerbound.topics.corpus.tally import Tally
from lowerbound.topics.corpus.vocabulary import Vocabulary, named
from lowerbound.topics.documents import Documents

WORDS: Final = 2**31 - 1  # numbers of words are int32
LARGEST: Final = 2**24  # float32 holds every whole number up to here
DENSE: Final = 50_000_000  # numbers of a dense array


def from_sparse(matrix: Any, known: Vocabulary | None, tally: Tally) -> Documents:
    """The rows of a SciPy sparse matrix; arrays of the right types are not copied."""
    from scipy.sparse import coo_array

    what = tally.what
    if matrix.ndim != 2:
        raise CorpusError.one_dimension(what, matrix.shape)
    require_real(matrix.dtype, what)
    require_width(matrix.shape, known, what)
    rows = matrix
    if matrix.format == "coo":
        # Conversion sums duplicates in the type of the data, which may be 8 bits wide.
        rows = coo_array((matrix.data.astype(float), matrix.coords), shape=matrix.shape)
    rows = rows.tocsr()
    return from_rows(rows.indptr, rows.indices, rows.data, rows.shape, known, tally)


def from_documents(documents: Documents, known: Vocabulary | None, tally: Tally) -> Documents:
    """Documents, checked."""
    shape = (len(documents), documents.vocabulary)
    require_width(shape, known, tally.what)
    return from_rows(documents.starts, documents.words, documents.counts, shape, known, tally)


def from_rows(
    starts: np.ndarray,
    words: np.ndarray,
    counts: np.ndarray,
    shape: tuple[int, ...],
    known: Vocabulary | None,
    tally: Tally,
) -> Documents:
    """Compressed sparse rows, put in order and checked; the arrays given are not changed."""
    from scipy.sparse import csr_array

    try:
        # A new object: flags that SciPy keeps ("sorted", "no duplicates") may be out of date.
        rows = csr_array((counts, *_narrow(words, starts, shape)), shape=shape)
        rows.check_format(full_check=True)
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise CorpusError.not_valid(tally.what, reason) from error
    if not rows.has_canonical_format:
        arrays = (rows.data.astype(float), rows.indices.copy(), rows.indptr.copy())
        rows = csr_array(arrays, shape=shape)
        rows.sum_duplicates()
    _require_counts(rows, known, tally)
    if rows.nnz and rows.data.min() == 0:
        rows = rows.copy()
        rows.eliminate_zeros()
    return Documents(
        rows.indptr.astype(np.int64, copy=False),
        rows.indices.astype(np.int32, copy=False),
        rows.data.astype(np.float32, copy=False),
        int(shape[1]),
    )


def _narrow(
    words: np.ndarray, starts: np.ndarray, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Both as int32 if that holds them: SciPy brings them to one type, and ours is int32."""
    if len(words) > WORDS:
        return words, starts
    if words.dtype != np.int32 and len(words) and words.max() >= shape[1]:
        raise ValueError(f"column index {words.max()} is not below {shape[1]}")
    return words.astype(np.int32, copy=False), starts.astype(np.int32, copy=False)


def grouped(
    sizes: np.ndarray, words: np.ndarray, counts: np.ndarray, known: Vocabulary, tally: Tally
) -> Documents:
    """Documents with these words and counts one after another; `sizes` of them are of each."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return from_rows(starts, words, counts, (len(sizes), known.size), known, tally)


def from_dense(array: Any, known: Vocabulary | None, tally: Tally) -> Documents:
    """The rows of a 2-D array."""
    from scipy.sparse import csr_array

    what = tally.what
    if np.ma.is_masked(array):
        raise CorpusError.masked(what, int(np.ma.getmaskarray(array).sum()))
    array = np.asarray(array)
    if array.ndim != 2:
        raise CorpusError.one_dimension(what, array.shape)
    _require_small(array.shape, what)
    if array.dtype == object:
        try:
            array = array.astype(float)
        except (TypeError, ValueError) as error:
            raise CorpusTypeError.of_numbers(what, "object", str(error)) from error
    require_real(array.dtype, what)
    if array.dtype.kind == "f" and array.dtype not in (np.float32, np.float64):
        array = array.astype(float)  # SciPy has no sparse arrays of the others
    return from_sparse(csr_array(array), known, tally)


def from_frame(
    frame: Any, known: Vocabulary | None, tally: Tally
) -> tuple[Documents, Vocabulary | None]:
    """The rows of a data frame whose columns are words.

    Where both the columns and the known words have names, columns are put in their places by name;
    words without a column do not occur.
    """
    what = tally.what
    _require_small(frame.shape, what)
    names = column_names(frame)
    own = None
    if names and all(isinstance(name, str) for name in names):
        own = named(names, f"the columns of {what}")
    if known is None or own is None or known.words is None:
        return _frame_counts(frame, known or own, tally), known or own
    overlap = any(name in known.index for name in names)
    if not overlap and known.fitted:
        raise VocabularyError.no_overlap(what, names, known.words[:6].tolist())
    if not overlap or names == tuple(known.words):
        return _frame_counts(frame, known, tally), known
    found = _frame_counts(frame, own, tally)
    numbers = np.array([known.index.get(name, -1) for name in names])
    words = numbers[found.words]
    keep = words >= 0
    left_out = np.bincount(found.words[~keep], weights=found.counts[~keep], minlength=len(names))
    tally.leave_out(int(left_out.sum()), (names[i] for i in np.flatnonzero(left_out)))
    kept = np.concatenate([[0], np.cumsum(keep)])
    sizes = np.diff(kept[found.starts])
    return grouped(sizes, words[keep], found.counts[keep], known, tally), known


def _frame_counts(frame: Any, known: Vocabulary | None, tally: Tally) -> Documents:
    dtypes = list(frame.dtypes) if hasattr(frame, "dtypes") else []
    if dtypes and all(hasattr(dtype, "fill_value") for dtype in dtypes):
        return from_sparse(frame.sparse.to_coo(), known, tally)
    try:
        return from_dense(whole_array(frame), known, tally)
    except CorpusTypeError:
        for name, column in zip(column_names(frame), table_columns(frame), strict=True):
            dtype = column_array(column).dtype
            if dtype.kind not in "biuf":
                raise CorpusTypeError.of_column(tally.what, name, str(dtype)) from None
        raise


def require_real(dtype: np.dtype[Any], what: str) -> None:
    """Raise unless the type is one of real numbers."""
    if dtype.kind not in "biuf":
        raise CorpusTypeError.of_numbers(what, str(dtype))


def _require_small(shape: tuple[int, ...], what: str) -> None:
    if shape[0] * shape[1] > DENSE:
        raise CorpusError.too_dense(what, shape, DENSE)


def require_width(shape: tuple[int, ...], known: Vocabulary | None, what: str) -> None:
    """Raise unless a matrix has one column for each word."""
    if known is not None and shape[1] != known.size:
        raise VocabularyError.width(what, shape[1], known.size, fitted=known.fitted)
    if shape[1] == 0:
        raise CorpusError.no_columns(what, shape[0])
    if shape[1] > WORDS:
        raise VocabularyError.too_many(what, shape[1] - 1)


def _require_counts(rows: Any, known: Vocabulary | None, tally: Tally) -> None:
    """Raise at the first entry that is not a whole number from 0 to 2^24."""
    data = rows.data
    if len(data) == 0:
        return
    whole = data.dtype.kind in "biu" or bool(np.all(np.trunc(data) == data))
    if whole and data.min() >= 0 and data.max() <= LARGEST:
        return
    bad = ~((data >= 0) & (data <= LARGEST) & (np.trunc(data) == data))
    place = int(np.argmax(bad))
    row = int(np.searchsorted(rows.indptr, place, side="right")) - 1
    word, value = int(rows.indices[place]), float(data[place])
    # Only entries with the same fault are counted along.
    alike = (
        np.isnan(data)
        if np.isnan(value)
        else np.isinf(data)
        if np.isinf(value)
        else data < 0
        if value < 0
        else data > LARGEST
        if value > LARGEST
        else bad & (data > 0) & (data < LARGEST)
    )
    name = None if known is None else known.name(word)
    number = tally.documents + row
    more = int(np.count_nonzero(alike)) - 1
    raise CountError(tally.what, number, word, name, value, more, LARGEST)

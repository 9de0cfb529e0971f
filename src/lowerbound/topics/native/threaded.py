"""The compiled engine: topics on CPU, by threads, with numbers in NumPy arrays."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Unpack

import numpy as np

from lowerbound.topics.documents import Documents
from lowerbound.topics.inference_steps import BY_DEFAULT, How, Local, Rule
from lowerbound.topics.native import library

RULES: Final[dict[Rule, int]] = {"mean field": 0, "collapsed": 1, "mean": 2}
RECOUNT: Final = 50  # sweeps after which rounding is swept out of the counts
SETTLE: Final = (20, 1e-2)  # iterations and tolerance when phi first follows from given topics


class ByWord(NamedTuple):
    """The entries of a batch in the order of their words."""

    words: np.ndarray  # (distinct,) int32: words that occur
    starts: np.ndarray  # (distinct + 1,) int64
    places: np.ndarray  # (entries,) int64: place in the documents' arrays
    owners: np.ndarray  # (entries,) int32: document


class Weights(NamedTuple):
    """B by word; a row of the mean-field rule is exp(offset) times the one held."""

    rows: np.ndarray  # (V, K)
    offsets: np.ndarray  # (V,)


class Batch(NamedTuple):
    """Documents, by document and by word."""

    documents: Documents
    by_word: ByWord


@dataclass(eq=False)
class Assigned:
    """CVB0 with phi of every entry in memory; a sweep changes the arrays in place."""

    batch: Batch
    topics: int
    phi: np.ndarray  # (entries, width): upper halves of float32, or float64
    by_document: np.ndarray  # (D, width)
    by_word: np.ndarray  # (V, width)
    by_topic: np.ndarray  # (width,) float64
    tables: np.ndarray  # (threads, V, width), scratch
    sweeps: int = 0


@dataclass(frozen=True)
class NativeEngine:
    """The engine on CPU; `threads` share the documents of each call."""

    precision: str = "float32"
    threads: int = 1
    name = "native"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numbers of weights and proportions; sums are in float64."""
        return np.dtype(self.precision)

    def _call(self, name: str, *arguments: Any) -> None:
        _kernel(name, "f32" if self.precision == "float32" else "f64")(*map(_plain, arguments))

    def width(self, topics: int) -> int:
        """Rows of topics are padded to whole vectors of 64 bytes."""
        lanes = 64 // self.dtype.itemsize
        return -(-topics // lanes) * lanes

    def _padded(self, array: np.ndarray, dtype: Any) -> np.ndarray:
        """The rows of an array followed by zeros; as it is, where it is already so."""
        topics, width = array.shape[-1], self.width(array.shape[-1])
        base = array.base
        if (
            isinstance(base, np.ndarray)
            and array.dtype == dtype
            and base.shape == (len(array), width)
            and base.ctypes.data == array.ctypes.data
        ):
            return base
        padded = _zeros((*array.shape[:-1], width), dtype)
        padded[..., :topics] = array
        return padded

    def alone(self) -> NativeEngine:
        """On one thread: those of collapsed steps have sums of their own."""
        return replace(self, threads=1)

    def place(self, topics: np.ndarray) -> Any:
        """Lambda in float64, padded; the view without the padding."""
        return self._padded(np.asarray(topics, float), np.float64)[:, : topics.shape[1]]

    def fetch(self, array: Any) -> np.ndarray:
        """A copy without the padding."""
        return np.array(array, dtype=float)

    def pack(self, documents: Documents) -> Batch:
        """Sort the entries by word."""
        plain = Documents(
            np.ascontiguousarray(documents.starts, np.int64),
            np.ascontiguousarray(documents.words, np.int32),
            np.ascontiguousarray(documents.counts, np.float32),
            documents.vocabulary,
        )
        entries, V = len(plain.words), plain.vocabulary
        words, starts = np.empty(min(V, entries), np.int32), np.empty(min(V, entries) + 1, np.int64)
        places, owners = np.empty(entries, np.int64), np.empty(entries, np.int32)
        transpose = _kernel("transpose", "any")
        transpose.restype = ctypes.c_int64
        arguments = (*_counts(plain), _i64(V), words, starts, places, owners)
        distinct = transpose(*map(_plain, arguments))
        return Batch(plain, ByWord(words[:distinct], starts[: distinct + 1], places, owners))

    def weights(self, topics: Any, rule: Rule) -> Any:
        """B (V, K) in the engine's precision."""
        V, K = topics.shape
        padded = self._padded(topics, np.float64)
        rows, offsets = _zeros((V, padded.shape[1]), self.dtype), np.zeros(V)
        self._call(
            "weigh", padded, rows, offsets, _i64(V), K, padded.shape[1], RULES[rule], self.threads
        )  # fmt: skip
        return Weights(rows[:, :K], offsets)

    def local(
        self,
        weights: Weights,
        batch: Batch,
        prior: np.ndarray,
        start: Any = None,
        *,
        statistics: bool = True,
        **how: Unpack[How],
    ) -> Local:
        """Gamma and statistics of the batch; without `statistics`, gamma and the bound alone."""
        documents, chosen = batch.documents, BY_DEFAULT | how
        rule = chosen["rule"]
        V, K = weights.rows.shape
        width = self.width(K)
        alpha = self._padded(np.asarray(prior, float), self.dtype)
        if start is None:
            even = documents.lengths[:, None] / K
            gamma = _zeros((len(documents), width), self.dtype)
            gamma[:, :K] = alpha[:K] + even
        else:
            gamma = self._padded(np.array(start, dtype=self.dtype), self.dtype)
        sums = _zeros((V, width), np.float64) if statistics else None
        private = statistics and rule == "collapsed"
        tables = _tables(self.threads * V * width) if private else None
        bounds = np.zeros(len(documents))
        used = np.zeros(len(documents), np.int32)
        self._call(
            "local", *_counts(documents), _i64(len(batch.by_word.words)), *batch.by_word,
            self._padded(weights.rows, self.dtype), weights.offsets, alpha, gamma, sums,
            tables, bounds, used, _i64(V), K, width, RULES[rule], chosen["iterations"],
            ctypes.c_double(chosen["tolerance"]), self.threads,
        )  # fmt: skip
        return Local(
            gamma[:, :K],
            None if sums is None else sums[:, :K],
            float(bounds.sum()),
            float(used.mean()) if len(used) else 0.0,
        )

    def blend(
        self, topics: Any, statistics: Any, prior: np.ndarray, step: float, scale: float
    ) -> Any:
        """The natural-gradient step on lambda, in float64; `statistics` are used up."""
        V, K = topics.shape
        blended = self._padded(statistics, np.float64)
        eta = np.ascontiguousarray(np.broadcast_to(prior, V), float)
        arguments = (
            self._padded(topics, np.float64), blended, eta, ctypes.c_double(step),
            ctypes.c_double(scale), _i64(V), K, blended.shape[1], self.threads,
        )  # fmt: skip
        _kernel("blend", "any")(*map(_plain, arguments))
        return blended[:, :K]

    def assign(self, documents: Documents, weights: Weights, prior: np.ndarray) -> Assigned:
        """Phi of every entry given the topics, and the counts that follow."""
        batch = self.pack(documents)
        V, K = weights.rows.shape
        width = self.width(K)
        stored = np.uint16 if self.precision == "float32" else np.float64
        assigned = Assigned(
            batch,
            K,
            np.empty((len(documents.words), width), stored),
            _zeros((len(documents), width), self.dtype),
            _zeros((V, width), self.dtype),
            np.zeros(width),
            _zeros((self.threads if self.threads > 1 else 0, V, width), self.dtype),
        )
        iterations, tolerance = SETTLE
        self._call(
            "settle", *_counts(batch.documents), assigned.phi,
            self._padded(weights.rows, self.dtype),
            self._padded(np.asarray(prior, float), self.dtype), K, width, iterations,
            ctypes.c_double(tolerance), self.threads,
        )  # fmt: skip
        self._recount(assigned)
        return assigned

    def reassign(self, assigned: Assigned, prior: np.ndarray, eta: np.ndarray) -> Assigned:
        """One sweep of CVB0, every thread with its own part of the documents."""
        V = assigned.batch.documents.vocabulary
        whole = np.ascontiguousarray(np.broadcast_to(eta, V), self.dtype)
        self._call(
            "sweep", *_counts(assigned.batch.documents), assigned.phi, assigned.by_document,
            assigned.by_word, assigned.by_topic, assigned.tables,
            self._padded(np.asarray(prior, float), self.dtype), whole,
            ctypes.c_double(float(whole.sum(dtype=float))), _i64(V),
            assigned.phi.shape[1], self.threads,
        )  # fmt: skip
        assigned.sweeps += 1
        if assigned.sweeps % RECOUNT == 0:
            self._recount(assigned)
        return assigned

    def _recount(self, assigned: Assigned) -> None:
        batch = assigned.batch
        self._call(
            "recount", *_counts(batch.documents), _i64(len(batch.by_word.words)), *batch.by_word,
            assigned.phi, assigned.by_document, assigned.by_word, assigned.by_topic,
            _i64(batch.documents.vocabulary), assigned.phi.shape[1], self.threads,
        )  # fmt: skip

    def word_counts(self, assigned: Assigned) -> np.ndarray:
        """N_wk (V, K)."""
        return np.array(assigned.by_word[:, : assigned.topics], float)

    def document_counts(self, assigned: Assigned) -> np.ndarray:
        """N_dk (D, K)."""
        return np.array(assigned.by_document[:, : assigned.topics], float)

    def responsibilities(self, assigned: Assigned) -> np.ndarray:
        """Phi of every entry (entries, K), as float64."""
        phi = assigned.phi[:, : assigned.topics]
        if phi.dtype == np.float64:
            return np.array(phi)
        return (phi.astype(np.uint32) << 16).view(np.float32).astype(float)


def _kernel(name: str, kind: str) -> Any:
    found = library()
    assert found is not None, "the compiled kernel is not built"
    kernels, variant = found
    return getattr(kernels, f"{name}_{kind}_{variant}")


_SCRATCH = threading.local()


def _tables(size: int) -> np.ndarray:
    """Zeros that a thread's calls of the kernel share; each leaves them zero.

    Fresh memory costs a fault for every page, which is more than the sums themselves.
    """
    held: np.ndarray | None = getattr(_SCRATCH, "tables", None)
    if held is None or len(held) != size:
        held = _SCRATCH.tables = np.zeros(size)
    return held


def _zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.zeros(shape, dtype)


def _counts(documents: Documents) -> tuple[Any, ...]:
    return (
        _i64(len(documents)),
        documents.starts,
        documents.words,
        documents.counts,
    )


def _i64(value: int) -> ctypes.c_int64:
    return ctypes.c_int64(value)


def _plain(argument: Any) -> Any:
    """Arrays as pointers; everything else as ctypes takes it."""
    if argument is None:
        return ctypes.c_void_p(None)
    if isinstance(argument, np.ndarray):
        assert argument.flags.c_contiguous, "arrays of the kernel are contiguous"
        return argument.ctypes.data_as(ctypes.c_void_p)
    return argument

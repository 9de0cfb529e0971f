"""The data of a model call as rows that are read a minibatch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jax.tree_util import PyTreeDef

from lowerbound.errors import ArgumentError, RowError, StreamError
from lowerbound.model.inputs.arguments import named_leaves, put_back
from lowerbound.model.inputs.leaves import Column, is_data, is_label
from lowerbound.source.arrays import Rows, open_rows

Batch = dict[str, np.ndarray]


class Source(Protocol):
    """The rows of some arguments of a call, all of the same number."""

    @property
    def total(self) -> int:
        """The number of rows."""

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments whose rows these are."""

    @property
    def random_access(self) -> bool:
        """Whether it gives any rows asked for (`Indexed`), or decides their order (`Ordered`)."""


@runtime_checkable
class Indexed(Source, Protocol):
    """A source that reads any rows."""

    def take(self, index: np.ndarray) -> Batch:
        """The rows of these numbers."""


@dataclass(frozen=True)
class Order:
    """What decides the order in which a source without random access gives its rows."""

    seed: int
    held_out: int
    share: int  # rows per batch of one process
    part: tuple[int, int]


@runtime_checkable
class Ordered(Source, Protocol):
    """A source that decides the order of its rows itself."""

    def accept(self, order: Order) -> None:
        """Raise unless the rows can be given in this order."""

    def read(self, order: Order, start: int, counts: Iterable[int]) -> Iterator[Batch]:
        """The next `counts` rows, one count after another, of an endless sequence of epochs.

        The sequence starts at its row number `start`, counting the rows of one process.
        """

    def held_out(self, order: Order) -> Batch:
        """The rows set aside."""

    def lap(self, order: Order) -> Iterator[Batch]:
        """All rows of one process that are not set aside, once, `order.share` at a time."""

    def lap_sizes(self, order: Order) -> np.ndarray:
        """The number of rows in each batch of a lap, those of all processes together."""


def batch_sizes(total: int, size: int) -> np.ndarray:
    """The lengths of batches of `size` rows that make up `total`; the last may be shorter."""
    return np.minimum(size, total - np.arange(0, total, size))


@dataclass(frozen=True)
class Streamed:
    """The rows of some arguments, the `chosen` columns, as one reader gives them."""

    reader: Any
    chosen: dict[str, Column]
    random_access: bool = field(default=False, init=False)

    @property
    def total(self) -> int:
        """The number of rows of one pass."""
        total: int = self.reader.total
        return total

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments whose rows these are."""
        return tuple(self.chosen)


@dataclass(frozen=True)
class ArraySource:
    """The rows of arguments in memory."""

    rows: tuple[Rows, ...]
    random_access: bool = field(default=True, init=False)

    @property
    def total(self) -> int:
        """The number of rows."""
        return self.rows[0].shape[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments whose rows these are."""
        return tuple(rows.name for rows in self.rows)

    def take(self, index: np.ndarray) -> Batch:
        """The rows of these numbers, which are finite."""
        batch = {rows.name: rows.take(index) for rows in self.rows}
        for rows in self.rows:
            bad = not_finite(batch[rows.name])
            if bad is not None:
                where = (int(index[bad[0]]), *bad[1:])
                value = float(batch[rows.name][bad])
                raise RowError.of_argument(rows.name, where, value, rows.shape)
        return batch


def not_finite(rows: np.ndarray) -> tuple[int, ...] | None:
    """The place of the first NaN or infinite entry that is not masked; None without one."""
    if rows.dtype.kind != "f":
        return None
    values = np.ma.getdata(rows)
    # The sum is finite unless an entry is not (or it overflows): one pass, and no array of flags.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.add.reduce(values, axis=None)):
            return None
    bad = ~np.isfinite(values)
    if isinstance(rows, np.ma.MaskedArray):
        bad &= ~np.ma.getmaskarray(rows)
    first = int(np.argmax(bad))
    if not bad.flat[first]:
        return None
    return tuple(int(i) for i in np.unravel_index(first, bad.shape))


@dataclass(frozen=True)
class Call:
    """A model call whose data are read row by row.

    `lengths` gives the number of rows of every data argument, `masked` names those that are
    `numpy.ma` arrays.
    """

    lengths: dict[str, int]
    masked: frozenset[str]
    data: dict[str, Rows | Column] = field(repr=False)
    names: tuple[str | None, ...] = field(repr=False)
    leaves: tuple[Any, ...] = field(repr=False)
    structure: PyTreeDef = field(repr=False)

    def outline(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call with every data argument made of copies of its first row, without the memory."""
        return self._call({name: self._outline(name) for name in self.data})

    def put(self, rows: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call with these rows in place of their arguments, and the other arguments whole."""
        data = dict(rows)
        for name, leaf in self.data.items():
            if name in data:
                continue
            if isinstance(leaf, Column):
                raise StreamError.other_rows(name, leaf.reader.total, tuple(rows))
            data[name] = leaf.whole()
        return self._call(data)

    def source(self, names: Sequence[str]) -> Source:
        """The rows of these arguments, which have the same length."""
        leaves = [self.data[name] for name in names]
        arrays = tuple(leaf for leaf in leaves if isinstance(leaf, Rows))
        if len(arrays) == len(leaves):
            return ArraySource(arrays)
        streams = {name: leaf for name, leaf in self.data.items() if isinstance(leaf, Column)}
        chosen = {name: streams[name] for name in names if name in streams}
        readers = {id(column.reader): column.reader for column in chosen.values()}
        if len(arrays) or len(readers) > 1:
            raise ArgumentError(
                "The minibatches would come from several sources: "
                f"{', '.join(_describe(name, self.data[name]) for name in names)}.\n"
                "Expected arrays alone, or the columns of one lb.stream. Put all arguments that "
                "have one row per observation into one stream."
            )
        (reader,) = readers.values()
        source: Source = reader.source(chosen)
        return source

    def _outline(self, name: str) -> np.ndarray:
        leaf = self.data[name]
        first = leaf.first() if isinstance(leaf, Rows) else leaf.reader.first(leaf)
        if first.dtype.kind == "f":  # in the precision of a trace, which would else copy it whole
            first = first.astype(np.float64)
        outline = np.broadcast_to(first, (self.lengths[name], *first.shape))
        if name not in self.masked:
            return outline
        mask = np.broadcast_to(np.False_, outline.shape)
        masked: np.ndarray = np.ma.MaskedArray(outline, mask=mask)
        return masked

    def _call(self, data: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return put_back(data, self.names, self.leaves, self.structure)


def open_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Call:
    """Find the data among the arguments of `function(*args, **kwargs)` without reading them."""
    flat, structure, _ = named_leaves(function, args, kwargs)
    data: dict[str, Rows | Column] = {}
    names: list[str | None] = []
    leaves: list[Any] = []
    for name, leaf in flat:
        if not is_data(leaf):
            if isinstance(leaf, Iterator):
                raise StreamError.used_up(type(leaf).__name__, name)
            names.append(None)
            leaves.append(leaf)
            continue
        names.append(name)
        leaves.append(None)
        data[name] = _open(name, leaf)
    lengths = {
        name: leaf.shape[0] if isinstance(leaf, Rows) else leaf.reader.total
        for name, leaf in data.items()
    }
    for name, leaf in flat:
        if is_label(leaf) and (not data or len(leaf) in lengths.values()):
            open_rows(name, leaf)  # text is no constant where each row has its own: refused
    masked = frozenset(
        name
        for name, leaf in data.items()
        if (leaf.masked if isinstance(leaf, Rows) else leaf.reader.masked(leaf))
    )
    return Call(lengths, masked, data, tuple(names), tuple(leaves), structure)


def _open(name: str, leaf: Any) -> Rows | Column:
    if not isinstance(leaf, Column):
        return open_rows(name, leaf)
    opened: Rows | Column = leaf.reader.open(name, leaf)
    return opened


def _describe(name: str, leaf: Rows | Column) -> str:
    if isinstance(leaf, Rows):
        return f"'{name}' is an array"
    return f"'{name}' comes from {leaf.reader.label}"

"""Rows of Parquet files, shuffled without ever holding them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from lowerbound.errors import RowError, StreamError
from lowerbound.errors.wording import first_line
from lowerbound.model.inputs.leaves import Column
from lowerbound.source.arrays import row_dtype
from lowerbound.source.call import Batch, Order, Streamed, not_finite
from lowerbound.source.files_read import file_paths, pyarrow
from lowerbound.source.lanes import WINDOW, Lane, Piece, divide, lap_counts, pieces, skip
from lowerbound.source.regroup import Cutter, length, regroup

# Purposes of random numbers, beside those of batches.py: a key is (seed, purpose, lane, ...).
RUNS, PIECES, SHUFFLE = 4, 5, 6
STRIP = 1024
READ = 16_384  # rows decoded at a time
BUFFER = 1 << 16  # bytes of each column chunk read at a time, whatever the size of the row group


@dataclass(frozen=True)
class ParquetReader:
    """Parquet files with the same columns; `starts` are the first rows of all row groups."""

    paths: tuple[Path, ...]
    total: int
    label: str
    dtypes: dict[str, np.dtype[Any]]
    metadata: tuple[Any, ...] = field(repr=False)
    groups: tuple[tuple[int, int], ...] = field(repr=False)  # (file, row group in the file)
    starts: np.ndarray = field(repr=False)

    def open(self, name: str, column: Column) -> Column:
        """The column itself: types were checked when the files were opened."""
        return column

    def masked(self, column: Column) -> bool:
        """Parquet rows have no masks: nulls are errors."""
        return False

    def dtype(self, column: Column) -> np.dtype[Any]:
        """The type of the rows of an argument."""
        found = np.result_type(*[self.dtypes[name] for name in column.columns])
        return row_dtype(column.columns[0], found, (self.total,))

    def first(self, column: Column) -> np.ndarray:
        """The first row."""
        (piece,) = pieces([(0, 1)], self.starts)
        block = next(self.source({"row": column}).rows([piece]))
        return np.asarray(block["row"][0])

    def source(self, chosen: Mapping[str, Column]) -> ParquetSource:
        """The rows of these arguments."""
        return ParquetSource(self, dict(chosen))


@dataclass(frozen=True)
class ParquetSource(Streamed):
    """The rows of some arguments in Parquet files.

    Each process reads its own lanes (`lanes.divide`). In every epoch the row-group pieces of a lane
    come in a new random order, and rows are shuffled within windows.
    """

    reader: ParquetReader

    def accept(self, order: Order) -> None:
        """Any order that `Batches` allows can be given."""

    def read(self, order: Order, start: int, counts: Iterable[int]) -> Iterator[Batch]:
        """The next `counts` rows: row g of a process comes from lane g mod (its lanes).

        Where the lanes divide a batch, the rows of each stand together in it: then a batch is the
        same, in the same order, for any number of processes that divides that of the lanes.
        """
        lanes = self._own(order)
        width = len(lanes)
        # Of the rows 0 .. g-1, lane i gave (g - i) / width, rounded up.
        cutters = [
            Cutter(self._shuffled(order, lane, -((i - start) // width), width))
            for i, lane in enumerate(lanes)
        ]
        for count in counts:
            out = self._empty(count)
            for i, cutter in enumerate(cutters):
                place = np.arange((i - start) % width, count, width)
                if order.share % width == start % order.share == count % order.share == 0:
                    place = np.arange(count).reshape(-1, width, order.share // width)[:, i].ravel()
                if len(place):
                    block = cutter.take(len(place))
                    for name, array in out.items():
                        array[place] = block[name]
            start += count
            yield out

    def held_out(self, order: Order) -> Batch:
        """The rows set aside, of all lanes."""
        aside = [run for lane in self._lanes(order) for run in lane.aside]
        blocks = self.rows(pieces(aside, self.reader.starts))
        return next(regroup(blocks, [order.held_out]), self._empty(0))

    def lap(self, order: Order) -> Iterator[Batch]:
        """The rows of the process's lanes, each in the order of the files, from all in turn."""
        own = self._own(order)
        cutters = [Cutter(self.rows(self._pieces(lane.drawn))) for lane in own]
        for counts in self._lap_counts(order)[:, [lane.number for lane in own]]:
            out, low = self._empty(int(counts.sum())), 0
            for cutter, count in zip(cutters, counts.tolist(), strict=True):
                if count:
                    block = cutter.take(count)
                    for name, array in out.items():
                        array[low : low + count] = block[name]
                    low += count
            yield out

    def lap_sizes(self, order: Order) -> np.ndarray:
        """The number of rows in each batch of a lap, those of all processes together."""
        sizes: np.ndarray = self._lap_counts(order).sum(axis=1)
        return sizes

    def _lap_counts(self, order: Order) -> np.ndarray:
        return lap_counts(self._lanes(order), order.part[1], order.share)

    def rows(self, ordered: Iterable[Piece]) -> Iterator[Batch]:
        """The rows of these pieces, a few thousand at a time."""
        names = tuple(dict.fromkeys(n for c in self.chosen.values() for n in c.columns))
        for piece in ordered:
            for columns in _piece_columns(self.reader, piece, names):
                block = self._empty(len(columns[names[0]]))
                for argument, column in self.chosen.items():
                    if column.single:
                        block[argument][:] = columns[column.columns[0]]
                        continue
                    _turn([columns[name] for name in column.columns], block[argument])
                yield block

    def _shuffled(self, order: Order, lane: Lane, start: int, width: int) -> Iterator[Batch]:
        """The rows of a lane from its row number `start` on, epoch after epoch, in windows."""
        window = max(8 * -(-order.share // width), WINDOW)
        parts = self._pieces(lane.drawn)
        epoch, place = divmod(start, lane.rows)
        while True:
            mix = np.random.default_rng((order.seed, PIECES, lane.number, epoch))
            ordered = [parts[i] for i in mix.permutation(len(parts))]
            first, inside = divmod(place, window)
            blocks = self.rows(skip(ordered, first * window))
            for number, block in enumerate(regroup(blocks, repeat(window)), first):
                mix = np.random.default_rng((order.seed, SHUFFLE, lane.number, epoch, number))
                shuffle = mix.permutation(length(block))[inside:]
                yield {name: np.take(array, shuffle, axis=0) for name, array in block.items()}
                inside = 0
            epoch, place = epoch + 1, 0

    def _lanes(self, order: Order) -> list[Lane]:
        generator = np.random.default_rng((order.seed, RUNS))
        return divide(self.total, order.held_out, order.part[1], generator)

    def _own(self, order: Order) -> list[Lane]:
        lanes = self._lanes(order)
        width = len(lanes) // order.part[1]
        return lanes[order.part[0] * width : (order.part[0] + 1) * width]

    def _pieces(self, intervals: Iterable[tuple[int, int]]) -> list[Piece]:
        return pieces(list(intervals), self.reader.starts)

    def _empty(self, count: int) -> Batch:
        reader = self.reader
        return {
            name: np.empty((count,) if c.single else (count, len(c.columns)), reader.dtype(c))
            for name, c in self.chosen.items()
        }


def _turn(columns: Sequence[np.ndarray], rows: np.ndarray) -> None:
    """Write columns into rows, few at a time: those of a strip stay in the cache."""
    for low in range(0, len(rows), STRIP):
        strip = slice(low, low + STRIP)
        rows[strip] = np.stack([column[strip] for column in columns]).T


def open_parquet(source: Any, columns: Sequence[str]) -> ParquetReader:
    """Read the footers of Parquet files: how many rows they have, and the types of columns."""
    paths = tuple(file_paths(source, (".parquet",), StreamError))
    label = str(paths[0]) if len(paths) == 1 else f"{len(paths)} Parquet files ({paths[0]}, ...)"
    metadata = tuple(_footer(path) for path in paths)
    dtypes = _types(paths, metadata, columns)
    groups = tuple((f, g) for f, m in enumerate(metadata) for g in range(m.num_row_groups))
    sizes = [metadata[f].row_group(g).num_rows for f, g in groups]
    starts = np.cumsum([0, *sizes])
    total = int(starts[-1])
    if total == 0:
        raise StreamError.no_rows(label)
    return ParquetReader(paths, total, label, dtypes, metadata, groups, starts)


def _footer(path: Path) -> Any:
    arrow = pyarrow()
    try:
        return arrow.parquet.read_metadata(path)
    except (arrow.ArrowInvalid, OSError) as error:
        raise StreamError.not_parquet(str(path), first_line(error)) from error


def _types(
    paths: Sequence[Path], metadata: Sequence[Any], columns: Sequence[str]
) -> dict[str, np.dtype[Any]]:
    """The type of each column, which is the same in all files."""
    schemas = [footer.schema.to_arrow_schema() for footer in metadata]
    dtypes = {}
    for column in columns:
        kinds = [s.field(column).type if column in s.names else None for s in schemas]
        if kinds[0] is None:
            raise StreamError.unknown_column(column, str(paths[0]), schemas[0].names)
        for path, kind in zip(paths, kinds, strict=True):
            if kind != kinds[0]:
                raise StreamError.schemas(column, str(paths[0]), kinds[0], str(path), kind)
        is_type = pyarrow().types
        numbers = (is_type.is_floating, is_type.is_integer, is_type.is_boolean)
        if not any(is_number(kinds[0]) for is_number in numbers):
            raise StreamError.column_type(column, str(paths[0]), kinds[0])
        dtypes[column] = np.dtype(kinds[0].to_pandas_dtype())
    return dtypes


def _piece_columns(
    reader: ParquetReader, piece: Piece, names: Sequence[str]
) -> Iterator[dict[str, np.ndarray]]:
    """The kept rows of a row group, by column; its other rows are decoded at most."""
    arrow = pyarrow()
    number, group = reader.groups[piece.group]
    path, footer = reader.paths[number], reader.metadata[number]
    before = int(reader.starts[piece.group] - reader.starts[piece.group - group])
    try:
        # Buffering ahead would hold whole row groups.
        reading = {"metadata": footer, "buffer_size": BUFFER, "pre_buffer": False}
        with arrow.parquet.ParquetFile(path, **reading) as file:
            low = 0
            for batch in file.iter_batches(READ, row_groups=[group], columns=list(names)):
                high = low + len(batch)
                for start, stop in piece.keep:
                    start, stop = max(start, low), min(stop, high)
                    if start < stop:
                        part = batch.slice(start - low, stop - start)
                        yield {n: _vector(part.column(n), n, path, before + start) for n in names}
                low = high
                if low >= piece.keep[-1][1]:
                    return
    except (arrow.ArrowInvalid, OSError) as error:
        raise StreamError.changed(str(path), first_line(error)) from error
    raise StreamError.changed(str(path), f"row group {group} has only {low} rows")


def _vector(column: Any, name: str, path: Path, row: int) -> np.ndarray:
    """One column as numbers, all of them finite."""
    if column.null_count:
        first = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise RowError.of_file(name, str(path), row + first, "a null")
    vector = np.asarray(column.to_numpy(zero_copy_only=False))
    bad = not_finite(vector)
    if bad is not None:
        raise RowError.of_file(name, str(path), row + bad[0], str(float(vector[bad])))
    return vector

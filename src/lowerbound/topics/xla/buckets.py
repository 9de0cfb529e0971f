"""Documents of like lengths side by side, in tables of few shapes: one program serves each shape.

A table has so many rows, a document each, and so many places for distinct words. The shapes depend
on the lengths that occur and on the number of documents, rounded up to a power of two, alone; so
batches of one size meet the same programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

SHORT: Final = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512)


@dataclass(frozen=True, eq=False)
class Bucket:
    """The documents of one table, in its rows from the first on; the rest of its rows is empty."""

    documents: np.ndarray  # numbers of documents
    rows: int
    length: int  # places of a row


def length_class(distinct: np.ndarray) -> np.ndarray:
    """The least table length that holds so many distinct words: 8, 16, 32, 64, 96, 128, ...

    Beyond the short ones lengths go on as 2^k and 3 * 2^(k - 1), so a row of more than 64 words is
    filled to two thirds at least.
    """
    distinct = np.asarray(distinct)
    lengths = list(SHORT)
    while lengths[-1] < distinct.max(initial=1):
        lengths.append(lengths[-2] * 2)
    ladder = np.asarray(lengths)
    found: np.ndarray = ladder[np.searchsorted(ladder, distinct)]
    return found


def size_class(documents: int) -> int:
    """The least power of two, from 8 on, that is as large."""
    return max(8, 1 << (documents - 1).bit_length()) if documents else 8


def rows_of(length: int, documents: int, slots: int, parts: int, multiple: int) -> int:
    """The rows of a table: at most a part of the documents, and `slots` places in all.

    There are at least 8 rows, whatever the documents, and one, whatever the places; `multiple`
    divides the result: devices hold equally many rows.
    """
    most = max(1, slots // length)
    rows = min(1 << (most.bit_length() - 1), max(8, size_class(documents) // parts))
    return -(-rows // multiple) * multiple


def buckets(distinct: np.ndarray, slots: int, *, parts: int = 8, multiple: int = 1) -> list[Bucket]:
    """Tables for documents with so many distinct words each, the short ones first.

    Documents left over from full tables of one length go to the next length where that takes
    fewer places than a table of their own.
    """
    classes = length_class(distinct)
    order = np.argsort(classes, kind="stable")
    lengths, firsts = np.unique(classes[order], return_index=True)
    tables: list[Bucket] = []
    left = order[:0]
    for i, length in enumerate(lengths.tolist()):
        last = firsts[i + 1] if i + 1 < len(lengths) else len(order)
        waiting = np.concatenate([left, order[firsts[i] : last]])
        rows = rows_of(length, len(classes), slots, parts, multiple)
        full = len(waiting) // rows * rows
        tables += [Bucket(waiting[a : a + rows], rows, length) for a in range(0, full, rows)]
        left = waiting[full:]
        if i + 1 == len(lengths) or len(left) * int(lengths[i + 1]) > rows * length:
            tables += [Bucket(left, rows, length)] if len(left) else []
            left = left[:0]
    return tables

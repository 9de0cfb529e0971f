"""Values of several pieces, as concatenation makes them: other terms at other positions.

f(sum_k 1[piece k] g_k) = sum_k 1[piece k] f(g_k) + 1[no piece] f(0), as with indicators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lowerbound.joint.terms.indices import (
    Gather,
    Index,
    Label,
    align,
    index_key,
    is_static,
    labels_read,
    unique,
)
from lowerbound.joint.terms.labelled import Atom, Constant, Factor, Term
from lowerbound.joint.terms.value import Value, contract

MOST_POSITIONS = 100_000  # of the labels along which pieces alternate
MOST_PIECES = 256


@dataclass(frozen=True)
class Pieces:
    """Values that exclude each other: the terms that are at the same positions.

    `masks` are 1 on the positions of each piece, over `labels`, and `rest` where there is none.
    """

    labels: tuple[Label, ...]
    masks: tuple[np.ndarray, ...]
    values: tuple[Value, ...]

    @property
    def rest(self) -> np.ndarray:
        """1 where no piece is."""
        return np.asarray(1.0 - np.sum(self.masks, axis=0))


def pieces_of(value: Value) -> Pieces | None:
    """The pieces of a value of several terms, or None where it is the same ones everywhere."""
    if len(value.terms) < 2:
        return None
    found = []
    for term in value.terms:
        if any(label not in value.labels for label in term.labels()):
            return None
        own = [f for f in term.constants if _is_known(f)]
        span = tuple(labels_read(own))
        found.append((np.asarray(contract(own, span)) if own else np.ones(()), span, term))
    spans = unique(span for _, span, _ in found)
    labels = tuple(label for label in value.labels if label in spans)
    if not labels or np.prod([label.size for label in labels]) > MOST_POSITIONS:
        return None
    shape = tuple(label.size for label in labels)
    arrays = [np.broadcast_to(align(array, span, labels), shape) for array, span, _ in found]
    there = np.stack([array != 0.0 for array in arrays])
    patterns, place = np.unique(there.reshape(len(found), -1), axis=1, return_inverse=True)
    if patterns.shape[1] < 2 or patterns.shape[1] > MOST_PIECES:
        return None
    masks, values = [], []
    for number, pattern in enumerate(patterns.T):
        mask = place.reshape(shape) == number
        terms = [
            _within(term, array, mask, labels)
            for (_, _, term), array, is_there in zip(found, arrays, pattern, strict=True)
            if is_there
        ]
        if terms:
            masks.append(mask.astype(float))
            values.append(replace(value, terms=tuple(terms)))
    return Pieces(labels, tuple(masks), tuple(values))


def _within(term: Term, array: np.ndarray, mask: np.ndarray, labels: tuple[Label, ...]) -> Term:
    """A term with its known constants as they are where the mask is, and 1 or alike elsewhere."""
    others = tuple(f for f in term.constants if not _is_known(f))
    first = array[mask][0]
    if (array[mask] == first).all():
        return replace(term, coefficient=term.coefficient * float(first), constants=others)
    ones = Factor(Constant(np.where(mask, array, 1.0)), labels)
    return replace(term, constants=(ones, *others))


def _is_known(factor: Factor[Constant]) -> bool:
    """Whether a constant is known while deriving, and the positions that are read of it too."""
    read = (i.array for i in factor.index if isinstance(i, Gather))
    return all(map(is_static, (factor.atom.array, *read)))


def stacked(terms: Sequence[Term], axes: tuple[Label, ...]) -> tuple[Term, ...]:
    """Terms that read one position of a site each, as one that sums over these positions.

    So a sum of as many terms as there are positions costs as much as one of them.
    """
    groups: dict[object, list[tuple[Term, np.ndarray, tuple[int, ...]]]] = {}
    for term in terms:
        key, constant = _fixed(term), _static(term, axes)
        if key is None or constant is None:
            groups[id(term)] = [(term, np.zeros(()), ())]
        else:
            groups.setdefault(key[0], []).append((term, constant, key[1]))
    return tuple(term for group in groups.values() for term in _merged(group, axes))


def _fixed(term: Term) -> tuple[object, tuple[int, ...]] | None:
    """The one latent factor without the fixed position of its index, and that position."""
    if len(term.latents) != 1:
        return None
    (factor,) = term.latents
    where = [
        axis
        for axis, i in enumerate(factor.index)
        if isinstance(i, Gather) and not i.labels and is_static(i.array)
    ]
    if len(where) != 1:
        return None
    (axis,) = where
    index = factor.index[axis]
    assert isinstance(index, Gather)
    others = tuple(index_key(i) for n, i in enumerate(factor.index) if n != axis)
    return (factor.atom, axis, others), (axis, int(index.array))


def _static(term: Term, axes: tuple[Label, ...]) -> np.ndarray | None:
    """The static constants of a term over all axes, where there are no others."""
    if not all(map(_is_known, term.constants)):
        return None
    span = tuple(labels_read(term.constants))
    if any(label not in axes for label in span):
        return None
    array = contract(term.constants, span) if term.constants else np.ones(())
    return np.asarray(term.coefficient * align(array, span, axes))


def _merged(
    group: list[tuple[Term, np.ndarray, tuple[int, ...]]], axes: tuple[Label, ...]
) -> Iterator[Term]:
    if len(group) == 1:
        yield group[0][0]
        return
    factor: Factor[Atom] = group[0][0].latents[0]
    axis = group[0][2][0]
    label = Label(len(group))
    shape = np.broadcast_shapes(*(constant.shape for _, constant, _ in group))
    table = np.stack([np.broadcast_to(constant, shape) for _, constant, _ in group])
    kept = [d for d, size in enumerate(shape) if size > 1]
    table = table.reshape([len(group), *(shape[d] for d in kept)])
    where = Gather(np.array([position for _, _, (_, position) in group]), (label,))
    index: list[Index] = list(factor.index)
    index[axis] = where
    constant = Factor(Constant(table), (label, *(axes[d] for d in kept)))
    yield Term(1.0, (constant,), (Factor(factor.atom, tuple(index)),))

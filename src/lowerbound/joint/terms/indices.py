"""Index expressions: labels, and arrays of positions, by which factors are read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Union

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.joint.terms.expression import array_key

Array = np.ndarray | jax.Array
Index = Union["Label", "Gather"]

_serial = itertools.count()


@dataclass(frozen=True, eq=False)
class Label:
    """A named axis of known size; two labels are equal only if they are the same object."""

    size: int
    serial: int = field(default_factory=lambda: next(_serial))

    def fresh(self) -> Label:
        """Another label of the same size."""
        return Label(self.size)

    def __repr__(self) -> str:
        return f"i{self.serial}"


@dataclass(frozen=True, eq=False)
class Gather:
    """The index `array[labels]`: position `array[l_1, ..., l_r]` of an axis; r may be 0."""

    array: Array
    labels: tuple[Label, ...]

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self.labels))}]"


def unique(groups: Iterable[Iterable[Label]]) -> list[Label]:
    """The labels of the groups, each once, in order of first appearance."""
    return list(dict.fromkeys(label for group in groups for label in group))


def labels_of(index: Index) -> tuple[Label, ...]:
    """The labels along which an index expression varies."""
    return (index,) if isinstance(index, Label) else index.labels


def labels_along(indices: Iterable[Index]) -> list[Label]:
    """The labels along which index expressions vary, each once, in order of first appearance."""
    return unique(map(labels_of, indices))


class Indexed(Protocol):
    """What is read at one index expression per axis: a factor, or a statistic."""

    @property
    def index(self) -> tuple[Index, ...]:
        """The expressions."""
        ...


def labels_read(things: Iterable[Indexed]) -> list[Label]:
    """The labels along which some things are read."""
    return labels_along(i for one in things for i in one.index)


def varies(index: Index) -> bool:
    """Whether an index expression reads more than one position."""
    return not (isinstance(index, Gather) and not index.labels)


def is_static(array: Array) -> bool:
    """Whether the array's values are known while deriving (NumPy), not only when running."""
    return isinstance(array, np.ndarray)


def index_key(index: Index) -> object:
    """Equal keys mean equal index expressions."""
    if isinstance(index, Label):
        return index.serial
    return (array_key(index.array), tuple(label.serial for label in index.labels))


def position(value: int) -> Gather:
    """The index expression of one fixed position."""
    return Gather(np.asarray(value), ())


def gathered(array: Array, labels: tuple[Label, ...], size: int) -> Index:
    """The index `array[labels]` of an axis of `size`, as a plain label where it is the identity."""
    if (
        isinstance(array, np.ndarray)
        and len(labels) == 1
        and labels[0].size == size
        and np.array_equal(array, np.arange(size))
    ):
        return labels[0]
    return Gather(array, labels)


def as_array(index: Index) -> tuple[Array, tuple[Label, ...]]:
    """An index expression as an array of positions over its labels."""
    if isinstance(index, Label):
        return np.arange(index.size), (index,)
    return index.array, index.labels


def align(array: Array, labels: tuple[Label, ...], onto: tuple[Label, ...]) -> Array:
    """Transpose and expand `array[labels]` so that it broadcasts against the axes `onto`."""
    order = sorted(range(len(labels)), key=lambda i: onto.index(labels[i]))
    shape = [label.size if label in labels else 1 for label in onto]
    return array.transpose(order).reshape(shape)


def take(array: Array, index: tuple[Index, ...]) -> tuple[Array, tuple[Label, ...]]:
    """Read `array[index]`, one axis per label in order of first appearance.

    >>> i = Label(3)
    >>> take(np.eye(3), (i, i))[0]
    array([1., 1., 1.])
    """
    labels = tuple(labels_along(index))
    gathers = [axis for axis, i in enumerate(index) if isinstance(i, Gather)]
    plain = sum(len(labels_of(i)) for i in index) == len(labels)
    if not gathers and plain:
        return array, labels
    if len(gathers) == 1 and plain:
        (axis,) = gathers
        gather = index[axis]
        assert isinstance(gather, Gather)
        if isinstance(array, np.ndarray) and isinstance(gather.array, np.ndarray):
            return np.asarray(np.take(array, gather.array, axis=axis)), labels
        # XLA's partitioner fails on 64-bit indices when devices hold unequal numbers of rows.
        where = jnp.asarray(gather.array, np.int32)
        return jnp.take(jnp.asarray(array), where, axis=axis, mode="clip"), labels
    positions = tuple(align(*as_array(i), labels) for i in index)
    if isinstance(array, np.ndarray) and all(isinstance(p, np.ndarray) for p in positions):
        return np.asarray(array[positions]), labels
    return jnp.asarray(array)[positions], labels


def substitute_index(index: Index, mapping: Mapping[Label, Index]) -> Index:
    """The index expression with its labels replaced, all at once."""
    if isinstance(index, Label):
        return mapping.get(index, index)
    if not any(label in mapping for label in index.labels):
        return index
    targets = tuple(mapping.get(label, label) for label in index.labels)
    if all(isinstance(t, Label) for t in targets) and len(set(targets)) == len(targets):
        return Gather(index.array, targets)  # type: ignore[arg-type]
    return Gather(*take(index.array, targets))

"""Labelled terms: the lazy einsum in which log p(x, z) is written.

A term is `coefficient * product of factors`, summed over every label that is not an axis of the
value it belongs to. A factor is an atom (a constant array, or a scalar function of one latent
site) with one index expression per array axis. Nothing here evaluates a density: terms are only
renamed, multiplied and brought to a normal form.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, Union

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.joint.terms.domain import REAL, Domain
from lowerbound.joint.terms.expression import Expression, array_key, text

Array = np.ndarray | jax.Array
Index = Union["Label", "Gather"]
A = TypeVar("A", "Atom", "Constant")

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


@dataclass(frozen=True)
class Atom:
    """A scalar function of a latent site, elementwise unless the name says otherwise.

    `function` is one of power (z^p), log, log1m (log(1 - z)), power1m ((1 - z)^p), indicator
    (one trailing axis of categories, `parameter` many), logdet and inverse (of the trailing
    matrix), logfactorial, step (1[z > threshold], with `parameter` the threshold), and expression
    (any scalar function, with trailing axes for the constants in it). With a `projection`, the
    function is one of a linear combination of real sites.
    """

    site: str
    function: str = "power"
    parameter: float = 1.0
    domain: Domain = REAL
    expression: Expression | None = None
    projection: Any = None  # projections.Projection

    @property
    def sizes(self) -> tuple[int, ...]:
        """The axes that the function adds after those of the site."""
        if self.function == "indicator":
            return (int(self.parameter),)
        return self.expression.sizes if self.expression is not None else ()

    @property
    def is_base(self) -> bool:
        """Whether it belongs to the base measure, which energy and entropy leave out."""
        return self.function == "logfactorial"

    def __str__(self) -> str:
        match self.function:
            case "power" if self.parameter == 1.0:
                return self.site
            case "power":
                return f"{self.site}^{self.parameter:g}"
            case "log1m":
                return f"log(1 - {self.site})"
            case "power1m":
                return f"(1 - {self.site})^{self.parameter:g}"
            case "indicator":
                return f"1[{self.site}]"
            case "logdet":
                return f"log|{self.site}|"
            case "inverse":
                return f"{self.site}^-1"
            case "expression" if self.expression is not None:
                return text(self.expression.tree, self.site)
            case "step":
                return f"1[{self.site} > {self.parameter:g}]"
            case other:
                return f"{other}({self.site})"


@dataclass(frozen=True, eq=False)
class Constant:
    """An array that no latent site touches: data, a hyperparameter, a mask."""

    array: Array


@dataclass(frozen=True, eq=False)
class Factor(Generic[A]):
    """An atom read at one index expression per axis."""

    atom: A
    index: tuple[Index, ...]

    @property
    def own(self) -> tuple[Index, ...]:
        """The index of the latent element, without the trailing axes of the function of it."""
        if not isinstance(self.atom, Atom):
            return self.index
        return self.index[: len(self.index) - len(self.atom.sizes)]


@dataclass(frozen=True, eq=False)
class Term:
    """coefficient * product of constants * product of latent atoms, summed over unbound labels."""

    coefficient: float
    constants: tuple[Factor[Constant], ...] = ()
    latents: tuple[Factor[Atom], ...] = ()

    @property
    def factors(self) -> tuple[Factor[Any], ...]:
        """The constants, then the latent factors."""
        return (*self.constants, *self.latents)

    def labels(self) -> list[Label]:
        """Every label of the term, in order of first appearance."""
        return unique(labels_of(i) for f in self.factors for i in f.index)

    def __str__(self) -> str:
        data = ["data"] if self.constants else []
        return " * ".join(data + [str(f.atom) for f in self.latents]) or "constant"


# --------------------------------------------------------------------------------------------------
# Index expressions


def unique(groups: Iterable[Iterable[Label]]) -> list[Label]:
    """The labels of the groups, each once, in order of first appearance."""
    return list(dict.fromkeys(label for group in groups for label in group))


def labels_of(index: Index) -> tuple[Label, ...]:
    """The labels along which an index expression varies."""
    return (index,) if isinstance(index, Label) else index.labels


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


def factor_key(factor: Factor[Any]) -> object:
    """Equal keys mean equal factors."""
    atom = factor.atom
    head = array_key(atom.array) if isinstance(atom, Constant) else atom
    return (head, tuple(map(index_key, factor.index)))


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
    labels = tuple(unique(map(labels_of, index)))
    gathers = [axis for axis, i in enumerate(index) if isinstance(i, Gather)]
    plain = sum(len(labels_of(i)) for i in index) == len(labels)
    if not gathers and plain:
        return array, labels
    if len(gathers) == 1 and plain:
        (axis,) = gathers
        gather = index[axis]
        assert isinstance(gather, Gather)
        if isinstance(array, np.ndarray) and isinstance(gather.array, np.ndarray):
            return np.take(array, gather.array, axis=axis), labels
        # XLA's partitioner fails on 64-bit indices when devices hold unequal numbers of rows.
        where = jnp.asarray(gather.array, np.int32)
        return jnp.take(jnp.asarray(array), where, axis=axis, mode="clip"), labels
    positions = tuple(align(*as_array(i), labels) for i in index)
    if isinstance(array, np.ndarray) and all(isinstance(p, np.ndarray) for p in positions):
        return array[positions], labels
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


# --------------------------------------------------------------------------------------------------
# Terms


def substitute(term: Term, mapping: Mapping[Label, Index]) -> Term:
    """Replace labels by index expressions everywhere in the term, all at once."""
    if not mapping:
        return term

    def move(factor: Factor[A]) -> Factor[A]:
        return Factor(factor.atom, tuple(substitute_index(i, mapping) for i in factor.index))

    return Term(term.coefficient, tuple(map(move, term.constants)), tuple(map(move, term.latents)))


def refresh(term: Term, axes: Iterable[Label]) -> Term:
    """Give the term's summed labels new names, so that it can meet a term that shares them."""
    keep = set(axes)
    return substitute(term, {label: label.fresh() for label in term.labels() if label not in keep})

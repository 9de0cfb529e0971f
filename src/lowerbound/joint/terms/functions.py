"""Values as scalar functions of one latent element, and back.

A value all of whose latent factors are functions of one element of one site (or of one linear
combination of real sites) is a tree in that element. Constants that vary along labels which are
not the element's own become trailing axes of the function, as categories are of an indicator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from lowerbound.joint.blocks.projections import Projection, linear_part, project
from lowerbound.joint.terms.algebra import (
    is_affine,
    is_positive,
    logarithm,
    negative,
    number,
    plus,
    power,
    product,
)
from lowerbound.joint.terms.domain import REAL, Domain
from lowerbound.joint.terms.expression import Expression, Tree, Z, array_key, arrays_of, renumbered
from lowerbound.joint.terms.indices import (
    Array,
    Index,
    Label,
    index_key,
    labels_along,
    labels_read,
    take,
)
from lowerbound.joint.terms.labelled import Atom, Constant, Factor, Term
from lowerbound.joint.terms.value import Value, add, contract

CONVERTIBLE = ("power", "log", "log1m", "power1m", "step", "expression")


def element_key(factor: Factor[Atom]) -> object:
    """Equal keys mean that two factors are functions of the same latent element."""
    return (factor.atom.site, factor.atom.projection, tuple(map(index_key, factor.own)))


def is_function(factor: Factor[Atom]) -> bool:
    """Whether the factor is a function of one number."""
    return factor.atom.domain.scalar and factor.atom.function in CONVERTIBLE


@dataclass(frozen=True, eq=False)
class Element:
    """One latent number: an element of a site, or of a linear combination of real sites."""

    site: str
    domain: Domain
    projection: Projection | None
    index: tuple[Index, ...]

    @classmethod
    def of(cls, factor: Factor[Atom]) -> Element:
        """The element that a factor is a function of."""
        atom = factor.atom
        return cls(atom.site, atom.domain, atom.projection, factor.own)

    @property
    def positive(self) -> bool:
        """Whether it is never negative."""
        return self.domain.positive


class Functions:
    """Trees in one element, with the constant arrays that they share."""

    def __init__(self, element: Element) -> None:
        self.element = element
        self.arrays: list[tuple[Array, tuple[Index, ...]]] = []
        self.known: dict[object, int] = {}

    def array(self, array: Array, index: tuple[Index, ...]) -> Tree:
        """A constant array read at `index`, as a tree."""
        if isinstance(array, np.ndarray) and array.ndim == 0:
            return number(float(array))
        key = (array_key(array), tuple(map(index_key, index)))
        if key not in self.known:
            self.known[key] = len(self.arrays)
            self.arrays.append((array, index))
        return ("array", self.known[key])

    def factor(self, factor: Factor[Atom]) -> Tree:
        """A function of the element, as a tree."""
        atom = factor.atom
        match atom.function:
            case "power":
                return power(Z, number(atom.parameter))
            case "log":
                return logarithm(Z)
            case "log1m":
                return logarithm(plus(number(1.0), negative(Z)))
            case "power1m":
                return power(plus(number(1.0), negative(Z)), number(atom.parameter))
            case "step":
                return ("gt", Z, number(atom.parameter))
        assert atom.expression is not None
        numbers = {}
        expression = atom.expression
        for k, (array, axes) in enumerate(zip(expression.arrays, expression.axes, strict=True)):
            tree = self.array(array, tuple(factor.index[a] for a in axes))
            numbers[k] = tree
        return _with_arrays(expression.tree, numbers)

    def term(self, term: Term, axes: set[Label]) -> Tree:
        """A term with nothing but functions of the element, as a tree."""
        parts = [number(term.coefficient)]
        spans = labels_read(term.constants)
        if all(label in axes for label in spans):
            parts += [self.array(f.atom.array, f.index) for f in term.constants]
        else:
            labels = tuple(label for label in spans if label in axes)
            parts.append(self.array(contract(term.constants, labels), labels))
        return product(*parts, *map(self.factor, term.latents))

    def value(self, value: Value) -> Tree:
        """A value that is a function of the element, as a tree."""
        axes = set(value.labels)
        linear: tuple[Term, ...] = ()
        rest = value.terms
        if self.element.projection is not None:
            linear, rest = linear_part(value)
        parts = [self.term(term, axes) for term in rest]
        if linear:
            _, _, scale = project(linear, value)
            parts.append(product(number(scale), Z))
        return plus(*parts)

    # -- back to terms ----------------------------------------------------------------------------

    def expand(self, tree: Tree, like: Value) -> Value:
        """The tree as a value with the axes of `like`: constants outside, known atoms by name."""
        parts: list[Value] = []
        for part in tree[1:] if tree[0] == "add" else (tree,):
            coefficient, constants, rest = 1.0, [], []
            for factor in part[1:] if part[0] == "mul" else (part,):
                if factor[0] == "number":
                    coefficient *= factor[1]
                elif factor[0] == "array":
                    array, index = self.arrays[factor[1]]
                    constants.append(Factor(Constant(array), index))
                else:
                    rest.append(factor)
            fixed = Term(coefficient, tuple(constants))
            inner = product(*rest)
            if inner == Z and self.element.projection is not None:
                terms = self.element.projection.at(self.element.index)
                made = [
                    replace(
                        t,
                        coefficient=t.coefficient * coefficient,
                        constants=(*constants, *t.constants),
                    )
                    for t in terms
                ]
            elif rest:
                made = [replace(fixed, latents=(self.atom(inner),))]
            else:
                made = [fixed]
            parts.append(replace(like, terms=tuple(made)))
        total = add(*parts)
        assert isinstance(total, Value)
        return total

    def atom(self, tree: Tree, named: bool = True) -> Factor[Atom]:
        """The tree as one factor: a named atom where there is one, else an expression."""
        element = self.element
        plain = Atom(element.site, domain=element.domain, projection=element.projection)
        if named and element.projection is None:
            match tree:
                case ("z",):
                    return Factor(plain, element.index)
                case ("power", ("z",), ("number", p)) if element.positive or (
                    p > 0 and p == int(p)
                ):
                    return Factor(replace(plain, parameter=p), element.index)
                case ("log", ("z",)) if element.positive:
                    return Factor(replace(plain, function="log"), element.index)
                case ("log", ("add", ("number", 1.0), ("mul", ("number", -1.0), ("z",)))) if (
                    element.domain.complemented
                ):
                    return Factor(replace(plain, function="log1m"), element.index)
        own = {index_key(i): p for p, i in enumerate(element.index)}
        marks: dict[int, Label] = {}
        trailing: list[Label] = []
        arrays, axes = [], []
        used = arrays_of(tree)
        for k in used:
            array, index = self.arrays[k]
            at: list[Index] = []
            for i, size in zip(index, array.shape, strict=True):
                p = own.get(index_key(i))
                at.append(i if p is None else marks.setdefault(p, Label(size)))
            read, labels = take(array, tuple(at))
            place = {label: p for p, label in marks.items()}
            where = []
            for label in labels:
                if label in place:
                    where.append(place[label])
                    continue
                if label not in trailing:
                    trailing.append(label)
                where.append(len(element.index) + trailing.index(label))
            arrays.append(_floating(read))
            axes.append(tuple(where))
        tree = renumbered(tree, {k: n for n, k in enumerate(used)})
        sizes = tuple(label.size for label in trailing)
        expression = Expression(tree, tuple(arrays), tuple(axes), sizes)
        atom = replace(plain, function="expression", expression=expression)
        return Factor(atom, (*element.index, *trailing))


def _with_arrays(tree: Tree, arrays: dict[int, Tree]) -> Tree:
    if tree[0] == "array":
        return arrays[tree[1]]
    if tree[0] in ("z", "number"):
        return tree
    return (tree[0], *(_with_arrays(part, arrays) for part in tree[1:]))


def _floating(array: Array) -> Array:
    if np.issubdtype(array.dtype, np.floating):
        return array
    return array.astype(float) if isinstance(array, np.ndarray) else jnp.asarray(array, float)


def functions_of(values: Sequence[Value]) -> tuple[Functions, list[Tree]] | None:
    """The values (of one set of axes) as trees in one latent element; None when they are not."""
    axes = set(values[0].labels)
    found: dict[object, Element] = {}
    for factor in (f for value in values for term in value.terms for f in term.latents):
        if not is_function(factor):
            return None
        found[element_key(factor)] = Element.of(factor)
    elements = list(found.values())
    if len(elements) != 1 or not _inside(elements[0].index, axes):
        projected = _projected(values, axes)
        if projected is None:
            return None
        elements = [projected]
    functions = Functions(elements[0])
    for value in values:
        for term in linear_part(value)[1] if elements[0].projection else value.terms:
            if not axes.issuperset(labels_read(term.latents)):
                return None
    return functions, [functions.value(value) for value in values]


def _inside(index: Sequence[Index], axes: set[Label]) -> bool:
    return axes.issuperset(labels_along(index))


def _projected(values: Sequence[Value], axes: set[Label]) -> Element | None:
    """The one linear combination of real sites that all values are functions of."""
    found: dict[object, Element] = {}
    for value in values:
        linear, rest = linear_part(value)
        if linear:
            projection, index, _ = project(linear, value)
            element = Element(projection.name, REAL, projection, index)
            found[projection, tuple(map(index_key, index))] = element
        for factor in (f for term in rest for f in term.latents):
            if factor.atom.projection is None:
                return None
            key = (factor.atom.projection, tuple(map(index_key, factor.own)))
            found[key] = Element.of(factor)
    return next(iter(found.values())) if len(found) == 1 else None


def refused(operation: str, operand: Tree, exponent: float, element: Element) -> str | None:
    """Why a function of a Gaussian has no expectation, when that is plain to see."""
    if element.domain is not REAL or not is_affine(operand):
        return None
    if operation == "log" or (operation == "power" and (exponent < 0 or exponent % 1.0 != 0.0)):
        return "it is not defined on the whole line"
    return None


def split_log(factor: Factor[Atom]) -> tuple[Functions, Tree] | None:
    """Log of an expression that is known to be positive, as a tree."""
    functions = Functions(Element.of(factor))
    tree = functions.factor(factor)
    if not is_positive(tree, functions.element.positive):
        return None
    return functions, logarithm(tree)


def raised(factor: Factor[Atom], exponent: float) -> Factor[Atom] | None:
    """A power of an expression, where a product may be raised factor by factor."""
    functions = Functions(Element.of(factor))
    tree = functions.factor(factor)
    if exponent % 1.0 != 0.0 and not is_positive(tree, functions.element.positive):
        return None
    return functions.atom(power(tree, number(exponent)))


def fused(factors: Sequence[Factor[Atom]], named: bool = True) -> Factor[Atom]:
    """The product of functions of one element as a single function of it."""
    functions = Functions(Element.of(factors[0]))
    return functions.atom(product(*map(functions.factor, factors)), named)

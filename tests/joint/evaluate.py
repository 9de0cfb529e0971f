"""An evaluator of labelled terms at points, written apart from the code it checks.

`rewritten` interprets a function in the domain of terms; `evaluate_value` puts numbers in for the
latents. The law of the rewriter is that the two together equal the function itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

from lowerbound.compiled import quickly
from lowerbound.joint.latents import Latent
from lowerbound.joint.rules.interpret import interpret
from lowerbound.joint.terms.domain import COUNT, DISCRETE, MATRIX, POSITIVE, REAL, SIMPLEX, UNIT
from lowerbound.joint.terms.expression import evaluate, spread
from lowerbound.joint.terms.indices import Gather, Label
from lowerbound.joint.terms.labelled import Constant, Factor, Term
from lowerbound.joint.terms.value import Poison, Value, lift

DOMAINS = {d.name: d for d in (REAL, POSITIVE, UNIT, SIMPLEX, MATRIX, DISCRETE, COUNT)}
Points = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Input:
    """An argument of a function under test: a latent of some domain, or data."""

    shape: tuple[int, ...]
    domain: str
    support: tuple[float, ...] = ()
    dtype: Any = float

    @property
    def is_latent(self) -> bool:
        return self.domain != "data"

    def latent(self, name: str) -> Latent:
        support = np.array(self.support) if self.support else None
        return Latent(name, self.shape, DOMAINS[self.domain], support)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        shape = self.shape
        match self.domain:
            case "positive":
                return np.exp(rng.normal(size=shape))
            case "unit":
                return rng.uniform(0.05, 0.95, size=shape)
            case "simplex":
                return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])
            case "matrix":
                root = rng.normal(size=shape)
                return root @ np.swapaxes(root, -1, -2) + np.eye(shape[-1])
            case "discrete":
                return rng.choice(np.array(self.support), size=shape)
            case "count":
                return rng.poisson(2.0, size=shape) * 1.0
        if np.issubdtype(self.dtype, np.integer):
            low, high = self.support or (0, 3)
            return rng.integers(int(low), int(high), size=shape).astype(self.dtype)
        if self.dtype is bool:
            return rng.uniform(size=shape) < 0.5
        return rng.normal(size=shape).astype(self.dtype)


def real(*shape: int) -> Input:
    return Input(shape, "real")


def positive(*shape: int) -> Input:
    return Input(shape, "positive")


def unit(*shape: int) -> Input:
    return Input(shape, "unit")


def simplex(*shape: int) -> Input:
    return Input(shape, "simplex")


def matrix(*shape: int) -> Input:
    return Input(shape, "matrix")


def count(*shape: int) -> Input:
    return Input(shape, "count")


def discrete(*shape: int, K: int = 3, support: tuple[int, ...] | None = None) -> Input:
    return Input(shape, "discrete", support or tuple(range(K)))


def data(*shape: int) -> Input:
    return Input(shape, "data")


def integers(*shape: int, below: int = 3, dtype: Any = int) -> Input:
    return Input(shape, "data", (0, below), dtype)


def flags(*shape: int) -> Input:
    return Input(shape, "data", (), bool)


# --------------------------------------------------------------------------------------------------
# Evaluation


def evaluate_value(value: Value, points: Points, latents: Mapping[str, Latent]) -> np.ndarray:
    """The array that a value stands for, with every latent site at its point."""
    assert len(value.axes) == len(value.shape)
    assert len(set(value.labels)) == len(value.labels), "one label stands on two axes"
    for size, label in zip(value.shape, value.axes, strict=True):
        assert label is None or label.size == size, "a label of the wrong size"
    total = np.zeros(value.shape)
    for term in value.terms:
        total = total + _evaluate_term(term, value, points, latents)
    return total


def _evaluate_term(
    term: Term, value: Value, points: Points, latents: Mapping[str, Latent]
) -> np.ndarray:
    summed = [label for label in term.labels() if label not in value.labels]
    order = {label: d for d, label in enumerate(value.axes) if label is not None}
    order |= {label: len(value.shape) + d for d, label in enumerate(summed)}
    rank = len(value.shape) + len(summed)
    product: Any = np.asarray(term.coefficient)
    for factor in term.factors:
        array = _evaluate_atom(factor, points, latents)
        assert np.ndim(array) == len(factor.index), "an index expression for every axis"
        positions = []
        for size, index in zip(np.shape(array), factor.index, strict=True):
            if isinstance(index, Label):
                where, labels = np.arange(index.size), (index,)
            else:
                where, labels = np.asarray(index.array), index.labels
            assert where.shape == tuple(label.size for label in labels)
            assert ((where >= 0) & (where < size)).all(), "a position outside the axis"
            axes = [order[label] for label in labels]
            spread = [1] * rank
            for axis, label in zip(axes, labels, strict=True):
                spread[axis] = label.size
            positions.append(where.transpose(np.argsort(axes)).reshape(spread))
        product = product * (array[tuple(positions)] if positions else array)
    if np.ndim(product) == 0:
        product = np.reshape(product, (1,) * rank)
    return product.sum(tuple(range(len(value.shape), rank)))


def _evaluate_atom(
    factor: Factor[Any], points: Points, latents: Mapping[str, Latent]
) -> np.ndarray:
    atom = factor.atom
    if isinstance(atom, Constant):
        return np.asarray(atom.array)
    if atom.projection is not None:
        z = evaluate_value(atom.projection.value, points, latents)
    else:
        z = np.asarray(points[atom.site], dtype=float)
    match atom.function:
        case "power":
            return z**atom.parameter
        case "power1m":
            return (1.0 - z) ** atom.parameter
        case "log":
            return np.log(z)
        case "log1m":
            return np.log1p(-z)
        case "indicator":
            return 1.0 * (z[..., None] == np.asarray(latents[atom.site].support_values))
        case "logdet":
            return np.linalg.slogdet(z)[1]
        case "inverse":
            return np.linalg.inv(z)
        case "logfactorial":
            return gammaln(z + 1.0)
        case "step":
            return 1.0 * (z > atom.parameter)
        case "expression":
            e = atom.expression
            rank = z.ndim + len(e.sizes)
            pairs = zip(e.arrays, e.axes, strict=True)
            arrays = [spread(np.asarray(array), axes, rank) for array, axes in pairs]
            wide = z.reshape(z.shape + (1,) * len(e.sizes))
            found = evaluate(e.tree, jnp.asarray(wide), arrays)
            return np.broadcast_to(np.asarray(found, float), z.shape + e.sizes)
    raise AssertionError(f"an unknown function {atom.function}")


# --------------------------------------------------------------------------------------------------
# The law


def shapes_of(inputs: Mapping[str, Input]) -> dict[str, Any]:
    return {
        name: jax.ShapeDtypeStruct(i.shape, int if i.domain == "discrete" else i.dtype)
        for name, i in inputs.items()
    }


def rewritten(
    function: Callable[..., Any], inputs: Mapping[str, Input], arrays: Mapping[str, Any]
) -> list[Any]:
    """The outputs of a function as values, poisons or arrays; `arrays` holds the data."""
    closed = jax.make_jaxpr(lambda given: function(**given))(shapes_of(inputs))
    operands = [
        inputs[name].latent(name).value() if inputs[name].is_latent else arrays[name]
        for name in sorted(inputs)
    ]
    return interpret(closed, operands)


Row = tuple[Callable[..., Any], Mapping[str, Input]]


def row(function: Callable[..., Any], **inputs: Input) -> Row:
    """A function under test with its arguments."""
    return function, inputs


@dataclass
class Case:
    """A function at random points: what it gives, and what rewriting made of it."""

    function: Callable[..., Any]
    inputs: Mapping[str, Input]
    points: dict[str, np.ndarray]
    expected: list[Any] = field(default_factory=list)
    outputs: list[list[Any]] = field(default_factory=list)  # data known, and data traced
    error: Exception | None = None

    @classmethod
    def draw(cls, function: Callable[..., Any], inputs: Mapping[str, Input], seed: int) -> Case:
        rng = np.random.default_rng(seed)
        return cls(function, inputs, {name: i.draw(rng) for name, i in inputs.items()})

    @property
    def data(self) -> dict[str, np.ndarray]:
        return {n: a for n, a in self.points.items() if not self.inputs[n].is_latent}

    def check(self, rtol: float = 1e-9) -> list[Any]:
        """Assert that rewriting kept the value; poisons are only asked to be well formed."""
        if self.error is not None:
            raise self.error
        latents = {name: i.latent(name) for name, i in self.inputs.items() if i.is_latent}
        for outputs in self.outputs:
            assert len(outputs) == len(self.expected)
            for output, wanted in zip(outputs, self.expected, strict=True):
                if isinstance(output, Poison):
                    assert output.sites, "a poison that touches no latent"
                    assert output.sites <= set(latents), "a site that is none of the function's"
                    assert output.reason
                    assert output.shape == wanted.shape
                    continue
                value = lift(output)
                assert value.shape == wanted.shape
                found = evaluate_value(value, self.points, latents)
                scale = max(1.0, float(np.max(np.abs(wanted[np.isfinite(wanted)]), initial=0.0)))
                np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol * scale)
        return self.outputs[-1]


def evaluate_cases(cases: Sequence[Case], compiled: bool = True) -> None:
    """Rewrite every case twice, with data known and with data traced, under one compilation.

    A single small case is faster without.
    """
    for case in cases:
        try:
            case.outputs.append(rewritten(case.function, case.inputs, case.data))
        except Exception as error:
            case.error = error
    sound = [case for case in cases if case.error is None]
    skeletons: list[list[Any]] = []

    def everything(points: list[dict[str, Any]], data: list[dict[str, Any]]) -> Any:
        results = []
        for case, values, arrays in zip(sound, points, data, strict=True):
            traced: list[Any] = []
            outputs: list[Any] = []
            try:
                if arrays:
                    outputs = rewritten(case.function, case.inputs, arrays)
                outputs = [o if isinstance(o, Poison) else lift(o) for o in outputs]
                for output in outputs:
                    map_arrays(output, traced.append)
            except Exception as error:
                case.error = error
            skeletons.append(outputs)
            results.append((jax.tree.leaves(case.function(**values)), traced))
        return results

    given = [
        {n: jnp.asarray(a, int if c.inputs[n].domain == "discrete" else None) for n, a in pairs}
        for c in sound
        for pairs in [c.points.items()]
    ]
    data = [{name: jnp.asarray(a) for name, a in c.data.items()} for c in sound]
    run = quickly(everything) if compiled else everything
    results = run(given, data)
    for case, skeleton, (expected, arrays) in zip(sound, skeletons, results, strict=True):
        case.expected = [np.asarray(e) for e in expected]
        if case.data:
            case.outputs.append(_with_numbers(skeleton, iter(arrays)))


def _with_numbers(skeleton: list[Any], numbers: Iterator[Any]) -> list[Any]:
    return [map_arrays(o, lambda _: np.asarray(next(numbers))) for o in skeleton]


def map_arrays(output: Any, change: Callable[[Any], Any]) -> Any:
    """A value with every array in it changed, in a fixed order; a poison as it is."""
    if isinstance(output, Poison):
        return output

    def moved(factor: Factor[Any]) -> Factor[Any]:
        atom = factor.atom
        if isinstance(atom, Constant):
            atom = Constant(change(atom.array))
        elif atom.function == "expression":
            arrays = tuple(change(array) for array in atom.expression.arrays)
            atom = replace(atom, expression=replace(atom.expression, arrays=arrays))
            if atom.projection is not None:
                value = map_arrays(atom.projection.value, change)
                atom = replace(atom, projection=replace(atom.projection, value=value))
        index = [
            i if isinstance(i, Label) else Gather(change(i.array), i.labels) for i in factor.index
        ]
        return Factor(atom, tuple(index))

    terms = [
        Term(t.coefficient, tuple(map(moved, t.constants)), tuple(map(moved, t.latents)))
        for t in output.terms
    ]
    return Value(output.shape, output.axes, tuple(terms))


def check_rewriting(
    function: Callable[..., Any], inputs: Mapping[str, Input], seed: int = 0
) -> list[Any]:
    """Assert that rewriting keeps the value of a function at a random point."""
    case = Case.draw(function, inputs, seed)
    evaluate_cases([case], compiled=False)
    return case.check()


class Table:
    """Rows that are rewritten together, when the first of them is asked for."""

    def __init__(self, rows: Mapping[str, Row]) -> None:
        self.rows = rows

    @cached_property
    def cases(self) -> dict[str, Case]:
        cases = {name: Case.draw(f, inputs, 0) for name, (f, inputs) in self.rows.items()}
        evaluate_cases(list(cases.values()))
        return cases

    def primitives(self) -> set[str]:
        """The names of the operations that the rows contain."""
        used: set[str] = set()
        for function, inputs in self.rows.values():
            closed = jax.make_jaxpr(lambda given, f=function: f(**given))(shapes_of(inputs))
            used |= set(_primitives(closed.jaxpr))
        return used


def _primitives(jaxpr: Any) -> list[str]:
    names = []
    for equation in jaxpr.eqns:
        names.append(equation.primitive.name)
        for parameter in equation.params.values():
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                names += _primitives(inner)
    return names


def size_of(value: Value) -> int:
    """The largest number of elements that one term of the value ranges over."""
    return max((prod(label.size for label in t.labels()) for t in value.terms), default=1)

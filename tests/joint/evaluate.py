"""An evaluator of labelled terms at points, written apart from the code it checks.

`rewritten` interprets a function in the domain of terms; `evaluate_value` puts numbers in for the
latents. The law of the rewriter is that the two together equal the function itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

from lowerbound.joint.derive import Latent
from lowerbound.joint.interpret import interpret
from lowerbound.joint.terms import Constant, Factor, Label, Term
from lowerbound.joint.value import Poison, Value, lift

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
        return Latent(name, self.shape, self.domain, support)

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
    raise AssertionError(f"an unknown function {atom.function}")


# --------------------------------------------------------------------------------------------------
# The law


def rewritten(
    function: Callable[..., Any], inputs: Mapping[str, Input], arrays: Mapping[str, Any]
) -> list[Any]:
    """The outputs of a function as values, poisons or arrays; `arrays` holds the data."""
    shapes = {
        name: jax.ShapeDtypeStruct(i.shape, int if i.domain == "discrete" else i.dtype)
        for name, i in inputs.items()
    }
    closed = jax.make_jaxpr(lambda given: function(**given))(shapes)
    operands = [
        inputs[name].latent(name).value() if inputs[name].is_latent else arrays[name]
        for name in sorted(inputs)
    ]
    return interpret(closed, operands)


def check_rewriting(
    function: Callable[..., Any], inputs: Mapping[str, Input], seed: int = 0, rtol: float = 1e-9
) -> list[Any]:
    """Assert that rewriting keeps the value, with data known while deriving and with data traced.

    Returns the outputs; poisoned ones are not compared.
    """
    rng = np.random.default_rng(seed)
    points = {name: i.draw(rng) for name, i in inputs.items()}
    latents = {name: i.latent(name) for name, i in inputs.items() if i.is_latent}
    given = {
        name: jnp.asarray(a, dtype=int if inputs[name].domain == "discrete" else None)
        for name, a in points.items()
    }
    expected = [np.asarray(e) for e in jax.tree.leaves(jax.jit(function)(**given))]
    known = {name: a for name, a in points.items() if name not in latents}
    outputs: list[Any] = []
    traced = {name: jnp.asarray(a) for name, a in known.items()}
    for arrays in (known, traced) if known else (known,):
        outputs = rewritten(function, inputs, arrays)
        assert len(outputs) == len(expected)
        for output, wanted in zip(outputs, expected, strict=True):
            if isinstance(output, Poison):
                assert output.sites <= set(latents), "a site that is none of the function's"
                assert output.sites, "a poison that touches no latent"
                assert output.reason
                assert output.shape == wanted.shape
                continue
            value = lift(output)
            assert value.shape == wanted.shape
            found = evaluate_value(value, points, latents)
            scale = max(1.0, float(np.max(np.abs(wanted[np.isfinite(wanted)]), initial=0.0)))
            np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol * scale)
    if known:  # nothing may look at the numbers of traced data
        jax.eval_shape(lambda arrays: _constants(rewritten(function, inputs, arrays)), known)
    return outputs


def _constants(outputs: list[Any]) -> list[Any]:
    values = [lift(o) for o in outputs if not isinstance(o, Poison)]
    return [f.atom.array for v in values for t in v.terms for f in t.constants]


def size_of(value: Value) -> int:
    """The largest number of elements that one term of the value ranges over."""
    return max((prod(label.size for label in t.labels()) for t in value.terms), default=1)

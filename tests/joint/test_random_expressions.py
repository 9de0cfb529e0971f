"""Random expressions in latents and data: rewriting keeps their value, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.joint.evaluate import (
    Input,
    check_rewriting,
    count,
    data,
    discrete,
    flags,
    integers,
    positive,
    real,
    simplex,
    unit,
)

INPUTS: dict[str, Input] = {
    "a": real(),
    "b": real(3),
    "c": real(2, 3),
    "d": data(3),
    "e": data(2, 3),
    "m": flags(3),
    "n": count(3),
    "p": unit(3),
    "q": simplex(2, 3),
    "s": positive(),
    "t": positive(3),
    "u": discrete(2, K=2),
    "w": integers(3),
    "z": discrete(3),
}
LARGEST = 36  # elements of an intermediate result

Array = Any
Step = Callable[[list[Array]], Array]


class Expression:
    """Arrays built one from another; `shapes` are known while it is drawn."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.shapes = [i.shape for i in INPUTS.values()]

    def __call__(self, **inputs: Array) -> list[Array]:
        pool = [inputs[name] for name in INPUTS]
        for step in self.steps:
            pool.append(step(pool))
        return pool[-2:]

    def extend(self, step: Step) -> bool:
        """Add a step, unless its result is too large."""
        structs = {
            name: jax.ShapeDtypeStruct(i.shape, int if i.domain == "discrete" else i.dtype)
            for name, i in INPUTS.items()
        }
        self.steps.append(step)
        try:
            shape = jax.eval_shape(lambda g: self(**g)[-1], structs).shape
        except (TypeError, ValueError, IndexError):  # the shapes do not fit
            self.steps.pop()
            return False
        if np.prod(shape) > LARGEST:
            self.steps.pop()
            return False
        self.shapes.append(shape)
        return True


def _raised(x: Array, exponent: float) -> Array:
    return jnp.asarray(x, float) ** exponent


def _rows(x: Array, where: Array) -> Array:
    return x[where % x.shape[0]]


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "matmul": lambda x, y: x @ y,
    "outer": lambda x, y: x[..., None] * y,
    "inner": lambda x, y: (x * y).sum(-1),
    "concatenate": lambda x, y: jnp.concatenate([x, y]),
    "stack": lambda x, y: jnp.stack([x, y], -1),
    "maximum": lambda x, y: jnp.maximum(x, y),
    "einsum": lambda x, y: jnp.einsum("ij,ij->j", x, y),
    "vmap": lambda x, y: jax.vmap(lambda i, j: i * j - i)(x, y),
    "equal": lambda x, y: (x == y) * 1.0,
}
UNARY: dict[str, Callable[[Array], Array]] = {
    "square": lambda x: x**2,
    "negate": lambda x: -x,
    "double": lambda x: 2.0 * x + 1.0,
    "sum": lambda x: x.sum(),
    "sum first": lambda x: x.sum(0),
    "sum last": lambda x: x.sum(-1, keepdims=True),
    "mean": lambda x: x.mean(0),
    "first": lambda x: x[0],
    "last": lambda x: x[-1],
    "reverse": lambda x: x[::-1],
    "every second": lambda x: x[::2],
    "new axis": lambda x: x[..., None],
    "transpose": lambda x: x.T,
    "ravel": lambda x: x.reshape(-1),
    "column": lambda x: x.reshape(-1, 1),
    "cumsum": lambda x: jnp.cumsum(x, 0),
    "diag": lambda x: jnp.diag(x),
    "repeat": lambda x: jnp.repeat(x, 2, 0),
    "differences": lambda x: x[1:] - x[:-1],
    "static rows": lambda x: x[np.array([0, -1, 0])],
    "jit": lambda x: jax.jit(lambda y: y * 3.0)(x),
    "whole": lambda x: jnp.asarray(x, float) // 1.0,
}
INDEXED: dict[str, Callable[[Array, Array, Array], Array]] = {
    "rows": lambda x, y, i: _rows(x, i),
    "rows of rows": lambda x, y, i: _rows(_rows(x, i), i),
    "last axis": lambda x, y, i: x[..., i % x.shape[-1]],
    "table": lambda x, y, i: x[i[:, None] % x.shape[0], i % x.shape[1]],
    "where equal": lambda x, y, i: jnp.where(i == 1, x, y),
    "where more": lambda x, y, i: jnp.where(i > 0, x, 0.5),
    "one hot": lambda x, y, i: jax.nn.one_hot(i, x.shape[0]) @ x,
    "index arithmetic": lambda x, y, i: x * (2 * i + 1),
}
POSITIVE = ("p", "q", "s", "t")
NAMES = list(INPUTS)


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    expression = Expression()
    for _ in range(draw(st.integers(1, 6))):
        size = len(expression.shapes)
        fresh = (
            st.integers(len(INPUTS), size - 1) if size > len(INPUTS) else st.integers(0, size - 1)
        )
        pick = st.one_of(fresh, st.integers(0, size - 1))
        i, j = draw(pick), draw(pick)
        kind = draw(st.sampled_from(["binary", "binary", "unary", "unary", "index", "monomial"]))
        if kind == "binary":
            f = BINARY[draw(st.sampled_from(sorted(BINARY)))]
            expression.extend(lambda pool, f=f, i=i, j=j: f(pool[i], pool[j]))
        elif kind == "unary":
            f = UNARY[draw(st.sampled_from(sorted(UNARY)))]
            expression.extend(lambda pool, f=f, i=i: f(pool[i]))
        elif kind == "index":
            f = INDEXED[draw(st.sampled_from(sorted(INDEXED)))]
            k = NAMES.index(draw(st.sampled_from(["u", "w", "z", "m"])))
            expression.extend(
                lambda pool, f=f, i=i, j=j, k=k: f(pool[i], pool[j], pool[k].astype(int))
            )
        else:
            k = NAMES.index(draw(st.sampled_from(POSITIVE)))
            power = draw(st.sampled_from([-1.0, -0.5, 0.5, 2.0, 0.0]))
            form = draw(st.sampled_from(["power", "log", "times", "one minus", "log product"]))
            expression.extend(
                lambda pool, i=i, k=k, power=power, form=form: _monomial(
                    form, pool[i], pool[k], pool[NAMES.index("s")], power
                )
            )
    return expression


def _monomial(form: str, x: Array, t: Array, s: Array, power: float) -> Array:
    match form:
        case "power":
            return _raised(t, power)
        case "log":
            return jnp.log(t)
        case "one minus":
            return jnp.log1p(-t * 0.5) if t is s else x / (1.0 - t * 0.5)
        case "log product":
            return jnp.log(2.0 * t / s) + x
    return x * _raised(3.0 * t * s, power)


@settings(max_examples=40)
@given(expressions(), st.integers(0, 2**16))
def test_rewriting_keeps_the_value_or_says_why(expression: Expression, seed: int) -> None:
    check_rewriting(expression, INPUTS, seed=seed)

"""Structural rules keep the value of the expression they rewrite."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowerbound.joint.rules.structural import RULES
from lowerbound.joint.terms.value import Poison
from tests.joint.evaluate import (
    Row,
    Table,
    check_rewriting,
    data,
    discrete,
    flags,
    matrix,
    positive,
    real,
    row,
    size_of,
    unit,
)


def sticks(v: Any) -> Any:
    """Stick-breaking weights, as NumPyro's documentation writes them."""
    left = jnp.cumprod(1 - v, -1)
    ends = [(0, 0)] * (v.ndim - 1)
    first = jnp.pad(v, [*ends, (0, 1)], constant_values=1)
    return first * jnp.pad(left, [*ends, (1, 0)], constant_values=1)


STRUCTURE: dict[str, Row] = {
    "broadcast": row(lambda x: jnp.broadcast_to(x, (2, 3)), x=real(3)),
    "broadcast scalar": row(lambda x: jnp.broadcast_to(x, (2, 3)), x=real()),
    "broadcast size one": row(lambda x: jnp.broadcast_to(x, (4, 3)), x=real(1, 3)),
    "broadcast then sum": row(lambda x: jnp.broadcast_to(x, (4, 3)).sum(0), x=real(3)),
    "reshape merge": row(lambda x: x.reshape(6), x=real(2, 3)),
    "reshape split": row(lambda x: x.reshape(2, 3), x=real(6)),
    "reshape regroup": row(lambda x: x.reshape(3, 4), x=real(2, 6)),
    "reshape ones": row(lambda x: x.reshape(1, 6, 1), x=real(2, 3)),
    "reshape part": row(lambda x: x.reshape(2, 6, 2), x=real(4, 3, 2)),
    "reshape times data": row(
        lambda x, d: (x.reshape(6) * d).reshape(3, 2).sum(0), x=real(2, 3), d=data(6)
    ),
    "reshape of a broadcast": row(
        lambda x: (x[:, None] + jnp.zeros((3, 2))).reshape(6), x=real(3)
    ),
    "ravel of a transpose": row(lambda x: x.T.ravel() ** 2, x=real(2, 3)),
    "reshape to scalar": row(lambda x: x.reshape(()), x=real(1, 1)),
    "reshape a square": row(lambda x: (x.reshape(6)[:, None] * x.reshape(6)), x=real(2, 3)),
    "squeeze": row(lambda x: jnp.squeeze(x, 1), x=real(2, 1, 3)),
    "squeeze a slice": row(lambda x: jnp.squeeze(x[:, 1:2], 1), x=real(2, 3)),
    "expand dims": row(lambda x: x[None, :, None] * x[:, None], x=real(3)),
    "transpose": row(lambda x: jnp.transpose(x, (2, 0, 1)), x=real(2, 3, 4)),
    "swap and multiply": row(lambda x, d: jnp.swapaxes(x, 0, 1) * d, x=real(2, 3), d=data(3, 2)),
    "moveaxis": row(lambda x: jnp.moveaxis(x, 0, -1).sum(0), x=real(2, 3, 4)),
    "slice": row(lambda x: x[1:3], x=real(5)),
    "slice strides": row(lambda x: x[::2, 1::2], x=real(5, 4)),
    "slice negative": row(lambda x: x[:-1] - x[1:], x=real(5)),
    "slice to one": row(lambda x: x[1:2] * x, x=real(3)),
    "slice a broadcast": row(lambda x: jnp.broadcast_to(x, (5, 3))[1:3], x=real(3)),
    "differences squared": row(lambda x: ((x[1:] - x[:-1]) ** 2).sum(), x=real(5)),
    "diff": row(lambda x: jnp.diff(x, axis=0), x=real(4, 2)),
    "reverse": row(lambda x: x[::-1], x=real(4)),
    "flip": row(lambda x: jnp.flip(x, 1) * x, x=real(2, 3)),
    "flip twice": row(lambda x: jnp.flip(jnp.flip(x)), x=real(3)),
    "roll": row(lambda x: jnp.roll(x, 1, axis=0) * x, x=real(4)),
    "concatenate": row(lambda x, y: jnp.concatenate([x, y]), x=real(2), y=real(3)),
    "concatenate columns": row(lambda x, d: jnp.concatenate([x, d], 1), x=real(2, 2), d=data(2, 3)),
    "concatenate scalars": row(lambda a, x: jnp.concatenate([a[None], x]), a=real(), x=real(2)),
    "concatenate the same": row(lambda x: jnp.concatenate([x, x, 2.0 * x]), x=real(2)),
    "concatenate zeros": row(lambda x: jnp.concatenate([jnp.zeros(1), x]), x=real(2)),
    "concatenate then dot": row(
        lambda a, x, d: d @ jnp.concatenate([a[None], x]), a=real(), x=real(2), d=data(4, 3)
    ),
    "concatenate infinite": row(
        lambda x: jnp.concatenate([jnp.array([jnp.inf, 1.0]), x])[1:], x=real(2)
    ),
    "stack": row(lambda x, y: jnp.stack([x, y, x]), x=real(2), y=real(2)),
    "stack last": row(lambda x, y: jnp.stack([x, y], -1), x=real(2), y=positive(2)),
    "stack scalars": row(lambda a, b, d: jnp.stack([a, b]) @ d, a=real(), b=real(), d=data(2, 3)),
    "array of scalars": row(lambda a, b: jnp.array([a, 1.0, b]), a=real(), b=real()),
    "column stack": row(lambda x, d: jnp.column_stack([x, d, x * x]), x=real(3), d=data(3)),
    "block": row(lambda x, y: jnp.block([[x, y], [y, x]]), x=real(2, 2), y=real(2, 2)),
    "pad": row(lambda x: jnp.pad(x, (1, 2)), x=real(3)),
    "pad two axes": row(lambda x: jnp.pad(x, ((1, 0), (0, 2)), constant_values=3.0), x=real(2, 2)),
    "pad by a latent": row(lambda x, a: lax.pad(x, a, [(1, 1, 0)]), x=real(2), a=real()),
    "split": row(lambda x: jnp.split(x, [1, 3]), x=real(5)),
    "split columns": row(lambda x: jnp.split(x, 2, axis=1), x=real(2, 4)),
    "unstack": row(lambda x: jnp.unstack(x), x=real(3)),
    "unstack columns": row(lambda x: jnp.unstack(x, axis=1)[1] * x[:, 0], x=real(2, 3)),
    "repeat": row(lambda x: jnp.repeat(x, 2), x=real(3)),
    "repeat by counts": row(lambda x: jnp.repeat(x, np.array([1, 0, 3])), x=real(3)),
    "tile": row(lambda x: jnp.tile(x, (2, 2)), x=real(2, 3)),
    "tile size one": row(lambda x: jnp.tile(x, 3), x=real(1)),
    "tril": row(lambda x: jnp.tril(x), x=real(3, 3)),
    "meshgrid": row(lambda x, y: jnp.meshgrid(x, y), x=real(2), y=real(3)),
    "sum": row(lambda x: x.sum(), x=real(2, 3)),
    "sum axis": row(lambda x: x.sum(1, keepdims=True), x=real(2, 3)),
    "sum negative axis": row(lambda x, d: (x * d).sum(-1), x=real(3), d=data(2, 3)),
    "sum of size one": row(lambda x: x.sum(0), x=real(1, 3)),
    "sum of ones": row(lambda x: (x[:, None] + jnp.zeros((3, 4))).sum(1), x=real(3)),
    "sum of a cancelled": row(lambda x: (x**0 + x / x * 0.0).sum(), x=positive(3)),
    "mean": row(lambda x: x.mean(0), x=real(4, 2)),
    "variance": row(lambda x: x.var(), x=real(4)),
    "sum where": row(lambda x, m: jnp.sum(x, where=m), x=real(4), m=flags(4)),
    "average": row(lambda x, d: jnp.average(x, weights=jnp.exp(d)), x=real(4), d=data(4)),
    "cumsum": row(lambda x: jnp.cumsum(x), x=real(4)),
    "cumsum axis": row(lambda x: jnp.cumsum(x, axis=1), x=real(2, 3, 2)),
    "cumsum reverse": row(lambda x: lax.cumsum(x, 0, reverse=True), x=real(4)),
    "cumsum size one": row(lambda x: jnp.cumsum(x, axis=0), x=real(1, 3)),
    "random walk": row(lambda a, x: a + jnp.cumsum(x) ** 2, a=real(), x=real(4)),
    # -- products over an axis
    "product": row(lambda x: jnp.prod(x, 0) * x, x=real(2, 3)),
    "product of all": row(lambda x, d: jnp.prod(x * d), x=real(2, 2), d=data(2, 2)),
    "product of sums": row(lambda x: jnp.prod(x + 1.0, axis=-1), x=real(2, 3)),
    "product of data": row(lambda x, d: x * jnp.prod(d, 0), x=real(2), d=data(3, 2)),
    "product of gathered": row(
        lambda x, z: jnp.prod(x[z]), x=real(3), z=discrete(2)
    ),
    "cumprod": row(lambda t: jnp.cumprod(t), t=positive(3)),
    "cumprod axis": row(lambda x: jnp.cumprod(x, axis=1), x=real(2, 3, 2)),
    "cumprod reverse": row(lambda x: lax.cumprod(x, 0, reverse=True), x=real(4)),
    "cumprod size one": row(lambda x: jnp.cumprod(x, axis=0), x=real(1, 3)),
    "log of a cumprod": row(lambda t, s: jnp.log(s * jnp.cumprod(t)), t=positive(9), s=positive()),
    "root of a product": row(lambda t: jnp.sqrt(jnp.prod(t, 1)), t=positive(2, 4)),
    # -- functions of pieces
    "log of pieces": row(
        lambda t, s: jnp.log(jnp.concatenate([t, 2.0 * s])), t=positive(3), s=positive(2)
    ),
    "log of padding": row(
        lambda t: jnp.log(jnp.pad(t, (1, 2), constant_values=3.0)), t=positive(3)
    ),
    "product of nothing": row(lambda x: x * jnp.prod(x[:0]), x=real(3)),
    "power of pieces": row(
        lambda t, s: jnp.stack([t, s, t * s]) ** -1.5, t=positive(2), s=positive(2)
    ),
    "sticks": row(lambda v: jnp.log(sticks(v)), v=unit(5)),
    "sticks of rows": row(lambda v: jnp.log(sticks(v)), v=unit(2, 3)),
    "sticks by concatenation": row(
        lambda v: jnp.log(
            jnp.concatenate([v, jnp.ones(1)]) * jnp.concatenate([jnp.ones(1), jnp.cumprod(1 - v)])
        ),
        v=unit(4),
    ),
    # -- products
    "dot": row(lambda x, d: jnp.dot(d, x), x=real(3), d=data(4, 3)),
    "dot of two": row(lambda x, y: jnp.dot(x, y), x=real(3), y=real(3)),
    "dot itself": row(lambda x: x @ x, x=real(3)),
    "matmul": row(lambda x, y: x @ y, x=real(2, 3), y=real(3, 2)),
    "matmul itself": row(lambda x: x @ x, x=real(3, 3)),
    "gram": row(lambda x: x @ x.T, x=real(3, 2)),
    "matmul batch": row(lambda x, y: x @ y, x=real(2, 3, 2), y=real(2, 2, 3)),
    "matmul size one": row(lambda x, d: d @ x, x=real(1, 3), d=data(4, 1)),
    "quadratic form": row(lambda x, d: x @ d @ x, x=real(3), d=data(3, 3)),
    "quadratic forms": row(
        lambda x, L: jnp.einsum("ki,kij,kj->k", x, L, x), x=real(2, 3), L=matrix(2, 3, 3)
    ),
    "einsum": row(lambda x, y: jnp.einsum("ik,jk->ij", x, y), x=real(2, 3), y=real(4, 3)),
    "einsum three": row(
        lambda x, y, d: jnp.einsum("ik,jk,ij->", x, y, d), x=real(2, 3), y=real(4, 3), d=data(2, 4)
    ),
    "einsum diagonal": row(lambda x: jnp.einsum("ii->i", x), x=real(3, 3)),
    "einsum transpose": row(lambda x: jnp.einsum("ij->ji", x), x=real(2, 3)),
    "einsum trace": row(lambda x, d: jnp.einsum("ij,ji->", x, d), x=real(3, 3), d=data(3, 3)),
    "tensordot": row(lambda x, y: jnp.tensordot(x, y, 2), x=real(2, 3, 4), y=real(3, 4)),
    "outer": row(lambda x, y: jnp.outer(x, y), x=real(2), y=real(3)),
    "outer itself": row(lambda x: jnp.outer(x, x), x=real(3)),
    "inner": row(lambda x, y: jnp.inner(x, y), x=real(2, 3), y=real(4, 3)),
    "vdot": row(lambda x, y: jnp.vdot(x, y), x=real(2, 3), y=real(2, 3)),
    "kron": row(lambda x, d: jnp.kron(x, d), x=real(2, 2), d=data(2, 2)),
    "trace": row(lambda x: jnp.trace(x), x=real(3, 3)),
    "diagonal": row(lambda x: jnp.diagonal(x), x=real(3, 3)),
    "diag of vector": row(lambda x: jnp.diag(x), x=real(3)),
    "diag of matrix": row(lambda x: jnp.diag(x), x=real(3, 3)),
    "eye times": row(lambda t: t * jnp.eye(3), t=positive()),
    "norm squared": row(lambda x: jnp.sum(jnp.linalg.multi_dot([x.T, x])), x=real(2, 3)),
    "sum of products": row(lambda U, V: (U[:, None] * V[None]).sum(-1), U=real(3, 2), V=real(4, 2)),
    "conditional on platform": row(lambda x: jnp.diagonal(x, 1), x=real(3, 3)),
    "known branch": row(
        lambda x: lax.cond(np.True_, lambda a: a**2, lambda a: jnp.tanh(a), x), x=real(3)
    ),
    # -- reductions of constants
    "max of data": row(lambda x, d: x * d.max(), x=real(3), d=data(4)),
    "logsumexp of data": row(lambda x, d: x * jax.nn.logsumexp(d, -1), x=real(3), d=data(3, 4)),
    "softmax of data": row(lambda x, d: x * jax.nn.softmax(d, -1), x=real(3), d=data(2, 3)),
    "max inside indicators": row(
        lambda z, d: jnp.max(z[:, None] * d, axis=1), z=discrete(3), d=data(4)
    ),
    "min inside indicators": row(
        lambda z, d: jnp.min(z[:, None] * d, axis=1), z=discrete(3), d=data(4)
    ),
    "any inside indicators": row(
        lambda z: jnp.any(z[:, None] == np.array([0, 2]), axis=1) * 1.0, z=discrete(4)
    ),
    "all inside indicators": row(
        lambda z: jnp.all(z[:, None] > np.array([0, -1]), axis=1) * 1.0, z=discrete(4)
    ),
    "argmax inside indicators": row(
        lambda z: jnp.argmax(z[:, None] == np.arange(3), axis=1), z=discrete(4)
    ),
    "argmin inside indicators": row(
        lambda z: jnp.argmin(z[:, None] == np.arange(3), axis=1), z=discrete(4)
    ),
    # -- transformations
    "vmap": row(lambda x, d: jax.vmap(lambda a, b: a * b + a**2)(x, d), x=real(3), d=data(3)),
    "vmap of dot": row(
        lambda x, d: jax.vmap(jnp.dot, (None, 0))(x, d), x=real(3), d=data(4, 3)
    ),
    "vmap over columns": row(
        lambda x: jax.vmap(lambda c: c @ c, in_axes=1)(x), x=real(2, 3)
    ),
    "vmap of vmap": row(
        lambda x, y: jax.vmap(lambda a: jax.vmap(lambda b: (a - b) ** 2)(y))(x),
        x=real(3),
        y=real(2),
    ),
    "jit of vmap": row(
        lambda x, d: jax.jit(jax.vmap(lambda a, b: (a * b).sum()))(x, d), x=real(3, 2), d=data(3, 2)
    ),
}  # fmt: skip

POISON: dict[str, tuple[Row, set[str]]] = {
    "unknown branch": (
        row(lambda x, d: lax.cond(d[0] > 0, lambda a: a, lambda a: -a, x), x=real(3), d=data(1)),
        {"x"},
    ),
    "scan": (
        row(lambda x, y: lax.scan(lambda c, a: (c + a, c * a), y, x)[1], x=real(3), y=real()),
        {"x", "y"},
    ),
    "loop": (row(lambda x: lax.fori_loop(0, 3, lambda i, c: c * x, x), x=real(2)), {"x"}),
    "sort": (row(lambda x: jnp.sort(x) * 2.0 + 1.0, x=real(3)), {"x"}),
    "max": (row(lambda x: x.max(0), x=real(3, 2)), {"x"}),
    "product": (row(lambda x: jnp.prod(1.0 + x), x=real(9)), {"x"}),
    "cumprod": (row(lambda x: jnp.cumprod(1.0 + x), x=real(9)), {"x"}),
    "log of pieces that meet": (
        row(lambda t: jnp.log(jnp.pad(t, (0, 1)) + jnp.pad(t, (1, 0))), t=positive(3)),
        {"t"},
    ),
    "cholesky": (row(lambda L: jnp.linalg.cholesky(L), L=matrix(2, 2)), {"L"}),
    "inverse": (row(lambda L, x: jnp.linalg.inv(L) @ x, L=matrix(2, 2), x=real(2)), {"L", "x"}),
    "solve": (row(lambda L, x: jnp.linalg.solve(L, x), L=matrix(2, 2), x=real(2)), {"L", "x"}),
    "scatter": (row(lambda x: x.at[1].set(0.0), x=real(3)), {"x"}),
    "norm": (row(lambda x: jnp.linalg.norm(x), x=real(3)), {"x"}),
    "interior padding": (row(lambda x: lax.pad(x, 0.0, [(0, 0, 1)]), x=real(3)), {"x"}),
}  # fmt: skip

TABLE = Table(STRUCTURE)
POISONED = Table({name: entry[0] for name, entry in POISON.items()})


@pytest.mark.parametrize("name", STRUCTURE)
def test_rewriting_keeps_the_value(name: str) -> None:
    for output in TABLE.cases[name].check():
        assert not isinstance(output, Poison), output


@pytest.mark.parametrize("name", POISON)
def test_what_has_no_rule_is_poisoned(name: str) -> None:
    _, sites = POISON[name]
    (output,) = POISONED.cases[name].check()
    assert isinstance(output, Poison)
    assert output.sites == sites
    assert output.where.startswith("test_rules_structure.py:")


def test_a_sum_forms_no_array() -> None:
    def squares(x: Any, d: Any) -> Any:
        return ((d[:, None] - x[None]) ** 2).sum()

    (output,) = check_rewriting(squares, {"x": real(5), "d": data(7)})
    latent = [t for t in output.terms if t.latents]
    assert {len(f.index) for t in latent for f in t.constants} <= {0, 1}
    assert size_of(output) == 35


def test_every_rule_is_in_the_table() -> None:
    assert set(RULES) - TABLE.primitives() <= {"expand_dims"}

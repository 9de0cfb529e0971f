"""Indexing, by data and by discrete latents, keeps the value of the expression they rewrite."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowerbound.joint.rules.indexing import RULES
from lowerbound.joint.terms.value import Poison
from tests.joint.evaluate import (
    Row,
    Table,
    data,
    discrete,
    flags,
    integers,
    matrix,
    positive,
    real,
    row,
    simplex,
)

I, J = np.triu_indices(4, 1)

INDEXING: dict[str, Row] = {
    "integer": row(lambda x: x[1], x=real(3)),
    "negative integer": row(lambda x: x[-1], x=real(3)),
    "integer of many": row(lambda x: x[1, :, -2], x=real(2, 3, 4)),
    "integer of size one": row(lambda x: x[0], x=real(1, 3)),
    "ellipsis": row(lambda x: x[..., 0, None], x=real(2, 3)),
    "scalar from data": row(lambda x, w: x[w], x=real(3), w=integers()),
    "array": row(lambda x, w: x[w], x=real(3), w=integers(5)),
    "array static": row(lambda x: x[np.array([2, 0, 0])], x=real(3)),
    "negative array": row(lambda x: x[np.array([-1, 0, -3])], x=real(3)),
    "negative from data": row(lambda x, w: x[w - 3], x=real(3), w=integers(5)),
    "list of rows": row(lambda x: x[jnp.array([2, 0])], x=real(3, 2)),
    "second axis": row(lambda x, w: x[:, w], x=real(2, 3), w=integers(5)),
    "two arrays": row(lambda x, v, w: x[v, w], x=real(3, 3), v=integers(5), w=integers(5)),
    "two arrays apart": row(
        lambda x, v, w: x[v, :, w], x=real(3, 2, 3), v=integers(5), w=integers(5)
    ),
    "array and integer": row(lambda x, w: x[w, 1], x=real(3, 2), w=integers(5)),
    "array and slice": row(lambda x, w: x[w, 1:], x=real(3, 3), w=integers(5)),
    "array and new axis": row(lambda x, w: x[w, None], x=real(3, 2), w=integers(5)),
    "matrix of indices": row(lambda x, w: x[w], x=real(3, 2), w=integers(4, 2)),
    "outer indices": row(lambda x: x[np.ix_([0, 2], [1, 0])], x=real(3, 2)),
    "outer data": row(
        lambda x, v, w: x[v[:, None], w[None]], x=real(3, 3), v=integers(4), w=integers(2)
    ),
    "pairs": row(lambda x: x[I] * x[J], x=real(4)),
    "upper triangle": row(lambda x: x[I, J], x=real(4, 4)),
    "static mask": row(lambda x: x[np.array([True, False, True])], x=real(3)),
    "static mask of two axes": row(lambda x: x[np.eye(3, dtype=bool)], x=real(3, 3)),
    "take": row(lambda x, w: jnp.take(x, w, axis=1), x=real(2, 3), w=integers(4)),
    "take clipped": row(lambda x, w: jnp.take(x, w + 1, mode="clip"), x=real(3), w=integers(4)),
    "take flat": row(lambda x, w: jnp.take(x, w), x=real(2, 3), w=integers(4, below=6)),
    "take along axis": row(
        lambda x, w: jnp.take_along_axis(x, w, axis=1), x=real(2, 3), w=integers(2, 4)
    ),
    "take along axis, broadcast": row(
        lambda x, w: jnp.take_along_axis(x, w[:, None], axis=1)[:, 0], x=real(4, 3), w=integers(4)
    ),
    "at get": row(lambda x, w: x.at[w].get(), x=real(3), w=integers(4)),
    "narrow indices": row(lambda x, w: x[w], x=real(3), w=integers(4, dtype=np.uint8)),
    "nested": row(lambda x, v, w: x[v][w], x=real(3), v=integers(4), w=integers(5, below=4)),
    "nested static": row(lambda x: x[np.array([2, 1, 0])][np.array([2, 2])], x=real(3)),
    "gather then sum": row(lambda x, w: x[w].sum(), x=real(3), w=integers(4)),
    "gather a product": row(
        lambda x, y, w: (x * y)[w] ** 2, x=real(3), y=real(3), w=integers(4)
    ),
    "gather a sum": row(lambda x, d, w: (d @ x)[w], x=real(3), d=data(4, 3), w=integers(4)),
    "gather rows of data": row(lambda x, d, w: d[w] @ x, x=real(3), d=data(3, 3), w=integers(4)),
    "crossed effects": row(
        lambda a, b, v, w: a[v] + b[w] + a[v] * b[w],
        a=real(3), b=real(3), v=integers(5), w=integers(5),
    ),
    "varying slopes": row(
        lambda b, w, d: (b[w] * d).sum(-1), b=real(3, 2), w=integers(5), d=data(5, 2)
    ),
    "vmap of indexing": row(
        lambda x, w: jax.vmap(lambda r, i: r[i])(x, w), x=real(4, 3), w=integers(4)
    ),
    "vmap of a shared table": row(
        lambda x, w: jax.vmap(lambda i: x[i])(w), x=real(3, 2), w=integers(4)
    ),
    "vmap over the table": row(
        lambda x: jax.vmap(lambda r: r[np.array([1, 0, 1])])(x), x=real(2, 3)
    ),
    "dynamic slice": row(lambda x: lax.dynamic_slice(x, (1, 0), (2, 2)), x=real(4, 3)),
    "dynamic slice by data": row(
        lambda x, w: lax.dynamic_slice(x, (w, 0), (2, 3)), x=real(4, 3), w=integers(below=4)
    ),
    "dynamic index": row(
        lambda x, w: lax.dynamic_index_in_dim(x, w, 0, keepdims=False), x=real(4, 2), w=integers()
    ),
    "dynamic slice of size one": row(
        lambda x, w: lax.dynamic_slice(x, (w,), (1,)), x=real(3), w=integers()
    ),
    "one hot of data": row(lambda x, w: jax.nn.one_hot(w, 3) @ x, x=real(3), w=integers(4)),
    "gather of a broadcast": row(
        lambda x, w: jnp.broadcast_to(x, (3, 2))[w], x=real(2), w=integers(4)
    ),
    "gather of a stack": row(
        lambda a, b, w: jnp.stack([a, b, a * b])[w], a=real(), b=real(), w=integers(4)
    ),
    # -- latent indices
    "table of z": row(lambda x, z: x[z], x=real(3), z=discrete(4)),
    "scalar z": row(lambda x, z: x[z], x=real(3), z=discrete()),
    "row of scalar z": row(lambda x, z: x[z] * x[0], x=real(3, 2), z=discrete()),
    "two scalars": row(
        lambda x, z, u, w: x[z, u, w], x=real(3, 2, 3), z=discrete(), u=discrete(K=2), w=integers()
    ),
    "window at z": row(
        lambda x, z: lax.dynamic_slice(x, (z, 0), (2, 2)), x=real(4, 3), z=discrete()
    ),
    "rows of z": row(lambda x, z: x[z], x=real(3, 2), z=discrete(4)),
    "size-one z": row(lambda x, z: x[z], x=real(3), z=discrete(1)),
    "one category": row(lambda x, z: x[z], x=real(1), z=discrete(4, K=1)),
    "matrix of z": row(lambda x, z: x[z], x=real(3), z=discrete(2, 4)),
    "constant table": row(lambda d, z: d[z] ** 2, d=data(3), z=discrete(4)),
    "two z": row(lambda x, z, u: x[z, u], x=real(3, 2), z=discrete(4), u=discrete(4, K=2)),
    "two z, one broadcast": row(
        lambda x, z, u: x[z[:, None], u], x=real(3, 2), z=discrete(4), u=discrete(3, K=2)
    ),
    "z and data": row(lambda x, z, w: x[z, w], x=real(3, 3), z=discrete(4), w=integers(4)),
    "z and slice": row(lambda x, z: x[z, 1:], x=real(3, 3), z=discrete(4)),
    "column of z": row(lambda x, z: x[:, z], x=real(2, 3), z=discrete(4)),
    "z then column": row(lambda x, z: x[z][:, 1], x=real(3, 2), z=discrete(4)),
    "words": row(
        lambda b, z, w: b[z, w], b=simplex(3, 5), z=discrete(2, 4), w=integers(2, 4, below=5)
    ),
    "topic of each document": row(
        lambda t, z, w: t[w, z], t=simplex(3, 2), z=discrete(4, K=2), w=integers(4)
    ),
    "outer z": row(lambda b, z: b[z[:, None], z[None]], b=real(3, 3), z=discrete(4)),
    "blockmodel": row(lambda b, z: b[z[I], z[J]], b=real(3, 3), z=discrete(4)),
    "same z twice": row(lambda b, z: b[z, z], b=real(3, 3), z=discrete(4)),
    "z of data": row(lambda x, z, w: x[z[w]], x=real(3), z=discrete(3), w=integers(5)),
    "arithmetic index": row(lambda x, z: x[2 * z + 1], x=real(6), z=discrete(4)),
    "reverse index": row(lambda x, z: x[2 - z], x=real(3), z=discrete(4)),
    "negative z": row(lambda x, z: x[z - 3], x=real(3), z=discrete(4)),
    "sum of two z": row(lambda x, z, u: x[z + u], x=real(5), z=discrete(4), u=discrete(4)),
    "flattened pair": row(
        lambda x, z, u: x.reshape(6)[2 * z + u], x=real(3, 2), z=discrete(4), u=discrete(4, K=2)
    ),
    "index by comparison": row(
        lambda x, z: x[(z > 0).astype(int)], x=real(2), z=discrete(4)
    ),
    "one hot of z": row(lambda x, z: jax.nn.one_hot(z, 3) @ x, x=real(3), z=discrete(4)),
    "one hot product": row(
        lambda x, z: (jax.nn.one_hot(z, 3) * x).sum(-1) ** 2, x=real(3), z=discrete(4)
    ),
    "square of a table": row(
        lambda x, z, d: (d - x[z]) ** 2, x=real(3), z=discrete(4), d=data(4)
    ),
    "sum of tables": row(
        lambda x, y, z, u: (x[z] + y[u]) ** 2, x=real(3), y=real(3), z=discrete(4), u=discrete(4)
    ),
    "precision of a cluster": row(
        lambda x, t, z, d: (t[z] * (d - x[z]) ** 2).sum(),
        x=real(3), t=positive(3), z=discrete(4), d=data(4),
    ),
    "vmap of a latent index": row(
        lambda x, z: jax.vmap(lambda i: x[i] ** 2)(z), x=real(3), z=discrete(4)
    ),
    "vmap of rows": row(
        lambda x, z: jax.vmap(lambda r, i: r[i])(x, z), x=real(4, 3), z=discrete(4)
    ),
    "take of z": row(lambda x, z: jnp.take(x, z, axis=0), x=real(3, 2), z=discrete(4)),
    "take along z": row(
        lambda x, z: jnp.take_along_axis(x, z[:, None], axis=1), x=real(4, 3), z=discrete(4)
    ),
    "matrices of a cluster": row(
        lambda L, z, d: jnp.einsum("ni,nij,nj->", d, L[z], d),
        L=matrix(3, 2, 2), z=discrete(4), d=data(4, 2),
    ),
    "reshape of z": row(lambda x, z: x[z.reshape(4)], x=real(3), z=discrete(2, 2)),
    "slice of z": row(lambda x, z: x[z[1:]] * x[z[:-1]], x=real(3), z=discrete(4)),
    "transition": row(lambda b, z: b[z[:-1], z[1:]], b=real(3, 3), z=discrete(4)),
    "stack of z": row(
        lambda x, z, u: x[jnp.stack([z, u])], x=real(3), z=discrete(4), u=discrete(4)
    ),
    "concatenate z": row(
        lambda x, z, w: x[jnp.concatenate([z, w])], x=real(3), z=discrete(2), w=integers(3)
    ),
    "where on z": row(
        lambda x, z, m: x[jnp.where(m, z, 0)], x=real(3), z=discrete(4), m=flags(4)
    ),
    "binary table": row(
        lambda x, z: x[z] + jnp.where(z, 1.0, -1.0), x=real(2), z=discrete(4, K=2)
    ),
}  # fmt: skip

POISON: dict[str, tuple[Row, set[str]]] = {
    "continuous index": (
        row(lambda x, y: x[y.astype(int)], x=real(3, 2), y=real(5)), {"x", "y"},
    ),
    "continuous slice": (
        row(lambda x, y: lax.dynamic_slice(x, (y.astype(int),), (2,)), x=real(4), y=real()),
        {"x", "y"},
    ),
    "index by a total": (row(lambda x, z: x[z.sum()], x=real(9), z=discrete(4)), {"x", "z"}),
    "z of z": (
        row(lambda x, z, u: x[z[u]], x=real(2), z=discrete(3, K=2), u=discrete(4)),
        {"x", "z", "u"},
    ),
    "fill value": (
        row(lambda x, w: jnp.take(x, w + 2, mode="fill", fill_value=7.0), x=real(3), w=integers(6)),
        {"x"},
    ),
}  # fmt: skip

TABLE = Table(INDEXING)
POISONED = Table({name: entry[0] for name, entry in POISON.items()})


@pytest.mark.parametrize("name", INDEXING)
def test_rewriting_keeps_the_value(name: str) -> None:
    for output in TABLE.cases[name].check():
        assert not isinstance(output, Poison), output


@pytest.mark.parametrize("name", POISON)
def test_what_has_no_rule_is_poisoned(name: str) -> None:
    _, sites = POISON[name]
    (output,) = POISONED.cases[name].check()
    assert isinstance(output, Poison)
    assert output.sites == sites
    assert output.where.startswith("test_rules_indexing.py:")


def test_every_rule_is_in_the_table() -> None:
    assert set(RULES) <= TABLE.primitives()

"""Structural and indexing rules keep the value of the expression they rewrite."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowerbound.joint import rules_indexing, rules_structure
from lowerbound.joint.value import Poison
from tests.joint.evaluate import (
    Row,
    Table,
    check_rewriting,
    data,
    discrete,
    flags,
    integers,
    matrix,
    positive,
    real,
    row,
    simplex,
    size_of,
)

I, J = np.triu_indices(4, 1)

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
    "product": (row(lambda x: jnp.prod(x, 0) * x, x=real(2, 3)), {"x"}),
    "cumprod": (row(lambda t: jnp.cumprod(t), t=positive(3)), {"t"}),
    "cholesky": (row(lambda L: jnp.linalg.cholesky(L), L=matrix(2, 2)), {"L"}),
    "inverse": (row(lambda L, x: jnp.linalg.inv(L) @ x, L=matrix(2, 2), x=real(2)), {"L", "x"}),
    "solve": (row(lambda L, x: jnp.linalg.solve(L, x), L=matrix(2, 2), x=real(2)), {"L", "x"}),
    "scatter": (row(lambda x: x.at[1].set(0.0), x=real(3)), {"x"}),
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
    "norm": (row(lambda x: jnp.linalg.norm(x), x=real(3)), {"x"}),
    "interior padding": (row(lambda x: lax.pad(x, 0.0, [(0, 0, 1)]), x=real(3)), {"x"}),
}  # fmt: skip

EXACT = {**STRUCTURE, **INDEXING}


TABLE = Table(EXACT)
POISONED = Table({name: entry[0] for name, entry in POISON.items()})


@pytest.mark.parametrize("name", EXACT)
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
    rules = {**rules_structure.RULES, **rules_indexing.RULES}
    assert set(rules) - TABLE.primitives() <= {"expand_dims"}

"""What an accelerator computes of a stage whose rest is implicit: pure functions of its layouts."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lowerbound.family.sparse.low_rank_inverse import Inverse


class Layout(NamedTuple):
    """Blocks of one size b, n of them, and where their values are; the one after the last is 0.

    inner: (b, b, n). members: (b, n). by_block and by_column: chunks of W, of its rows and of its
    columns, with `source` (b, pieces, width), what each item meets, and the group of each piece.
    """

    inner: Any
    members: Any
    by_block: Piecewise
    by_column: Piecewise


class Piecewise(NamedTuple):
    """Chunks of a border: values, what items meet (pieces, width), groups of pieces."""

    source: Any
    meets: Any
    group: Any


class Together(NamedTuple):
    """Of twins of one size b: their pieces by columns (b, p), and which block each is of."""

    pieces: Any
    which: Any


class Done(NamedTuple):
    """A factored layout: L^-1 (b, b, n), and W (b, pieces, width) by blocks and by columns."""

    inverse: Any
    by_block: Any
    by_column: Any


def _added(parts: Array, pieces: Piecewise, count: int) -> Array:
    """Sums of pieces (p, ...) by their groups."""
    return jax.ops.segment_sum(parts, pieces.group, count, indices_are_sorted=True)


def eliminated(
    layouts: tuple[Layout, ...], kept: Array, values: Array
) -> tuple[tuple[Done, ...], Array, Array]:
    """The factors of blocks, values `kept` for what is left and 0, and the log-determinant.

    It is NaN where a block is not positive definite.
    """
    found, log_det = [], jnp.zeros(())
    left = jnp.append(values[kept], 0.0)
    values = jnp.append(values, 0.0)
    for layout in layouts:
        inverse, own = inverse_cholesky(values[layout.inner])
        rows = inverse[:, :, layout.by_block.group][..., None]
        columns = inverse[:, :, layout.by_column.meets]
        by_block = jnp.sum(rows * values[layout.by_block.source], axis=1)
        by_column = jnp.sum(columns * values[layout.by_column.source], axis=1)
        found.append(Done(inverse, by_block, by_column))
        log_det += own
    return tuple(found), left, log_det


def inverse_cholesky(matrix: Array) -> tuple[Array, Array]:
    """L^-1 of each block (b, b, n), from its lower triangle, and the sum of log-determinants."""
    size, zero = len(matrix), jnp.zeros_like(matrix[0, 0])
    lower = [[zero] * size for _ in range(size)]
    inverse = [[zero] * size for _ in range(size)]
    log_det = jnp.zeros(())
    for j in range(size):
        pivot = matrix[j, j] - sum((lower[j][k] ** 2 for k in range(j)), zero)
        log_det += jnp.sum(jnp.log(pivot))
        lower[j][j] = jnp.sqrt(pivot)
        for i in range(j + 1, size):
            rest = matrix[i, j] - sum((lower[i][k] * lower[j][k] for k in range(j)), zero)
            lower[i][j] = rest / lower[j][j]
        inverse[j][j] = 1.0 / lower[j][j]
        for k in range(j):
            rest = sum((lower[j][m] * inverse[m][k] for m in range(k, j)), zero)
            inverse[j][k] = -rest * inverse[j][j]
    return jnp.stack([jnp.stack(row) for row in inverse]), log_det


def _rows_of(layout: Layout, border: Array, vectors: Array) -> Array:
    """W v, (b, n, k)."""
    met = vectors[layout.by_block.meets]  # (pieces, width, k)
    parts = jnp.einsum("bpw,pwk->pbk", border, met)
    return _added(parts, layout.by_block, layout.members.shape[1]).transpose(1, 0, 2)


def _columns_of(layout: Layout, border: Array, rows: Array, count: int) -> Array:
    """W' u, (q, k), of rows u (b, n, k)."""
    met = rows[:, layout.by_column.meets]  # (b, pieces, width, k)
    parts = jnp.einsum("bpw,bpwk->pk", border, met)
    return _added(parts, layout.by_column, count)


def complement(
    layouts: tuple[Layout, ...], done: tuple[Done, ...], own: Piecewise, values: Array, v: Array
) -> Array:
    """(C - W' W) v, of what is left of the matrix once the blocks are eliminated, (r, k)."""
    found = jnp.einsum("pw,pwk->pk", values[own.source[0]], v[own.meets])
    total = _added(found, own, len(v))
    for layout, one in zip(layouts, done, strict=True):
        rows = _rows_of(layout, one.by_block, v)
        total -= _columns_of(layout, one.by_column, rows, len(v))
    return total


def twin_products(done: tuple[Done, ...], together: tuple[Together, ...], count: int) -> Array:
    """W' W where twins meet each other, (b, b, count)."""
    size = len(together[0].pieces)
    total = jnp.zeros((size, size, count))
    for one, twin in zip(done, together, strict=True):
        columns = [one.by_column[:, pieces] for pieces in twin.pieces]
        for i in range(size):
            for j in range(i + 1):
                parts = jnp.sum(columns[i] * columns[j], axis=(0, 2))
                added = jax.ops.segment_sum(parts, twin.which, count, indices_are_sorted=True)
                total = total.at[i, j].add(added)
    return total


def forward(
    layouts: tuple[Layout, ...], done: tuple[Done, ...], kept: Array, rhs: Array
) -> tuple[tuple[Array, ...], Array]:
    """L^-1 rhs of the blocks, and what is left of the rhs once W' times it is taken off."""
    halves, left = [], rhs[kept]
    for layout, one in zip(layouts, done, strict=True):
        half = jnp.einsum("ijn,jnk->ink", one.inverse, rhs[layout.members])
        left -= _columns_of(layout, one.by_column, half, len(left))
        halves.append(half)
    return tuple(halves), left


def backward(
    layouts: tuple[Layout, ...],
    done: tuple[Done, ...],
    kept: Array,
    halves: tuple[Array, ...],
    left: Array,
) -> Array:
    """The solution of all, (d, k), from halves of the blocks and what is left."""
    count = len(left) + sum(layout.members.size for layout in layouts)
    out = jnp.zeros((count, left.shape[1])).at[kept].set(left)
    for layout, one, half in zip(layouts, done, halves, strict=True):
        rest = half - _rows_of(layout, one.by_block, left)
        out = out.at[layout.members].set(jnp.einsum("jin,jnk->ink", one.inverse, rest))
    return out


def variances(
    layouts: tuple[Layout, ...],
    done: tuple[Done, ...],
    kept: Array,
    together: tuple[tuple[Together, ...], ...],
    inverse: Inverse,
) -> Array:
    """The diagonal of P^-1, (d,), from C^-1 + L Q L' of what is left."""
    low, middle = inverse.columns, inverse.middle
    own = inverse.diagonal
    out = jnp.zeros(len(own) + sum(layout.members.size for layout in layouts)).at[kept].set(own)
    for layout, one, twins in zip(layouts, done, together, strict=True):
        count = layout.members.shape[1]
        own = jnp.einsum("kin,kin->in", one.inverse, one.inverse)
        rows = one.inverse.transpose(1, 0, 2)[:, :, layout.by_block.group][..., None]
        turned = jnp.sum(rows * one.by_block, axis=1)
        met = _rows_of(layout, turned, low)
        far = jnp.einsum("bnr,rs,bns->bn", met, middle, met)
        columns = one.inverse.transpose(1, 0, 2)[:, :, layout.by_column.meets]
        across = jnp.sum(columns * one.by_column, axis=1)  # (b, pieces, width)
        near = jnp.zeros_like(own)
        for twin, block in zip(twins, inverse.blocks, strict=True):
            inside = [across[:, pieces] for pieces in twin.pieces]
            total = jnp.zeros_like(inside[0])
            for i in range(len(block)):
                for j in range(i + 1):
                    weight = block[i, j] if i == j else 2.0 * block[i, j]
                    total += inside[i] * inside[j] * weight[twin.which][:, None]
            to = layout.by_column.meets[twin.pieces[0]].ravel()
            for slot in range(len(own)):
                added = jax.ops.segment_sum(total[slot].ravel(), to, count)
                near = near.at[slot].add(added)
        out = out.at[layout.members].set(own + jnp.maximum(near + far, 0.0))
    return out

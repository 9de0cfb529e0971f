"""Sums over the entries of each word, the same in every run.

On CPU a scatter adds in order. On GPU it adds in the order of arrival; there the sums are a product
of matrices while a block of documents by all words is small, and else entries are sorted by word
and summed in pieces of equal width, pieces of pieces, and so on.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp

WIDTH: Final = 16
DENSE_WORDS: Final = 1 << 14  # a product costs as many operations as there are words; sorting not
DENSE_BYTES: Final = 1 << 28  # of the counts of a block of documents by all words


class Pieces(NamedTuple):
    """How to sum the entries of each word of a table.

    A level has pieces of at most WIDTH neighbours of one word, in the order of words: an array
    (pieces, WIDTH) of places in the level below, with the number of its places where empty.
    """

    levels: tuple[Any, ...]
    last: Any  # (V,) int32: the piece of the last level that is the word's sum


def pieces(words: jax.Array, counts: jax.Array, vocabulary: int) -> Pieces:
    """Pieces of the entries (R, L) of a table; entries of count 0 are left out."""
    keys = jnp.where(counts > 0, words, vocabulary).ravel().astype(jnp.int32)
    order = jnp.argsort(keys).astype(jnp.int32)
    size = len(order)
    firsts = jnp.searchsorted(keys[order], jnp.arange(vocabulary + 1, dtype=jnp.int32))
    firsts = firsts.astype(jnp.int32)
    levels: list[jax.Array] = []
    most, bound = size, size  # entries of one word, and places of the level below, at most
    while most > 1 or not levels:
        number = -(-jnp.diff(firsts) // WIDTH)
        begins = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(number, dtype=jnp.int32)])
        total = min(vocabulary, bound) + bound // WIDTH
        piece = jnp.arange(total, dtype=jnp.int32)
        word = jnp.searchsorted(begins[1:], piece, side="right").clip(max=vocabulary - 1)
        at = (firsts[word] + (piece - begins[word]) * WIDTH)[:, None] + jnp.arange(WIDTH)
        inside = (at < firsts[word + 1][:, None]) & (piece < begins[-1])[:, None]
        if not levels:
            at = order[jnp.minimum(at, size - 1)]
        levels.append(jnp.where(inside, at, bound).astype(jnp.int32))
        firsts = begins
        most, bound = -(-most // WIDTH), total
    last = jnp.where(jnp.diff(firsts) > 0, firsts[:-1], bound)
    return Pieces(tuple(levels), last.astype(jnp.int32))


def by_word(
    words: jax.Array,
    counts: jax.Array,
    ratio: jax.Array,
    t: jax.Array,
    *,
    vocabulary: int,
    platform: str,
) -> jax.Array:
    """The sum of ratio[d, w] t[d, w, :] over the documents d of each word w, (V, K).

    `t` is (R, L, K), or (R, K) where all words of a document have the same.
    """
    if platform == "cpu":
        return scattered(words, ratio, t, vocabulary)
    if t.ndim == 2 and vocabulary <= DENSE_WORDS:
        return product(words, ratio, t, vocabulary, platform)
    return in_pieces(pieces(words, counts, vocabulary), ratio, t)


def scattered(words: jax.Array, ratio: jax.Array, t: jax.Array, vocabulary: int) -> jax.Array:
    """`by_word`, entry after entry."""
    values = ratio[..., None] * (t if t.ndim == 3 else t[:, None])
    zeros = jnp.zeros((vocabulary, t.shape[-1]), t.dtype)
    return zeros.at[words.ravel()].add(values.reshape(-1, t.shape[-1]))


def product(
    words: jax.Array, ratio: jax.Array, t: jax.Array, vocabulary: int, platform: str
) -> jax.Array:
    """`by_word` as a product of matrices: of the ratios, words by documents, and t."""
    count = len(words)
    block = max(1, DENSE_BYTES // (vocabulary * t.dtype.itemsize))
    parts = -(-count // block)
    pad = -count % parts
    words, ratio, t = (
        jnp.pad(a, ((0, pad), (0, 0))).reshape(parts, -1, a.shape[1]) for a in (words, ratio, t)
    )
    # Three products of halves in bfloat16 round as one in float32, on the matrix units.
    exact: Any = jax.lax.Precision.HIGHEST
    if t.dtype == jnp.float32 and platform == "gpu":
        exact = jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X3

    def add(sums: jax.Array, block: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        words, ratio, t = block
        dense = jnp.zeros((len(words), vocabulary), t.dtype)
        # Words of a document differ, and empty places add zeros: no order to depend on.
        dense = dense.at[jnp.arange(len(words))[:, None], words].add(ratio)
        return sums + jnp.einsum("dw,dk->wk", dense, t, precision=exact), None

    sums: jax.Array
    sums, _ = jax.lax.scan(add, jnp.zeros((vocabulary, t.shape[-1]), t.dtype), (words, ratio, t))
    return sums


def in_pieces(how: Pieces, ratio: jax.Array, t: jax.Array) -> jax.Array:
    """`by_word` of sorted entries."""
    first = how.levels[0]
    weight = ratio.ravel().at[first].get(mode="fill", fill_value=0)
    rows = (
        t[(first // ratio.shape[1]).clip(max=len(t) - 1)]
        if t.ndim == 2
        else t.reshape(-1, t.shape[-1])[first.clip(max=ratio.size - 1)]
    )
    sums = (weight[..., None] * rows).sum(1)
    for level in how.levels[1:]:
        sums = sums.at[level].get(mode="fill", fill_value=0).sum(1)
    result: jax.Array = sums.at[how.last].get(mode="fill", fill_value=0)
    return result

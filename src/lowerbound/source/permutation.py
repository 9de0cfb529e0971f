"""Keyed pseudo-random permutations of 0 .. n-1, evaluated only where they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

ROUNDS = 6
# Below this a table costs next to nothing, and a network on so few bits is not uniform enough.
TABLE = 1 << 16
BLOCK = 1 << 16


@dataclass(frozen=True)
class Permutation:
    """The permutation of 0 .. n-1 that belongs to a key: the same key, the same permutation.

    Short ones are shuffled tables. Long ones are Feistel networks on ceil(log2 n) bits with cycle
    walking (Black and Rogaway 2002), so that no index of size n is ever held.
    """

    n: int
    table: np.ndarray | None
    keys: np.ndarray

    def __call__(self, index: np.ndarray) -> np.ndarray:
        """Where the permutation sends each index."""
        if self.table is not None:
            return np.asarray(self.table[index])
        bits = (self.n - 1).bit_length()
        # Processors multiply vectors of 32-bit integers, which do for all but the longest.
        out: np.ndarray = index.astype(np.uint32 if bits <= 32 else np.uint64)
        for start in range(0, len(out), BLOCK):  # a block at a time stays in the cache
            out[start : start + BLOCK] = _network(out[start : start + BLOCK], bits, self.keys)
        # The orbit of a valid index returns to the valid indices, so the walk ends.
        outside = np.flatnonzero(out >= self.n)
        while outside.size:
            walked = _network(out[outside], bits, self.keys)
            out[outside] = walked
            outside = outside[walked >= self.n]
        return out.astype(np.int64)


@lru_cache(maxsize=8)  # consecutive chunks of batches ask for the same epoch
def permutation(n: int, key: tuple[int, ...]) -> Permutation:
    """A permutation of 0 .. n-1 drawn, nearly uniformly, from the generator of the key."""
    generator = np.random.default_rng(key)
    if n <= TABLE:
        return Permutation(n, generator.permutation(n), np.zeros(0, np.uint64))
    return network_permutation(n, generator)


def network_permutation(n: int, generator: np.random.Generator) -> Permutation:
    """A permutation of 0 .. n-1 by a Feistel network with random round keys."""
    keys = generator.integers(0, 1 << 64, size=(ROUNDS, 2), dtype=np.uint64)
    return Permutation(n, None, keys)


def _network(x: np.ndarray, bits: int, keys: np.ndarray) -> np.ndarray:
    """Alternate halves are masked by a hash of the other half: a bijection on `bits` bits."""
    width = x.dtype.type
    low_bits = width(bits // 2)
    low_mask = width((1 << (bits // 2)) - 1)
    high_mask = width((1 << (bits - bits // 2)) - 1)
    low, high = x & low_mask, x >> low_bits
    for turn, (first, second) in enumerate(keys.astype(width)):
        if turn % 2 == 0:
            high ^= _hash(low, first, second) & high_mask
        else:
            low ^= _hash(high, first, second) & low_mask
    joined: np.ndarray = (high << low_bits) | low
    return joined


def _hash(x: np.ndarray, first: Any, second: Any) -> np.ndarray:
    """A keyed multiply-and-shift hash; unsigned integers wrap around."""
    width, bits = x.dtype.type, 8 * x.dtype.itemsize
    half = width(bits // 2)
    x = (x + first) * (second | width(1))
    x ^= x >> half
    x *= width(0xD6E8FEB86659FD93 % (1 << bits))
    x ^= x >> half
    return x

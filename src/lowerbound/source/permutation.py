"""Keyed pseudo-random permutations of 0 .. n-1, evaluated only where they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

ROUNDS = 6
# Below this a table costs next to nothing, and a network on so few bits is not uniform enough.
TABLE = 1 << 16


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
        out = _network(index.astype(np.uint64), bits, self.keys)
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
    low_bits = np.uint64(bits // 2)
    low_mask = np.uint64((1 << (bits // 2)) - 1)
    high_mask = np.uint64((1 << (bits - bits // 2)) - 1)
    low, high = x & low_mask, x >> low_bits
    for turn, (first, second) in enumerate(keys):
        if turn % 2 == 0:
            high ^= _hash(low, first, second) & high_mask
        else:
            low ^= _hash(high, first, second) & low_mask
    return (high << low_bits) | low


def _hash(x: np.ndarray, first: np.uint64, second: np.uint64) -> np.ndarray:
    """A keyed multiply-and-shift hash; unsigned integers wrap around."""
    x = (x + first) * (second | np.uint64(1))
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(32)
    return x

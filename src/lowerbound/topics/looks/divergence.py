"""How far apart topics are: the Jensen-Shannon divergence, in bits.

JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2 is what one word tells about which of two topics it
came from: 0 bits when they are the same, 1 bit when they share no word. Its square root is a metric
(Endres and Schindelin, 2003).
"""

from __future__ import annotations

from typing import Final

import numpy as np

TINY: Final = np.finfo(np.float64).tiny  # 0 log 0 = 0, without a mask that costs most of the time
BLOCK: Final = 1 << 18  # numbers in one intermediate array: it stays in the cache


def means(components: np.ndarray) -> np.ndarray:
    """E[beta_k] = lambda_k / sum_w lambda_kw, one row per topic (K, V)."""
    components = np.asarray(components, dtype=np.float64)
    normalised: np.ndarray = components / components.sum(axis=1, keepdims=True)
    return normalised


def entropies(rows: np.ndarray) -> np.ndarray:
    """H(p) in bits of each distribution in the last axis."""
    logs = np.log(np.maximum(rows, TINY))
    total: np.ndarray = -np.einsum("...v,...v->...", rows, logs) / np.log(2)
    return total


def divergence_from(rows: np.ndarray, one: np.ndarray) -> np.ndarray:
    """JS(p_k, q) in bits for distributions p (K, V) and q (V,)."""
    return _divergence(rows, one, entropies(rows), entropies(one))


def _divergence(
    rows: np.ndarray, one: np.ndarray, own: np.ndarray, other: np.ndarray
) -> np.ndarray:
    """JS given the entropies H(p_k) and H(q), with no array beyond a small block."""
    mixed = np.empty(len(rows))
    size = max(1, BLOCK // len(one))
    for first in range(0, len(rows), size):
        mixed[first : first + size] = entropies((rows[first : first + size] + one) / 2)
    apart: np.ndarray = np.clip(mixed - (own + other) / 2, 0.0, 1.0)
    return apart


def divergences(rows: np.ndarray) -> np.ndarray:
    """JS in bits between all pairs of distributions (K, V): (K, K), symmetric, zero diagonal."""
    found = np.zeros((len(rows), len(rows)))
    own = entropies(rows)
    for k in range(1, len(rows)):
        found[k, :k] = found[:k, k] = _divergence(rows[:k], rows[k], own[:k], own[k])
    return found


def near(rows: np.ndarray, threshold: float) -> list[tuple[int, int, float]]:
    """The pairs (j, k, JS), j < k, with JS below the threshold, the closest first.

    The squared Hellinger distance 1 - sum_w sqrt(p_w q_w) never exceeds JS in bits, for the binary
    entropy is at most 2 sqrt(x (1 - x)). It is one matrix product, and few pairs pass it.
    """
    roots, own = np.sqrt(rows), entropies(rows)
    rounding = 1e-9
    candidate = 1 - roots @ roots.T < threshold + rounding
    pairs = []
    for j in range(len(rows)):
        later = j + 1 + np.flatnonzero(candidate[j, j + 1 :])
        apart = _divergence(rows[later], rows[j], own[later], own[j])
        pairs += [(j, int(k), float(d)) for k, d in zip(later, apart, strict=True) if d < threshold]
    return sorted(pairs, key=lambda pair: pair[2])

"""S scaled by the blocks C of its diagonal, and off the few directions that are solved exactly.

The same functions compute on the host and on an accelerator: they know their arrays by
`__array_namespace__`, and what they take is made of arrays alone, but for the border.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lowerbound.family.sparse.krylov import combined
from lowerbound.family.sparse.low_rank_inverse import Inverse, blockwise
from lowerbound.family.sparse.twins import Scheme

__all__ = [
    "Deflated",
    "begun_with",
    "closed",
    "coloured",
    "deflated",
    "improved",
    "inverse_of",
    "opened",
    "variance_error",
]

_ROUNDING = 1e-12


class Preconditioned(NamedTuple):
    """M = R^-1 S R^-T with C = R R'."""

    border: Any
    inverses: tuple[Any, ...]  # (b, b, n): R^-1 of the blocks

    def times(self, vectors: Any) -> Any:
        """M v."""
        return self.forward(self.border.times(self.back(vectors)))

    def forward(self, vectors: Any) -> Any:
        """R^-1 v."""
        return blockwise(self.border.scheme, self.inverses, vectors)

    def back(self, vectors: Any) -> Any:
        """R^-T v."""
        turned = [one.transpose(1, 0, 2) for one in self.inverses]
        return blockwise(self.border.scheme, turned, vectors)


class Deflated(NamedTuple):
    """N, off the directions V that are solved exactly."""

    border: Any
    inverses: tuple[Any, ...]  # (b, b, n): R^-1 of the blocks
    basis: Any  # V
    ahead: Any  # M V
    root: Any  # L^-1 of V'MV = L L'
    half: Any  # L^-1 V'M, (k, q)

    @property
    def whole(self) -> Preconditioned:
        """M."""
        return Preconditioned(self.border, self.inverses)

    def off(self, vectors: Any) -> Any:
        """Without their part in V."""
        return vectors - self.basis @ (self.basis.T @ vectors)

    def begun(self, vectors: Any) -> Any:
        """The same, with nothing left of those that are in V but for rounding."""
        xp = vectors.__array_namespace__()
        rest = self.off(self.off(vectors))
        return xp.where(_norms(rest) > _ROUNDING * _norms(vectors), rest, 0.0)

    def times(self, vectors: Any) -> Any:
        """N v."""
        return self.off(self.whole.times(vectors) - self.half.T @ (self.half @ vectors))

    def joined(self, vectors: Any) -> Any:
        """J v = v - V (V'MV)^-1 V'M v, which is M-orthogonal to V."""
        return vectors - self.basis @ (self.root.T @ (self.half @ vectors))


def _norms(vectors: Any) -> Any:
    """Of every column."""
    xp = vectors.__array_namespace__()
    return xp.sqrt(xp.sum(vectors**2, axis=0))


def deflated(border: Any) -> tuple[tuple[Any, ...], Any, Any]:
    """N but for the border, the probes off V, and log |C| + log |V'MV| + tr (N - I).

    That is NaN where S turns out not to be positive definite. A border that is returned is copied.
    """
    scheme: Scheme = border.scheme
    xp = scheme.coarse.__array_namespace__()
    blocks, inverses, log_det = [], [], 0.0
    for number, own in enumerate(scheme.own):
        block = border.values[own] - border.within(number)
        lower = np.tri(len(block), dtype=bool)[:, :, None]
        blocks.append(xp.where(lower, block, block.transpose(1, 0, 2)))
        inverse, size = border.inverse_cholesky(block)
        inverses.append(inverse)
        log_det = log_det + size
    whole = Preconditioned(border, tuple(inverses))
    turned = whole.forward(blockwise(scheme, blocks, scheme.coarse))  # R' Z
    basis = turned @ border.inverse_root(turned.T @ turned).T
    ahead = whole.times(basis)
    inner = basis.T @ ahead
    root = border.inverse_root(0.5 * (inner + inner.T))
    half = root @ ahead.T
    log_det = log_det - 2.0 * xp.sum(xp.log(xp.diagonal(root))) + basis.shape[1]
    parts = tuple(inverses), basis, ahead, root, half
    begun = Deflated(border, *parts).begun(scheme.probes)
    return parts, begun, log_det - xp.sum(half**2)


# --------------------------------------------------------------------------------------------------
# Parts of a solution, between which a basis is made


def begun_with(one: Deflated, vectors: Any) -> Any:
    """What of some vectors a basis begins with."""
    return one.begun(vectors)


def opened(one: Deflated, rhs: Any) -> tuple[Any, Any, Any]:
    """What M^-1 R^-1 rhs has inside V, in numbers of V, what N x is to be, and a first x."""
    turned = one.whole.forward(rhs)
    inside = one.root.T @ (one.root @ (one.basis.T @ turned))
    goal = one.begun(turned - one.ahead @ inside)
    return inside, goal, turned.__array_namespace__().zeros_like(goal)


def improved(one: Deflated, goal: Any, found: Any, basis: Any, weights: Any) -> tuple[Any, ...]:
    """A solution x of N x = goal with a step more, what is left of the goal, and how much of it."""
    xp = goal.__array_namespace__()
    found = found + combined(basis, weights)
    rest = one.begun(goal - one.times(found))
    return found, rest, xp.max(_norms(rest) / xp.maximum(_norms(goal), 1e-300))


def closed(one: Deflated, inside: Any, found: Any, basis: Any, weights: Any) -> Any:
    """S^-1 rhs, (q, m), of a solution and a step more."""
    found = found + combined(basis, weights)
    return one.whole.back(one.joined(found) + one.basis @ inside)


def coloured(one: Deflated, normals: Any, basis: Any, weights: Any) -> Any:
    """A root of S^-1 times normals, of that of N^-1 times what of them is off V."""
    inside = one.basis @ (one.root.T @ (one.basis.T @ normals))
    return one.whole.back(one.joined(combined(basis, weights)) + inside)


# --------------------------------------------------------------------------------------------------
# Variances


def inverse_of(
    one: Deflated, basis: Any, weights: Any, probes: slice = slice(None)
) -> tuple[Any, ...]:
    """S^-1 about, but for the scheme: what is exact, and what probes tell, with N^-1 of them."""
    signs = one.begun(one.border.scheme.probes)[:, probes]
    rest = combined(basis[:, :, probes], weights[:, probes]) - signs
    # M^-1 = V G V' + J J' + J (N^+ - I) J', with G = (V'MV)^-1.
    xp = signs.__array_namespace__()
    k, p = one.basis.shape[1], signs.shape[1]
    inverse = one.root.T @ one.root
    columns = [one.basis, one.ahead, one.joined(signs), one.joined(rest)]
    first = inverse + inverse @ (one.ahead.T @ one.ahead) @ inverse
    each, none = 0.5 / p * xp.eye(p), xp.zeros((k, p))
    exact = [[first, -inverse, none, none], [-inverse, 0.0 * inverse, none, none]]
    left = [[none.T, none.T, 0.0 * each, each], [none.T, none.T, each, 0.0 * each]]
    blocks = tuple(xp.einsum("kin,kjn->ijn", one, one) for one in one.inverses)
    low = one.whole.back(xp.concatenate(columns, axis=1))
    return blocks, low, xp.block(exact + left)


def variance_error(one: Deflated, basis: Any, weights: Any) -> Any:
    """The relative error of variances, root mean square, as two halves of the probes tell."""
    half = weights.shape[1] // 2
    parts = slice(None), slice(half), slice(half, None)
    inverses = (Inverse(one.border.scheme, *inverse_of(one, basis, weights, p)) for p in parts)
    whole, first, second = (inverse.diagonal for inverse in inverses)
    xp = whole.__array_namespace__()
    return xp.sqrt(xp.mean((0.5 * (first - second) / whole) ** 2))

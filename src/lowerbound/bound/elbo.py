"""elbo(q) = E_q[log p(x, z)] - E_q[log q(z)] (eq:elbo), exact."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

from lowerbound.family.exponential import Natural
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import Statistics, Summand, energy


def entropies(
    family: MeanField, arrays: Sequence[Array], naturals: Sequence[Natural], means: Statistics
) -> list[Array]:
    """The entropy of each factor, A(lambda) - <lambda, mu>, summed over its copies."""
    return [family.entropy(naturals, means, arrays, n) for n in range(len(family.blocks))]


def elbo(
    family: MeanField,
    summands: Sequence[Summand],
    arrays: Sequence[Array],
    naturals: Sequence[Natural],
    means: Statistics,
) -> Array:
    """The evidence lower bound (eq:elbo), evaluated afresh."""
    total = energy(summands, arrays, means)
    return total + sum(entropies(family, arrays, naturals, means), start=jnp.zeros(()))


def elbo_by_site(
    family: MeanField,
    summands: Sequence[Summand],
    arrays: Sequence[Array],
    naturals: Sequence[Natural],
    means: Statistics,
) -> dict[str, Array]:
    """E_q[log p] of each site's density, plus the entropy of its factor: they sum to the ELBO.

    The entropy of a joint factor is shared equally among its sites.
    """
    parts: dict[str, Array] = {}
    for summand in summands:
        value = energy([summand], arrays, means)
        parts[summand.site] = parts.get(summand.site, jnp.zeros(())) + value
    whole = entropies(family, arrays, naturals, means)
    for block, entropy in zip(family.blocks, whole, strict=True):
        share = entropy / len(block.sites)
        for site in block.sites:
            parts[site] = parts.get(site, jnp.zeros(())) + share
    return parts

"""Gradients of E_q[log p] in the logits of discrete entries, from draws of q (section 5.3).

    d E_q[f] / d logit_k = E_q[(1[z = k] - q(z = k)) f]        the score function, or REINFORCE

The plain estimator takes f = log p whole. Rao-Blackwellised (Ranganath et al. 2014), f has only the
densities in the Markov blanket of the entry, and the average of f over the other draws is taken off
(a control variate). Locally expected (Titsias and Lazaro-Gredilla 2015), the entry itself is not
drawn: f is evaluated at each of its values, the others as drawn. Its average over draws is the
coordinate update of the entry (eq:optimal-qj).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from lowerbound.methods.score.finite_program import Cells, ScoreProgram
from lowerbound.rewrite.summing.finite import Finite

LOWEST = -1e4  # log p of what is impossible, while q is fitted

Logits = dict[str, Array]  # by discrete site, (*rows, cells, values)


def draw_cells(logits: Logits, key: Array, draws: int) -> Cells:
    """Draws of all discrete entries from q, with a leading axis."""
    keys = jax.random.split(key, len(logits))
    return {
        name: jax.random.categorical(own, logits[name], shape=(draws, *logits[name].shape[:-1]))
        for own, name in zip(keys, sorted(logits), strict=True)
    }


def whole(terms: Mapping[str, Array]) -> Array:
    """Log p: the sum of all densities."""
    return sum((jnp.sum(finite(term)) for term in terms.values()), start=jnp.zeros(()))


def finite(term: Array) -> Array:
    """A density with a floor, so that what is impossible is merely very unlikely."""
    return jnp.maximum(jnp.nan_to_num(term, nan=LOWEST, neginf=LOWEST), LOWEST)


def local_targets(
    program: ScoreProgram, cells: Cells, vector: Array, data: Mapping[str, Any]
) -> Logits:
    """E[log p | entry = k] of one draw: every entry at each of its values, the others as drawn."""
    found = {}
    for site in program.discrete:
        count, values = site.cells, len(site.values)

        def tried(number: Array, site: Finite = site, values: int = values) -> Array:
            own = cells[site.name].at[..., number // values].set(number % values)
            terms = program.terms({**cells, site.name: own}, vector, data)
            return program.by_row(site, {n: finite(t) for n, t in terms.items()})

        flips = jax.vmap(tried)(jnp.arange(count * values))
        rows = jnp.moveaxis(flips, 0, -1)
        found[site.name] = rows.reshape((*site.rows, count, values))
    return found


def local_gradient(logits: Logits, targets: Logits) -> Logits:
    """The gradient for targets that are E[log p | entry = k], or an average of these."""
    found = {}
    for name, target in targets.items():
        p = jax.nn.softmax(logits[name])
        found[name] = p * (target - jnp.sum(p * target, axis=-1, keepdims=True))
    return found


def score_gradient(
    program: ScoreProgram, logits: Logits, cells: Cells, terms: Mapping[str, Array], plain: bool
) -> Logits:
    """The gradient from draws of cells, (draws, *rows, cells), and the densities at each of them.

    `plain` has neither the blanket nor the control variate.
    """
    found = {}
    for site in program.discrete:
        if plain:
            f = jax.vmap(whole)(dict(terms))
            f = f.reshape((-1,) + (1,) * len(site.rows))
        else:
            f = jax.vmap(lambda t, site=site: program.by_row(site, jax.tree.map(finite, t)))(
                dict(terms)
            )
            f = without_others(f)
        p = jax.nn.softmax(logits[site.name])
        chosen = jax.nn.one_hot(cells[site.name], p.shape[-1], dtype=p.dtype)
        found[site.name] = jnp.mean((chosen - p) * f[..., None, None], axis=0)
    return found


def without_others(f: Array) -> Array:
    """Each draw of f less the mean of the other draws."""
    count = len(f)
    return (f - jnp.mean(f, axis=0)) * (count / (count - 1))

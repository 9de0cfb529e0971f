"""Finite discrete latent sites summed out: log sum_z p(x, z, theta), and p(z | x, theta).

Discrete sites that meet in a density are summed over together, in every row by itself: the program
runs with all rows in state k, for each k at once, and the densities of a row are those of its own
state. That is right when a row's densities depend on no other row's discrete values, which is
checked where the sites are found. Rows may also depend on rows just before them (`chain`); terms
of every reach are then run by themselves. Where the
program allows it, rows are given one entry that they share, so that what depends on k alone (the
normaliser of a component) is computed once for each k, and not in every row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array

from lowerbound.model.density import density_of
from lowerbound.model.program import (
    Given,
    KeepInside,
    MaskMissing,
    Only,
    SharedCarry,
    execute,
)
from lowerbound.model.sites import Model
from lowerbound.model.trace import trace_model
from lowerbound.rewrite.hidden_sites import Elimination, Named
from lowerbound.rewrite.summing.finite import Group

MOST_NUMBERS = 20_000_000  # of the densities of all rows in all states, that are held at once


@dataclass(frozen=True, eq=False)
class Summation(Elimination):
    """A program with its discrete latent sites in groups, each summed over by itself.

    `guarded` says that some states are impossible in some rows. `vectors` are terms whose rows are
    the elements of one event, with the shapes of these.
    """

    model: Model
    groups: tuple[Group, ...]
    hidden: tuple[str, ...]
    moved: tuple[str, ...]
    guarded: bool
    vectors: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def first(self) -> dict[str, np.ndarray]:
        """The discrete sites with all entries at the first value."""
        sites = [self.model.latent[name] for name in self.names]
        return {s.name: np.full(s.shape, np.asarray(s.support_values)[0]) for s in sites}

    @property
    def outline(self) -> str:
        """What tells apart the programs that draw the discrete sites, and average over them."""
        sites = [(s.name, s.shape, s.rows) for group in self.groups for s in group.sites]
        return f"{sites}{[group.text for group in self.groups]}"

    @property
    def call(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the summed program: missing entries are filled, and masked inside."""
        return self.model.arguments.call(self.model.arguments.data)

    def summed(self) -> Model:
        """The summed program, traced."""
        args, kwargs = self.call
        return trace_model(self.function, args, kwargs)

    def inside(self) -> dict[str, Array]:
        """The discrete sites at their first values."""
        return {name: jnp.asarray(values) for name, values in self.first.items()}

    def factors(self, theta: Named, args: tuple[Any, ...], kwargs: Named) -> dict[str, Array]:
        """Log sum_z p(x, z, theta) of each group."""
        found = {}
        for group in self.groups:
            names = ", ".join(site.name for site in group.sites)
            weights = self._weights(group, theta, args, kwargs)
            found[f"sum over {names}"] = jnp.sum(group.totals(weights))
        return found

    # -- given the continuous sites ----------------------------------------------------------------

    def conditional(self, latents: Named, data: Named) -> tuple[Array, ...]:
        """For each group log p(x, z = k | theta) of every state k and row, as it arranges them."""
        args, kwargs = self.model.arguments.call(self.model._inputs(data))
        with self.model._mode():
            return tuple(self._weights(group, latents, args, kwargs) for group in self.groups)

    def probabilities(self, weights: tuple[Array, ...]) -> dict[str, Array]:
        """P(z = k | x, theta) of every entry of the discrete sites, with a last axis for k."""
        found: dict[str, Array] = {}
        for group, log_weights in zip(self.groups, weights, strict=True):
            found |= group.probabilities(log_weights)
        return {name: found[name] for name in self.names}

    def draw(self, weights: tuple[Array, ...], key: Array) -> dict[str, Array]:
        """A draw of z from p(z | x, theta), as indices of the values of each site."""
        found: dict[str, Array] = {}
        for number, (group, log_weights) in enumerate(zip(self.groups, weights, strict=True)):
            own = jax.random.fold_in(key, number)
            found |= group.draw(log_weights, own)
        return {name: found[name] for name in self.names}

    def log_prob(
        self, weights: tuple[Array, ...], latents: Named, indices: Named, data: Named
    ) -> Array:
        """Log p(z | x, theta), z as indices of the values of each site."""
        known = {
            name: jnp.asarray(self.model.latent[name].support_values)[indices[name]]
            for name in self.names
        }
        densities = self.model.run({**latents, **known}, data)
        terms = {name for group in self.groups for some in group.by_reach.values() for name in some}
        at = sum((jnp.sum(densities[name].log_prob()) for name in terms), start=jnp.zeros(()))
        totals = (jnp.sum(g.totals(w)) for g, w in zip(self.groups, weights, strict=True))
        return at - sum(totals, start=jnp.zeros(()))

    def _weights(self, group: Group, latents: Named, args: tuple[Any, ...], kwargs: Named) -> Array:
        """The log density of every row in every state, as the group arranges them."""
        weights = jnp.zeros((1,) * len(group.table))
        for reach, terms in group.by_reach.items():
            weights = weights + self._of_reach(group, reach, terms, latents, args, kwargs)
        return jnp.broadcast_to(weights, group.table)

    def _of_reach(
        self,
        group: Group,
        reach: int,
        names: tuple[str, ...],
        latents: Named,
        args: tuple[Any, ...],
        kwargs: Named,
    ) -> Array:
        """The log density of terms of some reach: nothing that the others need is computed."""
        every = jnp.asarray(group.given(reach))

        def total(states: Array, latents: Named) -> Array:
            terms = self.row_terms(group, names, states, latents, args, kwargs)
            return sum(terms.values(), start=jnp.zeros(group.rows))

        shapes = [site.shape for site in self.model.sites if site.name in names]
        each = sum(math.prod(shape) for shape in shapes)

        def run(states: Array, latents: Named) -> Array:
            if len(states) * each <= MOST_NUMBERS:
                return jax.vmap(lambda one: total(one, latents))(states)
            # A few states at a time, and again where the slope needs them: memory is what is short.
            once = jax.checkpoint(lambda one: total(one, latents))
            found: Array = jax.lax.map(once, states, batch_size=max(1, MOST_NUMBERS // each))
            return found

        if self.guarded and not group.lag:  # else a row's neighbours meet its state
            fixed = jax.tree.map(jax.lax.stop_gradient, dict(latents))
            possible = run(every, fixed) > -jnp.inf
            return jnp.where(possible, run(group.instead(possible), latents), -jnp.inf)
        weights: Array = group.arranged(run(every, latents), reach)
        return weights

    def row_terms(
        self,
        group: Group,
        names: Sequence[str],
        states: Array,
        latents: Named,
        args: tuple[Any, ...],
        kwargs: Named,
    ) -> dict[str, Array]:
        """Some terms of a group, by site and row, where rows are in `states`."""
        given = Given({**self.first, **latents, **group.values(states)})
        masks, bounds = MaskMissing(self.model.missing), KeepInside(self.model.bounded)
        handlers = [masks, bounds, given, Only(names), *([SharedCarry()] if group.once else [])]
        messages = execute(self.model.function, args, kwargs, *handlers)
        with numpyro.validation_enabled(False):
            densities = {n: density_of(messages[n], "") for n in names}
            found = {
                n: d.by_element() if n in self.vectors else d.log_prob()
                for n, d in densities.items()
            }
        return {name: group.by_row(log_prob, name) for name, log_prob in found.items()}

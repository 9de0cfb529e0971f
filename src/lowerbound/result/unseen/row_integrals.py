"""Held-out densities of rows whose own latent sites are integrated out: by sums, or by draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jax import Array

from lowerbound.cost import mapped
from lowerbound.model import Model
from lowerbound.model.dependence import once
from lowerbound.result.unseen.drawing import Named
from lowerbound.result.unseen.new_rows import Rows, global_statistics, log_mean_exp, row_axes
from lowerbound.rewrite.summing.enumerated import can_be_summed, discrete_sites, enumerated

Values = Mapping[str, Array]
LOCAL_DRAWS = 20  # of a row's own latent sites, for each draw of the global ones


# --------------------------------------------------------------------------------------------------
# Sums


def summed_densities(model: Model, draws: Values) -> Array | None:
    """Log p(row | z) for every draw of the global sites, (draws, rows).

    None where a row has other latent sites than discrete ones that can be summed over by row.
    """
    plate, discrete = model.data_plate, discrete_sites(model)
    if plate is None or not model.local or set(model.local) != set(discrete):
        return None
    if not can_be_summed(model):
        return None
    summation, axes = enumerated(model), row_axes(model)
    covered = {term for group in summation.groups for term in group.terms}
    if covered & (set(model.latent) - set(discrete)):
        return None
    for group in summation.groups:
        if len(group.apart) < -plate.dim or group.apart[plate.dim] != plate.size:
            return None
    rest = [n for n, s in model.observed.items() if n in axes and n not in covered]
    data = {n: jnp.asarray(a) for n, a in model.arguments.data.items()}

    def one(values: Values, data: Values) -> Array:
        weights = summation.conditional(values, data)
        pairs = zip(summation.groups, weights, strict=True)
        parts = [_by_row(group.totals(w), plate.dim) for group, w in pairs]
        if rest:
            first = {n: jnp.asarray(a) for n, a in summation.first.items()}
            densities = model.run({**first, **values}, data)
            parts += [_by_row(densities[n].log_prob(), axes[n]) for n in rest]
        return sum(parts[1:], start=parts[0])

    shared = {n: a for n, a in draws.items() if n not in discrete}
    if not shared:
        return None

    def every(draws: Values, data: Values) -> Array:
        found: Array = mapped(lambda v: one(v, data), draws, most=1, what="one draw")
        return found

    densities: Array = once(every)(shared, data)
    return densities


def _by_row(log_prob: Array, axis: int) -> Array:
    others = tuple(a for a in range(log_prob.ndim) if a != axis % log_prob.ndim)
    return jnp.sum(log_prob, axis=others)


# --------------------------------------------------------------------------------------------------
# Draws


@dataclass(frozen=True)
class Proposal:
    """The factors of the rows' own sites given the global ones, to draw these sites from.

    blocks: the local blocks of `rows` that hold them, auxiliary sites of the rows left out.
    """

    rows: Rows
    blocks: tuple[int, ...]

    def naturals(self, data: Values, values: Values) -> tuple[Any, ...]:
        """The optimal local factors, given values of the global sites."""
        engine = self.rows.engine
        arrays = tuple(engine.cast(a) for a in engine.joint.compress(data))
        means = global_statistics(engine.family, self.rows.local, self.indices(values), arrays)
        return self.rows.solve(arrays, means).naturals

    def sample(self, naturals: tuple[Any, ...], key: Array) -> dict[str, Array]:
        """A draw of the rows' own sites."""
        family, latent = self.rows.engine.family, self.rows.model.latent
        found: dict[str, Array] = {}
        for number, k in zip(self.blocks, jax.random.split(key, len(self.blocks)), strict=True):
            drawn = family.families[number].sample(naturals[number], k)
            found.update(family.blocks[number].unpack(drawn))
        return {
            n: a if (own := latent[n].support_values) is None else jnp.asarray(own)[a]
            for n, a in found.items()
        }

    def log_prob(self, naturals: tuple[Any, ...], data: Values, local: Values) -> Array:
        """Log q of the rows' own sites, by row."""
        engine, total = self.rows.engine, jnp.zeros(())
        arrays, local = engine.joint.compress(data), self.indices(local)
        for number in self.blocks:
            block, family = engine.family.blocks[number], engine.family.families[number]
            values = {**block.pack(local), **block.constants(arrays)}
            each = family.log_prob(naturals[number], values)
            total = total + self.rows.by_row(number, each, arrays)
        return total

    def indices(self, values: Values) -> dict[str, Array]:
        """The values as factors know them: those of discrete sites by their indices."""
        latent = self.rows.model.latent
        return {
            n: a
            if (own := latent[n].support_values) is None
            else jnp.argmin(jnp.abs(a[..., None] - jnp.asarray(own)), axis=-1)
            for n, a in values.items()
        }


def proposal_of(rows: Rows, sites: tuple[str, ...]) -> Proposal | None:
    """The factors of these sites of the rows; None where one is shared with other sites."""
    held = {number: set(rows.engine.joint.blocks[number].sites) for number in rows.local}
    mine = tuple(number for number, own in held.items() if own & set(sites))
    exactly = mine and set().union(*(held[number] for number in mine)) == set(sites)
    return Proposal(rows, mine) if exactly else None


def simulated_densities(
    model: Model, draws: Values, key: Array, count: int, proposal: Proposal | None = None
) -> Array:
    """Log p(row | z) for `count` draws of the global sites, the rows' own latent sites simulated.

    An average of p(row, local | z) / q(local) over draws of the local sites: from their prior given
    z, for a program without factors of them; else one half from the prior, one half from the
    factors, with q the mixture of the two. These may be narrower than the posterior, and the
    prior's half keeps every weight below 2 p(row | local, z) (defensive importance sampling,
    Hesterberg 1995). Shape (draws, rows).
    """
    axes = row_axes(model)
    observed = [n for n, s in model.observed.items() if n in axes and not s.is_factor]
    data = {n: jnp.asarray(a) for n, a in model.arguments.data.items()}
    inputs = {} if proposal is None else proposal.rows.data()
    each = LOCAL_DRAWS if model.local else 1

    def from_prior(values: Values, data: Values, key: Array) -> dict[str, Array]:
        args, kwargs = model.arguments.call(dict(data))
        program = numpyro.handlers.substitute(model.function, data=dict(values))
        seeded = numpyro.handlers.seed(program, key)
        with Named():
            traced = numpyro.handlers.trace(seeded).get_trace(*args, **kwargs)
        return {n: traced[n]["value"] for n in model.local}

    def by_row(densities: Mapping[str, Any], names: Iterable[str]) -> Array:
        parts = [_by_row(densities[n].log_prob(), axes[n]) for n in names]
        return sum(parts[1:], start=parts[0])

    def of_prior(values: Values, data: Values, keys: Array) -> Array:
        def given(key: Array) -> Array:
            local = from_prior(values, data, key)
            return by_row(model.run({**values, **local}, data), observed)

        return log_mean_exp(mapped(given, keys, what="one draw"))

    def of_both(
        proposal: Proposal, values: Values, data: Values, inputs: Values, keys: Array
    ) -> Array:
        naturals, half = proposal.naturals(inputs, values), each // 2
        first = jax.vmap(lambda k: from_prior(values, data, k))(keys[:half])
        second = jax.vmap(lambda k: proposal.sample(naturals, k))(keys[half:])
        local = {n: jnp.concatenate([first[n], second[n]]) for n in model.local}

        def weighted(local: Values) -> Array:
            densities = model.run({**values, **local}, data)
            prior = by_row(densities, model.local)
            mixture = jnp.logaddexp(prior, proposal.log_prob(naturals, inputs, local))
            return by_row(densities, observed) + prior - mixture + math.log(2.0)

        return log_mean_exp(mapped(weighted, local, what="one draw"))

    def every(draws: Values, keys: Array, data: Values, inputs: Values) -> Array:
        def one(values: Values, key: Array) -> Array:
            keys = jax.random.split(key, each)
            if proposal is None:
                return of_prior(values, data, keys)
            return of_both(proposal, values, data, inputs, keys)

        found: Array = mapped(one, draws, keys, most=1, what="one draw")
        return found

    with numpyro.validation_enabled(False):
        densities: Array = once(every)(dict(draws), jax.random.split(key, count), data, inputs)
    return densities

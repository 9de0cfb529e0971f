"""Gibbs sampling (section 2.4): the gradient of the energy at point statistics is, block by block,
the natural parameter of the complete conditional (eq:ef-conditional).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import Array

from lowerbound.compiled import jit, quickly
from lowerbound.compute.engine import Engine, engine_for
from lowerbound.errors import NotConjugateError, UncorrectableError
from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.family.exponential import ExponentialFamily, Natural
from lowerbound.joint import gradient, inputs_of
from lowerbound.methods.sampling.chains import mixing
from lowerbound.model import Model
from lowerbound.result.fitted import Fit
from lowerbound.trust.corrections.improved import Improved

CHAINS = 4
STARTS = 1000  # draws of q, of which the first are starts
QUICK_BELOW = 50_000  # numbers in the data; programs of more are optimised
WARM = 0.25  # of the sweeps that are kept, before them
BOUNDS = ("bouchard",)  # augmentations whose integral is not the density, only a bound of it
REMEDY = (
    "Use lb.correct(fit, 'nuts'), which needs derivatives alone; or fit the program augmented, "
    "lb.Augmented({site: ...}, lb.CAVI())."
)

Values = dict[str, Array]


def by_conditionals(fit: Fit, model: Model, draws: int, seed: int) -> Improved:
    """Chains of draws of all sites, from draws of q; auxiliary sites are dropped at the end."""
    engine = _engine(fit)
    arrays = engine.prepare(inputs_of(fit.model()))
    kept = math.ceil(draws / CHAINS)
    warm = max(int(WARM * kept), 50)
    drawn = fit.q.family.sample(fit.q.parameters, jax.random.key(seed), (STARTS,))
    first = {name: array[:CHAINS] for name, array in drawn.items()}
    keys = jax.random.split(jax.random.key(seed + 1), CHAINS)
    wanted = tuple(model.latent)
    key = ("gibbs", warm, kept, wanted)
    if key not in engine.compiled:
        small = sum(np.size(a) for a in arrays) <= QUICK_BELOW
        engine.compiled[key] = (quickly if small else jit)(_chains(engine, warm, kept, wanted))
    found = {n: np.asarray(a) for n, a in engine.compiled[key](first, keys, arrays).items()}
    for name, array in found.items():
        if not np.isfinite(array).all():
            raise UncorrectableError(
                "gibbs", f"the complete conditional of '{name}' has no finite integral", REMEDY
            )
    states = {
        n: len(s.support_values) for n, s in model.latent.items() if s.support_values is not None
    }
    # Of discrete sites that seldom move, nothing is known from correlations.
    told = [n for n in wanted if n not in states] or wanted
    order = [(n, i) for n in told for i in range(math.prod(model.latent[n].shape))]
    numbers = [found[n].reshape(CHAINS, kept, -1).astype(float) for n in told]
    mixed = mixing(np.concatenate(numbers, axis=-1), lambda k: _named(model, *order[k]))
    values = {n: a.reshape((-1, *a.shape[2:])) for n, a in found.items()}
    return Improved(
        WeightedDraws(states),
        {"values": values, "weights": np.full(CHAINS * kept, 1.0 / (CHAINS * kept))},
        f"{CHAINS} chains of {kept:,} Gibbs sweeps over {len(engine.family.blocks)} factors, "
        f"after {warm:,}: {mixed}",
        reason=f"chains of Gibbs sweeps agree: {mixed}",
        flaw=mixed.flaw,
        remedy="Ask for more draws=, or use lb.correct(fit, 'nuts').",
        before={name: np.asarray(drawn[name]) for name in wanted if name not in states},
    )


def _engine(fit: Fit) -> Engine:
    """The derivation of the program as it was fitted, where every conditional is exact."""
    bounded = [site for site, way in (fit.answer.augment or {}).items() if way in BOUNDS]
    if bounded:
        raise UncorrectableError(
            "gibbs", f"site '{bounded[0]}' is augmented by a bound, not by an integral", REMEDY
        )
    try:
        engine = engine_for(fit.model(), np.dtype(float), fit.answer.blocks)
    except NotConjugateError as error:
        first = error.residuals[0]
        latents = ", ".join(f"'{name}'" for name in first.latents)
        reason = f"{latents} enters site '{first.site}' through {first.operation}   ({first.where})"
        raise UncorrectableError("gibbs", reason, REMEDY) from None
    for summand in engine.joint.summands:
        for number in summand.curved:
            sites = ", ".join(f"'{site}'" for site in engine.family.blocks[number].sites)
            reason = (
                f"{sites} enters site '{summand.site}' through a function of a linear predictor, "
                "and has no complete conditional in closed form"
            )
            raise UncorrectableError("gibbs", reason, REMEDY)
    return engine


def _chains(engine: Engine, warm: int, kept: int, wanted: tuple[str, ...]) -> Any:
    """A function of starts, keys and data: the kept draws of every chain."""
    family = engine.family
    order = engine.sweep.order

    def sweep(values: Values, key: Array, arrays: Any) -> Values:
        statistics = family.statistics(values, arrays)
        extras = engine.extras(arrays)
        for number, own in zip(order, jax.random.split(key, len(order)), strict=True):
            block, factor = family.blocks[number], family.families[number]

            def conditional(statistics: Any, number: int = number) -> dict[str, Array]:
                target = gradient(engine.joint.summands, arrays, statistics, number)
                return family.present({**target, **extras[number]}, arrays, number)

            natural = conditional(statistics)
            if not block.sequential:
                packed = factor.sample(natural, own)
                new = factor.statistics({**natural, **packed})
            else:
                packed = block.pack(values)
                new = statistics[number]
                single = replace(factor, batch_shape=())

                def one(element: Array, state: Any, number: int = number, factor: Any = factor,
                        single: Any = single, own: Array = own, conditional: Any = conditional,
                        statistics: Any = statistics) -> Any:  # fmt: skip
                    packed, new = state
                    known = (*statistics[:number], new, *statistics[number + 1 :])
                    given = element_of(conditional(known), factor, element)
                    drawn = single.sample(given, jax.random.fold_in(own, element))
                    held = single.statistics({**given, **drawn})
                    return (
                        with_element(packed, drawn, factor, element),
                        with_element(new, held, factor, element),
                    )

                count = math.prod(factor.batch_shape)
                packed, new = jax.lax.fori_loop(0, count, one, (packed, new))
            values = {**values, **block.unpack(packed)}
            statistics = (*statistics[:number], new, *statistics[number + 1 :])
        return values

    def chain(first: Values, key: Array, arrays: Any) -> Values:
        def step(values: Values, key: Array) -> tuple[Values, Values]:
            moved = sweep(values, key, arrays)
            moved = {n: a.astype(values[n].dtype) for n, a in moved.items()}
            return moved, {n: moved[n] for n in wanted}

        found: Values = jax.lax.scan(step, first, jax.random.split(key, warm + kept))[1]
        return {name: array[warm:] for name, array in found.items()}

    def every(first: Values, keys: Array, arrays: Any) -> Values:
        found: Values = jax.vmap(chain, in_axes=(0, 0, None))(first, keys, arrays)
        return found

    return every


def _named(model: Model, site: str, number: int) -> str:
    shape = model.latent[site].shape
    if not shape:
        return site
    return f"{site}[{', '.join(map(str, np.unravel_index(number, shape)))}]"


def element_of(arrays: Natural, family: ExponentialFamily, element: Array) -> Natural:
    """The parameters of one of a batch of factors."""
    rank = len(family.batch_shape)
    return {k: a.reshape((-1, *a.shape[rank:]))[element] for k, a in arrays.items()}


def with_element(
    arrays: Natural, new: Natural, family: ExponentialFamily, element: Array
) -> Natural:
    """The parameters of a batch of factors with those of one replaced."""
    rank = len(family.batch_shape)
    return {
        k: a.reshape((-1, *a.shape[rank:])).at[element].set(new[k]).reshape(a.shape)
        for k, a in arrays.items()
    }

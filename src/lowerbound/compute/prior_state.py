"""Factors at their priors: where every start begins, and what new rows are solved from."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from lowerbound.ascent import State
from lowerbound.compute.engine import Arrays, Engine
from lowerbound.family.exponential import ExponentialFamily, Mean, Natural
from lowerbound.joint import gradient


def from_prior(engine: Engine, arrays: Arrays) -> State:
    """Every factor at its prior, given the means of the factors before it."""
    extras = engine.extras(arrays)
    families = engine.family.families
    alike = {family: family.default() for family in families if not family.extra_names}
    naturals = tuple(
        engine.cast_tree({**(alike.get(family) or family.default(extra)), **extra})
        for family, extra in zip(families, extras, strict=True)
    )
    means: dict[int, Mean] = {}
    for block in engine.joint.blocks:
        number, family = block.number, families[block.number]
        own = [s for s in engine.joint.summands if s.site in block.sites and number in s.blocks]
        if own:
            if not block.sequential and not any(number in s.curved for s in own):
                # They are affine in the block: their derivative is the same wherever it stands.
                means[number] = engine.cast_tree(_zeros(family))
            for parent in sorted(set().union(*(s.blocks for s in own))):
                if parent not in means:
                    means[parent] = families[parent].central(naturals[parent])
            given = tuple(means.get(n, {}) for n in range(len(families)))
            target = gradient(own, arrays, given, number)
            proper = family.in_domain({**target, **extras[number]})
            target = {k: _where(proper, target[k], naturals[number][k]) for k in target}
            natural = {**target, **extras[number]}
            naturals = (*naturals[:number], natural, *naturals[number + 1 :])
        means[number] = family.central(naturals[number])
    return State(naturals, tuple(means[n] for n in range(len(families))))


def _zeros(family: ExponentialFamily) -> Mean:
    return {name: jnp.zeros(shape, float) for name, shape in family.statistic_shapes().items()}


FAR_PREDICTOR = 5.0


def curved_blocks(engine: Engine) -> frozenset[int]:
    """Gaussian blocks that enter through functions of linear combinations."""
    none: frozenset[int] = frozenset()
    return none.union(*(s.curved for s in engine.joint.summands))


def narrowed(engine: Engine, arrays: Arrays, state: State, zero: bool = True) -> State:
    """Gaussian factors so narrow that every linear combination has a variance of at most one.

    Under a flat prior, or with regressors of large scale, the prior itself puts the combinations
    where exp overflows. With `zero`, factors that put them far out start at mean zero.
    """
    for number in sorted(curved_blocks(engine)):
        family = engine.family.families[number]
        integrals = {
            read.integral
            for s in engine.joint.summands
            for read in s.reads
            if read.integral is not None and number in read.blocks
        }
        unit = gaussian_at(family, state.means[number]["x"], 1.0)
        means = state.replaced(number, unit, family.mean(unit)).means
        moments = [integral.moments(arrays, means) for integral in integrals]
        widest = jnp.stack([jnp.max(v, initial=0.0) for _, v in moments]).max()
        far = jnp.stack([jnp.max(abs(m), initial=0.0) for m, _ in moments]).max()
        mean = state.means[number]["x"]
        if zero:
            mean = jnp.where(far > FAR_PREDICTOR, 0.0, mean)
        own = _variance(state.means[number])
        own = jnp.where(own > 0.0, own, 1.0)  # a given value is a point
        variance = jnp.minimum(jnp.min(own), 1.0 / jnp.maximum(widest, 1e-30))
        natural = gaussian_at(family, mean, variance)
        natural = engine.cast_tree(natural)
        state = state.replaced(number, natural, family.mean(natural))
    return state


def _variance(mean: Mean) -> Array:
    x = mean["x"]
    second = mean["x2"] if "x2" in mean else jnp.diagonal(mean["xx"], axis1=-2, axis2=-1)
    return second - x * x


def gaussian_at(family: ExponentialFamily, x: Array, variance: float | Array) -> Natural:
    """The natural parameters of independent Gaussians of one variance."""
    precision = 1.0 / jnp.asarray(variance, x.dtype)
    if "x2" in family.statistic_names:
        return {"x": precision * x, "x2": jnp.broadcast_to(-0.5 * precision, x.shape)}
    eye = jnp.eye(x.shape[-1], dtype=x.dtype)
    shape = family.statistic_shapes()["xx"]
    return {"x": precision * x, "xx": jnp.broadcast_to(-0.5 * precision * eye, shape)}


def _where(condition: Array, first: Array, second: Array) -> Array:
    spread = condition.reshape(condition.shape + (1,) * (first.ndim - condition.ndim))
    return jnp.where(spread, first, second)

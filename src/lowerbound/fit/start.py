"""Where coordinate ascent starts (paper section 2.5, "Initialization").

Every factor starts at its prior given its parents' means, spread out by chance; assignments of a
mixture start from rows of the data, spread out as k-means++ does but in the model's own log
density, so that any mixture (Poisson, Bernoulli, Gaussian, ...) starts the same way. Restarts start
in different ways, in turn: an optimum that all starts of one kind miss is found by another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.family.exponential import ExponentialFamily, Mean, Natural
from lowerbound.family.free import Free
from lowerbound.fit.engine import Arrays, Engine
from lowerbound.fit.seeds import Seeds, one_of
from lowerbound.joint import Block, gradient
from lowerbound.update import State

STARTS = ("auto", "k-means++", "rows", "random", "prior")


def start(
    engine: Engine,
    arrays: Arrays,
    chance: Chance,
    how: str,
    given: Mapping[str, Array],
    seeded: int | None,
) -> State:
    """A starting state. `seeded` is the block of mixture assignments to seed, if there is one.

    Its kind is number `chance.kind` of those of `start_kinds`.
    """
    state = narrowed(engine, arrays, from_prior(engine, arrays))
    narrow = curved_blocks(engine)
    for number, noise in chance.noise.items():
        if number in narrow or (number == seeded and how != "random"):
            continue
        family = engine.family.families[number]
        mean = scattered(family, state.naturals[number], state.means[number], noise)
        state = state.replaced(number, state.naturals[number], mean)
    if given:
        state = at_values(engine, state, given, arrays)
        state = narrowed(engine, arrays, state, zero=False)
        leading = [b for b in engine.joint.blocks if set(b.sites) & set(given)]
        state = follow(engine, arrays, state, leading)
    elif seeded is not None and how in ("auto", "k-means++", "rows"):
        state = _seeded(engine, arrays, state, chance, seeded, how)
    elif chance.kind is not None:
        discrete = [b for b in engine.joint.blocks if b.kind == "categorical"]
        led = follow(engine, arrays, state, discrete)
        state = _selected(chance.kind == 1, led, state)
    return engine.cast_tree(state)  # type: ignore[no-any-return]


SOFT, HARD, PARTED = "k-means++", "k-means++, every row in one", "rows parted at random"
SCATTERED, LED = "scattered", "discrete sites at random"
HARD_ROUNDS = 3
FEW_ROWS = 1000  # of more, the parts of a random partition are all alike


def start_kinds(
    engine: Engine, how: str, given: Mapping[str, Any], restarts: int, seeded: int | None
) -> list[str]:
    """How each restart starts: the first as a single start does, the others in turn."""
    if given:
        return ["given values"] * restarts
    if how != "auto":
        return [how] * restarts
    kinds = [SCATTERED]
    if seeded is not None:
        few = math.prod(engine.family.families[seeded].batch_shape) <= FEW_ROWS
        kinds = [SOFT, HARD, *([PARTED] if few else [])]
    elif any(b.kind == "categorical" and not b.sequential for b in engine.joint.blocks):
        kinds = [SCATTERED, LED]
    return [kinds[number % len(kinds)] for number in range(restarts)]


def _selected(condition: Array, first: State, second: State) -> State:
    chosen: State = jax.tree.map(lambda a, b: jnp.where(condition, a, b), first, second)
    return chosen


def _seeded(
    engine: Engine, arrays: Arrays, state: State, chance: Chance, seeded: int, how: str
) -> State:
    """The start of a mixture, of the kind that chance says."""
    seeds = Seeds(engine, arrays, seeded)
    indicator = seeds.soft(state, chance.rows, chance.uniforms, how)
    if chance.kind is None:
        return seeds.settled(seeds.given(indicator, state))
    if seeded in chance.noise:  # every row in a component drawn by chance
        parted = one_of(chance.noise[seeded])
        indicator = jnp.where(chance.kind == 2, parted, indicator)
    state = seeds.settled(seeds.given(indicator, state))
    return seeds.hard(state, jnp.where(chance.kind == 1, HARD_ROUNDS, 0))


class Chance(NamedTuple):
    """The random numbers of one start, drawn on the host (they cost nothing to compile)."""

    noise: dict[int, Any]  # block -> standard normal or exponential numbers
    rows: Any  # K distinct rows
    uniforms: Any  # K numbers in (0, 1), which pick rows one by one
    kind: Any  # which kind of start it is, where there are several


def chances(
    engine: Engine,
    seed: int,
    restarts: int,
    how: str,
    seeded: int | None,
    kinds: Sequence[str] = (),
) -> Chance:
    """Independent random numbers for every restart; leading axis = restarts."""
    drawn = []
    several = len(set(kinds)) > 1
    for start_number, rng in enumerate(np.random.default_rng(seed).spawn(restarts)):
        noise = {}
        for number, family in enumerate(engine.family.families):
            shapes = family.statistic_shapes()
            if how == "prior" or family.name not in _NOISE:
                continue
            if number == seeded and how != "random":
                continue  # seeding replaces it
            name, copies = _NOISE[family.name]
            shape = (copies, *shapes[name]) if copies > 1 else shapes[name]
            draw = rng.standard_normal if name == "x" else rng.standard_exponential
            noise[number] = draw(shape).astype(engine.dtype)
        rows, uniforms = np.zeros(0, int), np.zeros(0)
        if seeded is not None:
            family = engine.family.families[seeded]
            count = math.prod(family.batch_shape)
            components = family.statistic_shapes()["indicator"][-1]
            rows = rng.choice(count, components, replace=False)
            uniforms = rng.random(components)
            if PARTED in kinds:
                noise[seeded] = rng.random((count, components)).astype(engine.dtype)
        order = (SCATTERED, LED) if seeded is None else (SOFT, HARD, PARTED)
        kind = np.asarray(order.index(kinds[start_number])) if several else None
        drawn.append(Chance(noise, rows, uniforms, kind))
    stacked: Chance = jax.tree.map(lambda *each: np.stack(each), *drawn)
    return stacked


# Which statistic gives the noise its shape, and how many copies are needed.
_NOISE = {
    "Normal": ("x", 1),
    "MultivariateNormal": ("x", 1),
    "Dirichlet": ("log", 1),
    "Beta": ("log", 2),
    "Categorical": ("indicator", 1),
}


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
            for parent in sorted(set().union(*(s.blocks for s in own))):
                if parent not in means:
                    means[parent] = central(families[parent], naturals[parent])
            given = tuple(means.get(n, {}) for n in range(len(families)))
            target = gradient(own, arrays, given, number)
            proper = family.in_domain({**target, **extras[number]})
            target = {k: _where(proper, target[k], naturals[number][k]) for k in target}
            natural = {**target, **extras[number]}
            naturals = (*naturals[:number], natural, *naturals[number + 1 :])
        means[number] = central(family, naturals[number])
    return State(naturals, tuple(means[n] for n in range(len(families))))


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


def central(family: ExponentialFamily, natural: Natural) -> Mean:
    """The mean parameters; of a free-form factor the statistics at its median.

    A prior that is not zero at zero gives z^-2 no finite mean (half-Cauchy, half-normal).
    """
    if not isinstance(family, Free):
        return family.mean(natural)
    median = family.quantile(natural, jnp.asarray(0.5))
    return family.statistics({**natural, "z": median})


def _where(condition: Array, first: Array, second: Array) -> Array:
    spread = condition.reshape(condition.shape + (1,) * (first.ndim - condition.ndim))
    return jnp.where(spread, first, second)


def scattered(family: ExponentialFamily, natural: Natural, mean: Mean, noise: Array) -> Mean:
    """Mean parameters moved by chance, to break the symmetry between equal factors."""
    match family.name:
        case "Normal":
            sd = jnp.minimum(jnp.sqrt(jnp.maximum(mean["x2"] - mean["x"] ** 2, 0.0)), 1.0)
            x = mean["x"] + sd * noise
            return {"x": x, "x2": x**2 + sd**2}
        case "MultivariateNormal":
            x = mean["x"]
            variance = jnp.diagonal(mean["xx"], axis1=-2, axis2=-1) - x**2
            sd = jnp.minimum(jnp.sqrt(jnp.maximum(variance, 0.0)), 1.0)
            x = x + sd * noise
            outer = x[..., :, None] * x[..., None, :]
            return {"x": x, "xx": outer + (sd**2)[..., None] * jnp.eye(x.shape[-1], dtype=x.dtype)}
        case "Dirichlet":
            return family.mean({"log": jnp.maximum(natural["log"], -0.9) + noise})
        case "Beta":
            return family.mean(
                {
                    "log": jnp.maximum(natural["log"], -0.9) + noise[0],
                    "log1m": jnp.maximum(natural["log1m"], -0.9) + noise[1],
                }
            )
        case "Categorical":
            return {
                "indicator": jax.nn.one_hot(
                    jnp.argmax(noise, -1), noise.shape[-1], dtype=noise.dtype
                )
            }
    return mean


def at_values(engine: Engine, state: State, given: Mapping[str, Array], arrays: Arrays) -> State:
    """Point statistics at the given site values; a block's other sites keep their means."""
    for block, family in zip(engine.joint.blocks, engine.family.families, strict=True):
        if not set(block.sites) & set(given):
            continue
        values = {name: jnp.asarray(given[name]) for name in block.sites if name in given}
        if len(values) < len(block.sites):
            others = block.unpack(centre(family, state.means[block.number]))
            values = {**others, **values}
        mean = family.statistics({**block.pack(values), **block.constants(arrays)})
        state = state.replaced(block.number, state.naturals[block.number], mean)
    return state


def follow(engine: Engine, arrays: Arrays, state: State, leading: list[Block]) -> State:
    """Update all other blocks once, so that the first sweep does not forget the leading ones."""
    lead = {block.number for block in leading}
    for number in engine.sweep.order:
        if number not in lead and not engine.joint.blocks[number].sequential:
            state, _ = engine.sweep.update(arrays, state, number)
    return state


def centre(family: ExponentialFamily, mean: Mean) -> dict[str, Array]:
    """A central point value of a joint family, from its mean parameters."""
    if "power" in mean:  # Normal-Gamma
        tau = mean["power"]
        spread = tau.reshape(tau.shape + (1,) * (mean["px"].ndim - tau.ndim))
        return {"z": tau ** (1.0 / family.power), "x": mean["px"] / spread}  # type: ignore[attr-defined]
    if "matrix" in mean:  # Normal-Wishart
        solved = jnp.linalg.solve(mean["matrix"], mean["px"][..., None])[..., 0]
        return {"z": mean["matrix"], "x": solved}
    return {"x": mean["x"]}

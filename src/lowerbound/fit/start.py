"""Where coordinate ascent starts (paper section 2.5, "Initialization").

Every factor starts at its prior given its parents' means, spread out by chance; assignments of a
mixture start from rows of the data, spread out as k-means++ does but in the model's own log
density, so that any mixture (Poisson, Bernoulli, Gaussian, ...) starts the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from lowerbound.family.exponential import ExponentialFamily, Mean, Natural
from lowerbound.fit.engine import Arrays, Engine
from lowerbound.joint import gradient
from lowerbound.update import State

STARTS = ("auto", "k-means++", "rows", "random", "prior")


def start(
    engine: Engine,
    arrays: Arrays,
    key: Array,
    how: str,
    given: Mapping[str, Array],
    seeded: int | None,
) -> State:
    """A starting state. `seeded` is the block of mixture assignments to seed, if there is one."""
    state = from_prior(engine, arrays)
    keys = iter(jax.random.split(key, len(state.means) + 1))
    if how != "prior":
        for number, family in enumerate(engine.family.families):
            mean = scattered(family, state.naturals[number], state.means[number], next(keys))
            state = _with(state, number, state.naturals[number], mean)
    if given:
        state = at_values(engine, state, given)
    elif seeded is not None and how in ("auto", "k-means++", "rows"):
        rows = "rows" if how == "rows" else "k-means++"
        state = seed_rows(engine, arrays, state, next(keys), seeded, rows)
    return engine.cast_tree(state)  # type: ignore[no-any-return]


def from_prior(engine: Engine, arrays: Arrays) -> State:
    """Every factor at its prior, given the means of the factors before it."""
    extras = engine.extras(arrays)
    naturals: list[Natural] = []
    means: list[Mean] = []
    for family, extra in zip(engine.family.families, extras, strict=True):
        naturals.append(engine.cast_tree({**family.default(extra), **extra}))
        means.append(family.mean(naturals[-1]))
    state = State(tuple(naturals), tuple(means))
    for block, family, extra in zip(
        engine.joint.blocks, engine.family.families, extras, strict=True
    ):
        own = [s for s in engine.joint.summands if s.site in block.sites and block.number in s.blocks]
        if not own:
            continue
        natural = {**gradient(own, arrays, state.means, block.number), **extra}
        default = state.naturals[block.number]
        proper = family.in_domain(natural)
        natural = {k: _where(proper, natural[k], default[k]) for k in natural}
        state = _with(state, block.number, natural, family.mean(natural))
    return state


def _where(condition: Array, first: Array, second: Array) -> Array:
    spread = condition.reshape(condition.shape + (1,) * (first.ndim - condition.ndim))
    return jnp.where(spread, first, second)


def scattered(family: ExponentialFamily, natural: Natural, mean: Mean, key: Array) -> Mean:
    """Mean parameters moved by chance, to break the symmetry between equal factors."""
    match type(family).__name__:
        case "Normal":
            sd = jnp.minimum(jnp.sqrt(jnp.maximum(mean["x2"] - mean["x"] ** 2, 0.0)), 1.0)
            x = mean["x"] + sd * jax.random.normal(key, mean["x"].shape, mean["x"].dtype)
            return {"x": x, "x2": x**2 + sd**2}
        case "MultivariateNormal":
            x = mean["x"]
            variance = jnp.diagonal(mean["xx"], axis1=-2, axis2=-1) - x**2
            sd = jnp.minimum(jnp.sqrt(jnp.maximum(variance, 0.0)), 1.0)
            x = x + sd * jax.random.normal(key, x.shape, x.dtype)
            outer = x[..., :, None] * x[..., None, :]
            return {"x": x, "xx": outer + (sd**2)[..., None] * jnp.eye(x.shape[-1], dtype=x.dtype)}
        case "Gamma":
            return family.mean(_concentrated(family, natural))
        case "Dirichlet":
            noise = jax.random.exponential(key, natural["log"].shape, natural["log"].dtype)
            return family.mean({"log": jnp.maximum(natural["log"], -0.9) + noise})
        case "Beta":
            noise = jax.random.exponential(key, (2, *natural["log"].shape), natural["log"].dtype)
            return family.mean(
                {
                    "log": jnp.maximum(natural["log"], -0.9) + noise[0],
                    "log1m": jnp.maximum(natural["log1m"], -0.9) + noise[1],
                }
            )
        case "Categorical":
            noise = jax.random.exponential(key, natural["indicator"].shape, mean["indicator"].dtype)
            return {"indicator": noise / noise.sum(-1, keepdims=True)}
    return mean


def _concentrated(family: Any, natural: Natural) -> Natural:
    """The Gamma of the same mean whose shape is at least one."""
    shape = (natural["log"] + 1.0) / family.power
    target = jnp.maximum(shape, 1.0)
    return {
        "log": target * family.power - 1.0,
        "power": natural["power"] * target / shape,
    }


def at_values(engine: Engine, state: State, given: Mapping[str, Array]) -> State:
    """Point statistics at the given site values; a block's other sites keep their means."""
    for block, family in zip(engine.joint.blocks, engine.family.families, strict=True):
        if not set(block.sites) & set(given):
            continue
        values = {name: jnp.asarray(given[name]) for name in block.sites if name in given}
        if len(values) < len(block.sites):
            centre = block.unpack(_centre(family, state.means[block.number]))
            values = {**centre, **values}
        mean = family.statistics(block.pack(values))
        state = _with(state, block.number, state.naturals[block.number], mean)
    return state


def _centre(family: ExponentialFamily, mean: Mean) -> dict[str, Array]:
    """A central point value of a joint family, from its mean parameters."""
    if "power" in mean:  # Normal-Gamma
        tau = mean["power"]
        spread = tau.reshape(tau.shape + (1,) * (mean["px"].ndim - tau.ndim))
        return {"z": tau ** (1.0 / family.power), "x": mean["px"] / spread}  # type: ignore[attr-defined]
    if "matrix" in mean:  # Normal-Wishart
        solved = jnp.linalg.solve(mean["matrix"], mean["px"][..., None])[..., 0]
        return {"z": mean["matrix"], "x": solved}
    return {"x": mean["x"]}


def seed_rows(
    engine: Engine, arrays: Arrays, state: State, key: Array, seeded: int, how: str
) -> State:
    """Responsibilities from K rows of the data, and the other factors given them.

    Each component gets half its share of the rows from one row and half from all rows alike, so
    that its centre is drawn to the row and its spread is that of the data. Rows are drawn one by
    one with probability proportional to how much worse the components so far explain a row than
    they explain their own (squared distance, for unit-variance Gaussians): k-means++.
    """
    family = engine.family.families[seeded]
    rows, categories = family.batch_shape[0], state.means[seeded]["indicator"].shape[-1]
    shape = state.means[seeded]["indicator"].shape
    dtype = state.means[seeded]["indicator"].dtype
    others = [n for n in engine.sweep.order if n != seeded and not engine.joint.blocks[n].sequential]
    share = rows / categories

    def given(indicator: Array, state: State) -> State:
        state = _with(
            state, seeded, state.naturals[seeded], {"indicator": indicator.reshape(shape)}
        )
        for number in reversed(others):
            state, _ = engine.sweep.update(arrays, state, number)
        return state

    base = jnp.full((rows, categories), 0.5 / categories, dtype)
    if how == "rows":
        chosen = jax.random.choice(key, rows, (categories,), replace=False)
        indicator = base.at[chosen, jnp.arange(categories)].add(0.5 * share)
        return given(indicator, state)

    def body(k: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        indicator, gap, key = carry
        key, pick = jax.random.split(key)
        row = jax.random.categorical(pick, jnp.log(gap))
        indicator = indicator.at[row, k].add(0.5 * share)
        score = gradient(engine.joint.summands, arrays, given(indicator, state).means, seeded)
        own = score["indicator"].reshape(rows, categories)[:, k]
        gap = jnp.minimum(gap, jnp.maximum(own[row] - own, 0.0) + 1e-6)
        return indicator, gap, key

    gap = jnp.full((rows,), jnp.finfo(dtype).max / rows, dtype)
    indicator, _, _ = jax.lax.fori_loop(0, categories, body, (base, gap, key))
    return given(indicator, state)


def _with(state: State, number: int, natural: Natural, mean: Mean) -> State:
    return State(
        (*state.naturals[:number], natural, *state.naturals[number + 1 :]),
        (*state.means[:number], mean, *state.means[number + 1 :]),
    )

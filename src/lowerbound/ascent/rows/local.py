"""New rows under fixed parameters: the best Gaussian of each, and its density."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent.rows.by_rows import by_rows, shared_block
from lowerbound.ascent.rows.climb import STEPS, Point, begin, window
from lowerbound.ascent.rows.first_point import first_point
from lowerbound.ascent.rows.measure import row_terms
from lowerbound.ascent.rows.objective import Data, Free, Objective, objective_of
from lowerbound.ascent.rows.row_gaussians import Block
from lowerbound.errors import ArgumentError
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.model import Model
from lowerbound.rewrite.coordinates import Coordinates

Naturals = Any
DRAWS, WINDOWS = 8, 40
TRIED = 64  # places to start a row from
RATE, LEAST_RATE, LOWER = 0.1, 3e-3, 0.3
TOLERANCE = 1e-5


def local_gaussians(
    family: UnconstrainedGaussian, naturals: Naturals, model: Model
) -> tuple[UnconstrainedGaussian, dict[str, np.ndarray]]:
    """The Gaussians of the local sites of a program of new rows; what these share is as in q."""
    objective = objective_of(model, ())
    coordinates = objective.coordinates
    sites = [name for name in coordinates.shapes if name in model.local]
    for name in sites:
        if name not in coordinates.supports:
            raise ArgumentError(
                f"The support of site '{name}' depends on other sites: its Gaussian has no form of "
                "its own.\nExpected a fixed support. Fit the new rows together with the old ones."
            )
    own = rows_given(objective, shared_block(family, naturals, objective), 0).own
    supports = {name: coordinates.supports[name] for name in sites}
    kept = Coordinates(None, {name: coordinates.shapes[name] for name in sites}, supports)
    place = np.zeros(coordinates.size, int)  # of an entry among those that are kept
    for name in sites:
        place[coordinates.part(name)] = np.arange(kept.size)[kept.part(name)]
    rows = replace(objective, coordinates=kept, own=place[objective.own], shared=np.zeros(0, int))
    nobody = {"loc": np.zeros(0), "log_scale": np.zeros(0)}
    return UnconstrainedGaussian(kept, {}), by_rows(rows, own, nobody)


def row_densities(
    family: UnconstrainedGaussian, naturals: Naturals, model: Model, draws: int, seed: int
) -> np.ndarray:
    """Log p(row) of the rows of a program, by importance sampling from a Gaussian of each."""
    objective = objective_of(model, ())
    shared = shared_block(family, naturals, objective)
    return log_densities(objective, rows_given(objective, shared, seed), draws, seed)


def rows_given(objective: Objective, shared: Block, seed: int) -> Point:
    """The q of every row, with what they share held fixed."""
    point = first_point(objective, "auto", {}, seed)._replace(shared=shared)
    point.own["loc"] = _best_places(objective, point, seed)
    state, data = begin(point, objective.rows), objective.data()
    work = 3.0 * DRAWS * objective.work()
    program = objective.jitted(
        ("window of rows", DRAWS), lambda own: window(own, own.rows, DRAWS, moving=False), work
    )
    keys = jax.random.split(jax.random.key(seed), WINDOWS)
    rate, best, average = RATE, -np.inf, point
    for key in keys:
        state, average, values = program(state, None, key, np.asarray(rate), data)
        late = np.asarray(values)[STEPS // 2 :]
        elbo, noise = float(late.mean()), float(late.std() / np.sqrt(len(late)))
        if elbo - best <= max(TOLERANCE * abs(elbo), 2.0 * noise):
            if rate <= LEAST_RATE:
                break
            rate = max(LOWER * rate, LEAST_RATE)
        best = max(best, elbo)
    found: Point = jax.tree.map(np.asarray, average)
    return found


def _best_places(objective: Objective, point: Point, seed: int) -> np.ndarray:
    """For every row the likeliest of some draws of the prior: a row's density may have modes."""
    program = objective.jitted("best places", lambda own: partial(_likeliest, own))
    keys = jax.random.split(jax.random.key(seed), TRIED)
    free, middle, shared = point.free, jnp.asarray(point.own["loc"]), point.shared["loc"]
    everything = objective.model.arguments.data
    return np.asarray(program(keys, free, middle, shared, objective.data(), everything))


def _likeliest(
    objective: Objective,
    keys: Array,
    free: Free,
    middle: Array,
    shared: Array,
    data: Data,
    everything: Data,
) -> Array:
    """Of draws of the prior, and the middle, the likeliest of each row."""

    def density(own: Array) -> Array:
        def weighted(weights: Array) -> Array:
            return objective.log_joint(free, own, shared, data, weights)

        return jnp.asarray(jax.grad(weighted)(jnp.ones(objective.rows)))

    def tried(key: Array) -> tuple[Array, Array]:
        normal = jax.random.normal(key, (objective.coordinates.size,))
        own = objective.coordinates.prior(normal, everything)[objective.own]
        return own, density(own)

    places, values = jax.lax.map(tried, keys)
    places = jnp.concatenate([places, middle[None]])
    values = jnp.concatenate([values, density(middle)[None]])
    values = jnp.where(jnp.isfinite(values), values, -jnp.inf)
    chosen = jnp.argmax(values, axis=0)
    return jnp.take_along_axis(places, chosen[None, :, None], axis=0)[0]


def log_densities(objective: Objective, point: Point, draws: int, seed: int) -> np.ndarray:
    """Log p(row) of every row: an average of p(x, z) / q(z) over draws of q."""
    program = objective.jitted("densities of rows", lambda own: partial(_averages, own))
    keys = jax.random.split(jax.random.key(seed), draws)
    return np.asarray(program(keys, point, objective.data()))


def _averages(objective: Objective, keys: Array, point: Point, data: Data) -> Array:
    def one(key: Array) -> Array:
        keys = jax.random.split(key)
        own = jax.random.normal(keys[0], point.own["loc"].shape)
        shared = jax.random.normal(keys[1], point.shared["loc"].shape)
        return row_terms(objective, point, (own, shared), data)

    terms = jax.lax.map(one, keys)
    return jax.scipy.special.logsumexp(terms, axis=0) - jnp.log(len(keys))

"""The last part of a climb where it is affordable: quasi-Newton steps over fixed draws.

Noisy steps come near a maximum and stay around it; with fixed draws the ELBO is a smooth function
of everything, and its maximum is found to many digits. How much it has adapted to these very draws
is seen on fresh ones.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lowerbound.ascent.rows.climb import Point
from lowerbound.ascent.rows.objective import Data, Objective
from lowerbound.bound.draws import block_draws, normal_draws

ITERATIONS = 300
MOST_NUMBERS = 50_000  # that are moved together
MOST_PARAMETERS = 1000  # numbers: those of networks would take very many steps
WORK = 1e8  # operations of one evaluation over all draws
MOST_DRAWS = 256
FLAT, LEVEL = 1e-5, 1e-11  # the slope, and the relative gain of a step, at which they end


def draws_for(objective: Objective, point: Point, work: float) -> int:
    """How many fixed draws are affordable; 0 where fewer are than a maximum needs."""
    numbers = sum(np.size(a) for a in jax.tree.leaves(point))
    width = max(point.own["loc"].shape[-1], point.shared["loc"].shape[-1])
    least = max(16, 2 * width + 2)
    affordable = int(WORK / max(3.0 * work, 1.0))
    many = sum(np.size(a) for a in jax.tree.leaves(point.free)) > MOST_PARAMETERS
    if many or numbers > MOST_NUMBERS or affordable < least:
        return 0
    return int(min(affordable, max(least, MOST_DRAWS)) // 2 * 2)


def polished(
    objective: Objective, point: Point, data: Data, draws: int, work: float, seed: int
) -> tuple[Point, float, bool]:
    """The maximum over fixed draws near a point, its ELBO over these, and whether it is one."""
    from scipy.optimize import minimize

    noise = fixed_noise(objective, draws, seed)
    flat, shape = ravel_pytree(point)
    scales = _scales(point)
    scale = np.asarray(ravel_pytree(scales)[0])

    def slope(own: Objective) -> Any:
        def loss(vector: Any, noise: Any, data: Data) -> Any:
            moved: Point = shape(vector)
            bounds = own.bounds(moved.free, moved.own, moved.shared, noise, data, None)
            return -jnp.mean(bounds)

        return jax.value_and_grad(loss)

    # Whether covariances are full decides what the vector holds.
    key = "polish", str(jax.tree.structure(point))
    program = objective.jitted(key, slope, 3.0 * draws * work)
    origin = np.asarray(flat)

    def slopes(steps: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = program(jnp.asarray(origin + scale * steps), noise, data)
        found = np.asarray(gradient) * scale
        if not (np.isfinite(value) and np.isfinite(found).all()):
            return 1e300, np.zeros_like(steps)
        return float(value), found

    options = {"maxiter": ITERATIONS, "maxfun": 2 * ITERATIONS, "maxcor": 30}
    options |= {"gtol": FLAT, "ftol": LEVEL}  # type: ignore[dict-item]
    found = minimize(slopes, np.zeros_like(origin), jac=True, method="L-BFGS-B", options=options)
    if not np.isfinite(found.x).all() or found.fun >= 1e300:
        return point, -np.inf, False
    ended: Point = jax.tree.map(np.asarray, shape(jnp.asarray(origin + scale * found.x)))
    return ended, -float(found.fun), found.nit < ITERATIONS


def fixed_noise(objective: Objective, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws of all rows, white in each, and of what they share."""
    rows, width = objective.own.shape
    own = np.zeros((draws, rows, width))
    if width:
        own = block_draws(draws, rows * width, width, seed).reshape(draws, rows, width)
    size = len(objective.shared)
    return own, normal_draws(draws, size, seed + 1) if size else np.zeros((draws, 0))


def _scales(point: Point) -> Point:
    """The units of the steps: those of q for means, one for all else."""
    ones = jax.tree.map(lambda a: np.ones(np.shape(a)), point)
    own = {**ones.own, "loc": np.exp(np.asarray(point.own["log_scale"]))}
    shared = {**ones.shared, "loc": np.exp(np.asarray(point.shared["log_scale"]))}
    return Point(ones.free, own, shared)

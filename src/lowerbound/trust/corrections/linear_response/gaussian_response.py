"""Linear response of a Gaussian on the unconstrained space.

With u = m + C e the ELBO is E[log p(m + C e)] + log |C| over standard normal e. A pull at u moves m
by the block of m in the inverse of the negative Hessian in (m, C): Cov(u); and the mean of any
number w(u) by its derivative J in (m, C): Cov(w) = J [...]^-1 J'. The average over e is one over
fixed draws in pairs +-e, so that a quadratic log p leaves no error: there it is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import jaxpr_as_fun

from lowerbound.compiled import jit, quickly
from lowerbound.errors import UncorrectableError
from lowerbound.family.densities.unconstrained import covariance, even_normal
from lowerbound.methods.gaussian.target import Target, is_quick
from lowerbound.trust.against import Against
from lowerbound.trust.corrections.linear_response.curvatures import check_optimum, response
from lowerbound.trust.corrections.linear_response.own_scales import OwnScales

DRAWS, FEW = 256, 64  # of e; of many numbers
MANY = 64  # numbers
SHAPED = 30  # numbers up to which all of C responds


@dataclass(frozen=True, eq=False)
class Moved:
    """Covariances by linear response, and what was done.

    moved: of u. before, after: of the sites' own numbers w, under q and by linear response. level,
    width: means and sds of u with which w has its mean under q, and its sd by linear response.
    """

    moved: np.ndarray
    before: np.ndarray
    after: np.ndarray
    level: np.ndarray
    width: np.ndarray
    text: str


def gaussian_response(view: Against) -> Moved:
    """The covariance of u by the response of the best Gaussian."""
    parameters, target = view.parameters, view.target
    loc = np.asarray(parameters["loc"], float)
    before = np.asarray(covariance(parameters), float)
    root, size = np.linalg.cholesky(before), len(loc)
    diagonal = "scale" in parameters and "factor" not in parameters
    kind = "diagonal" if diagonal else "full" if size <= SHAPED else "location"
    normal = _normal(size)
    slope, halves, hessian = _derivatives(target, kind)(loc, root, normal, target.arguments)
    if not np.isfinite(hessian).all():
        raise UncorrectableError(
            "linear-response",
            "log p has no finite second derivative at draws of q",
            "Use lb.correct(fit, 'psis'), or 'nuts'.",
        )
    # In the coordinates (m in units of C, shape) q alone has the curvature 1, 2 for a log scale.
    own = np.eye(len(hessian))
    own[:size, :size] = root

    rows = {"diagonal": np.arange(size), "full": np.tril_indices(size)[0]}
    entries = [*range(size), *rows.get(kind, np.zeros(0, int))]

    def names(k: int) -> str:
        return view.coordinates.owner(int(entries[k]))

    found = response(own, -hessian, names)
    step = found.moved(_pull(slope, root))
    spread = [found.moved(_pull(half, root)) for half in halves]
    whole = found.matrix
    moved = whole[:size, :size]
    check_optimum(
        step[:size],
        np.abs(spread[0] - spread[1])[:size] / 2,
        np.sqrt(np.diag(moved)),
        float(np.linalg.norm(slope)),
        names,
    )
    text = {
        "diagonal": "covariances by linear response of means and scales",
        "full": "covariances by linear response of means and covariances",
        "location": "covariances by linear response of the means at the shape of q",
    }[kind]
    scales = OwnScales.of(view.coordinates, view.target.data)
    sds = np.sqrt(np.diag(before))
    nodes, weights = np.linspace(-8.0, 8.0, 129), np.exp(-0.5 * np.linspace(-8.0, 8.0, 129) ** 2)
    weights = weights / weights.sum()
    values = scales(loc + sds * nodes[:, None])
    mean = weights @ values
    spread_before = weights @ np.square(values - mean)
    by_loc, by_sd = _slopes(scales, loc, sds, nodes, weights)
    # A log scale of C in units of C moves the sd by its share of it.
    jacobian = np.zeros((size, len(whole)))
    jacobian[:, :size] = np.diag(by_loc)
    if kind == "diagonal":
        jacobian[:, size:] = np.diag(by_sd * sds)
    elif kind == "full":
        jacobian[:, size:] = by_sd[:, None] * _sd_slopes(root, sds)
    after = jacobian @ whole @ jacobian.T
    unit = np.broadcast_to(nodes[:, None], (len(nodes), size))
    level, width = scales.matched(unit, weights, loc, mean, np.sqrt(np.diag(after)))
    return Moved(moved, np.diag(spread_before), after, level, width, text)


def _slopes(
    scales: OwnScales, loc: np.ndarray, sds: np.ndarray, nodes: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How the mean of each w moves with the mean and the sd of its u."""

    def mean(loc: np.ndarray, sds: np.ndarray) -> np.ndarray:
        found: np.ndarray = weights @ scales(loc + sds * nodes[:, None])
        return found

    h = 1e-5
    by_loc = (mean(loc + h * sds, sds) - mean(loc - h * sds, sds)) / (2 * h * sds)
    by_sd = (mean(loc, sds * (1 + h)) - mean(loc, sds * (1 - h))) / (2 * h * sds)
    return by_loc, by_sd


def _sd_slopes(root: np.ndarray, sds: np.ndarray) -> np.ndarray:
    """How sds of u move with the entries of T (its diagonal in logs), at C = root T, T = I."""
    rows, columns = np.tril_indices(len(root))
    # d var_i / d T_kl = 2 (root root')_.. : C C' with C = root T moves by root (dT + dT') root'.
    slopes: np.ndarray = root[:, rows] * root[:, columns] / sds[:, None]
    return slopes


def _pull(slope: np.ndarray, root: np.ndarray) -> np.ndarray:
    """The slope by (m, shape) of one by (m in units of C, shape)."""
    size = len(root)
    return np.concatenate([np.linalg.solve(root.T, slope[:size]), slope[size:]])


def _normal(size: int) -> np.ndarray:
    """Standard normal draws in pairs +-e, the halves of which are pairs as well."""
    if size <= MANY:
        half = even_normal(DRAWS, size)
        half = half[: len(half) // 2]
    else:
        half = np.random.default_rng(0).standard_normal((FEW // 2, size))
        half /= np.sqrt(np.square(half).mean(axis=0))
    pairs = np.stack([half, -half], axis=1)
    return pairs.reshape(-1, size)


def _derivatives(target: Target, kind: str) -> Callable[..., Any]:
    """The slope of the ELBO, that of both halves of the draws, and its Hessian, at a Gaussian.

    The coordinates are (a, b): m = loc + root a, and b the log of the scales, or the lower triangle
    of T in C = root exp-diagonal(T), or nothing.
    """

    def objective(moved: Array, loc: Array, root: Array, normal: Array, leaves: Any) -> Array:
        size = len(loc)
        rest = moved[size:]
        log_volume = jnp.zeros(())
        shaped = normal
        if kind == "diagonal":
            shaped, log_volume = normal * jnp.exp(rest), rest.sum()
        elif kind == "full":
            lower = jnp.zeros((size, size)).at[np.tril_indices(size)].set(rest)
            log_diagonal = jnp.diagonal(lower)
            lower = lower - jnp.diag(log_diagonal) + jnp.diag(jnp.exp(log_diagonal))
            shaped, log_volume = normal @ lower.T, log_diagonal.sum()
        vectors = loc + (moved[:size] + shaped) @ root.T

        def density(vector: Array) -> Array:
            return jnp.asarray(jaxpr_as_fun(target.closed)(vector, *leaves)[0])

        return jax.vmap(density)(vectors).mean() + log_volume

    def every(loc: Array, root: Array, normal: Array, data: dict[str, Array]) -> Any:
        leaves, size = jax.tree.leaves(data), len(loc)
        extra = {"diagonal": size, "full": size * (size + 1) // 2, "location": 0}[kind]
        zero = jnp.zeros(size + extra)

        def gradient(moved: Array, draws: Array = normal) -> Array:
            return jnp.asarray(jax.grad(objective)(moved, loc, root, draws, leaves))

        def along(direction: Array) -> Array:
            return jnp.asarray(jax.jvp(gradient, (zero,), (direction,))[1])

        count = len(normal) // 4 * 2  # whole pairs
        halves = gradient(zero, normal[:count]), gradient(zero, normal[count:])
        hessian = jax.lax.map(along, jnp.eye(size + extra), batch_size=8)
        return gradient(zero), halves, hessian

    key = ("response", kind)
    if key not in target.compiled:
        target.compiled[key] = (quickly if is_quick(target.closed.jaxpr) else jit)(every)

    def run(*args: Any) -> Any:
        try:
            found = target.compiled[key](*args)
        except (TypeError, NotImplementedError) as error:
            raise UncorrectableError(
                "linear-response",
                f"the program has no second derivatives ({error})",
                "Use lb.correct(fit, 'psis'), or 'nuts'.",
            ) from error
        return jax.tree.map(lambda a: np.asarray(a, float), found)

    return run

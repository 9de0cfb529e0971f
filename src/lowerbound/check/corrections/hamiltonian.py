"""Hamiltonian trajectories from draws of q, in the coordinates where q is standard.

NUTS (Hoffman and Gelman 2014) is NumPyro's. That q is near makes it short: chains begin where the
posterior is, and the metric is known but for what q has missed.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import jaxpr_as_fun

from lowerbound.check.against import Against
from lowerbound.check.corrections.chains import mixing
from lowerbound.check.corrections.improved import Improved
from lowerbound.check.corrections.suited import suited
from lowerbound.compiled import jit, quickly
from lowerbound.compute.bounded_loops import has_open_loops
from lowerbound.errors import FewWeightsError
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian, covariance
from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.methods.gaussian.target import Target, is_quick
from lowerbound.rewrite.noncentred import centring

CHAINS, WARM = 4, 300
STARTS = 1000  # draws of q that starts are taken from, and its covariance where it has no formula
DENSE = 200  # numbers up to which the metric adapts as a matrix
MATRIX = 1000  # numbers up to which that of q is one
SHARE = 0.01  # of trajectories that may diverge
ACCEPTED = 0.8


def by_trajectories(view: Against, draws: int, seed: int) -> Improved:
    """Chains of NUTS over all continuous sites of the program."""
    kept = math.ceil(draws / CHAINS)
    values = view.family.sample(view.parameters, jax.random.key(seed), (STARTS,))
    view = suited(view, values)
    target = view.target
    vectors = np.asarray(view.placed(values)[0])
    log_p, gradients = target(vectors)
    fine = np.isfinite(log_p) & np.isfinite(gradients).all(axis=1)
    if fine.sum() < CHAINS:
        raise FewWeightsError(int(fine.sum()), STARTS, CHAINS)
    loc, root = standard(view, vectors[fine])
    starts = vectors[fine][:: max(int(fine.sum()) // CHAINS, 1)][:CHAINS]
    key = ("nuts", kept, root.ndim)
    if key not in target.compiled:
        compiled = quickly if is_quick(target.closed.jaxpr) else jit
        target.compiled[key] = compiled(_chains(target, kept, len(loc) <= DENSE))
    keys = jax.random.split(jax.random.key(seed + 1), CHAINS)
    inside = _solved(root, starts - loc)
    run = target.compiled[key](inside, keys, loc, root, target.arguments)
    vectors, diverging, steps = (np.asarray(a) for a in run)
    mixed = mixing(vectors, view.coordinates.owner)
    diverged = int(diverging.sum())
    flaw = mixed.flaw
    if not flaw and diverged > SHARE * diverging.size:
        flaw = f"{diverged:,} of {diverging.size:,} trajectories diverged"
    found = view.values(vectors.reshape(-1, target.size))
    count = CHAINS * kept
    return Improved(
        WeightedDraws(),
        {"values": found, "weights": np.full(count, 1.0 / count)},
        f"{CHAINS} chains of {kept:,} trajectories from q, after {WARM}: {diverged:,} diverged, "
        f"{steps.mean():.0f} gradients each; {mixed}{_coordinates(view)}",
        reason=f"chains of NUTS agree: {mixed}",
        flaw=flaw,
        remedy="Ask for more draws=, or write the program with other coordinates (non-centred).",
        before={name: np.asarray(array) for name, array in values.items()},
    )


def standard(view: Against, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of q, and a root of its covariance: a matrix, or the sds of many numbers."""
    family, size = view.family, view.target.size
    if isinstance(family, UnconstrainedGaussian) and size <= MATRIX:
        spread = np.asarray(covariance(view.parameters), float)
        return np.asarray(view.parameters["loc"], float), np.linalg.cholesky(spread)
    loc = vectors.mean(axis=0)
    sd = np.maximum(vectors.std(axis=0), 1e-12 * (1.0 + abs(loc)))
    if size > min(MATRIX, len(vectors) // 5):
        return loc, sd
    # A few draws more than numbers: what they say of correlations counts by how many they are.
    unit = (vectors - loc) / sd
    share = len(vectors) / (len(vectors) + 5.0 + size)
    correlation = share * (unit.T @ unit) / len(vectors) + (1.0 - share) * np.eye(size)
    return loc, sd[:, None] * np.linalg.cholesky(correlation)


def _coordinates(view: Against) -> str:
    """Which sites were moved by other coordinates than their own."""
    noncentred = sorted(view.coordinates.noncentred)
    if not noncentred:
        return ""
    named = [f"'{n}' {float(centring(n, view.target.data)):.2f}" for n in noncentred]
    return f"; non-centred coordinates, centring {', '.join(named)}"


def _solved(root: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The rows in coordinates where q is standard."""
    inside: np.ndarray = rows / root if root.ndim == 1 else np.linalg.solve(root, rows.T).T
    return inside


def _chains(target: Target, kept: int, dense: bool) -> Any:
    """A function of starts, keys, mean, root and data: draws (C, S, d), divergences, lengths."""
    from numpyro.infer.hmc import hmc

    forward = has_open_loops(target.closed)

    def chain(start: Array, key: Array, loc: Array, root: Array, leaves: list[Array]) -> Any:
        def placed(inside: Array) -> Array:
            return loc + (root * inside if root.ndim == 1 else root @ inside)

        def potential(inside: Array) -> Array:
            return jnp.asarray(-jaxpr_as_fun(target.closed)(placed(inside), *leaves)[0])

        begin, move = hmc(potential, algo="NUTS")
        state = begin(
            start,
            WARM,
            dense_mass=dense,
            target_accept_prob=ACCEPTED,
            forward_mode_differentiation=forward,
            rng_key=key,
        )

        def step(state: Any, _: None) -> tuple[Any, Any]:
            state = move(state)
            return state, (placed(state.z), state.diverging, state.num_steps)

        # One loop for all, which is compiled once.
        found = jax.lax.scan(step, state, None, length=WARM + kept)[1]
        return jax.tree.map(lambda array: array[WARM:], found)

    def every(starts: Array, keys: Array, loc: Array, root: Array, data: dict[str, Array]) -> Any:
        leaves = jax.tree.leaves(data)
        return jax.vmap(lambda s, k: chain(s, k, loc, root, leaves))(starts, keys)

    return every

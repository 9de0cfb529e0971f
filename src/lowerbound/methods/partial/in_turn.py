"""Coordinate ascent on q(g) q(z): exact updates of z, natural-gradient steps of the Gaussian q(g).

The draws of g are fixed, so that the ELBO is a number that no step lowers: the factors of z are
updated to their optimum for the average of log p over the draws; the Gaussian ascends for the
expectation of log p over q(z).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import biject_to

from lowerbound.ascent import State, Sweep
from lowerbound.ascent.gaussian_step import RUNNING, Ascent, advance, begin, distance
from lowerbound.bound.draws import block_draws, normal_draws
from lowerbound.bound.elbo import entropies
from lowerbound.bound.fixed_draws import Estimate, averaged, points
from lowerbound.compiled.host import FITS, lightly
from lowerbound.compute.engine import Arrays
from lowerbound.cost import mapped
from lowerbound.joint import Statistics
from lowerbound.methods.coordinate.start import Chance, start
from lowerbound.methods.gaussian.target import POINT
from lowerbound.methods.partial.given_program import GivenSites
from lowerbound.model import Model
from lowerbound.model.prior_points import prior_point
from lowerbound.rewrite.given_values import given_name

BATCH = 64  # draws that are worked on together
MOST_NUMBERS = 20_000_000  # that one batch may hold
SWEEPS = 25  # of the exact factors, at most, between steps of the Gaussian
STEPS = 2  # of the Gaussian between sweeps
SETTLED = 1e-9  # relative change of the ELBO in a sweep or a round
NOISE = 1e-2  # of the standard error of the ELBO: a change in a round that does not count


@dataclass(frozen=True, eq=False)
class Alternating:
    """One program given g with its data: the compiled parts of the ascent."""

    given: GivenSites
    inputs: dict[str, Any]  # the data without g
    seeded: int | None  # the block of assignments that a start seeds
    _fixed: list[Arrays] = field(default_factory=list, repr=False)

    @property
    def size(self) -> int:
        """The dimension of u."""
        return self.given.coordinates.size

    @property
    def batch(self) -> int:
        """How many draws are worked on together."""
        largest = sum(np.size(array) for array in self.inputs.values()) + self.size
        return int(max(1, min(BATCH, MOST_NUMBERS // largest)))

    def averages(self, vectors: np.ndarray) -> Arrays:
        """The arrays of the energy, averaged over the rows of `vectors`."""
        moving = self.given.affine.moving
        total: list[Any] = [0.0 for _ in moving]
        for rows, weights in self._batches(vectors):
            found = self._program("sums")(rows, weights, self.inputs)
            total = [t + np.asarray(a) for t, a in zip(total, found, strict=True)]
        arrays = list(self.fixed())
        for slot, array in zip(moving, total, strict=True):
            arrays[slot] = jnp.asarray(array / len(vectors))
        return tuple(arrays)

    def fixed(self) -> Arrays:
        """The arrays at some point: those that do not depend on g are what they always are."""
        if not self._fixed:
            middle = jnp.zeros(self.size)
            self._fixed.append(self.given.arrays(middle, self.inputs))
        return self._fixed[0]

    def sweeps(self, arrays: Arrays, state: State) -> tuple[State, float, float]:
        """Sweeps until the ELBO has settled: the state, its ELBO given q(g), its entropy."""
        found, bound, entropy = self._program("sweeps", arrays, state)(arrays, state)
        return found, float(bound), float(entropy)

    def estimate(
        self, draws: np.ndarray, loc: np.ndarray, root: np.ndarray, means: Statistics
    ) -> Estimate:
        """The ELBO of the Gaussian and its derivatives, for given means of the factors of z."""
        return averaged(draws, *self.densities(draws, loc, root, means), root)

    def densities(
        self, draws: np.ndarray, loc: np.ndarray, root: np.ndarray, means: Statistics
    ) -> tuple[np.ndarray, np.ndarray]:
        """E_q(z)[log p] and its gradient at the points of some draws."""
        vectors = points(draws, loc, root)
        values, gradients = [], []
        for rows, weights in self._batches(vectors):
            value, gradient = self._program("density", means)(rows, self.inputs, means)
            count = int(weights.sum())
            values.append(np.asarray(value)[:count])
            gradients.append(np.asarray(gradient)[:count])
        return np.concatenate(values), np.concatenate(gradients)

    def first(
        self, arrays: Arrays, chance: Chance, how: str, values: Mapping[str, np.ndarray]
    ) -> State:
        """Factors of z to start from, given g."""
        key = ("first", how, tuple(sorted(values)), self.seeded)
        return self._program(key, arrays, chance, dict(values))(arrays, chance, dict(values))  # type: ignore[no-any-return]

    def prior(self, model: Model, normal: np.ndarray) -> np.ndarray:
        """Points u of the prior of g, one for each row of standard normal numbers."""
        coordinates = self.given.coordinates

        def prior(normal: Array, data: Mapping[str, Array]) -> Array:
            def one(normal: Array) -> Array:
                values = prior_point(model, coordinates.split(normal), data)
                parts = [
                    jnp.ravel(biject_to(coordinates.supports[n]).inv(values[n]))
                    for n in coordinates.shapes
                ]
                return jnp.concatenate(parts)

            return jax.vmap(one)(normal)

        compiled, key = self.given.engine.compiled, ("prior", len(normal), self.given.key)
        if key not in compiled:
            compiled[key] = lightly(prior, FITS)
        return np.array(compiled[key](normal, model.arguments.data), float)

    def _batches(self, vectors: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Rows in batches of one size, the last filled up with rows of no weight."""
        parts = []
        for begun in range(0, len(vectors), self.batch):
            some = vectors[begun : begun + self.batch]
            rows = np.resize(np.arange(len(some)), self.batch)
            weights = (np.arange(self.batch) < len(some)).astype(float)
            parts.append((some[rows], weights))
        return parts

    def _program(self, what: Any, *shapes: Any) -> Any:
        """A compiled part of the ascent, shared by equal programs."""
        given, engine, seeded = self.given, self.given.engine, self.seeded
        key = ("given sites", what, given.key)
        if key in engine.compiled:
            return engine.compiled[key]
        rows = np.zeros((self.batch, self.size))

        def sums(rows: Array, weights: Array, inputs: dict[str, Array]) -> tuple[Array, ...]:
            def one(row: Array) -> tuple[Array, ...]:
                arrays = given.arrays(row, inputs)
                return tuple(arrays[slot] for slot in given.affine.moving)

            return tuple(jnp.tensordot(weights, a, axes=1) for a in mapped(one, rows, what=POINT))

        def density(rows: Array, inputs: dict[str, Array], means: Statistics) -> Any:
            def one(row: Array) -> Array:
                return given.density(row, inputs, means)

            return mapped(jax.value_and_grad(one), rows, what=POINT)

        def sweeps(arrays: Arrays, state: State) -> tuple[State, Array, Array]:
            return swept(
                Sweep(engine.family, given.affine.summands, engine.sweep.order), arrays, state
            )

        def first(arrays: Arrays, chance: Chance, values: dict[str, Array]) -> State:
            return start(engine, arrays, chance, what[1], values, seeded)

        compiled = {
            "sums": lambda: engine.compile(sums, rows, np.zeros(len(rows)), self.inputs),
            "density": lambda: engine.compile(density, rows, self.inputs, *shapes),
            "sweeps": lambda: engine.compile(sweeps, *shapes),
            "first": lambda: engine.compile(first, *shapes),
        }
        engine.compiled[key] = compiled[what if isinstance(what, str) else what[0]]()
        return engine.compiled[key]


def swept(sweep: Sweep, arrays: Arrays, state: State) -> tuple[State, Array, Array]:
    """Sweeps until the ELBO has settled; also the entropy of the factors."""
    Loop = tuple[Array, State, Array, Array]

    def more(loop: Loop) -> Array:
        t, _, bound, change = loop
        return (t < SWEEPS) & ((t == 0) | (change > SETTLED * jnp.maximum(abs(bound), 1.0)))

    def body(loop: Loop) -> Loop:
        t, state, before, _ = loop
        state, bound = sweep(arrays, state)
        return t + 1, state, bound, bound - before

    first = jax.tree.map(jnp.asarray, (0, state, -jnp.inf, jnp.inf))
    _, state, bound, _ = jax.lax.while_loop(more, body, first)
    entropy = sum(entropies(sweep.family, arrays, state.naturals, state.means), jnp.zeros(()))
    return state, bound, entropy


# --------------------------------------------------------------------------------------------------
# Rounds


@dataclass(frozen=True, eq=False)
class Place:
    """Where an ascent is: the Gaussian, the factors of z, and the ELBO over the draws so far."""

    loc: np.ndarray
    root: np.ndarray  # lower triangular, or a stack of blocks that are independent
    state: State
    elbo: float = -np.inf
    noise: float = 0.0  # the standard error of the ELBO, as far as it is the draws'
    error: float = np.inf  # how far the Gaussian was from stationary when the factors had moved
    rounds: int = 0
    draws: int = 0  # of the last round


def one_round(given: Alternating, draws: np.ndarray, place: Place, tolerance: float) -> Place:
    """Exact updates of the factors, then steps of the Gaussian; the ELBO does not fall."""
    arrays = given.averages(points(draws, place.loc, place.root))
    state, _, entropy = given.sweeps(arrays, place.state)
    ascent: Ascent = begin(place.loc, place.root)
    error = np.inf
    for step in range(STEPS + 1):
        found = given.estimate(draws, ascent.trial_loc, ascent.trial_root, state.means)
        if step == 0:
            error = float(distance(found, False))
        ascent = advance(ascent, found, tolerance)
        if ascent.status != RUNNING:
            break
    loc, root = np.asarray(ascent.loc), np.asarray(ascent.root)
    elbo = ascent.elbo + entropy
    noise = float(ascent.found.deviation) / np.sqrt(len(draws))
    return Place(loc, root, state, elbo, noise, error, place.rounds + 1, len(draws))


def settled(before: Place, after: Place, tolerance: float, relative: float) -> bool:
    """Whether a round moved nothing: neither the Gaussian nor, but for noise, the ELBO."""
    least = max(relative * max(abs(after.elbo), 1.0), NOISE * after.noise)
    return after.error <= tolerance and after.elbo - before.elbo <= least


def restarted(place: Place) -> Place:
    """The same place, for other draws: its ELBO is not known."""
    return replace(place, elbo=-np.inf, error=np.inf)


def fixed_draws(count: int, dimension: int, block: int, seed: int) -> np.ndarray:
    """The draws of one stage, for a full covariance (`block` 0) or one of blocks."""
    if block == 0:
        return normal_draws(count, dimension, seed)
    return block_draws(count, dimension, block, seed)


def data_without(inputs: Mapping[str, Any], sites: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of the program given g, but g."""
    names = {given_name(site) for site in sites}
    return {name: jnp.asarray(array) for name, array in inputs.items() if name not in names}

"""The Gaussian q(z | theta) of what is left when a few scalars are given, for a grid over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax import Array

from lowerbound.ascent.gaussian_step import RUNNING, Ascent, begin
from lowerbound.bound.draws import normal_draws
from lowerbound.compiled import jit, quickly
from lowerbound.cost import mapped, numbers_computed
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.methods.gaussian.climbing.starts import WIDTH
from lowerbound.methods.gaussian.climbing.together import LEFT_BEHIND, side_by_side, stopped
from lowerbound.methods.gaussian.target import POINT, Target, target_for, value_and_gradient
from lowerbound.methods.grid.conditional import Solver
from lowerbound.model import Model
from lowerbound.rewrite.given_values import given_name
from lowerbound.run.walking import ended

TOLERANCE, LIMIT = 1e-3, 100  # the ELBO is wrong by the square of the tolerance
DRAWS = 128  # at least, and four times the dimension
BATCH = 256  # points that are evaluated together
QUICK_BELOW = 500  # numbers computed for one point; a grid takes a hundred thousand points
_FAR_BELOW, _STEPS = 30.0, 50.0  # nats; steps like the next that would not reach the others


@dataclass(frozen=True, eq=False)
class GaussianGrid:
    """The KL-optimal Gaussian at any theta, over the same draws: its ELBO is smooth in theta.

    `target` is that of the program with the sites theta as data. Each ascent begins at the nearest
    solution that is known; the very first at u = `start`, for the theta nearest to `centre`.
    """

    target: Target
    sites: tuple[str, ...]
    draws: np.ndarray
    start: np.ndarray
    centre: np.ndarray
    _known: list[tuple[np.ndarray, float, Ascent]] = field(default_factory=list, repr=False)

    def solve(
        self, points: np.ndarray, theta: Mapping[str, np.ndarray], jacobian: np.ndarray
    ) -> tuple[dict[str, Any], np.ndarray]:
        """The optimum at every point (m, k) of the grid and its ELBO, log |dtheta/du| included.

        The ELBO is -inf where log p is finite nowhere near the start.
        """
        order = np.argsort(((points - self.centre) ** 2).sum(axis=1), kind="stable")
        found: dict[int, Ascent] = {}
        while len(found) < len(points):
            # From the centre outwards, while nothing is known: each wave begins at the one before.
            size = len(found) + 1 if len(self._known) < len(points) else len(points)
            wave = order[len(found) :][:size]
            states = self._wave(
                points[wave], {n: v[wave] for n, v in theta.items()}, jacobian[wave]
            )
            found.update(zip(wave.tolist(), states, strict=True))
        states = [found[number] for number in range(len(points))]
        solutions = {
            "loc": np.stack([state.loc for state in states]),
            "scale_tril": np.stack([state.root for state in states]),
            "given": {given_name(site): theta[site][:, None] for site in self.sites},
        }
        return solutions, np.array([s.elbo for s in states]) + jacobian

    def _wave(
        self, points: np.ndarray, theta: Mapping[str, np.ndarray], jacobian: np.ndarray
    ) -> list[Ascent]:
        best = max((value for _, value, _ in self._known), default=-np.inf)

        def sieve(states: list[Ascent]) -> list[Ascent]:
            # Nodes of no weight need no exact value.
            top = max(best, *(s.elbo + j for s, j in zip(states, jacobian, strict=True)))
            return [
                stopped(s, LEFT_BEHIND)
                if s.status == RUNNING and s.elbo + _STEPS * s.gain + j < top - _FAR_BELOW
                else s
                for s, j in zip(states, jacobian, strict=True)
            ]

        def evaluate(vectors: np.ndarray, owners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return self._rows(vectors, {given_name(n): v[owners, None] for n, v in theta.items()})

        begun = [self._nearest(point, best) for point in points]
        phase = side_by_side(evaluate, self.draws, begun, TOLERANCE, LIMIT, sieve=sieve)
        states = [one.state for one in ended(phase)]
        for point, offset, state in zip(points, jacobian, states, strict=True):
            if np.isfinite(state.elbo):
                self._known.append((point, state.elbo + offset, state))
        return states

    def _nearest(self, point: np.ndarray, best: float) -> Ascent:
        near = [(u, state) for u, value, state in self._known if value > best - _FAR_BELOW]
        if not near:
            size = self.target.size
            return begin(self.start, np.eye(size) * WIDTH / np.sqrt(size))
        places = np.stack([u for u, _ in near])
        state = near[int(np.argmin(((places - point) ** 2).sum(axis=1)))][1]
        return begin(state.loc, state.root)

    def _rows(
        self, vectors: np.ndarray, given: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values and gradients at rows that have each their own theta."""
        target, program = self.target, _program(self.target)
        data = {n: a for n, a in target.data.items() if n not in given}
        values, gradients = [], []
        for first in range(0, len(vectors), BATCH):
            count = len(vectors[first : first + BATCH])
            rows = np.resize(np.arange(first, first + count), BATCH)  # repeated to a full batch
            value, gradient = program(vectors[rows], {n: a[rows] for n, a in given.items()}, data)
            values.append(np.asarray(value)[:count])
            gradients.append(np.asarray(gradient)[:count])
        return np.concatenate(values), np.concatenate(gradients)


def _program(target: Target) -> Any:
    """Log p and its gradient for a batch of points and values of theta, compiled."""
    key = "rows"
    if key not in target.compiled:

        def run(vectors: Array, given: dict[str, Array], data: dict[str, Array]) -> Any:
            def one(vector: Array, own: dict[str, Array]) -> Any:
                return value_and_gradient(target.closed, {**data, **own})(vector)

            return mapped(one, vectors, given, what=POINT)

        small = numbers_computed(target.closed.jaxpr) <= QUICK_BELOW
        target.compiled[key] = quickly(run) if small else jit(run)
    return target.compiled[key]


def gaussian_solver(
    model: Model,
    sites: Sequence[str],
    count: int | None = None,
    start: np.ndarray | None = None,
    centre: np.ndarray | None = None,
) -> Solver:
    """The Gaussian of what is left in a program conditioned on some sites, for a grid over them.

    `count` draws; the ascent begins at the vector u = `start` where theta is nearest to `centre`,
    by default both 0.
    """
    target = target_for(model)
    size = max(DRAWS, 4 * target.size) if count is None else max(count, 2 * target.size + 2)
    grid = GaussianGrid(
        target,
        tuple(sites),
        normal_draws(size + size % 2, target.size, 0),
        np.zeros(target.size) if start is None else start,
        np.zeros(len(sites)) if centre is None else centre,
    )
    names = {given_name(site) for site in sites}
    data = {name: array for name, array in target.data.items() if name not in names}
    family = UnconstrainedGaussian(target.coordinates, data, target.compiled)
    numbers = sum(np.size(array) for array in data.values()) + target.size**2
    return Solver(None, family, data, target.compiled, numbers, on_host=grid.solve)

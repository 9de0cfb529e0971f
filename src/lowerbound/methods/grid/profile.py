"""The profile F(u): the ELBO given theta(u) and log |dtheta/du|, with every value remembered.

Points are solved in batches of one size, so that one program compiles; what fills up a batch is
passed over. Each starts from the solution at the nearest point that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions.transforms import Transform

from lowerbound.compiled import jit, quickly
from lowerbound.cost import mapped
from lowerbound.family.variational import Parameters
from lowerbound.methods.grid.conditional import Solver

Transforms = tuple[Transform, ...]

BATCH = 32
NUMBERS_AT_ONCE = 4_000_000  # in the data of the points that are solved together
QUICK_BELOW = 50_000
SWEEPS = 60  # more are left to the next visit of a node, which starts from here
SCANNED = 8  # sweeps in a search for the mass: far from it they would be many, and worth little
NEAR = 40.0  # nats below the maximum where a solution is still worth starting from


class Profile:
    """F at every point asked for so far: `u` (m, k), `values` (m,), and the solutions there."""

    def __init__(
        self,
        solver: Solver,
        sites: Sequence[str],
        transforms: Sequence[Transform],
        improper: Sequence[str] = (),
    ) -> None:
        self.improper = tuple(improper)  # the sites with a prior that does not integrate
        self.solver, self.sites, self.transforms = solver, tuple(sites), tuple(transforms)
        self.u = np.zeros((0, len(sites)))
        self.values = np.zeros(0)
        self.undefined = np.zeros(0, bool)
        self.solutions: list[Parameters] = []  # one stacked tree per batch
        self.axes = np.eye(len(sites))  # the metric in which points are near each other
        self._solve = self._on_host if solver.on_host else self._compiled()

    def at(self, points: np.ndarray, sweeps: int = SWEEPS) -> np.ndarray:
        """F at the points (m, k); -inf where the inner problem has no finite value."""
        found = [
            self._batch(points[begin : begin + BATCH], sweeps)
            for begin in range(0, len(points), BATCH)
        ]
        return np.concatenate(found)

    def lost(self, point: np.ndarray) -> bool:
        """Whether F was asked for at a point and could not be computed (-inf is a value)."""
        return bool(self.undefined[(self.u == point).all(axis=1)].any())

    def solution(self, numbers: np.ndarray) -> Parameters:
        """The solutions at some of the points, stacked in front."""
        batch, row = np.divmod(numbers, BATCH)
        used, inverse = np.unique(batch, return_inverse=True)

        def gather(*parts: np.ndarray) -> np.ndarray:
            found = np.empty((len(numbers), *parts[0].shape[1:]), parts[0].dtype)
            for number, part in enumerate(parts):  # all of them together may be gigabytes
                own = inverse == number
                found[own] = part[row[own]]
            return found

        return jax.tree.map(gather, *(self.solutions[b] for b in used))

    def nearest(self, points: np.ndarray) -> np.ndarray:
        """The number of the nearest known point, among those that matter."""
        worth = np.flatnonzero(self.values > self.values.max() - NEAR)
        if len(self.sites) == 1:  # few points, and the import below is felt
            nearest = np.argmin(abs(points - self.u[worth].T), axis=1)
        else:
            from scipy.spatial import cKDTree

            root = np.linalg.inv(self.axes).T
            _, nearest = cKDTree(self.u[worth] @ root).query(points @ root)
        found: np.ndarray = worth[nearest]
        return found

    def _batch(self, points: np.ndarray, sweeps: int) -> np.ndarray:
        count = len(points)
        padded = np.concatenate([points, np.repeat(points[-1:], BATCH - count, axis=0)])
        cold = not np.isfinite(self.values).any()
        begin: Parameters = ()
        if self.solver.on_host:
            padded = padded[:count]
        elif cold:
            shapes = jax.eval_shape(self._first, self.solver.inputs, self.transforms, padded)
            begin = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), shapes)
        else:
            begin = self.solution(self.nearest(padded))
        with jax.default_matmul_precision("highest"):
            solutions, solved = self._solve(
                self.solver.inputs,
                self.transforms,
                padded,
                begin,
                np.arange(BATCH) < count,
                np.asarray(cold),
                np.asarray(sweeps),
            )
        values = np.array(solved)
        self.undefined = np.concatenate([self.undefined, np.isnan(values)])
        padded = padded[np.minimum(np.arange(BATCH), len(padded) - 1)]
        finite = np.isfinite(values)
        for leaf in jax.tree.leaves(solutions):
            finite &= np.isfinite(np.asarray(leaf)).reshape(BATCH, -1).all(axis=1)
        # Every batch takes BATCH numbers, so that a number says where its solution is.
        values[~finite] = -np.inf
        values[count:] = -np.inf
        self.u = np.concatenate([self.u, padded])
        self.values = np.concatenate([self.values, values])
        self.solutions.append(jax.tree.map(np.asarray, solutions))
        return values[:count]

    def _on_host(
        self,
        inputs: Any,
        transforms: Transforms,
        points: np.ndarray,
        begin: Parameters,
        asked: Any,
        cold: Any,
        sweeps: Any,
    ) -> tuple[Parameters, np.ndarray]:
        """The solutions of some points and their values, both repeated to a full batch."""
        assert self.solver.on_host is not None
        key = ("theta", self.sites)
        if key not in self.solver.compiled:
            self.solver.compiled[key] = quickly(jax.vmap(self._theta, in_axes=(None, 0)))
        rows = np.resize(np.arange(len(points)), BATCH)
        theta, jacobian = jax.tree.map(
            lambda a: np.asarray(a)[: len(points)],
            self.solver.compiled[key](transforms, points[rows]),
        )
        solved = self.solver.on_host(points, theta, jacobian)
        return jax.tree.map(lambda a: a[rows], solved)  # type: ignore[no-any-return]

    def _theta(self, transforms: Transforms, u: Array) -> tuple[dict[str, Array], Array]:
        """theta(u) and log |dtheta/du|."""
        theta, jacobian = {}, jnp.zeros(())
        for number, (site, transform) in enumerate(zip(self.sites, transforms, strict=True)):
            theta[site] = transform(u[number])
            jacobian += transform.log_abs_det_jacobian(u[number], theta[site])
        return theta, jacobian

    def _first(self, inputs: Any, transforms: Transforms, points: Array) -> Parameters:
        assert self.solver.inner is not None
        inner = self.solver.inner(inputs)
        return jax.vmap(lambda u: inner.first(self._theta(transforms, u)[0]))(points)

    def _compiled(self) -> Callable[..., tuple[Parameters, Array]]:
        """The batched solve, compiled once for all programs that share the solver."""
        key = ("profile", self.sites)
        if key in self.solver.compiled:
            return self.solver.compiled[key]  # type: ignore[no-any-return]
        together = int(np.clip(NUMBERS_AT_ONCE // max(self.solver.size, 1), 1, BATCH))
        if jax.default_backend() == "cpu":
            together = 1  # side by side, all points take the sweeps of the slowest

        def run(
            inputs: Any,
            transforms: Transforms,
            points: Array,
            begin: Parameters,
            asked: Array,
            cold: Array,
            sweeps: Array,
        ) -> tuple[Parameters, Array]:
            assert self.solver.inner is not None
            inner = self.solver.inner(inputs)

            def solve(u: Array, known: Parameters) -> tuple[Parameters, Array]:
                theta, jacobian = self._theta(transforms, u)
                begin = jax.lax.cond(cold, lambda: inner.first(theta), lambda: known)
                solution, value = inner.solve(theta, begin, sweeps)
                return solution, value + jacobian

            def one(u: Array, known: Parameters, asked: Array) -> tuple[Parameters, Array]:
                found: tuple[Parameters, Array] = jax.lax.cond(
                    asked, solve, lambda u, known: (known, jnp.asarray(-jnp.inf)), u, known
                )
                return found

            what = f"the rest of the model, given {' and '.join(self.sites)},"
            solved: tuple[Parameters, Array] = mapped(
                one, points, begin, asked, most=together, what=what
            )
            return solved

        small = self.solver.size <= QUICK_BELOW
        compiled: Callable[..., tuple[Parameters, Array]] = quickly(run) if small else jit(run)
        self.solver.compiled[key] = compiled
        return compiled

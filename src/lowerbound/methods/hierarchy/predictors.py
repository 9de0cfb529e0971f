"""Linear predictors: log p(x, z, theta) is a sum of g_e(eta_e; t), with eta = A(t) z + b(t).

t is theta on the unconstrained space, with log |dtheta/dt| in the density. A is sparse with a fixed
pattern. Expectations of the g_e under normals are quadratures in one dimension each, or in a few
where predictors meet in one term.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.compiled import jit
from lowerbound.compiled.host import CALLS, lightly
from lowerbound.family.numerics.relative import Relative
from lowerbound.methods.hierarchy import averaged_terms
from lowerbound.methods.hierarchy.asked_of_terms import Data, Expected, Law
from lowerbound.methods.hierarchy.joint_terms import (
    Joint,
    Normals,
    Root,
    Rule,
    covariances,
    joint,
    rule,
)
from lowerbound.methods.hierarchy.reading.flat_program import Name
from lowerbound.methods.hierarchy.reading.recurring.from_levels import FromLevels
from lowerbound.methods.hierarchy.reading.splitting import Split
from lowerbound.model import Model
from lowerbound.rewrite.coordinates import Coordinates

# The least sds, relative to its place, of the law that a predictor is looked at with: any will do
# for a parabola.
NARROW, WIDE = 1e-5, 1.0
FAR = (1.0, 1.0, 1e2, 1e4)  # places where a slope is looked at
CURVED = 1e-9  # relative change of a second derivative that makes a parabola of it no more
QUICK_BELOW = 60_000  # predictors times nodes; programs of more are optimised
MEETING = 6  # times as often are those run whose predictors meet: steps are many, and ways beyond
ALONG = 5  # nodes of a way along which slopes are integrated
FEWER = 5  # nodes of each of the predictors that are beside something known


@dataclass(frozen=True, eq=False)
class Predictors:
    """The split program with its data: theta's sites, and z's.

    Where the numbers of theta are `relative` to each other, t stands for r throughout, and the last
    of the data say how.
    """

    model: Model
    coordinates: Coordinates
    theta: tuple[str, ...]
    z: tuple[str, ...]
    parts: Split
    leaves: tuple[Any, ...]  # the data of the program, in the order of its inputs
    compiled: dict[object, Any] = field(repr=False)
    back: FromLevels | None = None  # how z comes from its coordinates, where these are levels
    relative: Relative | None = None

    @cached_property
    def rows(self) -> np.ndarray:
        """The predictor of each entry of A."""
        begin, found = 0, []
        for name in self.parts.cut:
            found.append(begin + self.parts.maps.of(name).rows)
            begin += name.size
        return np.concatenate(found)

    @cached_property
    def joint(self) -> Joint:
        """Which predictors meet in one term, and the lines that these make."""
        return joint(self.parts.clusters, self.rows, self.count)

    @property
    def lines(self) -> int:
        """How many lines there are: predictors, and sums of two that meet."""
        return self.count + len(self.joint.pairs)

    @cached_property
    def columns(self) -> np.ndarray:
        """The number of z of each entry of A."""
        return np.concatenate([self.parts.maps.of(name).columns for name in self.parts.cut])

    @property
    def straight(self) -> tuple[str, ...]:
        """The sites of z that have bounds, and are taken as though they had none."""
        return tuple(name for name in self.z if name in self.coordinates.straight)

    def is_real(self, site: str) -> bool:
        """Whether the coordinates of a site are the site itself."""
        own = self.coordinates.part(site)
        return own.stop == own.start or self.coordinates.is_real(own.start)

    @property
    def all_real(self) -> bool:
        """Whether the coordinates of all sites are these sites themselves, without bounds."""
        return not self.straight and all(map(self.is_real, (*self.theta, *self.z)))

    @property
    def count(self) -> int:
        """How many predictors there are."""
        return self.parts.count

    @cached_property
    def size(self) -> int:
        """How many numbers z has."""
        return sum(self.length(site) for site in self.z)

    @cached_property
    def dimension(self) -> int:
        """How many numbers theta has."""
        return sum(self.length(site) for site in self.theta)

    @property
    def groups(self) -> np.ndarray:
        """The site of each number of z, as a number."""
        lengths = [self.length(site) for site in self.z]
        return np.repeat(np.arange(len(self.z)), lengths)

    def length(self, site: str) -> int:
        """How many numbers a site has."""
        return int(np.prod(self.coordinates.shapes[site], dtype=int))

    # ----------------------------------------------------------------------------------------------
    # Numbers

    def entries(self, t: np.ndarray) -> np.ndarray:
        """The values of A's entries."""
        if self._fixed is not None:
            return self._fixed
        return np.asarray(self.run("entries", self.entries_at, t))

    @cached_property
    def is_fixed(self) -> bool:
        """Whether A is the same for all theta."""
        steps = [self.parts.maps.of(name).step for name in self.parts.cut]
        kinds = self.parts.kinds
        used = self.parts.maps.tape.factors(steps)
        return all(not isinstance(atom, Name) or kinds[atom] == 0 for atom in used)

    @cached_property
    def _fixed(self) -> np.ndarray | None:
        if not self.is_fixed:
            return None
        return np.asarray(self.run("entries", self.entries_at, np.zeros(self.dimension)))

    def at(self, t: np.ndarray, z: np.ndarray) -> np.ndarray:
        """The predictors themselves; the offsets b(t) where z is 0."""
        return np.asarray(self.run("at", self.lines_at, t, z))

    def density(self, t: np.ndarray, z: np.ndarray) -> float:
        """Log p at theta and the coordinates of z."""

        def log_p(t: Array, data: Data, z: Array) -> Array:
            return self.log_p(t, data, self.lines_at(t, data, z))

        return float(self.run("density of coordinates", log_p, t, z))

    @cached_property
    def is_quadratic(self) -> bool:
        """Whether every g is a parabola, so that z given theta is Gaussian."""
        return self.lines == self.count and bool(self.parabolic.all())

    @cached_property
    def parabolic(self) -> np.ndarray:
        """Which g are parabolas, of predictors that meet no others in a term.

        Their slope is then a straight line, near and far: |z| has a slope that is constant twice.
        """
        rng = np.random.default_rng(0)
        t = 0.1 * rng.normal(size=self.dimension)
        none, line = np.zeros(self.count), None
        found = np.ones(self.count, bool)
        for size in FAR:
            first, step = (size * rng.normal(size=self.count) for _ in range(2))
            second = first + step + np.copysign(size, step)  # of a million, no two near each other
            slopes = [
                np.asarray(self._expected(t, Normals(p, none), WIDE, rule(1, 1))[1])
                for p in (first, second)
            ]
            with np.errstate(all="ignore"):
                steepness = (slopes[1] - slopes[0]) / (second - first)
                line = steepness if line is None else line
                noise = 1e-12 * np.maximum(*map(abs, slopes)) / abs(second - first)
                scale = np.maximum(abs(steepness), abs(line))
                found &= abs(steepness - line) <= CURVED * scale + noise
            if not found.any():
                break
        return found

    def expected(self, t: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Expectations under normals with means (count,) and variances of all lines."""
        narrow = WIDE if self.is_quadratic else NARROW
        normals = self.normals(mean, variance)
        value, slope, curvature = self._expected(t, normals, narrow, self._rule)
        return Expected(float(value), np.asarray(slope), np.asarray(curvature))

    def normals(self, mean: np.ndarray, variance: np.ndarray) -> Normals:
        """The normals of predictors, from the variances of all lines."""
        sd = np.sqrt(np.maximum(variance[: self.count], 0.0))
        return Normals(mean, sd, covariances(self.joint, variance))

    @property
    def nodes(self) -> int:
        """How many nodes an expectation is summed over."""
        return int(self._rule.used)

    @property
    def meet(self) -> bool:
        """Whether several predictors meet in one term."""
        return len(self.joint.clusters) > 0

    @property
    def _rule(self) -> Rule:
        return rule(1, 2) if self.is_quadratic else self._curved_rule

    @property
    def _curved_rule(self) -> Rule:
        """The nodes of terms that are no parabolas."""
        return rule(max(1, self.joint.clusters.shape[1]))

    def _expected(self, t: np.ndarray, normals: Normals, narrow: float, nodes: Rule) -> Any:
        return self.run(
            "expected", partial(averaged_terms.moments, self), t, normals, narrow, nodes
        )

    def by_theta(self, t: np.ndarray, normals: Normals, expected: Expected, law: Law) -> np.ndarray:
        """The derivative by t of the expected log p, with the law of z held fixed."""
        slopes = expected.slope, expected.curvature
        return np.asarray(
            self.run(
                "by theta",
                partial(averaged_terms.by_theta, self),
                t,
                normals,
                slopes,
                law,
                self._rule,
            )
        )

    def slopes(self, t: np.ndarray, normals: Normals, places: np.ndarray) -> np.ndarray:
        """The derivative of every g by x, at mean + deviation x for each of the places x (n,)."""
        return np.asarray(
            self.run("slopes", partial(averaged_terms.slopes_at, self), t, normals, places)
        )

    def slopes_along(
        self, t: np.ndarray, mean: np.ndarray, beside: Root, places: np.ndarray
    ) -> np.ndarray:
        """The derivatives by x of the expected terms of clusters, at mean + deviation x, (n, c).

        What predictors are `beside` this, given x, has roots of their own.
        """
        nodes = rule(self.joint.clusters.shape[1], FEWER)
        return np.asarray(
            self.run(
                "along", partial(averaged_terms.slopes_along, self), t, mean, beside, places, nodes
            )
        )

    def raised(self, t: np.ndarray, mean: np.ndarray, away: np.ndarray) -> np.ndarray:
        """By how much the terms of clusters are larger at mean + away (n, count), (n, c).

        They are known by their slopes alone, which are integrated along the way.
        """
        nodes, weights = np.polynomial.legendre.leggauss(ALONG)
        way = 0.5 * (nodes + 1.0), 0.5 * weights
        return np.asarray(
            self.run("raised", partial(averaged_terms.raised, self), t, mean, away, *way)
        )

    # ----------------------------------------------------------------------------------------------
    # What is compiled

    def run(self, key: object, function: Callable[..., Any], t: np.ndarray, *args: Any) -> Any:
        """A function of t, the data and more, compiled once for all equal programs."""
        if key not in self.compiled:
            # The compiler takes longer than programs of few rows and nodes ever save.
            numbers = self.count * int(self._curved_rule.used) * (MEETING if self.meet else 1)
            quick = key == "at" or numbers < QUICK_BELOW
            self.compiled[key] = lightly(function, CALLS) if quick else jit(function)
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            return self.compiled[key](np.asarray(t, float), self.data, *args)

    @cached_property
    def data(self) -> Data:
        """What every compiled function is given."""
        return Data(self.leaves, tuple(self.parts.maps.tape.indices), self.joint)

    def _env(self, t: Array, leaves: Sequence[Any]) -> dict[Name, Any]:
        inputs = self.parts.flat.inputs
        env = dict(zip(inputs[len(self.theta) + len(self.z) :], leaves, strict=True))
        begin = 0
        for site, name in zip(self.theta, inputs, strict=False):
            env[name] = t[begin : begin + self.length(site)].reshape(name.shape)
            begin += name.size
        return env

    def _values(self, wanted: Sequence[Any], env: Mapping[Name, Any]) -> list[Any]:
        return self.parts.flat.values(wanted, env, self.parts.makers)

    def entries_at(self, t: Array, data: Data) -> Array:
        """The values of A's entries, as a traced function of t."""
        tape = self.parts.maps.tape
        steps = [self.parts.maps.of(name).step for name in self.parts.cut]
        atoms = tape.factors(steps)
        values = self._values(atoms, self._env(t, data.leaves))
        table = {id(atom): value for atom, value in zip(atoms, values, strict=True)}
        return jnp.concatenate(tape.run(steps, lambda atom: table.get(id(atom), 0.0), data.indices))

    def lines_at(self, t: Array, data: Data, z: Array) -> Array:
        """The predictors, as a traced function of z."""
        env, begin = self._env(t, data.leaves), 0
        for name in self.parts.flat.inputs[len(self.theta) :][: len(self.z)]:
            env[name] = z[begin : begin + name.size].reshape(name.shape)
            begin += name.size
        return jnp.concatenate([jnp.ravel(v) for v in self._values(self.parts.cut, env)])

    def log_p(self, t: Array, data: Data, predictors: Array) -> Array:
        """Log p as a function of the predictors."""
        env, begin = self._env(t, data.leaves), 0
        for name in self.parts.cut:
            part = predictors[begin : begin + name.size].reshape(name.shape)
            env[name] = part.astype(name.dtype)
            begin += name.size
        return jnp.asarray(self._values(self.parts.flat.outputs, env)[0])

"""Linear predictors: log p(x, z, theta) is a sum of g_e(eta_e; t), with eta = A(t) z + b(t).

t is theta on the unconstrained space, with log |dtheta/dt| in the density. A is sparse with a fixed
pattern. Expectations of the g_e under independent normals are quadratures in one dimension each.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.compiled import jit, quickly
from lowerbound.errors import NoPredictorsError
from lowerbound.methods.hierarchy.flat_program import Name, flattened
from lowerbound.methods.hierarchy.splitting import Split, split
from lowerbound.model import Model
from lowerbound.model.dependence import digest
from lowerbound.rewrite.coordinates import Coordinates

MOST = 15  # numbers of theta
NODES = 12  # of a quadrature, where some g is not a parabola
CURVED = 1e-9  # relative change of a second derivative that makes a parabola of it no more
QUICK_BELOW = 5_000  # predictors
_CACHE_SIZE = 16
_programs: OrderedDict[str, dict[object, Any]] = OrderedDict()


@dataclass(frozen=True, eq=False)
class Expected:
    """The expected log p under normals of the predictors, with its derivatives by their means.

    value: of all terms. slope, curvature: expected g' and -g'' of each predictor.
    """

    value: float
    slope: np.ndarray
    curvature: np.ndarray


@dataclass(frozen=True, eq=False)
class Predictors:
    """The split program with its data: theta's sites, and z's."""

    model: Model
    coordinates: Coordinates
    theta: tuple[str, ...]
    z: tuple[str, ...]
    parts: Split
    leaves: tuple[Any, ...]  # the data of the program, in the order of its inputs
    compiled: dict[object, Any] = field(repr=False)

    @cached_property
    def rows(self) -> np.ndarray:
        """The predictor of each entry of A."""
        begin, found = 0, []
        for name in self.parts.cut:
            found.append(begin + self.parts.maps.of(name).rows)
            begin += name.size
        return np.concatenate(found)

    @cached_property
    def columns(self) -> np.ndarray:
        """The number of z of each entry of A."""
        return np.concatenate([self.parts.maps.of(name).columns for name in self.parts.cut])

    @property
    def count(self) -> int:
        """How many predictors there are."""
        return self.parts.count

    @cached_property
    def size(self) -> int:
        """How many numbers z has."""
        return sum(self._length(site) for site in self.z)

    @cached_property
    def dimension(self) -> int:
        """How many numbers theta has."""
        return sum(self._length(site) for site in self.theta)

    @property
    def groups(self) -> np.ndarray:
        """The site of each number of z, as a number."""
        lengths = [self._length(site) for site in self.z]
        return np.repeat(np.arange(len(self.z)), lengths)

    def _length(self, site: str) -> int:
        return int(np.prod(self.coordinates.shapes[site], dtype=int))

    # ----------------------------------------------------------------------------------------------
    # Numbers

    def entries(self, t: np.ndarray) -> np.ndarray:
        """The values of A's entries."""
        if self._fixed is not None:
            return self._fixed
        return np.asarray(self._run("entries", self._entries, t))

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
        return np.asarray(self._run("entries", self._entries, np.zeros(self.dimension)))

    def at(self, t: np.ndarray, z: np.ndarray) -> np.ndarray:
        """The predictors themselves; the offsets b(t) where z is 0."""
        return np.asarray(self._run("at", self._at, t, z))

    @cached_property
    def is_quadratic(self) -> bool:
        """Whether every g is a parabola, so that z given theta is Gaussian."""
        rng = np.random.default_rng(0)
        t = 0.1 * rng.normal(size=self.dimension)
        places = [rng.normal(size=self.count) for _ in range(2)]
        none = np.zeros(self.count)
        found = [self._expected(t, place, none, *_rule(1)) for place in places]
        first, second = (np.asarray(one[2]) for one in found)
        with np.errstate(all="ignore"):
            scale = np.maximum(abs(first), abs(second))
            return bool((abs(first - second) <= CURVED * scale).all())

    def expected(self, t: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Expectations under N(mean, variance) of every predictor."""
        rule = _rule(2 if self.is_quadratic else NODES)
        value, slope, curvature = self._expected(t, mean, np.sqrt(np.maximum(variance, 0.0)), *rule)
        return Expected(float(value), np.asarray(slope), np.asarray(curvature))

    def _expected(self, t: np.ndarray, *args: Any) -> Any:
        return self._run("expected", self._moments, t, *args)

    def by_theta(
        self,
        t: np.ndarray,
        mean: np.ndarray,
        deviation: np.ndarray,
        expected: Expected,
        loc: np.ndarray,
        covariance: np.ndarray,
        pairs: tuple[np.ndarray, np.ndarray, np.ndarray],
    ) -> np.ndarray:
        """The derivative by t of the expected log p, with the law of z held fixed.

        `pairs` are the numbers of two entries of a row of A, and the row; `covariance` is that of
        their columns, times how often a pair that is listed once counts.
        """
        rule = _rule(2 if self.is_quadratic else NODES)
        given = (mean, deviation, expected.slope, expected.curvature, loc, covariance)
        if self.is_fixed:
            given, pairs = (*given[:-1], np.zeros(0)), (np.zeros(0, np.int32),) * 3
        found = self._run("by theta", self._slope, t, *given, pairs, *rule)
        return np.asarray(found)

    # ----------------------------------------------------------------------------------------------
    # What is compiled

    def _run(self, key: object, function: Callable[..., Any], t: np.ndarray, *args: Any) -> Any:
        if key not in self.compiled:
            # Optimised where rows are many: the compiler takes longer than small ones ever save.
            quick = key == "at" or self.count < QUICK_BELOW
            self.compiled[key] = quickly(function) if quick else jit(function)
        indices = tuple(self.parts.maps.tape.indices)
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            entries = (self.rows.astype(np.int32), self.columns.astype(np.int32))
            return self.compiled[key](np.asarray(t, float), self.leaves, indices, entries, *args)

    def _env(self, t: Array, leaves: Sequence[Any]) -> dict[Name, Any]:
        inputs = self.parts.flat.inputs
        env = dict(zip(inputs[len(self.theta) + len(self.z) :], leaves, strict=True))
        begin = 0
        for site, name in zip(self.theta, inputs, strict=False):
            env[name] = t[begin : begin + self._length(site)].reshape(name.shape)
            begin += name.size
        return env

    def _values(self, wanted: Sequence[Any], env: Mapping[Name, Any]) -> list[Any]:
        return self.parts.flat.values(wanted, env, self.parts.makers)

    def _entries(self, t: Array, leaves: Any, indices: Any, entries: Any) -> Array:
        tape = self.parts.maps.tape
        steps = [self.parts.maps.of(name).step for name in self.parts.cut]
        atoms = tape.factors(steps)
        values = self._values(atoms, self._env(t, leaves))
        table = {id(atom): value for atom, value in zip(atoms, values, strict=True)}
        return jnp.concatenate(tape.run(steps, lambda atom: table.get(id(atom), 0.0), indices))

    def _at(self, t: Array, leaves: Any, indices: Any, entries: Any, z: Array) -> Array:
        env, begin = self._env(t, leaves), 0
        for name in self.parts.flat.inputs[len(self.theta) :][: len(self.z)]:
            env[name] = z[begin : begin + name.size].reshape(name.shape)
            begin += name.size
        return jnp.concatenate([jnp.ravel(v) for v in self._values(self.parts.cut, env)])

    def _log_p(self, t: Array, leaves: Any, predictors: Array) -> Array:
        """Log p as a function of the predictors."""
        env, begin = self._env(t, leaves), 0
        for name in self.parts.cut:
            part = predictors[begin : begin + name.size].reshape(name.shape)
            env[name] = part.astype(name.dtype)
            begin += name.size
        return jnp.asarray(self._values(self.parts.flat.outputs, env)[0])

    def _moments(
        self,
        t: Array,
        leaves: Any,
        indices: Any,
        entries: Any,
        mean: Array,
        deviation: Array,
        nodes: Array,
        weights: Array,
        used: Array,
    ) -> tuple[Array, Array, Array]:
        def at(node: Array) -> tuple[Array, Array, Array]:
            place = mean + deviation * node

            def slope(place: Array) -> tuple[Array, Array]:
                value, gradient = jax.value_and_grad(lambda p: self._log_p(t, leaves, p))(place)
                return gradient, value

            # Every term has one predictor, so that the second derivatives are a diagonal.
            gradient, turned, value = jax.jvp(
                slope, (place,), (jnp.ones_like(place),), has_aux=True
            )
            return value, gradient, -turned

        found: tuple[Array, Array, Array] = _averaged(at, nodes, weights, used)
        return found

    def _slope(
        self,
        t: Array,
        leaves: Any,
        indices: Any,
        entries: Any,
        mean: Array,
        deviation: Array,
        slope: Array,
        curvature: Array,
        loc: Array,
        covariance: Array,
        pairs: tuple[Array, Array, Array],
        nodes: Array,
        weights: Array,
        used: Array,
    ) -> Array:
        def at(node: Array) -> Array:
            place = mean + deviation * node
            return jnp.asarray(jax.grad(lambda t: self._log_p(t, leaves, place))(t))

        direct: Array = _averaged(at, nodes, weights, used)

        def moved(t: Array) -> Array:
            """How the laws of the predictors follow t: their means, and their variances."""
            if self.is_fixed:
                return jnp.asarray(slope @ self._at(t, leaves, indices, entries, loc))
            values = self._entries(t, leaves, indices, entries)
            means = self._at(t, leaves, indices, entries, loc)
            first, second, owner = pairs
            products = values[first] * values[second] * covariance
            return jnp.asarray(slope @ means - 0.5 * jnp.sum(curvature[owner] * products))

        return jnp.asarray(direct + jax.grad(moved)(t))


def _averaged(at: Callable[[Array], Any], nodes: Array, weights: Array, count: Array) -> Any:
    """The weighted sum of a function over the first nodes of a quadrature."""

    def add(number: Array, total: Any) -> Any:
        found = at(nodes[number])
        return jax.tree.map(lambda a, b: a + weights[number] * b, total, found)

    shapes = jax.eval_shape(at, nodes[0])
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return jax.lax.fori_loop(0, count, add, zero)


def _rule(count: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The Gauss-Hermite quadrature for a standard normal: nodes, weights, and how many are used.

    Rules of all sizes have the same shape, so that one program serves them all.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    rest = NODES - count
    return np.pad(nodes, (0, rest)), np.pad(weights / weights.sum(), (0, rest)), count


# --------------------------------------------------------------------------------------------------
# Finding theta


def predictors_of(model: Model, given: Sequence[str] = ()) -> Predictors:
    """The predictors of a program, with the sites `given` part of theta, and others as need be.

    Theta are the sites that are not real, and those that meet the predictors of others. Raises
    NoPredictorsError with the reason where there are none.
    """
    coordinates = Coordinates.of(model)
    if len(coordinates.supports) < len(coordinates.shapes):
        raise NoPredictorsError("the support of some site depends on other sites")
    theta = [n for n in coordinates.shapes if n in given or not _is_real(coordinates, n)]
    while True:
        z = [name for name in coordinates.shapes if name not in theta]
        count = sum(int(np.prod(coordinates.shapes[name], dtype=int)) for name in theta)
        if count > MOST:
            what = f"{count} numbers of {_listed(theta)}"
            raise NoPredictorsError(f"{what} are too many to be integrated")
        if not z:
            raise NoPredictorsError("no site is left given these")
        try:
            return _split(model, coordinates, tuple(theta), tuple(z))
        except NoPredictorsError as error:
            if not error.sites:
                raise
            theta = [n for n in coordinates.shapes if n in theta or n in error.sites]


def _split(
    model: Model, coordinates: Coordinates, theta: tuple[str, ...], z: tuple[str, ...]
) -> Predictors:
    names = sorted(model.arguments.data)
    leaves = tuple(np.asarray(model.arguments.data[name]) for name in names)

    def density(*inputs: Any) -> Array:
        sites = dict(zip((*theta, *z), inputs, strict=False))
        data = dict(zip(names, inputs[len(sites) :], strict=True))
        return coordinates.log_density_at(sites, data)

    shapes = [np.zeros(coordinates.shapes[name]) for name in (*theta, *z)]
    closed = jax.make_jaxpr(density)(*shapes, *leaves)
    shared = _shared(digest(closed, *theta, "|", *z, *names))
    flat = flattened(closed)
    inputs = flat.inputs
    start = len(theta) + len(z)
    data = dict(zip(inputs[start:], leaves, strict=True))

    def known(wanted: Sequence[Name]) -> list[np.ndarray]:
        if not wanted:
            return []
        own = dict(zip(inputs[start:], data.values(), strict=True))
        makers = flat.makers

        def compute(leaves: Sequence[Any]) -> list[Any]:
            return flat.values(wanted, dict(zip(own, leaves, strict=True)), makers)

        key = ("places", tuple(name.number for name in wanted))
        if key not in shared:
            shared[key] = quickly(compute)
        return [np.asarray(value) for value in shared[key](list(own.values()))]

    parts = split(
        flat, inputs[: len(theta)], dict(zip(z, inputs[len(theta) :], strict=False)), known
    )
    entries = tuple((len(parts.maps.of(name)), name.number) for name in parts.cut)
    lengths = tuple(map(len, parts.maps.tape.indices))
    compiled = shared.setdefault(("programs", entries, lengths), {})
    found = Predictors(model, coordinates, theta, z, parts, leaves, compiled)
    _check(found)
    return found


def _shared(key: str) -> dict[object, Any]:
    """What equal programs share, with whatever data."""
    found = _programs.setdefault(key, {})
    _programs.move_to_end(key)
    while len(_programs) > _CACHE_SIZE:
        _programs.popitem(last=False)
    return found


def _check(found: Predictors) -> None:
    """Raise where A z + b is not what the program computes: a rule would be wrong."""
    rng = np.random.default_rng(1)
    t, z = 0.3 * rng.normal(size=found.dimension), rng.normal(size=found.size)
    offset, whole = found.at(t, np.zeros(found.size)), found.at(t, z)
    sums = np.zeros(found.count)
    products = found.entries(t) * z[found.columns]
    np.add.at(sums, found.rows, products)
    scale = np.zeros(found.count)
    np.add.at(scale, found.rows, abs(products))
    scale += abs(offset) + 1.0
    if not (abs(offset + sums - whole) <= 1e-9 * scale).all():
        raise NoPredictorsError("some term is not what its linear predictors say")


def _is_real(coordinates: Coordinates, site: str) -> bool:
    part = coordinates.part(site)
    return part.stop == part.start or coordinates.is_real(part.start)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)

"""Free-form scalar factors: the optimal q_j of eq:optimal-qj when it has no name.

q(z) is proportional to exp(sum_s <eta_s, t_s(z)>) for any functions t_s of one number z. It is an
exponential family like the others, only that A and its gradient are integrals over a line, taken
by quadrature.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpyro.distributions import Distribution

from lowerbound.compiled import jit
from lowerbound.errors import ArgumentError
from lowerbound.family.densities.free_form import FreeForm
from lowerbound.family.exponential import ExponentialFamily, Mean, Natural, Values
from lowerbound.family.factors import free_members as members
from lowerbound.family.factors.free_terms import OfFunctions
from lowerbound.family.numerics import line
from lowerbound.family.numerics.support import Logs, Support, split, with_logs
from lowerbound.joint.terms.expression import Tree, Z, evaluate

__all__ = ["Free"]

_NOISE = 16.0  # roundings that a sum of terms may be wrong by, where the mass is sought


class _At(NamedTuple):
    """The log density and the statistics at some points."""

    log_density: Array  # with respect to z; -inf where a statistic overflows
    statistics: list[Array]  # finite
    rounding: Array  # the size of the terms that the log density is a sum of


class _Quadrature(NamedTuple):
    edges: Array
    at: _At
    log_jacobian: Array
    log_normalizer: Array
    probabilities: Array  # of the nodes


@dataclass(frozen=True)
class Free(OfFunctions, ExponentialFamily):
    """q(z) ∝ exp(sum_s <eta_s, t_s(z)>), scalar z on an interval, normalised by quadrature.

    Statistic s is the tree `trees[s]` in z and constant arrays, with the axes `sizes[s]` beyond
    the batch; `axes[s][k]` places each axis of array k of the tree within batch_shape + sizes[s].
    The arrays are extras of the natural parameters: "s0a0", "s0a1", "s1a0", ... The support is the
    open interval (lower, upper).
    """

    trees: tuple[Tree, ...]
    sizes: tuple[tuple[int, ...], ...]
    axes: tuple[tuple[tuple[int, ...], ...], ...]
    lower: float = -math.inf
    upper: float = math.inf

    def central(self, natural: Mapping[str, Array]) -> Mean:
        """The statistics at the median.

        A prior that is not zero at zero gives z^-2 no finite mean (half-Cauchy, half-normal).
        """
        median = self.quantile(natural, jnp.asarray(0.5))
        return self.statistics({**natural, "z": median})

    @property
    def statistic_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names s0, s1, ... of the statistics."""
        return tuple(f"s{s}" for s in range(len(self.trees)))

    @property
    def extra_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names s0a0, s0a1, ... of the constant arrays of the statistics."""
        return tuple(f"s{s}a{k}" for s, each in enumerate(self.axes) for k in range(len(each)))

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes `batch_shape` + `sizes[s]`."""
        pairs = zip(self.statistic_names, self.sizes, strict=True)
        return {name: (*self.batch_shape, *size) for name, size in pairs}

    def extra_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the constant arrays."""
        shapes = self.statistic_shapes()
        return {
            f"s{s}a{k}": tuple(shapes[f"s{s}"][axis] for axis in axes)
            for s, each in enumerate(self.axes)
            for k, axes in enumerate(each)
        }

    @property
    def support(self) -> Support:
        """The interval and its map from the line."""
        return Support(self.lower, self.upper)

    def copies(self, count: int) -> Free:
        """So many factors like this one, along a new first axis of every array."""
        moved = tuple(tuple((0, *(axis + 1 for axis in each)) for each in s) for s in self.axes)
        return replace(self, batch_shape=(count, *self.batch_shape), axes=moved)

    # ----------------------------------------------------------------------------------------------
    # The density at points

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """t_s(z) at point values; trees with constant arrays need those among `values`."""
        shapes = self.statistic_shapes()
        found = {}
        for s, name in enumerate(self.statistic_names):
            z = jnp.asarray(values["z"], float)
            wide = z.reshape(z.shape + (1,) * len(self.sizes[s]))
            t = evaluate(self.trees[s], wide, self._arrays(values, s, z.dtype))
            found[name] = jnp.broadcast_to(t, shapes[name])
        return found

    def _arrays(self, natural: Mapping[str, Array], s: int, dtype: Any) -> list[Array]:
        """The constant arrays of a statistic, with an axis for each of its axes."""
        rank = len(self.batch_shape) + len(self.sizes[s])
        spread = []
        for k, axes in enumerate(self.axes[s]):
            array = jnp.asarray(natural[f"s{s}a{k}"]).astype(dtype)
            ordered = jnp.transpose(array, sorted(range(len(axes)), key=axes.__getitem__))
            sizes = dict(zip(sorted(axes), ordered.shape, strict=True))
            spread.append(ordered.reshape([sizes.get(axis, 1) for axis in range(rank)]))
        return spread

    def _terms(self, natural: Mapping[str, Array], s: int, z: Array, logs: Logs) -> list[Array]:
        """The terms whose sum is statistic s at z; some axes may have length 1."""
        arrays = self._arrays(natural, s, z.dtype)
        wide: list[Any] = [
            None if a is None else a.reshape(a.shape + (1,) * len(self.sizes[s]))
            for a in (z, *logs)
        ]
        parts = [with_logs(part, self.support, len(arrays)) for part in split(self.trees[s])]
        values = (evaluate(part, wide[0], [*arrays, *wide[1:]]) for part in parts)
        return [jnp.asarray(value).astype(z.dtype) for value in values]

    def on_line(self, natural: Mapping[str, Array], u: Array) -> list[Array]:
        """Every statistic at points u of the line, infinite where it overflows."""
        point = self.support.point(u)
        every = range(len(self.trees))
        return [sum(self._terms(natural, s, point.z, point.logs), jnp.zeros(())) for s in every]

    def _at(self, natural: Mapping[str, Array], z: Array, logs: Logs) -> _At:
        """The density at z, any axes before the batch; `logs` are those of z's distances."""
        total, rounding = jnp.zeros_like(z), jnp.zeros_like(z)
        lost = jnp.zeros(z.shape, bool)
        statistics = []
        for s in range(len(self.trees)):
            trailing = tuple(range(-len(self.sizes[s]), 0))

            terms = self._terms(natural, s, z, logs)
            size = jnp.asarray(sum(abs(term) for term in terms), z.dtype)
            eta = natural[f"s{s}"].astype(z.dtype)
            fine = jnp.isfinite(size)
            t = jnp.where(fine, sum(terms), 0)
            total = total + jnp.sum(eta * t, axis=trailing)
            rounding = rounding + jnp.sum(jnp.abs(eta) * jnp.where(fine, size, 0), axis=trailing)
            lost = lost | jnp.any(~fine & (eta != 0), axis=trailing)
            statistics.append(t)
        known = ~lost & jnp.isfinite(total)
        return _At(jnp.where(known, total, -jnp.inf), statistics, rounding)

    def _on_line(self, natural: Mapping[str, Array], u: Array) -> tuple[_At, Array]:
        point = self.support.point(u)
        return self._at(natural, point.z, point.logs), point.log_jacobian

    # ----------------------------------------------------------------------------------------------
    # Quadrature

    def place(self, natural: Mapping[str, Array]) -> line.Placed:
        """Where the mass of each element lies; nothing is differentiated here."""
        fixed = {key: lax.stop_gradient(array) for key, array in natural.items()}
        found: line.Placed = _placed(self, fixed)
        return found

    def _place(self, fixed: Mapping[str, Array]) -> line.Placed:
        dtype = self._dtype(fixed)
        small = _NOISE * float(np.finfo(dtype).eps)

        def profiles(u: Array) -> Array:
            at, log_jacobian = self._on_line(fixed, u)
            # Where large terms cancel, their rounding must not look like mass.
            g = at.log_density + log_jacobian - small * at.rounding
            rows = [jnp.where(jnp.isnan(g), -jnp.inf, g)]
            for t in at.statistics:
                size = jnp.sum(jnp.abs(t), axis=tuple(range(u.ndim, t.ndim)))
                rows.append(rows[0] + jnp.log(jnp.broadcast_to(size, u.shape)))
            return jnp.stack(rows)

        return line.place(profiles, self.batch_shape, dtype)

    def _dtype(self, natural: Mapping[str, Array]) -> Any:
        # A uniform density has no statistics.
        naturals: list[Any] = [natural[name] for name in self.statistic_names]
        return jnp.result_type(*(naturals or [float]))

    def integrate(self, natural: Mapping[str, Array], edges: Array) -> _Quadrature:
        """The density at the nodes of the panels."""
        u, weight = line.rule(edges)
        at, log_jacobian = self._on_line(natural, u)
        tiny = np.finfo(weight.dtype).tiny
        log_mass = at.log_density + log_jacobian + jnp.log(jnp.maximum(weight, tiny))
        top = lax.stop_gradient(jnp.max(log_mass, axis=0))
        top = jnp.where(jnp.isfinite(top), top, 0)
        mass = jnp.exp(log_mass - top)
        total = jnp.sum(mass, axis=0)
        total = jnp.where(total > 0, total, 1)
        return _Quadrature(edges, at, log_jacobian, jnp.log(total) + top, mass / total)

    def _quadrature(self, natural: Mapping[str, Array]) -> _Quadrature:
        return self.integrate(natural, self.place(natural).edges)

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = log of the integral of exp<natural, t(z)> over the support."""
        return self._quadrature(natural).log_normalizer

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """E t_s(z), by the same quadrature as A."""
        return self.expected(self._quadrature(natural))

    def expected(self, quadrature: _Quadrature) -> Mean:
        """The means of the statistics over the nodes."""
        found = {}
        for (name, shape), t in zip(
            self.statistic_shapes().items(), quadrature.at.statistics, strict=True
        ):
            p = quadrature.probabilities
            p = p.reshape(p.shape + (1,) * (len(shape) - len(self.batch_shape)))
            found[name] = jnp.sum(p * jnp.broadcast_to(t, (len(p), *shape)), axis=0)
        return found

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """-E log q(z), from the log density at each node rather than from two large numbers."""
        return self._spread(self._quadrature(natural))

    def mean_and_entropy(self, natural: Mapping[str, Array]) -> tuple[Mean, Array]:
        """Both from one quadrature."""
        quadrature = self._quadrature(natural)
        return self.expected(quadrature), self._spread(quadrature)

    def mean_and_domain(self, natural: Mapping[str, Array]) -> tuple[Mean, Array]:
        """Both from one placement."""
        placed = self.place(natural)
        mean = self.expected(self.integrate(natural, placed.edges))
        return mean, self._finite(natural) & placed.proper

    def _spread(self, q: _Quadrature) -> Array:
        log_density = q.at.log_density - q.log_normalizer
        terms = jnp.where(q.probabilities > 0, log_density, 0)
        return -jnp.sum(q.probabilities * terms, axis=0)

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """True where the density falls towards both ends of its support."""
        return self._finite(natural) & self.place(natural).proper

    def _finite(self, natural: Mapping[str, Array]) -> Array:
        finite = jnp.ones(self.batch_shape, bool)
        for name, size in zip(self.statistic_names, self.sizes, strict=True):
            ok = jnp.isfinite(natural[name])
            finite = finite & jnp.all(ok, axis=tuple(range(-len(size), 0)))
        return finite

    # ----------------------------------------------------------------------------------------------
    # Draws and quantiles

    def quantile(self, natural: Mapping[str, Array], p: Array, edges: Array | None = None) -> Array:
        """The value below which z lies with probability p; leading axes of `p` are kept."""
        edges = self.place(natural).edges if edges is None else edges
        found: Array = _quantile(self, dict(natural), jnp.asarray(p, edges.dtype), edges)
        return found

    def _quantile(self, natural: Mapping[str, Array], p: Array, edges: Array) -> Array:
        q = self.integrate(natural, edges)
        table = line.cumulative(edges, q.probabilities)
        p = jnp.broadcast_to(p, jnp.broadcast_shapes(p.shape, self.batch_shape))

        def density(u: Array) -> Array:
            at, log_jacobian = self._on_line(natural, u)
            return jnp.exp(at.log_density + log_jacobian - q.log_normalizer)

        return self.support.inside(line.polished(table, density, p, line.invert(table, p)))

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of z by inversion."""
        uniform = jax.random.uniform(key, shape + self.batch_shape, self._dtype(natural))
        return {"z": self.inverted(natural, uniform)}

    def inverted(self, natural: Mapping[str, Array], uniform: Array) -> Array:
        """What uniform numbers are draws of."""
        q = self._quadrature(natural)
        table = line.cumulative(q.edges, q.probabilities)
        return self.support.inside(line.invert(table, uniform))

    def log_density(self, natural: Mapping[str, Array], z: Array) -> Array:
        """<natural, t(z)> at points z, which may have axes before the batch."""
        z = jnp.broadcast_to(z, jnp.broadcast_shapes(z.shape, self.batch_shape))
        return self._at(natural, z, self.support.logs(z)).log_density

    def log_prob(self, natural: Mapping[str, Array], values: Mapping[str, Array]) -> Array:
        """Log q(z); the constants of the statistics are with the natural parameters."""
        return self.log_density(natural, values["z"]) - self.log_normalizer(natural)

    def _with_moments(self, natural: Mapping[str, Array]) -> tuple[Free, Natural]:
        """The same density with z and z^2 among its statistics."""
        count = len(self.trees)
        squared: Tree = ("power", Z, ("number", 2.0))
        wider = replace(
            self,
            trees=(*self.trees, Z, squared),
            sizes=(*self.sizes, (), ()),
            axes=(*self.axes, (), ()),
        )
        zero = jnp.zeros(self.batch_shape, self._dtype(natural))
        return wider, {**natural, f"s{count}": zero, f"s{count + 1}": zero}

    def moments(self, natural: Mapping[str, Array], edges: Array) -> tuple[Array, Array]:
        """Mean and variance of z over the panels."""
        q = self.integrate(natural, edges)
        z = self.support.point(line.rule(edges)[0]).z
        z = jnp.where(q.probabilities > 0, z, 0)
        mean = jnp.sum(q.probabilities * z, axis=0)
        return mean, jnp.sum(q.probabilities * jnp.square(z - mean), axis=0)

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """The density itself, on panels that hold the mass of z and z^2 too."""
        wider, widened = self._with_moments(natural)
        placed = wider.place(widened)
        log_normalizer = self.integrate(natural, placed.edges).log_normalizer
        return {"z": FreeForm(self, natural, placed.edges, placed.counted[-2:], log_normalizer)}

    # ----------------------------------------------------------------------------------------------
    # Members of the family

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """The natural parameters by Newton's method on A(eta) - <eta, mean>.

        `mean` must hold the constant arrays of the statistics too. Where statistics are linearly
        dependent, one of the natural parameters that have this mean; NaN where none was found.
        """
        return members.matching(self, mean, self._extras(mean))

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """A member whose density every statistic that can pulls down at the ends."""
        return members.falling(self, self._extras(extras))

    def _extras(self, extras: Mapping[str, Array] | None) -> Natural:
        """The constant arrays of the statistics."""
        shapes = self.extra_shapes()
        missing = [key for key in shapes if extras is None or key not in extras]
        if missing:
            raise ArgumentError(
                f"Free expects the constant arrays {', '.join(shapes)} of its statistics; "
                f"missing: {', '.join(missing)}. Give them beside the other parameters."
            )
        assert extras is not None or not shapes
        return {key: jnp.asarray(extras[key]) for key in shapes} if extras is not None else {}


# Traced once for every factor of the same form.
@partial(jit, static_argnums=0)
def _placed(family: Free, fixed: Mapping[str, Array]) -> line.Placed:
    return family._place(fixed)


@partial(jit, static_argnums=0)
def _quantile(family: Free, natural: Mapping[str, Array], p: Array, edges: Array) -> Array:
    return family._quantile(natural, p, edges)

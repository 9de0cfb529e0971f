"""q(theta) q(z | theta): hyperparameters of any law, and z a Gaussian with a sparse precision.

q(theta) is known through a surrogate of its log density on the unconstrained space (t), and
q(z | theta) at some values of t. Between them mean and sds of z follow theta: both are smooth
functions of the standardised t, s, through what is known at the points; the correlations of z are
those of the nearest point whose precision is kept, an anchor, and sds that lean on others nearly
so. Draws are exact draws of this law. All of it is computed on the host, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from lowerbound.compiled.host import lightly
from lowerbound.family.densities.gridded import NodeMixture
from lowerbound.family.densities.held_points import BANDWIDTH, COMPONENTS, FEWEST, HeldPoints
from lowerbound.family.host_seeds import words
from lowerbound.rewrite.coordinates import Coordinates

Parameters = Mapping[str, Any]
NODES = 10  # of the quadrature of an element that is not Gaussian itself
DRAWS = 8192  # where its elements are not transformed one by one
SPARE = 4  # times the draws of theta that are asked for, of which those near few anchors are kept


@dataclass(frozen=True, eq=False)
class Integrated:
    """The density of hyperparameters `sites` and, given them, of the coordinates of all others.

    Parameters: "theta", arrays of a `Smoothed` density of t, the unconstrained values of `sites`
    in their order; at m points "t" (m, k), "loc" (m, d) and "variance" (m, d) of z, the other sites
    in the order of the coordinates, and "precision" (a, nnz) at those numbered "anchors" (a,);
    "units" (k, d) and "floor" (d,): the `Units` in which z is followed; "slopes" (k, d) of
    its means in these by s, and "stretches" (k, d) of log sds; "inverse" (m, m), "lengths" (k,) and
    "shares" (3,): the kernel between the points, by which what the slopes leave is interpolated;
    "rows", "columns" and "groups": the pattern of the precision. Where this is one of other numbers
    u, with z = M u but for a constant, "mixing" (a, nnz) has the entries of M at "mixing_rows" and
    "mixing_columns". Where there is "relative", arrays of such a map, t is r, of which it makes t.
    """

    coordinates: Coordinates
    sites: tuple[str, ...]
    prepared: dict[object, Any] = field(default_factory=dict, repr=False)

    @property
    def rest(self) -> tuple[str, ...]:
        """The sites that are Gaussian given the others."""
        return tuple(name for name in self.coordinates.shapes if name not in self.sites)

    def sample(
        self, parameters: Parameters, key: Array, shape: tuple[int, ...] = ()
    ) -> dict[str, Array]:
        """Independent draws of all sites, with leading axes `shape`."""
        held, rng = self._held(parameters), np.random.default_rng(words(key))
        t = held.smoothed.sample(rng, math.prod(shape))
        with jax.enable_x64(True):
            values = self._drawn(held, t, held.given(t, rng))
            return {n: a.reshape(shape + a.shape[1:]) for n, a in values.items()}

    def weighed(
        self, parameters: Parameters, seed: int, count: int, laws: int
    ) -> tuple[dict[str, Array], np.ndarray]:
        """At most `count` draws of all sites and log q of each, near so many anchors.

        A factor of each anchor is most of the cost where z is long: draws near few of them are
        not from all of q, but log q at each is what `log_prob` says.
        """
        held, rng = self._held(parameters), np.random.default_rng(seed)
        t = held.near_few(held.smoothed.sample(rng, SPARE * count), laws)[:count]
        with jax.enable_x64(True):
            vectors, log_given = held.weighed(t, rng)
            values = self._drawn(held, t, vectors)
            t, _, volume = self._coordinates(held, values)
            return values, held.smoothed.log_prob(t) + log_given - volume

    def log_prob(self, parameters: Parameters, values: Mapping[str, Array]) -> Array:
        """Log q(theta) + log q(z | theta) of draws; -inf where theta is beyond what was seen."""
        held = self._held(parameters)
        with jax.enable_x64(True):
            t, z, volume = self._coordinates(held, values)
            log_theta = held.smoothed.log_prob(t)
            possible = np.isfinite(log_theta)
            found = np.full(len(t), -np.inf)
            found[possible] = log_theta[possible] + held.log_given(t[possible], z[possible])
            return cast(Array, found - volume)  # NumPy's, as all that it is made of

    def _drawn(self, held: HeldPoints, t: np.ndarray, vectors: np.ndarray) -> dict[str, Array]:
        """All sites, from draws of t and z."""
        values = self._values(held.outward(t))
        for name, own in self._parts(self.rest):
            part = vectors[:, own].reshape((-1, *self._shape(name)))
            values[name] = self._at(name, part)
        return {name: values[name] for name in self.coordinates.shapes}

    def _coordinates(
        self, held: HeldPoints, values: Mapping[str, Array]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The t and z of draws of all sites, and the log volume of the sites by them."""
        t, volume = self._unconstrained(values, self.sites)
        count, relative = len(t), held.relative
        if relative is not None:
            t, volume = relative.inward(t), volume + relative.log_volume(t)
        bent = tuple(name for name in self.rest if self._is_bent(name))
        own = {n: np.asarray(values[n]).reshape(count, -1) for n in self.rest if n not in bent}
        if bent:
            inner, more = self._unconstrained(values, bent)
            volume = volume + more
            lengths = [math.prod(self._shape(name)) for name in bent]
            splits = np.split(inner, np.cumsum(lengths)[:-1], axis=1)
            own |= dict(zip(bent, splits, strict=True))
        rest = [own[name] for name in self.rest]
        return t, np.concatenate([np.zeros((count, 0)), *rest], axis=1), volume

    def moments(self, parameters: Parameters, site: str) -> tuple[Array, Array]:
        """Mean and variance of one site under q, elementwise, without draws."""
        held = self._held(parameters)
        with jax.enable_x64(True):
            if site in self.sites:
                values, weights = np.asarray(self._values(held.nodes)[site]), held.smoothed.weights
                mean = np.tensordot(weights, values, 1)
                return jnp.asarray(mean), jnp.asarray(
                    np.tensordot(weights, (values - mean) ** 2, 1)
                )
            if self._is_bent(site):
                return self._bent_moments(parameters, site)
            shape = self._shape(site)
            first, second = held.moments(self._part(site))
            return jnp.asarray(first.reshape(shape)), jnp.asarray(second.reshape(shape))

    def marginal(self, parameters: Parameters, site: str) -> Distribution:
        """The marginal density of one site under q: a mixture over nodes of t."""
        held = self._held(parameters)
        moments = self.moments(parameters, site)
        with jax.enable_x64(True), numpyro.validation_enabled(False):
            transform: Any = self.coordinates.transform(site)
            if site not in self.sites and not (
                self._is_bent(site) and _by_element(transform).domain.event_dim
            ):
                s, weights = held.few_nodes(COMPONENTS // 4)
                part, shape = self._part(site), (-1, *self._shape(site))
                loc = held.means(s, part).reshape(shape)
                scale = np.exp(held.log_sds(s, part)).reshape(shape)
                each = jax.vmap(dist.Normal)(jnp.asarray(loc), jnp.asarray(scale))
                if self._is_bent(site):
                    each = dist.TransformedDistribution(each, _by_element(transform))
                return NodeMixture(each, jnp.log(jnp.asarray(weights)), moments)
            if site in self.sites:
                own = dict(self._parts(self.sites))[site]
                t, scale = held.kernel_nodes
                locs = t[:, own].reshape((-1, *self._shape(site)))
                widths = scale[own].reshape(self._shape(site))
            else:
                rng = np.random.default_rng(0)
                drawn = held.given(held.smoothed.sample(rng, COMPONENTS), rng)[:, self._part(site)]
                widths = BANDWIDTH * drawn.std(axis=0)
                locs = drawn.mean(axis=0)
                locs = locs + (drawn - locs) * math.sqrt(1.0 - BANDWIDTH**2)
                locs = locs.reshape((-1, *self._shape(site)))
                widths = widths.reshape(self._shape(site))

            def law(locs: Array, widths: Array, moments: tuple[Array, Array]) -> Distribution:
                def component(loc: Array) -> Distribution:
                    base = dist.Normal(loc, widths).to_event(transform.domain.event_dim)
                    return dist.TransformedDistribution(base, transform)

                weights = jnp.full(len(locs), -math.log(len(locs)))
                return NodeMixture(jax.vmap(component)(locs), weights, moments)

            mixture: Distribution = self._run(("marginal", site), law, locs, widths, moments)
            return mixture

    def _is_bent(self, site: str) -> bool:
        """Whether a site that is Gaussian on the unconstrained space is not so itself."""
        start = self.coordinates.part(site)
        return start.stop > start.start and not self.coordinates.is_real(start.start)

    def _at(self, site: str, part: np.ndarray) -> Any:
        """The values of a site at its coordinates; what slips over a bound is put back."""
        if self._is_bent(site):
            transform: Any = self.coordinates.transform(site)
            return self._run(("at", site), lambda u: transform(u), part)
        if site in self.coordinates.straight:
            support: Any = self.coordinates.supports[site]
            while hasattr(support, "base_constraint"):
                support = support.base_constraint
            ends = (getattr(support, name, None) for name in ("lower_bound", "upper_bound"))
            low, high = (None if end is None else np.asarray(end) for end in ends)
            part = np.clip(part, low, high)
        return part

    def _bent_moments(self, parameters: Parameters, site: str) -> tuple[Array, Array]:
        """Mean and variance of such a site: by quadrature of each element, or by draws."""
        held, transform = self._held(parameters), self.coordinates.transform(site)
        assert transform is not None
        if _by_element(transform).domain.event_dim:
            values = np.asarray(self.sample(parameters, jax.random.key(0), (DRAWS,))[site])
            return jnp.asarray(values.mean(axis=0)), jnp.asarray(values.var(axis=0))
        part = self._part(site)
        s, weights = held.few_nodes(FEWEST)
        nodes, shares = np.polynomial.hermite_e.hermegauss(NODES)
        loc, sd = held.means(s, part), np.exp(held.log_sds(s, part))
        places = loc + sd * nodes[:, None, None]
        values = np.asarray(self._run(("at", site), lambda u: transform(u), places))
        weight = (shares / shares.sum())[:, None] * weights
        mean = np.tensordot(weight, values, 2)
        variance = np.tensordot(weight, (values - mean) ** 2, 2)
        shape = self._shape(site)
        return jnp.asarray(mean.reshape(shape)), jnp.asarray(variance.reshape(shape))

    def _values(self, t: np.ndarray) -> dict[str, Array]:
        """The values of the hyperparameters at the rows of t."""

        def values(t: Array) -> dict[str, Array]:
            found = {}
            for name, own in self._parts(self.sites):
                transform: Any = self.coordinates.transform(name)
                found[name] = transform(t[:, own].reshape((-1, *self._shape(name))))
            return found

        return dict(self._run("values", values, t))

    def _unconstrained(
        self, values: Mapping[str, Array], sites: tuple[str, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The coordinates of values of some sites, one row a draw, and log |dtheta/dt| there."""

        def inverse(values: Mapping[str, Array]) -> tuple[Array, Array]:
            count = len(values[sites[0]])
            parts, volume = [], jnp.zeros(count)
            for name in sites:
                transform: Any = self.coordinates.transform(name)
                part = transform.inv(values[name])
                jacobian = transform.log_abs_det_jacobian(part, values[name])
                volume += jacobian.reshape(count, -1).sum(axis=1)
                parts.append(part.reshape(count, -1))
            return jnp.concatenate(parts, axis=1), volume

        own = {name: np.asarray(values[name], float) for name in sites}
        t, volume = self._run(("unconstrained", sites), inverse, own)
        return np.asarray(t), np.asarray(volume)

    def _run(self, key: object, function: Callable[..., Any], *args: Any) -> Any:
        """A function of arrays, traced once."""
        if key not in self.prepared:
            self.prepared[key] = lightly(function)
        # NumPyro validates with dozens of small compilations, even inside a trace.
        with jax.enable_x64(True), numpyro.validation_enabled(False):
            return self.prepared[key](*args)

    def _shape(self, site: str) -> tuple[int, ...]:
        return self.coordinates.shapes[site]

    def _parts(self, sites: tuple[str, ...]) -> Iterator[tuple[str, slice]]:
        """Where the sites are in the vector that they make."""
        start = 0
        for name in sites:
            stop = start + math.prod(self._shape(name))
            yield name, slice(start, stop)
            start = stop

    def _part(self, site: str) -> slice:
        return dict(self._parts(self.rest))[site]

    def _held(self, parameters: Parameters) -> HeldPoints:
        """The parameters made ready, kept for the next call."""
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(parameters)):
            raise TypeError("a density of hyperparameters is computed on the host, not traced")
        known = self.prepared.get("held")
        if known is None or known.parameters is not parameters:
            known = HeldPoints.of(parameters, self.prepared.get("pattern"))
            self.prepared["held"] = known
        ready: HeldPoints = known
        return ready


def _by_element(transform: Any) -> Any:
    """A transform as it is of single elements, if it is."""
    while hasattr(transform, "base_transform"):
        transform = transform.base_transform
    return transform

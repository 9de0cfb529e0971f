"""Gaussians on the unconstrained space: u ~ N(loc, C C'), z = z(u)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution
from numpyro.distributions import transforms as bijections

from lowerbound.compiled.host import readily
from lowerbound.cost import mapped
from lowerbound.errors import NoMarginalError
from lowerbound.family.densities.bordered_gaussian import (
    covariance_bordered,
    log_prob_bordered,
    sample_bordered,
)
from lowerbound.family.densities.noncentred_sites import GivenParents, given_parents, mixture_size
from lowerbound.family.densities.rowwise import (
    covariance_rows,
    log_prob_rows,
    marginal_rows,
    sample_rows,
    variances_rows,
)
from lowerbound.rewrite.coordinates import Coordinates

Parameters = Mapping[str, Any]
DRAWS = 4096  # for the moments of sites whose entries are transformed together
_TOGETHER = 32  # draws of many rows
_NODES = np.linspace(-9.0, 9.0, 361)  # trapezoids: exact to rounding for smooth functions


@dataclass(frozen=True, eq=False)
class UnconstrainedGaussian:
    """All latent sites together, Gaussian on the unconstrained space.

    The parameters are "loc" (d,) and one of: "scale_tril" (d, d), a full covariance; "scale" (d,),
    independent entries; "scale" and "factor" (d, r), the covariance diag(scale^2) + factor factor';
    "order", "band", "border", "corner" and "variance": a sparse precision (family.bordered); or
    "own", "own_root", "shared" and "shared_root": independent rows (family.rowwise).
    "given", where present, replaces some of the data that the supports depend on.
    """

    most_together: ClassVar[int] = 96
    coordinates: Coordinates
    data: Mapping[str, Any]
    compiled: dict[object, Any] = field(default_factory=dict, repr=False)

    def sample(
        self, parameters: Parameters, key: Array, shape: tuple[int, ...] = ()
    ) -> dict[str, Array]:
        """Independent draws of all sites, with leading axes `shape`."""

        def draw(parameters: Parameters, key: Array, data: Mapping[str, Any]) -> dict[str, Array]:
            vectors = self._unconstrained(parameters, key, math.prod(shape))
            values = self._constrained(vectors, {**data, **parameters.get("given", {})})
            return {n: v.reshape(shape + v.shape[1:]) for n, v in values.items()}

        drawn: dict[str, Array] = self._call(("sample", shape), draw, parameters, key)
        return drawn

    def sample_unconstrained(self, parameters: Parameters, key: Array, count: int) -> Array:
        """Draws of u, one per row."""

        def draw(parameters: Parameters, key: Array, data: Mapping[str, Any]) -> Array:
            return self._unconstrained(parameters, key, count)

        drawn: Array = self._call(("unconstrained", count), draw, parameters, key)
        return drawn

    def log_prob(self, parameters: Parameters, values: Mapping[str, Array]) -> Array:
        """Log q(z) = log q(u(z)) - log |dz/du| of draws of the sites, on their own scales."""

        def density(
            parameters: Parameters, values: Mapping[str, Array], data: Mapping[str, Any]
        ) -> Array:
            given = {**data, **parameters.get("given", {})}
            vectors, volumes = mapped(
                lambda one: self.coordinates.placed(one, given), values, what="one draw"
            )
            return jnp.asarray(_log_density(parameters, vectors) - volumes)

        own = {name: jnp.asarray(values[name]) for name in self.coordinates.shapes}
        found: Array = self._call("log_prob", density, parameters, own)
        return found

    def log_prob_unconstrained(self, parameters: Parameters, vectors: Array) -> Array:
        """Log q(u) of the rows of `vectors`."""

        def density(parameters: Parameters, vectors: Array, data: Mapping[str, Any]) -> Array:
            return _log_density(parameters, vectors)

        found: Array = self._call("log_prob_unconstrained", density, parameters, vectors)
        return found

    def constrain(self, parameters: Parameters, vectors: Array) -> dict[str, Array]:
        """The values of the sites at rows u."""

        def values(
            parameters: Parameters, vectors: Array, data: Mapping[str, Any]
        ) -> dict[str, Array]:
            return self._constrained(vectors, {**data, **parameters.get("given", {})})

        found: dict[str, Array] = self._call("constrain", values, parameters, vectors)
        return found

    def moments(self, parameters: Parameters, site: str) -> tuple[Array, Array]:
        """Mean and variance of one site under q, elementwise, in its own support."""

        def both(parameters: Parameters, data: Mapping[str, Any]) -> tuple[Array, Array]:
            if site in self.coordinates.noncentred:
                return self._given_parents(parameters, data, site, DRAWS).moments()
            transform = self.coordinates.transform(site, data)
            transform = None if transform is None else elementwise(transform)
            if transform is None:
                return self._average(parameters, data, site)
            part, shape = self.coordinates.part(site), self.coordinates.shapes[site]
            loc = parameters["loc"][part].reshape(shape)
            variance = variances(parameters)[part].reshape(shape)
            return _scalar_moments(transform, loc, variance)

        found: tuple[Array, Array] = self._call(("moments", site), both, parameters)
        return found

    def marginal(self, parameters: Parameters, site: str) -> Distribution:
        """The marginal density of one site under q, as a NumPyro distribution."""
        if site in self.coordinates.noncentred:
            components = mixture_size(site, self.coordinates.shapes[site])

            def mixed(parameters: Parameters, data: Mapping[str, Any]) -> Distribution:
                return self._given_parents(parameters, data, site, components).mixture()

            mixture: Distribution = self._call(("marginal", site), mixed, parameters)
            return mixture
        if self.coordinates.transform(site, self.data) is None:
            raise NoMarginalError(
                f"The support of site '{site}' depends on other latent sites, so its marginal "
                "under a Gaussian on the unconstrained space has no closed form",
                "a fixed support",
            )

        def law(parameters: Parameters, data: Mapping[str, Any]) -> Distribution:
            return self._marginal(parameters, site, self.coordinates.transform(site, data))

        if "own" in parameters:  # what belongs to which row decides the form of the law
            with jax.enable_x64(True):
                return law(parameters, self.data)
        found: Distribution = self._call(("marginal", site), law, parameters)
        return found

    def _given_parents(
        self, parameters: Parameters, data: Mapping[str, Any], site: str, count: int
    ) -> GivenParents:
        """A non-centred site at evenly spread draws of the sites that it hangs on."""
        data = {**data, **parameters.get("given", {})}
        own = np.arange(self.coordinates.size)
        parents = [own[self.coordinates.part(n)] for n in self.coordinates.parents(site, data)]
        outer = np.concatenate([*parents, np.zeros(0, int)])
        normal = even_normal(count, len(outer)) if len(outer) else np.zeros((1, 0))
        spread = covariance(parameters)
        return given_parents(self.coordinates, data, site, outer, parameters["loc"], spread, normal)

    def _marginal(self, parameters: Parameters, site: str, transform: Any) -> Distribution:
        part, shape = self.coordinates.part(site), self.coordinates.shapes[site]
        loc = parameters["loc"][part]
        base: Distribution
        if "own" in parameters:
            events = transform.domain.event_dim
            base = marginal_rows(parameters, part, shape, events)
        elif not {"scale_tril", "factor", "band"} & set(parameters):
            base = dist.Normal(loc.reshape(shape), parameters["scale"][part].reshape(shape))
            base = base.to_event(transform.domain.event_dim)
        elif not shape:
            base = dist.Normal(loc[0], jnp.sqrt(variances(parameters)[part][0]))
        else:
            base = dist.MultivariateNormal(loc, covariance(parameters, part))
            if len(shape) > 1:
                reshape = bijections.ReshapeTransform(shape, loc.shape)
                base = dist.TransformedDistribution(base, reshape)
        if is_identity(transform):
            return base
        return dist.TransformedDistribution(base, transform)

    def _average(
        self, parameters: Parameters, data: Mapping[str, Any], site: str
    ) -> tuple[Array, Array]:
        """The moments of a site whose entries are transformed together, over even draws."""
        transform = self.coordinates.transform(site, data)
        if "own" in parameters:
            return self._sampled(parameters, data, site)
        part, shape = slice(None), self.coordinates.shapes[site]
        if transform is not None:
            part = self.coordinates.part(site)
        loc = parameters["loc"][part]
        root = jnp.linalg.cholesky(covariance(parameters, part))
        vectors = loc + even_normal(DRAWS, len(loc)) @ root.T
        if transform is None:
            values = self._constrained(vectors, {**data, **parameters.get("given", {})})[site]
        else:
            values = transform(vectors.reshape((-1, *shape)))
        return values.mean(axis=0), values.var(axis=0)

    def _sampled(
        self, parameters: Parameters, data: Mapping[str, Any], site: str
    ) -> tuple[Array, Array]:
        """The same from random draws of all rows, some at a time."""
        given = {**data, **parameters.get("given", {})}

        def some(key: Array) -> tuple[Array, Array]:
            vectors = self._unconstrained(parameters, key, _TOGETHER)
            values = self._constrained(vectors, given)[site]
            return values.mean(axis=0), jnp.mean(values**2, axis=0)

        keys = jax.random.split(jax.random.key(0), DRAWS // _TOGETHER)
        mean, square = (a.mean(axis=0) for a in jax.lax.map(some, keys))
        return mean, square - mean**2

    def _unconstrained(self, parameters: Parameters, key: Array, count: int) -> Array:
        if "band" in parameters:
            return sample_bordered(parameters, key, count)
        if "own" in parameters:
            return sample_rows(parameters, key, count)
        drawn: Array = _law(parameters).sample(key, (count,))
        return drawn

    def _constrained(self, vectors: Array, data: Mapping[str, Any]) -> dict[str, Array]:
        found: dict[str, Array] = mapped(
            lambda vector: self.coordinates.constrain(vector, data), vectors, what="one draw"
        )
        return found

    def _call(self, key: object, function: Callable[..., Any], *args: Any) -> Any:
        """Jit the function once for all fits of equal programs; the data come last."""
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
            return function(*args, self.data)  # inside another compiled function
        if key not in self.compiled:
            self.compiled[key] = readily(function)
        # NumPyro validates with dozens of small compilations, even inside a trace.
        with jax.enable_x64(True), numpyro.validation_enabled(False):
            return self.compiled[key](*args, self.data)


@lru_cache(maxsize=16)
def even_normal(count: int, dimension: int) -> np.ndarray:
    """Evenly spread standard normal vectors, in pairs +-e, with mean 0 and covariance I.

    Few dimensions: the additive recurrence of the generalised golden ratio; many: random numbers.
    """
    from scipy.special import ndtri

    half = max(count // 2, 2 * dimension)
    if dimension <= 16:
        ratio = 2.0
        for _ in range(60):  # ratio^(d + 1) = ratio + 1
            ratio = (1.0 + ratio) ** (1.0 / (dimension + 1))
        steps = ratio ** -np.arange(1.0, dimension + 1)
        normal = ndtri((0.5 + np.outer(np.arange(1, half + 1), steps)) % 1.0)
    else:
        normal = np.random.default_rng(0).standard_normal((half, dimension))
    values, vectors = np.linalg.eigh(normal.T @ normal / half)
    normal = normal @ ((vectors / np.sqrt(values)) @ vectors.T)
    return np.concatenate([normal, -normal])


def variances(parameters: Parameters) -> Array:
    """The variances of the entries of u."""
    if "band" in parameters:
        return jnp.asarray(parameters["variance"])
    if "own" in parameters:
        return variances_rows(parameters)
    if "scale_tril" in parameters:
        return jnp.sum(parameters["scale_tril"] ** 2, axis=-1)
    if "factor" in parameters:
        return jnp.asarray(parameters["scale"] ** 2 + jnp.sum(parameters["factor"] ** 2, axis=-1))
    return jnp.asarray(parameters["scale"]) ** 2


def covariance(parameters: Parameters, part: slice = slice(None)) -> Array:
    """The covariance matrix of some entries of u."""
    if "band" in parameters:
        return covariance_bordered(parameters, part)
    if "own" in parameters:
        return covariance_rows(parameters, part)
    if "scale_tril" in parameters:
        rows = parameters["scale_tril"][part]
        return jnp.asarray(rows @ rows.T)
    diagonal = jnp.diag(parameters["scale"][part] ** 2)
    if "factor" not in parameters:
        return diagonal
    rows = parameters["factor"][part]
    return jnp.asarray(diagonal + rows @ rows.T)


def _law(parameters: Parameters) -> Distribution:
    loc = parameters["loc"]
    if "scale_tril" in parameters:
        return dist.MultivariateNormal(loc, scale_tril=parameters["scale_tril"])
    if "factor" in parameters:
        return dist.LowRankMultivariateNormal(loc, parameters["factor"], parameters["scale"] ** 2)
    return dist.Normal(loc, parameters["scale"]).to_event(1)


def _log_density(parameters: Parameters, vectors: Array) -> Array:
    """Log q(u) of the rows of `vectors`."""
    if "band" in parameters:
        return log_prob_bordered(parameters, vectors)
    if "own" in parameters:
        return log_prob_rows(parameters, vectors)
    found: Array = _law(parameters).log_prob(vectors)
    return found


def elementwise(transform: Any) -> Any | None:
    """The bijection of one entry, where each entry has its own; else None."""
    if isinstance(transform, bijections.IndependentTransform):
        return elementwise(transform.base_transform)
    scalar = transform.domain.event_dim == 0 and transform.codomain.event_dim == 0
    return transform if scalar else None


def is_identity(transform: Any) -> bool:
    """Whether the bijection leaves every entry as it is."""
    return isinstance(elementwise(transform), bijections.IdentityTransform)


def _scalar_moments(transform: Any, loc: Array, variance: Array) -> tuple[Array, Array]:
    """Mean and variance of t(u), u ~ N(loc, variance), elementwise."""
    parts = transform.parts if isinstance(transform, bijections.ComposeTransform) else [transform]
    first, rest = parts[0], parts[1:]
    affine = all(isinstance(part, bijections.AffineTransform) for part in rest)
    if isinstance(first, bijections.IdentityTransform) and not rest:
        return loc, variance
    if isinstance(first, bijections.ExpTransform) and affine:
        mean = jnp.exp(loc + 0.5 * variance)
        spread = mean**2 * jnp.expm1(variance)
        for part in rest:
            mean, spread = part(mean), spread * part.scale**2
        return mean, spread
    nodes = _NODES.reshape((-1,) + (1,) * loc.ndim)
    weights = np.exp(-0.5 * nodes**2)
    weights = weights / weights.sum()
    values = transform(loc + jnp.sqrt(variance) * nodes)
    mean = jnp.sum(weights * values, axis=0)
    return mean, jnp.sum(weights * (values - mean) ** 2, axis=0)

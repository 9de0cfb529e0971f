"""Gaussian factors: scalar, vector, and restricted to an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import solve_triangular
from numpyro.distributions import Distribution

from lowerbound.family.exponential import ExponentialFamily, Mean, Natural, Values
from lowerbound.family.factors import interval
from lowerbound.family.numerics import distributions
from lowerbound.family.numerics.definite import (
    inverse_cholesky,
    inverse_of,
    is_positive_definite,
    log_determinant,
    symmetric,
    times_vector,
)

__all__ = ["MultivariateNormal", "Normal", "TruncatedNormal"]

LOG_TWO_PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Normal(ExponentialFamily):
    """Independent normals with statistics x and x^2 (the factors q(mu_k) of eq:gmm-mf-family).

    With precision Lambda and mean m, natural x = Lambda m and natural x2 = -Lambda/2, both of
    shape `batch_shape`.

    >>> Normal(()).mean({"x": jnp.array(2.0), "x2": jnp.array(-0.5)})["x2"].item()
    5.0
    """

    name: ClassVar[str] = "Normal"
    statistic_names: ClassVar[tuple[str, ...]] = ("x", "x2")

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of x and x^2: `batch_shape` each."""
        return {"x": self.batch_shape, "x2": self.batch_shape}

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """The value and its square."""
        x = values["x"]
        return {"x": x, "x2": x * x}

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = Lambda m^2 / 2 - log(Lambda)/2 + log(2 pi)/2."""
        precision = -2 * natural["x2"]
        return natural["x"] ** 2 / (2 * precision) + (LOG_TWO_PI - jnp.log(precision)) / 2

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """Moments m and m^2 + 1/Lambda."""
        precision = -2 * natural["x2"]
        m = natural["x"] / precision
        return {"x": m, "x2": m * m + 1 / precision}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """Lambda m and -Lambda/2 from the mean and the variance."""
        precision = 1 / (mean["x2"] - mean["x"] ** 2)
        return {"x": precision * mean["x"], "x2": -precision / 2}

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """log(2 pi e / Lambda)/2, however large m is."""
        return (LOG_TWO_PI + 1 - jnp.log(-2 * natural["x2"])) / 2

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of x."""
        precision = -2 * natural["x2"]
        m = natural["x"] / precision
        noise = jax.random.normal(key, shape + self.batch_shape, m.dtype)
        return {"x": m + noise / jnp.sqrt(precision)}

    def translated(self, natural: Mapping[str, Array], origin: Array) -> Natural:
        """The same precision about m + origin."""
        return {"x": natural["x"] - 2 * natural["x2"] * origin, "x2": natural["x2"]}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """Normal(m, Lambda^(-1/2))."""
        precision = -2 * natural["x2"]
        return {"x": dist.Normal(natural["x"] / precision, 1 / jnp.sqrt(precision))}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """Lambda > 0."""
        return _finite(natural["x"], natural["x2"]) & (natural["x2"] < 0)

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """The standard normal."""
        return self._full({"x": 0.0, "x2": -0.5})


@dataclass(frozen=True)
class MultivariateNormal(ExponentialFamily):
    """Independent normal vectors of length `dim` with statistics x and x x'.

    With precision matrix Lambda and mean m, natural x = Lambda m, shape `batch_shape` + (D,), and
    natural xx = -Lambda/2, shape `batch_shape` + (D, D).
    """

    dim: int

    name: ClassVar[str] = "MultivariateNormal"
    statistic_names: ClassVar[tuple[str, ...]] = ("x", "xx")

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of x and x x'."""
        return {
            "x": (*self.batch_shape, self.dim),
            "xx": (*self.batch_shape, self.dim, self.dim),
        }

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """The vector and its outer product."""
        x = values["x"]
        return {"x": x, "xx": x[..., :, None] * x[..., None, :]}

    def _cholesky(self, natural: Mapping[str, Array]) -> Array:
        result: Array = jnp.linalg.cholesky(-2 * symmetric(natural["xx"]))
        return result

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = m' Lambda m / 2 - log|Lambda|/2 + D log(2 pi)/2."""
        cholesky = self._cholesky(natural)
        half = solve_triangular(cholesky, natural["x"][..., None], lower=True)[..., 0]
        square = jnp.sum(half * half, axis=-1)
        return (square - log_determinant(cholesky) + self.dim * LOG_TWO_PI) / 2

    def _moments(self, natural: Mapping[str, Array]) -> tuple[Array, Array]:
        root = inverse_cholesky(self._cholesky(natural))
        transposed = jnp.swapaxes(root, -1, -2)
        return times_vector(transposed, times_vector(root, natural["x"])), transposed @ root

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """Moments m and m m' + Lambda^-1."""
        m, covariance = self._moments(natural)
        return {"x": m, "xx": m[..., :, None] * m[..., None, :] + covariance}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """Lambda m and -Lambda/2 from the mean and the covariance."""
        m = mean["x"]
        precision = inverse_of(symmetric(mean["xx"]) - m[..., :, None] * m[..., None, :])
        return {"x": times_vector(precision, m), "xx": -precision / 2}

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """D log(2 pi e)/2 - log|Lambda|/2, however large m is."""
        return (self.dim * (LOG_TWO_PI + 1) - log_determinant(self._cholesky(natural))) / 2

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of x."""
        root = inverse_cholesky(self._cholesky(natural))
        m = times_vector(jnp.swapaxes(root, -1, -2), times_vector(root, natural["x"]))
        noise = jax.random.normal(key, (*shape, *self.batch_shape, self.dim), m.dtype)
        return {"x": m + jnp.einsum("...ji,...j->...i", root, noise)}

    def translated(self, natural: Mapping[str, Array], origin: Array) -> Natural:
        """The same precision about m + origin."""
        moved = natural["x"] - 2 * times_vector(symmetric(natural["xx"]), origin)
        return {"x": moved, "xx": natural["xx"]}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """MultivariateNormal(m, Lambda^-1)."""
        m, covariance = self._moments(natural)
        scale_tril = jnp.linalg.cholesky(covariance)
        return {"x": dist.MultivariateNormal(m, scale_tril=scale_tril)}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """Lambda positive definite."""
        finite = jnp.all(jnp.isfinite(natural["x"]), axis=-1)
        return finite & is_positive_definite(-2 * symmetric(natural["xx"]))

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """The standard normal."""
        shapes = self.statistic_shapes()
        precision = jnp.broadcast_to(jnp.eye(self.dim, dtype=float), shapes["xx"])
        return {"x": jnp.zeros(shapes["x"], float), "xx": -precision / 2}


@dataclass(frozen=True)
class TruncatedNormal(ExponentialFamily):
    """Independent normals restricted to (lower, upper), with statistics x and x^2.

    The natural parameters are those of the normal before truncation; `lower` and `upper` (extras,
    shape `batch_shape`) may be infinite elementwise. Exact however far the interval lies in a tail.
    """

    name: ClassVar[str] = "TruncatedNormal"
    statistic_names: ClassVar[tuple[str, ...]] = ("x", "x2")
    extra_names: ClassVar[tuple[str, ...]] = ("lower", "upper")

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of x and x^2: `batch_shape` each."""
        return {"x": self.batch_shape, "x2": self.batch_shape}

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """The value and its square."""
        x = values["x"]
        return {"x": x, "x2": x * x}

    def _arguments(self, natural: Mapping[str, Array]) -> tuple[Array, Array, Array, Array]:
        dtype = natural["x"].dtype
        bounds = natural["lower"].astype(dtype), natural["upper"].astype(dtype)
        return natural["x"], natural["x2"], *bounds

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = log of the integral of exp(natural x * x + natural x2 * x^2) over the interval."""
        t = interval.tilted(*self._arguments(natural))
        at_anchor = t.anchor * (natural["x"] + natural["x2"] * t.anchor)
        return at_anchor + t.log_integral - jnp.log(-2 * natural["x2"]) / 2

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """E x, strictly between the bounds, and E x^2."""
        arguments = self._arguments(natural)
        t = interval.tilted(*arguments)
        x = interval.inside(t.anchor - t.direction * t.first, *arguments[2:])
        variance = t.direction**2 * (t.second - t.first**2)
        return {"x": x, "x2": x * x + variance}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """Not available: the moments of a truncated normal do not determine its bounds."""
        raise NotImplementedError(
            "TruncatedNormal.natural expects the bounds besides the mean parameters, which have "
            "no closed-form inverse. Keep the natural parameters instead of recovering them."
        )

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """The entropy about the anchor, where nothing cancels."""
        t = interval.tilted(*self._arguments(natural))
        log_scale = -jnp.log(-2 * natural["x2"]) / 2
        return log_scale + t.log_integral + t.slope * t.first + t.second / 2

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of x by inversion."""
        arguments = self._arguments(natural)
        uniform = jax.random.uniform(key, shape + self.batch_shape, arguments[0].dtype)
        return {"x": interval.draw(uniform, *arguments)}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """The truncated normal itself, in a form that is exact in the tails."""
        x, x2, lower, upper = self._arguments(natural)
        scale = 1 / jnp.sqrt(-2 * x2)
        law = distributions.TruncatedNormal(x * scale**2, scale, low=lower, high=upper)
        return {"x": law}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """Positive precision and a non-empty interval."""
        proper = _finite(natural["x"], natural["x2"]) & (natural["x2"] < 0)
        return proper & (natural["lower"] < natural["upper"])

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """The standard normal restricted to the interval."""
        return {**self._full({"x": 0.0, "x2": -0.5}), **self._extras(extras)}


def _finite(*arrays: Array) -> Array:
    """True where every array is finite."""
    result = jnp.isfinite(arrays[0])
    for array in arrays[1:]:
        result = result & jnp.isfinite(array)
    return result

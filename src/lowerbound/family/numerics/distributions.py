"""Marginal densities NumPyro lacks, or has only where its formulas do not underflow."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln
from numpyro.distributions import Distribution, Gamma, TransformedDistribution, constraints
from numpyro.distributions.transforms import PowerTransform, Transform

from lowerbound.family.factors import interval

__all__ = ["InverseWishart", "PowerGamma", "SharedScaleStudentT", "SiteAxes", "TruncatedNormal"]


class InverseWishart(dist.InverseWishart):  # type: ignore[misc]
    """NumPyro's inverse Wishart with the variance of the off-diagonal entries put right."""

    @property
    def variance(self) -> Array:
        """Variance of each entry; infinite where 2a <= D + 3."""
        psi = self.scale_matrix
        dim = psi.shape[-1]
        spare = jnp.asarray(self.concentration)[..., None, None] - dim
        ends = jnp.diagonal(psi, axis1=-2, axis2=-1)
        products = ends[..., :, None] * ends[..., None, :]
        heavy = spare <= 3
        safe = jnp.where(heavy, 4, spare)
        scale = safe * (safe - 1) ** 2 * (safe - 3)
        variance = ((safe + 1) * psi**2 + (safe - 1) * products) / scale
        return jnp.where(heavy, jnp.inf, variance)


class PowerGamma(TransformedDistribution):  # type: ignore[misc]
    """The density of z > 0 when z**power is Gamma(concentration, rate)."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.positive
    reparametrized_params: ClassVar[list[str]] = ["concentration", "rate"]
    pytree_aux_fields = ("power",)

    def __init__(
        self,
        concentration: Array,
        rate: Array,
        power: float,
        *,
        validate_args: bool | None = None,
    ) -> None:
        base = Gamma(concentration, rate)
        self.concentration, self.rate, self.power = base.concentration, base.rate, power
        super().__init__(base, PowerTransform(1 / power), validate_args=validate_args)

    def _moment(self, order: float) -> Array:
        """E z^order, infinite where the integral diverges."""
        a = self.concentration + order / self.power
        safe = jnp.where(a > 0, a, 1)
        log_moment = gammaln(safe) - gammaln(self.concentration)
        log_moment = log_moment - order / self.power * jnp.log(self.rate)
        return jnp.where(a > 0, jnp.exp(log_moment), jnp.inf)

    @property
    def mean(self) -> Array:
        """E z = Gamma(a + 1/power) / Gamma(a) * rate^(-1/power)."""
        return self._moment(1.0)

    @property
    def variance(self) -> Array:
        """E z^2 - (E z)^2."""
        second = self._moment(2.0)
        finite = jnp.isfinite(second)
        return jnp.where(finite, second - jnp.where(finite, self.mean, 0) ** 2, jnp.inf)


class SharedScaleStudentT(Distribution):  # type: ignore[misc]
    """The multivariate t of x = loc + scale * e / sqrt(chi2/df): one chi2 for the whole event.

    `loc` and `scale` have shape batch + event; `df` has shape batch.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "df": constraints.positive,
        "loc": constraints.dependent,
        "scale": constraints.dependent,
    }
    reparametrized_params: ClassVar[list[str]] = ["df", "loc", "scale"]

    def __init__(
        self, df: Array, loc: Array, scale: Array, *, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = df, loc, scale
        batch = jnp.shape(df)
        super().__init__(batch, jnp.shape(loc)[len(batch) :], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False)  # type: ignore[untyped-decorator]
    def support(self) -> Any:
        """Every real array of the event's shape."""
        return constraints.independent(constraints.real, self.event_dim)

    def _expand(self, per_batch: Array) -> Array:
        return jnp.expand_dims(per_batch, tuple(range(-self.event_dim, 0)))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws, shape sample_shape + batch + event."""
        normal, gamma = jax.random.split(key)
        dtype = jnp.result_type(self.loc)
        noise = jax.random.normal(normal, sample_shape + jnp.shape(self.loc), dtype)
        shape = sample_shape + jnp.shape(self.df)
        tau = jax.random.gamma(gamma, self.df / 2, shape, dtype) / (self.df / 2)
        return self.loc + self.scale * noise / jnp.sqrt(self._expand(tau))

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """The joint log density of the event, shape batch."""
        axes = tuple(range(-self.event_dim, 0))
        size = math.prod(self.event_shape)
        distance = jnp.sum(jnp.square((value - self.loc) / self.scale), axis=axes)
        half = self.df / 2
        return (
            gammaln(half + size / 2)
            - gammaln(half)
            - size / 2 * (jnp.log(self.df) + math.log(math.pi))
            - jnp.sum(jnp.log(self.scale), axis=axes)
            - (half + size / 2) * jnp.log1p(distance / self.df)
        )

    @property
    def mean(self) -> Array:
        """The location; infinite where df <= 1, as NumPyro has it."""
        return jnp.where(self._expand(self.df) > 1, self.loc, jnp.inf)

    @property
    def variance(self) -> Array:
        """Variance scale^2 df / (df - 2); infinite where df <= 2."""
        df = self._expand(self.df)
        heavy = df <= 2
        return jnp.where(heavy, jnp.inf, self.scale**2 * df / jnp.where(heavy, 1, df - 2))


class TruncatedNormal(Distribution):  # type: ignore[misc]
    """Normal(loc, scale) restricted to (low, high), either of which may be infinite elementwise.

    NumPyro's own is a difference of cumulative probabilities, infinite or NaN in the tails.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "low": constraints.dependent,
        "high": constraints.dependent,
    }
    reparametrized_params: ClassVar[list[str]] = ["loc", "scale", "low", "high"]

    def __init__(
        self,
        loc: Array,
        scale: Array,
        *,
        low: Array,
        high: Array,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.scale, self.low, self.high = jnp.broadcast_arrays(loc, scale, low, high)
        super().__init__(jnp.shape(self.loc), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)  # type: ignore[untyped-decorator]
    def support(self) -> Any:
        """The open interval (low, high)."""
        return constraints.open_interval(self.low, self.high)

    def _arguments(self) -> tuple[Array, Array, Array, Array]:
        precision = self.scale**-2
        return self.loc * precision, -precision / 2, self.low, self.high

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws, shape sample_shape + batch."""
        shape = sample_shape + self.batch_shape
        uniform = jax.random.uniform(key, shape, jnp.result_type(self.loc))
        return interval.draw(uniform, *self._arguments())

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """The log density, -inf outside the interval."""
        t = interval.tilted(*self._arguments())
        y = (t.anchor - value) / t.direction
        log_density = -y * (t.slope + y / 2) - t.log_integral - jnp.log(self.scale)
        return jnp.where((value >= self.low) & (value <= self.high), log_density, -jnp.inf)

    @property
    def mean(self) -> Array:
        """E x, strictly between the bounds."""
        t = interval.tilted(*self._arguments())
        return interval.inside(t.anchor - t.direction * t.first, self.low, self.high)

    @property
    def variance(self) -> Array:
        """Var x."""
        t = interval.tilted(*self._arguments())
        return self.scale**2 * (t.second - t.first**2)


class SiteAxes(Transform):  # type: ignore[misc]
    """Put the axes of a packed value (batch, then a vector) in a site's own order.

    `order` lists the site's axes as they are packed; the packed value has shape `packed`.
    """

    def __init__(
        self, shape: tuple[int, ...], order: tuple[int, ...], packed: tuple[int, ...]
    ) -> None:
        self.shape, self.order, self.packed = tuple(shape), tuple(order), tuple(packed)

    @property
    def domain(self) -> Any:
        """Arrays of the packed shape."""
        return constraints.independent(constraints.real, len(self.packed))

    @property
    def codomain(self) -> Any:
        """Arrays of the site's shape."""
        return constraints.independent(constraints.real, len(self.shape))

    def __call__(self, x: Array) -> Array:
        """Packed value to site value."""
        lead = x.shape[: x.ndim - len(self.packed)]
        unpacked = x.reshape((*lead, *(self.shape[a] for a in self.order)))
        back = [len(lead) + self.order.index(a) for a in range(len(self.order))]
        return jnp.transpose(unpacked, (*range(len(lead)), *back))

    def _inverse(self, y: Array) -> Array:
        lead = y.shape[: y.ndim - len(self.shape)]
        forth = [len(lead) + a for a in self.order]
        return jnp.transpose(y, (*range(len(lead)), *forth)).reshape((*lead, *self.packed))

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        """Zero: entries are only moved."""
        return jnp.zeros(x.shape[: x.ndim - len(self.packed)], x.dtype)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the site value for a packed value of `shape`."""
        return (*shape[: len(shape) - len(self.packed)], *self.shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the packed value for a site value of `shape`."""
        return (*shape[: len(shape) - len(self.shape)], *self.packed)

    def tree_flatten(self) -> tuple[tuple[()], Any]:
        """No arrays; shapes are static."""
        static = {"shape": self.shape, "order": self.order, "packed": self.packed}
        return (), ((), static)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SiteAxes) and vars(self) == vars(other)

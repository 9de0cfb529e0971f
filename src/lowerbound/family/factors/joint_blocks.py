"""Joint blocks: a Gaussian together with its precision, as in the paper's appendices A and B."""

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
from jax.scipy.special import digamma, gammaln
from numpyro.distributions import Distribution

from lowerbound.errors import ArgumentError
from lowerbound.family.exponential import ExponentialFamily, Mean, Natural, Values
from lowerbound.family.factors.gaussian import LOG_TWO_PI
from lowerbound.family.factors.precision import (
    Gamma,
    Wishart,
    bartlett,
    draw_power_of_gamma,
    power_of_gamma,
)
from lowerbound.family.numerics import distributions
from lowerbound.family.numerics.definite import (
    inverse_cholesky,
    inverse_of,
    is_positive_definite,
    log_determinant,
    symmetric,
    times_vector,
)
from lowerbound.family.numerics.special import gamma_shape, interior

__all__ = ["NormalGamma", "NormalWishart"]


@dataclass(frozen=True)
class NormalGamma(ExponentialFamily):
    """x given tau = z**power is Normal(m, (tau Lambda)^-1); tau is Gamma(a, b): q(beta, tau).

    The block of app:bayes_linear_regression. x has shape `batch_shape` + `event_shape` (size D)
    and shares one z per batch element; Lambda is a matrix if `full` (then event_shape = (D,)) and
    elementwise otherwise. Statistics: log = log z, power = tau, px = tau x, pxx = tau x^2 (or
    tau x x'). Natural: log = power (a + D/2) - 1, power = -b - m' Lambda m / 2, px = Lambda m,
    pxx = -Lambda/2.
    """

    event_shape: tuple[int, ...] = ()
    power: float = 1.0
    full: bool = False

    name: ClassVar[str] = "Normal-Gamma"
    statistic_names: ClassVar[tuple[str, ...]] = ("log", "power", "px", "pxx")

    def __post_init__(self) -> None:
        if self.full and len(self.event_shape) != 1:
            raise ArgumentError(
                "NormalGamma with full=True expects event_shape (D,); "
                f"found event_shape {self.event_shape}."
            )

    @property
    def size(self) -> int:
        """D, the number of entries of x that share one precision."""
        return math.prod(self.event_shape)

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of log z, tau, tau x and tau x^2 (or tau x x')."""
        px = (*self.batch_shape, *self.event_shape)
        pxx = (*px, *self.event_shape) if self.full else px
        return {"log": self.batch_shape, "power": self.batch_shape, "px": px, "pxx": pxx}

    def _sum(self, array: Array) -> Array:
        return jnp.sum(array, axis=tuple(range(-len(self.event_shape), 0)))

    def _expand(self, per_batch: Array, extra: int = 0) -> Array:
        return jnp.expand_dims(per_batch, tuple(range(-len(self.event_shape) - extra, 0)))

    def _outer(self, x: Array) -> Array:
        return x[..., :, None] * x[..., None, :] if self.full else x * x

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """The statistics log z, tau, tau x and tau x^2 (or tau x x')."""
        z, x = values["z"], values["x"]
        tau = z**self.power
        wide = self._expand(tau, 1 if self.full else 0)
        px, pxx = self._expand(tau) * x, wide * self._outer(x)
        return {"log": jnp.log(z), "power": tau, "px": px, "pxx": pxx}

    def _gaussian(self, natural: Mapping[str, Array]) -> tuple[Array, Array, Array]:
        """m, log|Lambda|, and the root R with R' R = Lambda^-1 (elementwise if not full)."""
        if self.full:
            cholesky = jnp.linalg.cholesky(-2 * symmetric(natural["pxx"]))
            root = inverse_cholesky(cholesky)
            half = times_vector(root, natural["px"])
            return times_vector(jnp.swapaxes(root, -1, -2), half), log_determinant(cholesky), root
        precision = -2 * natural["pxx"]
        return natural["px"] / precision, self._sum(jnp.log(precision)), 1 / jnp.sqrt(precision)

    def _shape_and_rate(self, natural: Mapping[str, Array], m: Array) -> tuple[Array, Array]:
        a = interior((natural["log"] + 1) / self.power - self.size / 2)
        return a, -natural["power"] - self._sum(natural["px"] * m) / 2

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = log Gamma(a) - a log b - log|power| + D log(2 pi)/2 - log|Lambda|/2."""
        m, logdet, _ = self._gaussian(natural)
        a, b = self._shape_and_rate(natural, m)
        gamma = gammaln(a) - a * jnp.log(b) - math.log(abs(self.power))
        return gamma + (self.size * LOG_TWO_PI - logdet) / 2

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """E log z, E tau = a/b, m E tau, and m m' E tau + Lambda^-1."""
        m, _, root = self._gaussian(natural)
        a, b = self._shape_and_rate(natural, m)
        tau = a / b
        inverse = jnp.swapaxes(root, -1, -2) @ root if self.full else root * root
        return {
            "log": (digamma(a) - jnp.log(b)) / self.power,
            "power": tau,
            "px": self._expand(tau) * m,
            "pxx": self._expand(tau, 1 if self.full else 0) * self._outer(m) + inverse,
        }

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """Invert m = E tau x / E tau, Lambda^-1 = E tau x x' - m m' E tau, and the Gamma."""
        tau = mean["power"]
        m = mean["px"] / self._expand(tau)
        if self.full:
            inverse = symmetric(mean["pxx"]) - self._expand(tau, 1) * self._outer(m)
            precision = inverse_of(inverse)
            px = times_vector(precision, m)
        else:
            precision = 1 / (mean["pxx"] - self._expand(tau) * m * m)
            px = precision * m
        a = gamma_shape(jnp.log(tau) - self.power * mean["log"])
        return {
            "log": self.power * (a + self.size / 2) - 1,
            "power": -a / tau - self._sum(px * m) / 2,
            "px": px,
            "pxx": -precision / 2,
        }

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """Entropy of z plus that of x given z: however large m is, nothing cancels."""
        m = mean["px"] / self._expand(mean["power"])
        if self.full:
            logdet = log_determinant(jnp.linalg.cholesky(-2 * symmetric(natural["pxx"])))
        else:
            logdet = self._sum(jnp.log(-2 * natural["pxx"]))
        a, b = self._shape_and_rate(natural, m)
        leaf = Gamma(self.batch_shape, self.power)
        at = {"log": self.power * a - 1, "power": -b}
        conditional = self.size * (LOG_TWO_PI + 1 - self.power * mean["log"]) - logdet
        return leaf.entropy(at, mean) + conditional / 2

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of z, then of x given z."""
        z_key, x_key = jax.random.split(key)
        m, _, root = self._gaussian(natural)
        a, b = self._shape_and_rate(natural, m)
        z = draw_power_of_gamma(z_key, a, b, self.power, shape + self.batch_shape)
        noise = jax.random.normal(
            x_key, (*shape, *self.batch_shape, *self.event_shape), m.dtype
        ) * self._expand(z ** (-self.power / 2))
        scaled = jnp.einsum("...ji,...j->...i", root, noise) if self.full else root * noise
        return {"z": z, "x": m + scaled}

    def translated(self, natural: Mapping[str, Array], origin: Array) -> Natural:
        """The same a, b and Lambda about m + origin: tau x^2 expands into the other statistics."""
        px, pxx = natural["px"], natural["pxx"]
        half = times_vector(symmetric(pxx), origin) if self.full else pxx * origin
        power = natural["power"] + self._sum((half - px) * origin)
        return {"log": natural["log"], "power": power, "px": px - 2 * half, "pxx": pxx}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """Value z as the power of a Gamma; x a Student t with 2a degrees of freedom."""
        m, _, root = self._gaussian(natural)
        a, b = self._shape_and_rate(natural, m)
        spread = jnp.sqrt(b / a)
        x: Distribution
        if self.full:
            inverse = jnp.swapaxes(root, -1, -2) @ root
            scale_tril = spread[..., None, None] * jnp.linalg.cholesky(inverse)
            x = dist.MultivariateStudentT(2 * a, m, scale_tril)
        elif self.event_shape:
            x = distributions.SharedScaleStudentT(2 * a, m, self._expand(spread) * root)
        else:
            x = dist.StudentT(2 * a, m, spread * root)
        return {"z": power_of_gamma(a, b, self.power), "x": x}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """Lambda positive definite, a > 0 and b > 0."""
        m, _, _ = self._gaussian(natural)
        a = (natural["log"] + 1) / self.power - self.size / 2
        _, b = self._shape_and_rate(natural, m)
        proper = (a > 0) & (b > 0) & jnp.isfinite(a) & jnp.isfinite(b)
        if self.full:
            return proper & is_positive_definite(-2 * symmetric(natural["pxx"]))
        axes = tuple(range(-len(self.event_shape), 0))
        return proper & jnp.all(natural["pxx"] < 0, axis=axes)

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """Precision tau Gamma(1, 1) and x standard normal given tau = 1."""
        log = self.power * (1 + self.size / 2) - 1
        natural = self._full({"log": log, "power": -1.0, "px": 0.0, "pxx": -0.5})
        if self.full:
            natural["pxx"] = natural["pxx"] * jnp.eye(self.size, dtype=float)
        return natural


@dataclass(frozen=True)
class NormalWishart(ExponentialFamily):
    """x given L is Normal(m, (kappa L)^-1) in `dim` dimensions; L is Wishart: q(mu, Lambda).

    The block of app:cavi. L (the value z) has density proportional to
    |L|^(a - (D+1)/2) exp(-tr(B L)). Statistics: matrix = L, logdet = log|L|, px = L x,
    xpx = x' L x. Natural: matrix = -B - kappa m m'/2, logdet = a - D/2, px = kappa m,
    xpx = -kappa/2.
    """

    dim: int

    name: ClassVar[str] = "Normal-Wishart"
    statistic_names: ClassVar[tuple[str, ...]] = ("matrix", "logdet", "px", "xpx")

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of L, log|L|, L x and x' L x."""
        batch, d = self.batch_shape, self.dim
        return {"matrix": (*batch, d, d), "logdet": batch, "px": (*batch, d), "xpx": batch}

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """L, log|L|, L x and x' L x."""
        matrix, x = symmetric(values["z"]), values["x"]
        px = times_vector(matrix, x)
        logdet = log_determinant(jnp.linalg.cholesky(matrix))
        return {"matrix": matrix, "logdet": logdet, "px": px, "xpx": jnp.sum(x * px, axis=-1)}

    def _split(self, natural: Mapping[str, Array]) -> tuple[Natural, Array, Array]:
        """Natural parameters of the Wishart marginal of L, then m and kappa."""
        kappa = -2 * natural["xpx"]
        px = natural["px"]
        m = px / kappa[..., None]
        matrix = symmetric(natural["matrix"]) + px[..., :, None] * m[..., None, :] / 2
        return {"matrix": symmetric(matrix), "logdet": natural["logdet"] - 0.5}, m, kappa

    @property
    def _leaf(self) -> Wishart:
        return Wishart(self.batch_shape, self.dim)

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = log Gamma_D(a) - a log|B| + D log(2 pi / kappa)/2."""
        wishart, _, kappa = self._split(natural)
        gaussian = self.dim * (LOG_TWO_PI - jnp.log(kappa)) / 2
        return self._leaf.log_normalizer(wishart) + gaussian

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """E L = a B^-1, E log|L|, (E L) m, and m' (E L) m + D/kappa."""
        wishart, m, kappa = self._split(natural)
        leaf = self._leaf.mean(wishart)
        px = times_vector(leaf["matrix"], m)
        return {**leaf, "px": px, "xpx": jnp.sum(m * px, axis=-1) + self.dim / kappa}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """Invert m = (E L)^-1 E L x, D/kappa = E x' L x - m' E L x, and the Wishart."""
        px = mean["px"]
        cholesky = jnp.linalg.cholesky(symmetric(mean["matrix"]))
        m = jax.scipy.linalg.cho_solve((cholesky, True), px[..., None])[..., 0]
        kappa = self.dim / (mean["xpx"] - jnp.sum(m * px, axis=-1))
        leaf = self._leaf.natural(mean)
        outer = kappa[..., None, None] * m[..., :, None] * m[..., None, :]
        return {
            "matrix": leaf["matrix"] - outer / 2,
            "logdet": leaf["logdet"] + 0.5,
            "px": kappa[..., None] * m,
            "xpx": -kappa / 2,
        }

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """Entropy of L plus that of x given L: however large m is, nothing cancels."""
        wishart, _, kappa = self._split(natural)
        conditional = self.dim * (LOG_TWO_PI + 1 - jnp.log(kappa)) - mean["logdet"]
        return self._leaf.entropy(wishart, mean) + conditional / 2

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of L by Bartlett's decomposition, then of x given L."""
        z_key, x_key = jax.random.split(key)
        wishart, m, kappa = self._split(natural)
        a = self._leaf._shape(wishart)
        factor = bartlett(z_key, a, self.dim, shape + self.batch_shape)
        cholesky = jnp.broadcast_to(jnp.linalg.cholesky(-wishart["matrix"]), factor.shape)
        half = solve_triangular(cholesky, factor, lower=True, trans=1) / math.sqrt(2)
        noise = jax.random.normal(x_key, factor.shape[:-1], m.dtype)
        # half' ^-1 noise has covariance L^-1; half'^-1 = sqrt(2) C T'^-1
        noise = solve_triangular(factor, noise[..., None], lower=True, trans=1)
        x = m + times_vector(cholesky, noise[..., 0]) * jnp.sqrt(2 / kappa)[..., None]
        return {"z": half @ jnp.swapaxes(half, -1, -2), "x": x}

    def translated(self, natural: Mapping[str, Array], origin: Array) -> Natural:
        """The same kappa and Wishart about m + origin: x' L x expands into the other statistics."""
        px, xpx = natural["px"], natural["xpx"]
        outer = (xpx[..., None] * origin - px)[..., :, None] * origin[..., None, :]
        matrix = natural["matrix"] + symmetric(outer)
        moved = px - 2 * xpx[..., None] * origin
        return {"matrix": matrix, "logdet": natural["logdet"], "px": moved, "xpx": xpx}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """L Wishart; x a multivariate Student t with 2a - D + 1 degrees of freedom."""
        wishart, m, kappa = self._split(natural)
        dof = 2 * self._leaf._shape(wishart) - self.dim + 1
        spread = jnp.sqrt(2 / (kappa * dof))[..., None, None]
        scale_tril = spread * jnp.linalg.cholesky(-wishart["matrix"])
        x = dist.MultivariateStudentT(dof, m, scale_tril)
        return {**self._leaf.marginals(wishart), "x": x}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """Weight kappa > 0, a > (D - 1)/2 and B positive definite."""
        wishart, m, _ = self._split(natural)
        finite = jnp.all(jnp.isfinite(m), axis=-1)
        return finite & (natural["xpx"] < 0) & self._leaf.in_domain(wishart)

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """L Wishart with D + 1 degrees of freedom and mean I; x standard normal given L = I."""
        leaf = self._leaf.default()
        rest = self._full({"px": 0.0, "xpx": -0.5})
        return {"matrix": leaf["matrix"], "logdet": leaf["logdet"] + 0.5, **rest}

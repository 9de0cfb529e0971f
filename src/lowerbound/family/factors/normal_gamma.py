"""A Gaussian together with its precision: the block of the paper's appendix A."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import digamma, gammaln
from numpyro.distributions import Distribution

from lowerbound.errors import ArgumentError
from lowerbound.family.exponential import Mean, Natural, Values
from lowerbound.family.factors.gaussian import LOG_TWO_PI, Joined
from lowerbound.family.factors.precision import (
    Gamma,
    draw_power_of_gamma,
    power_of_gamma,
    power_text,
    powers_of,
)
from lowerbound.family.numerics import definite, distributions
from lowerbound.family.numerics.special import gamma_shape, interior
from lowerbound.joint.blocks.block import Block, Gaussians, Layout, Read, same_index
from lowerbound.joint.blocks.gaussians import Found, flattened, matched_axes, read_vector
from lowerbound.joint.blocks.kind import Scale
from lowerbound.joint.terms.indices import Label

__all__ = ["NormalGamma"]


@dataclass(frozen=True)
class NormalGamma(Joined):
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

    kind: ClassVar[str] = "normal_gamma"
    name: ClassVar[str] = "Normal-Gamma"
    statistic_names: ClassVar[tuple[str, ...]] = ("log", "power", "px", "pxx")

    @classmethod
    def of_gaussians(cls, group: Gaussians, scale: Scale | None) -> Block | None:
        """Gaussian sites with a Gamma site of one power in all their terms."""
        if scale is None or scale.family is not Gamma or len(powers_of(scale.uses)) != 1:
            return None
        precision = scale.latent
        (power,) = powers_of(scale.uses)
        static: dict[str, Any] = {"power": power, "full": group.full}
        if not group.full:
            ((name, layout),) = group.layouts.items()
            batch = matched_axes(scale, name, layout.shape)
            if batch is None:
                return None
            vector = tuple(a for a in range(len(layout.shape)) if a not in batch)
            moved = Layout(layout.shape, batch, vector)
            static["event_shape"] = moved.vector_shape
            return Block(0, cls, {name: moved}, precision.shape, static, precision.name)
        if group.batch_shape != precision.shape:
            # Copies under one shared precision are one longer vector, while it is affordable.
            longer = None if precision.shape else flattened(group)
            if longer is None:
                return None
            group = longer
        static["event_shape"] = (group.dimension,)
        return Block(0, cls, group.layouts, group.batch_shape, static, precision.name)

    @classmethod
    def raveled(cls, static: Mapping[str, Any]) -> bool:
        """Where the quadratic form is full."""
        return bool(static["full"])

    @classmethod
    def symmetric(cls, static: Mapping[str, Any]) -> tuple[str, ...]:
        """Tau x x', where the quadratic form is full."""
        return ("pxx",) if static["full"] else ()

    @classmethod
    def product(cls, block: Block, found: Found, private: set[Label]) -> Read | None:
        """Log z, or tau times at most two entries of x."""
        scales, gaussians = found
        if len(scales) != 1:
            return None
        where = scales[0].index
        name = Gamma.statistic_of(scales[0].atom, block.static)
        if not gaussians:
            return None if name is None else Read(block.number, name, (), block.batch_shape, where)
        if name != "power":
            return None
        if block.static["full"]:
            read = read_vector(block, ("px", "pxx"), gaussians)
            return read if read and same_index(read.index[: len(where)], where) else None
        (layout,) = block.layouts.values()
        places = [layout.split(w) for _, w in gaussians]
        if not same_index(where, *(batch for batch, _ in places)):
            return None
        if not same_index(*(vector for _, vector in places)):
            return None
        statistic = ("px", "pxx")[len(gaussians) - 1]
        shape = (*block.batch_shape, *layout.vector_shape)
        return Read(block.number, statistic, (), shape, (*where, *places[0][1]))

    @classmethod
    def text(cls, block: Block, site: str) -> str:
        """Those of the precision, and its products with x and x^2 (or x x')."""
        z, x = block.scale or site, " ".join(block.layouts)
        tau = power_text(z, block.static)
        square = f"{x} {x}'" if block.static["full"] else f"{x}^2"
        return f"log {z}, {tau}, {tau} {x}, {tau} {square}"

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
            cholesky = jnp.linalg.cholesky(-2 * definite.symmetric(natural["pxx"]))
            root = definite.inverse_cholesky(cholesky)
            half = definite.times_vector(root, natural["px"])
            return (
                definite.times_vector(jnp.swapaxes(root, -1, -2), half),
                definite.log_determinant(cholesky),
                root,
            )
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
            inverse = definite.symmetric(mean["pxx"]) - self._expand(tau, 1) * self._outer(m)
            precision = definite.inverse_of(inverse)
            px = definite.times_vector(precision, m)
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
            logdet = definite.log_determinant(
                jnp.linalg.cholesky(-2 * definite.symmetric(natural["pxx"]))
            )
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
        half = definite.times_vector(definite.symmetric(pxx), origin) if self.full else pxx * origin
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
            return proper & definite.is_positive_definite(-2 * definite.symmetric(natural["pxx"]))
        axes = tuple(range(-len(self.event_shape), 0))
        return proper & jnp.all(natural["pxx"] < 0, axis=axes)

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """Precision tau Gamma(1, 1) and x standard normal given tau = 1."""
        log = self.power * (1 + self.size / 2) - 1
        natural = self._full({"log": log, "power": -1.0, "px": 0.0, "pxx": -0.5})
        if self.full:
            natural["pxx"] = natural["pxx"] * jnp.eye(self.size, dtype=float)
        return natural

    def centre(self, mean: Mapping[str, Array]) -> Values:
        """The precision at its mean, and x at its mean given that."""
        tau = mean["power"]
        return {"z": tau ** (1.0 / self.power), "x": mean["px"] / self._expand(tau)}

"""Precisions and their powers: Gamma for scalars, Wishart for matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import digamma, gammaln
from numpyro.distributions import Distribution

from lowerbound.family.exponential import ExponentialFamily, Mean, Natural, Values
from lowerbound.family.numerics import distributions
from lowerbound.family.numerics.definite import (
    inverse_cholesky,
    inverse_of,
    is_positive_definite,
    log_determinant,
    symmetric,
)
from lowerbound.family.numerics.special import (
    gamma_shape,
    interior,
    multivariate_digamma,
    multivariate_gammaln,
)
from lowerbound.joint.blocks.block import Block
from lowerbound.joint.blocks.kind import Misfit, Uses
from lowerbound.joint.latents import Latent
from lowerbound.joint.terms.domain import MATRIX, POSITIVE
from lowerbound.joint.terms.labelled import Atom

__all__ = ["Gamma", "Wishart"]


def powers_of(uses: Uses) -> dict[float, str]:
    """The exponents with which a site enters, each with the first density that has it."""
    found: dict[float, str] = {}
    for entry, factors in uses:
        for atom in (factor.atom for factor in factors if factor.atom.function == "power"):
            found.setdefault(atom.parameter, entry.site)
    return found


def _exponents(uses: Uses) -> dict[float, str]:
    """1 where a matrix enters, -1 where its inverse does, with the first density that has it."""
    found: dict[float, str] = {}
    for entry, factors in uses:
        for function in (factor.atom.function for factor in factors):
            if function != "logdet":
                found.setdefault(-1.0 if function == "inverse" else 1.0, entry.site)
    return found


def _several(latent: Latent, powers: Mapping[float, str]) -> Misfit | None:
    """Powers of a site that no one factor has."""
    if len(powers) <= 1:
        return None
    first, *_, last = powers
    left = f"{latent.name}^{last:g}"
    reason = f"{latent.name}^{first:g} and {left} share no closed form"
    return Misfit(latent.name, powers[last], left, reason)


def power_text(site: str, static: Mapping[str, Any]) -> str:
    """The power of a site that is Gamma, in words."""
    power = static["power"]
    return site if power == 1.0 else f"{site}^{power:g}"


def power_of_gamma(a: Array, b: Array, power: float) -> Distribution:
    """The density of z when z**power is Gamma(a, b)."""
    if power == 1:
        return dist.Gamma(a, b)
    if power == -1:
        return dist.InverseGamma(a, b)
    return distributions.PowerGamma(a, b, power)


def draw_power_of_gamma(
    key: Array, a: Array, b: Array, power: float, shape: tuple[int, ...]
) -> Array:
    """Draws of z = tau**(1/power), tau Gamma(a, b), kept positive and finite."""
    log_tau = jax.random.loggamma(key, a, shape, a.dtype) - jnp.log(b)
    limits = np.finfo(a.dtype)
    return jnp.clip(jnp.exp(log_tau / power), float(limits.tiny), float(limits.max))


def bartlett(key: Array, a: Array, dim: int, shape: tuple[int, ...]) -> Array:
    """Lower factors T, shape + (D, D), with T T' Wishart of 2a degrees of freedom and scale I."""
    diagonal_key, below_key = jax.random.split(key)
    shapes = a[..., None] - jnp.arange(dim, dtype=a.dtype) / 2
    log_square = jax.random.loggamma(diagonal_key, shapes, (*shape, dim), a.dtype) + math.log(2)
    tiny = math.sqrt(float(np.finfo(a.dtype).tiny))
    root = jnp.maximum(jnp.exp(log_square / 2), tiny)
    below = jnp.tril(jax.random.normal(below_key, (*shape, dim, dim), a.dtype), -1)
    return below + root[..., :, None] * jnp.eye(dim, dtype=a.dtype)


@dataclass(frozen=True)
class Gamma(ExponentialFamily):
    """Positive scalars z with tau = z**power Gamma(a, b); statistics log z and z**power.

    power = 1 is the Gamma, -1 the inverse Gamma, -2 a standard deviation whose precision is Gamma
    (the alpha_d of app:bayes_linear_regression). Natural log = power * a - 1 and natural
    power = -b, both of shape `batch_shape`, with respect to Lebesgue measure of z itself.

    >>> gamma = Gamma(())
    >>> gamma.mean({"log": jnp.array(2.0), "power": jnp.array(-1.5)})["power"].item()
    2.0
    """

    power: float = 1.0

    kind: ClassVar[str] = "gamma"
    name: ClassVar[str] = "Gamma"
    domains: ClassVar = (POSITIVE,)
    statistic_names: ClassVar[tuple[str, ...]] = ("log", "power")

    @classmethod
    def settings(cls, latent: Latent, uses: Uses) -> dict[str, Any]:
        """The power that the site enters with."""
        return {"power": next(iter(powers_of(uses)), 1.0)}

    @classmethod
    def statistic_of(cls, atom: Atom, static: Mapping[str, Any]) -> str | None:
        """The logarithm, and the one power."""
        table = {("log", 1.0): "log", ("power", static["power"]): "power"}
        return table.get((atom.function, atom.parameter))

    @classmethod
    def misfit(cls, latent: Latent, uses: Uses, sequential: bool = False) -> Misfit | None:
        """Functions that are no powers, or several powers."""
        for entry, factors in uses:
            for atom in (factor.atom for factor in factors):
                if atom.function not in ("log", "power"):
                    return Misfit(latent.name, entry.site, str(atom), cls.reason(atom))
        return _several(latent, powers_of(uses))

    @classmethod
    def text(cls, block: Block, site: str) -> str:
        """The logarithm, and the power by its exponent."""
        return f"log {site}, {power_text(site, block.static)}"

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of log z and z**power: `batch_shape` each."""
        return {"log": self.batch_shape, "power": self.batch_shape}

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """The logarithm and the power of z."""
        z = values["z"]
        return {"log": jnp.log(z), "power": z**self.power}

    def _shape_and_rate(self, natural: Mapping[str, Array]) -> tuple[Array, Array]:
        return interior((natural["log"] + 1) / self.power), -natural["power"]

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = log Gamma(a) - a log b - log|power|."""
        a, b = self._shape_and_rate(natural)
        return gammaln(a) - a * jnp.log(b) - math.log(abs(self.power))

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """E log z = (digamma(a) - log b)/power and E z**power = a/b."""
        a, b = self._shape_and_rate(natural)
        return {"log": (digamma(a) - jnp.log(b)) / self.power, "power": a / b}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """The shape a from log E tau - E log tau, then b = a / E tau."""
        a = gamma_shape(jnp.log(mean["power"]) - self.power * mean["log"])
        return {"log": self.power * a - 1, "power": -a / mean["power"]}

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of z."""
        a, b = self._shape_and_rate(natural)
        return {"z": draw_power_of_gamma(key, a, b, self.power, shape + self.batch_shape)}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """Gamma, InverseGamma, or the density of the root of a Gamma."""
        return {"z": power_of_gamma(*self._shape_and_rate(natural), self.power)}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """Both a > 0 and b > 0."""
        a, b = (natural["log"] + 1) / self.power, -natural["power"]
        return (a > 0) & (b > 0) & jnp.isfinite(a) & jnp.isfinite(b)

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """z**power is Gamma(1, 1)."""
        return self._full({"log": self.power - 1.0, "power": -1.0})


@dataclass(frozen=True)
class Wishart(ExponentialFamily):
    """Positive definite Z, D by D, with L = Z (or Z^-1 if `inverse`) Wishart.

    L has density proportional to |L|^(a - (D+1)/2) exp(-tr(B L)): 2a degrees of freedom and scale
    B^-1/2. Statistics: matrix = L and logdet = log|Z|, of Z itself. Natural matrix = -B, shape
    `batch_shape` + (D, D); natural logdet = a - (D+1)/2, or -a - (D+1)/2 if `inverse`. The measure
    is Lebesgue on the D(D+1)/2 free entries of Z (the Wishart of app:cavi).
    """

    dim: int
    inverse: bool = False

    kind: ClassVar[str] = "wishart"
    name: ClassVar[str] = "Wishart"
    domains: ClassVar = (MATRIX,)
    statistic_names: ClassVar[tuple[str, ...]] = ("matrix", "logdet")

    @classmethod
    def settings(cls, latent: Latent, uses: Uses) -> dict[str, Any]:
        """The size, and whether the site enters by its inverse."""
        return {"dim": latent.shape[-1], "inverse": -1.0 in _exponents(uses)}

    @classmethod
    def statistic_of(cls, atom: Atom, static: Mapping[str, Any]) -> str | None:
        """The matrix (or its inverse), and the log determinant."""
        matrix = "inverse" if static["inverse"] else "power"
        return {matrix: "matrix", "logdet": "logdet"}.get(atom.function)

    @classmethod
    def misfit(cls, latent: Latent, uses: Uses, sequential: bool = False) -> Misfit | None:
        """Functions of other kinds, or both the matrix and its inverse."""
        for entry, factors in uses:
            for atom in (factor.atom for factor in factors):
                if atom.function not in ("power", "inverse", "logdet"):
                    return Misfit(latent.name, entry.site, str(atom), cls.reason(atom))
        return _several(latent, _exponents(uses))

    @classmethod
    def symmetric(cls, static: Mapping[str, Any]) -> tuple[str, ...]:
        """L."""
        return ("matrix",)

    @classmethod
    def text(cls, block: Block, site: str) -> str:
        """The matrix (or its inverse), and the log determinant."""
        return f"{site}{'^-1' if block.static.get('inverse') else ''}, log|{site}|"

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of L and log|Z|."""
        return {"matrix": (*self.batch_shape, self.dim, self.dim), "logdet": self.batch_shape}

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """L and log|Z|."""
        z = symmetric(values["z"])
        matrix = inverse_of(z) if self.inverse else z
        return {"matrix": matrix, "logdet": log_determinant(jnp.linalg.cholesky(z))}

    def _sign(self) -> int:
        return -1 if self.inverse else 1

    def _shape(self, natural: Mapping[str, Array]) -> Array:
        lowest = (self.dim - 1) / 2
        sided = natural["logdet"] if not self.inverse else -natural["logdet"] - self.dim - 1
        return interior(sided + (self.dim + 1) / 2 - lowest) + lowest

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = log Gamma_D(a) - a log|B|."""
        a = self._shape(natural)
        logdet = log_determinant(jnp.linalg.cholesky(-symmetric(natural["matrix"])))
        return multivariate_gammaln(a, self.dim) - a * logdet

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """E L = a B^-1 and E log|Z| = +-(digamma_D(a) - log|B|)."""
        a = self._shape(natural)
        cholesky = jnp.linalg.cholesky(-symmetric(natural["matrix"]))
        root = inverse_cholesky(cholesky)
        logdet = multivariate_digamma(a, self.dim) - log_determinant(cholesky)
        matrix = a[..., None, None] * (jnp.swapaxes(root, -1, -2) @ root)
        return {"matrix": matrix, "logdet": self._sign() * logdet}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """The shape a from log|E L| - E log|L|, then B = a (E L)^-1."""
        matrix = symmetric(mean["matrix"])
        logdet = log_determinant(jnp.linalg.cholesky(matrix))
        a = gamma_shape(logdet - self._sign() * mean["logdet"], self.dim)
        offset = (self.dim + 1) / 2
        return {
            "matrix": -a[..., None, None] * inverse_of(matrix),
            "logdet": -a - offset if self.inverse else a - offset,
        }

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of Z by Bartlett's decomposition."""
        a = self._shape(natural)
        cholesky = jnp.linalg.cholesky(-symmetric(natural["matrix"]))
        factor = bartlett(key, a, self.dim, shape + self.batch_shape)
        cholesky = jnp.broadcast_to(cholesky, factor.shape)
        if self.inverse:  # Z = U U' with U = sqrt(2) C T'^-1
            root = jnp.swapaxes(inverse_cholesky(factor), -1, -2)
            half = math.sqrt(2) * (cholesky @ root)
        else:  # Z = W W' with W = C'^-1 T / sqrt(2)
            half = solve_triangular(cholesky, factor, lower=True, trans=1) / math.sqrt(2)
        return {"z": half @ jnp.swapaxes(half, -1, -2)}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """Wishart with 2a degrees of freedom and rate 2B, or the inverse Wishart with scale 2B."""
        dof, double = 2 * self._shape(natural), -2 * symmetric(natural["matrix"])
        if self.inverse:
            return {"z": distributions.InverseWishart(dof, scale_matrix=double)}
        return {"z": dist.Wishart(dof, rate_matrix=double)}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """Shape a > (D - 1)/2 and B positive definite."""
        sided = natural["logdet"] if not self.inverse else -natural["logdet"] - self.dim - 1
        proper = (sided > -1) & jnp.isfinite(sided)
        return proper & is_positive_definite(-symmetric(natural["matrix"]))

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """L Wishart with D + 1 degrees of freedom and mean I."""
        shapes = self.statistic_shapes()
        a = (self.dim + 1) / 2
        eye = jnp.broadcast_to(jnp.eye(self.dim, dtype=float), shapes["matrix"])
        logdet = -2 * a if self.inverse else 0.0
        return {"matrix": -a * eye, "logdet": jnp.full(shapes["logdet"], logdet, float)}

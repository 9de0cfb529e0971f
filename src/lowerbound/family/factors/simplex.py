"""Proportions: Beta for one probability, Dirichlet for a vector of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import digamma, gammaln
from numpyro.distributions import Distribution

from lowerbound.family.exponential import ExponentialFamily, Mean, Natural, Values
from lowerbound.family.numerics.special import dirichlet_concentration, interior
from lowerbound.joint.blocks.kind import Uses
from lowerbound.joint.latents import Latent
from lowerbound.joint.terms.domain import SIMPLEX, UNIT

__all__ = ["Beta", "Dirichlet"]


def _log_normalizer(a: Array) -> Array:
    """sum_k log Gamma(a_k) - log Gamma(sum a)."""
    return jnp.sum(gammaln(a), axis=-1) - gammaln(jnp.sum(a, axis=-1))


def _mean_log(a: Array) -> Array:
    """digamma(a_k) - digamma(sum a)."""
    return digamma(a) - digamma(jnp.sum(a, axis=-1, keepdims=True))


def _draw_log(key: Array, a: Array, shape: tuple[int, ...]) -> Array:
    """The logarithm of Dirichlet draws, shape + (K,), finite for any concentration."""
    return jax.nn.log_softmax(jax.random.loggamma(key, a, shape + a.shape[-1:], a.dtype), axis=-1)


@dataclass(frozen=True)
class Beta(ExponentialFamily):
    """Probabilities z with density proportional to z^(a-1) (1-z)^(b-1).

    Statistics log z and log(1 - z); natural log = a - 1 and natural log1m = b - 1, all of shape
    `batch_shape`.
    """

    kind: ClassVar[str] = "beta"
    name: ClassVar[str] = "Beta"
    domains: ClassVar = (UNIT,)
    atoms: ClassVar = {"log": "log", "log1m": "log1m"}
    formula: ClassVar[str] = "log {z}, log(1 - {z})"
    statistic_names: ClassVar[tuple[str, ...]] = ("log", "log1m")

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of log z and log(1 - z): `batch_shape` each."""
        return {"log": self.batch_shape, "log1m": self.batch_shape}

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """The logarithms of z and 1 - z."""
        return {"log": jnp.log(values["z"]), "log1m": jnp.log1p(-values["z"])}

    def _concentration(self, natural: Mapping[str, Array]) -> Array:
        return interior(jnp.stack([natural["log"], natural["log1m"]], axis=-1) + 1)

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = log B(a, b)."""
        return _log_normalizer(self._concentration(natural))

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """digamma(a) - digamma(a + b) and digamma(b) - digamma(a + b)."""
        mean = _mean_log(self._concentration(natural))
        return {"log": mean[..., 0], "log1m": mean[..., 1]}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """The exponents a - 1 and b - 1, by Newton's method."""
        a = dirichlet_concentration(jnp.stack([mean["log"], mean["log1m"]], axis=-1))
        return {"log": a[..., 0] - 1, "log1m": a[..., 1] - 1}

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of z, inside (0, 1)."""
        a = self._concentration(natural)
        z = jnp.exp(_draw_log(key, a, shape + self.batch_shape)[..., 0])
        limits = np.finfo(a.dtype)
        return {"z": jnp.clip(z, float(limits.tiny), 1 - float(limits.epsneg))}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """Beta(a, b)."""
        a = self._concentration(natural)
        return {"z": dist.Beta(a[..., 0], a[..., 1])}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """Both a > 0 and b > 0."""
        proper = (natural["log"] > -1) & (natural["log1m"] > -1)
        return proper & jnp.isfinite(natural["log"]) & jnp.isfinite(natural["log1m"])

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """The uniform density."""
        return self._full({"log": 0.0, "log1m": 0.0})

    def noise(self, rng: np.random.Generator) -> np.ndarray:
        """Additions to a and b."""
        return rng.standard_exponential((2, *self.batch_shape))

    def scattered(self, natural: Mapping[str, Array], mean: Mean, noise: Array) -> Mean:
        """More weight on z or on 1 - z, by chance."""
        return self.mean(
            {
                "log": jnp.maximum(natural["log"], -0.9) + noise[0],
                "log1m": jnp.maximum(natural["log1m"], -0.9) + noise[1],
            }
        )


@dataclass(frozen=True)
class Dirichlet(ExponentialFamily):
    """Vectors z of `dim` proportions, with statistics log z_k (the topics of app:lda).

    Natural log = a - 1, shape `batch_shape` + (K,), with respect to the usual density in the
    first K - 1 proportions; eq:lda_gamma and eq:lda_lambda update a.

    >>> uniform = Dirichlet((), 3)
    >>> round(uniform.log_normalizer(uniform.default()).item(), 4)
    -0.6931
    """

    dim: int

    kind: ClassVar[str] = "dirichlet"
    name: ClassVar[str] = "Dirichlet"
    domains: ClassVar = (SIMPLEX,)
    atoms: ClassVar = {"log": "log"}
    formula: ClassVar[str] = "log {z}"
    statistic_names: ClassVar[tuple[str, ...]] = ("log",)

    @classmethod
    def settings(cls, latent: Latent, uses: Uses) -> dict[str, Any]:
        """The number of proportions."""
        return {"dim": latent.shape[-1]}

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of log z."""
        return {"log": (*self.batch_shape, self.dim)}

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """The logarithms of the proportions."""
        return {"log": jnp.log(values["z"])}

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = sum_k log Gamma(a_k) - log Gamma(sum a)."""
        return _log_normalizer(interior(natural["log"] + 1))

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """digamma(a_k) - digamma(sum a)."""
        return {"log": _mean_log(interior(natural["log"] + 1))}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """The exponents a - 1, by Newton's method."""
        return {"log": dirichlet_concentration(mean["log"]) - 1}

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of z, each proportion positive."""
        a = interior(natural["log"] + 1)
        z = jnp.exp(_draw_log(key, a, shape + self.batch_shape))
        return {"z": jnp.maximum(z, float(np.finfo(a.dtype).tiny))}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """Dirichlet(a)."""
        return {"z": dist.Dirichlet(interior(natural["log"] + 1))}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """Every a_k > 0."""
        log = natural["log"]
        return jnp.all((log > -1) & jnp.isfinite(log), axis=-1)

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """The uniform density on the simplex."""
        return self._full({"log": 0.0})

    def noise(self, rng: np.random.Generator) -> np.ndarray:
        """Additions to the concentrations."""
        return rng.standard_exponential((*self.batch_shape, self.dim))

    def scattered(self, natural: Mapping[str, Array], mean: Mean, noise: Array) -> Mean:
        """More weight on some entries, by chance."""
        return self.mean({"log": jnp.maximum(natural["log"], -0.9) + noise})

"""Factors of auxiliary variables: weights on squares (Pólya-Gamma, inverse Gaussian), points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from lowerbound.family.exponential import ExponentialFamily, Mean, Natural, Values
from lowerbound.joint.terms.domain import Domain, above_zero
from lowerbound.rewrite.augmentations import weights

__all__ = ["InverseGaussian", "Point", "PolyaGamma"]


@dataclass(frozen=True)
class _Weight(ExponentialFamily):
    """A positive number whose only statistic is itself."""

    atoms: ClassVar = {("power", 1.0): "weight"}
    statistic_names: ClassVar[tuple[str, ...]] = ("weight",)

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """One number per element."""
        return {"weight": self.batch_shape}

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """The weight itself."""
        return {"weight": values["z"]}


@dataclass(frozen=True)
class PolyaGamma(_Weight):
    """PG(n, c) with natural weight = -c^2 / 2 and n = `total`, an extra of shape `batch_shape`.

    The base measure is the law PG(n, 0), so that densities and entropies are relative to it.
    """

    kind: ClassVar[str] = "polya_gamma"
    name: ClassVar[str] = "PolyaGamma"
    domains: ClassVar = (Domain("polya_gamma", above_zero, laws=("PolyaGamma",)),)
    extra_names: ClassVar[tuple[str, ...]] = ("total",)

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = -n log cosh(c / 2)."""
        return -natural["total"] * weights.log_cosh_root(_quarter_square(natural))

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """E w = n tanh(c / 2) / (2 c)."""
        ratio, _ = weights.tanh_root(_quarter_square(natural))
        return {"weight": natural["total"] * ratio / 4}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """The root of E w = mean by Newton in log c, for PG(1, c): a mean does not tell n."""
        return {**self.natural_given(mean, jnp.ones(())), "total": jnp.ones(self.batch_shape)}

    def natural_given(self, mean: Mapping[str, Array], total: Array) -> Natural:
        """The natural parameters whose mean is `mean` when n = `total`; means lie in (0, n/4]."""
        y = jnp.clip(4 * mean["weight"] / total, 1e-30, 1.0)
        # From tanh(x)/x <= 1/x and its continued fraction: above the root, near it at both ends.
        wide = 6 * y > 1.5
        u = jnp.where(wide, 15 * (1 - y) / jnp.where(wide, 6 * y - 1, 1), 1 / y**2)
        u = jnp.maximum(u, float(np.finfo(y.dtype).tiny))

        def step(_: int, u: Array) -> Array:
            ratio, slope = weights.tanh_root(u)
            change = ratio * (jnp.log(ratio) - jnp.log(y)) / (u * slope)
            return u * jnp.exp(-jnp.clip(change, -5, 5))

        u = jnp.where(y < 1, jax.lax.fori_loop(0, 12, step, u), 0)
        return {"weight": -2 * u}

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of the weight."""
        return {"z": self.marginals(natural)["z"].sample(key, shape)}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """PG(n, c), its density relative to PG(n, 0)."""
        tilt = 2 * jnp.sqrt(_quarter_square(natural))
        return {"z": weights.PolyaGamma(natural["total"], tilt)}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """A finite tilt and a count that is not negative."""
        weight = natural["weight"]
        return (weight <= 0) & jnp.isfinite(weight) & (natural["total"] >= 0)

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """No tilt."""
        return {**self._full({"weight": 0.0}), **self._extras(extras)}


def _quarter_square(natural: Mapping[str, Array]) -> Array:
    weight = natural["weight"]
    return jnp.where(weight > 0, 0, -weight / 2)  # its gradient at 0 is that from below


@dataclass(frozen=True)
class InverseGaussian(_Weight):
    """The Lévy law tilted by exp(-w c^2 / 2), natural weight = -c^2 / 2: mean 1/c, shape 1.

    The base measure is the Lévy law itself.
    """

    kind: ClassVar[str] = "inverse_gaussian"
    name: ClassVar[str] = "InverseGaussian"
    domains: ClassVar = (Domain("inverse_gaussian", above_zero, laws=("LevyWeight",)),)

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = -c."""
        return -jnp.sqrt(-2 * natural["weight"])

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """E w = 1 / c."""
        return {"weight": 1 / jnp.sqrt(-2 * natural["weight"])}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """The tilt is the inverse of the mean."""
        return {"weight": -0.5 / mean["weight"] ** 2}

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """The entropy relative to the Lévy law, -c / 2."""
        return -jnp.sqrt(-2 * natural["weight"]) / 2

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of the weight."""
        return {"z": self.marginals(natural)["z"].sample(key, shape)}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """The tilted Lévy law, its density relative to the Lévy law."""
        return {"z": weights.LevyWeight(jnp.sqrt(-2 * natural["weight"]))}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """A positive, finite tilt: without one the mean is infinite."""
        return (natural["weight"] < 0) & jnp.isfinite(natural["weight"])

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """Mean 1."""
        return self._full({"weight": -0.5})


@dataclass(frozen=True)
class Point(ExponentialFamily):
    """A number m that maximises natural x * m + natural x2 * m^2: no entropy, no spread.

    A(natural) is that maximum, convex as all log-normalisers are, and its gradient is (m, m^2).
    """

    kind: ClassVar[str] = "point"
    name: ClassVar[str] = "Point"
    domains: ClassVar = (Domain("point", laws=("Offset",)),)
    atoms: ClassVar = {("power", 1.0): "x", ("power", 2.0): "x2"}
    formula: ClassVar[str] = "{z}, {z}^2"
    statistic_names: ClassVar[tuple[str, ...]] = ("x", "x2")

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """One number each per element."""
        return {"x": self.batch_shape, "x2": self.batch_shape}

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """The number and its square."""
        return {"x": values["z"], "x2": values["z"] ** 2}

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = max_m (natural x * m + natural x2 * m^2)."""
        return -(natural["x"] ** 2) / (4 * natural["x2"])

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """The best number and its square."""
        return self.statistics({"z": -natural["x"] / (2 * natural["x2"])})

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """One of the parabolas whose top is at the number."""
        return {"x": mean["x"], "x2": jnp.full_like(mean["x"], -0.5)}

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """Zero."""
        return jnp.zeros_like(natural["x"])

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """The number itself, as often as is asked."""
        return {"z": jnp.broadcast_to(self.mean(natural)["x"], shape + self.batch_shape)}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """All mass at the number."""
        return {"z": dist.Delta(self.mean(natural)["x"])}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """A parabola with a top."""
        return (natural["x2"] < 0) & jnp.isfinite(natural["x"]) & jnp.isfinite(natural["x2"])

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """The number 0."""
        return self._full({"x": 0.0, "x2": -0.5})

"""Counts that fall off by one factor a step: the geometric family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from lowerbound.family.exponential import ExponentialFamily, Mean, Natural, Values
from lowerbound.family.factors.discrete import as_float
from lowerbound.joint.terms.domain import COUNT

__all__ = ["Geometric"]


@dataclass(frozen=True)
class Geometric(ExponentialFamily):
    """Counts x = 0, 1, ... with q(x) = (1 - r) r^x; natural count = log r, shape `batch_shape`.

    >>> Geometric(()).mean({"count": jnp.log(jnp.array(0.75))})["count"].round(6).item()
    3.0
    """

    kind: ClassVar[str] = "geometric"
    name: ClassVar[str] = "Geometric"
    domains: ClassVar = (COUNT,)
    atoms: ClassVar = {("power", 1.0): "count"}
    value: ClassVar[str] = "x"
    statistic_names: ClassVar[tuple[str, ...]] = ("count",)

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of the counts."""
        return {"count": self.batch_shape}

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """The counts themselves."""
        return {"count": as_float(values["x"])}

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = -log(1 - r)."""
        return -jnp.log(-jnp.expm1(natural["count"]))

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """R / (1 - r)."""
        return {"count": 1 / jnp.expm1(-natural["count"])}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """The log of mean / (1 + mean)."""
        return {"count": -jnp.log1p(1 / mean["count"])}

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of the counts: exponential times, rounded down."""
        rate = -natural["count"]
        times = jax.random.exponential(key, shape + self.batch_shape, rate.dtype) / rate
        return {"x": jnp.floor(times).astype(int)}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """Geometric(1 - r)."""
        return {"x": dist.GeometricProbs(-jnp.expm1(natural["count"]))}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """Ratio 0 < r < 1."""
        return (natural["count"] < 0) & jnp.isfinite(natural["count"])

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """Mean 1."""
        return self._full({"count": -0.6931471805599453})

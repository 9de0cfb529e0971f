"""The density of no site at all: what is left where all sites are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution

from lowerbound.family.variational import Parameters


@dataclass(frozen=True)
class Nothing:
    """The density of no site at all."""

    def sample(
        self, parameters: Parameters, key: Array, shape: tuple[int, ...] = ()
    ) -> dict[str, Array]:
        """No values."""
        return {}

    def log_prob(self, parameters: Parameters, values: Mapping[str, Array]) -> Array:
        """Of nothing, whatever the draw."""
        return jnp.zeros(())

    def moments(self, parameters: Parameters, site: str) -> tuple[Array, Array]:
        """There is no site to ask for."""
        raise KeyError(site)

    def marginal(self, parameters: Parameters, site: str) -> Distribution:
        """There is no site to ask for."""
        raise KeyError(site)

"""q(g) q(z): a Gaussian of some sites on the unconstrained space, exact factors of the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
from jax import Array
from numpyro.distributions import Distribution

from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.family.meanfield import MeanField
from lowerbound.family.variational import Parameters, Variational


@dataclass(frozen=True, eq=False)
class Product:
    """Two independent densities: `gaussian` of its sites, `exact` of the others.

    The parameters are those of both, under "gaussian" and "exact"; `sites` are in the order of the
    program.
    """

    most_together: ClassVar[int] = 96
    sites: tuple[str, ...]
    gaussian: UnconstrainedGaussian
    exact: MeanField

    def sample(
        self, parameters: Parameters, key: Array, shape: tuple[int, ...] = ()
    ) -> dict[str, Array]:
        """Independent draws of all sites, with leading axes `shape`; discrete ones as indices."""
        drawn = {
            **self.gaussian.sample(parameters["gaussian"], key, shape),
            **self.exact.sample(parameters["exact"], jax.random.fold_in(key, 1), shape),
        }
        return {name: drawn[name] for name in self.sites}

    def log_prob(self, parameters: Parameters, values: Mapping[str, Array]) -> Array:
        """Log q(g) + log q(z) of draws."""
        gaussian = self.gaussian.log_prob(parameters["gaussian"], values)
        return gaussian + self.exact.log_prob(parameters["exact"], values)

    def moments(self, parameters: Parameters, site: str) -> tuple[Array, Array]:
        """Mean and variance of one site under q, elementwise."""
        family, own = self._of(parameters, site)
        return family.moments(own, site)

    def marginal(self, parameters: Parameters, site: str) -> Distribution:
        """The marginal density of one site under q, as a NumPyro distribution."""
        family, own = self._of(parameters, site)
        return family.marginal(own, site)

    def without(
        self, parameters: Parameters, sites: Collection[str]
    ) -> tuple[Variational, Parameters] | None:
        """The density of the other sites, where all of those are among the exact factors."""
        found = self.exact.without(parameters["exact"], sites)
        if found is None or set(sites) & set(self.gaussian.coordinates.shapes):
            return None
        if not found[0].blocks:
            return self.gaussian, parameters["gaussian"]
        names = tuple(name for name in self.sites if name not in sites)
        own = {"gaussian": parameters["gaussian"], "exact": found[1]}
        return Product(names, self.gaussian, found[0]), own

    def _of(self, parameters: Parameters, site: str) -> tuple[Variational, Parameters]:
        if site in self.gaussian.coordinates.shapes:
            return self.gaussian, parameters["gaussian"]
        return self.exact, parameters["exact"]

"""q(z; lambda): a family of densities and the parameters of one of them, as a fit has it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from lowerbound.family.completed.completing import Completed
from lowerbound.family.family_records import family_record
from lowerbound.family.meanfield import MeanField
from lowerbound.family.variational import Parameters, Variational, drawn_together

FEW: Final = 100_000  # numbers of a site whose moments are kept


@dataclass(frozen=True, eq=False)
class Q:
    """A variational density of all sites together.

    values: those of each discrete site; a family knows their indices alone.
    """

    family: Variational
    parameters: Parameters
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    _known: dict[str, tuple[np.ndarray, np.ndarray]] = field(
        default_factory=dict, init=False, repr=False
    )

    def sample(
        self,
        draws: int,
        key: Array,
        sites: Sequence[str] | None = None,
        numbers: int | None = None,
    ) -> dict[str, Array]:
        """Independent draws of all sites, on their own scales, with a leading axis.

        Of `sites` alone where the others are independent of them or drawn given them. `numbers`
        are those of one draw: where they are few, the draws are the first of more.
        """
        family = self._of(sites)
        count = draws if numbers is None else drawn_together(family, draws, numbers)
        with jax.enable_x64(True):
            if isinstance(family, MeanField):
                drawn = family.sample(self.parameters, key, (count,), sites)
            else:
                drawn = family.sample(self.parameters, key, (count,))
            # By NumPy: JAX compiles a program for every shape, by `jnp.asarray` too.
            first = {name: np.asarray(array)[:draws] for name, array in drawn.items()}
            return {
                name: jax.device_put(self.values[name][own] if name in self.values else own)
                for name, own in first.items()
            }

    def drawn_with(self, sites: Sequence[str], every: Collection[str]) -> set[str]:
        """Which of all sites are drawn where some are wanted."""
        family = self._of(sites)
        if isinstance(family, MeanField):
            return {s for b in family.blocks if set(b.sites) & {*sites} for s in b.sites} & {*every}
        apart = self.family.elimination.names if isinstance(self.family, Completed) else ()
        return set(every) - (set() if family is self.family else set(apart))

    def _of(self, sites: Sequence[str] | None) -> Variational:
        if sites is not None and isinstance(self.family, Completed):
            return self.family.only(sites)
        return self.family

    def moments(self, site: str) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of one site, elementwise."""
        found = self._known.get(site) or self._moments(site)
        if found[0].size > FEW:
            return found
        mean, variance = self._known[site] = found
        return mean.copy(), variance.copy()

    def _moments(self, site: str) -> tuple[np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            if site not in self.values:
                mean, variance = self.family.moments(self.parameters, site)
                return np.asarray(mean), np.asarray(variance)
            values = self.values[site]
            probabilities = np.asarray(self.marginal(site).probs)
            mean = probabilities @ values
            return mean, np.maximum(probabilities @ values**2 - mean**2, 0.0)

    def marginal(self, site: str) -> Distribution:
        """The marginal density of one site; that of a discrete one is over its indices."""
        with jax.enable_x64(True):
            return self.family.marginal(self.parameters, site)

    def log_prob(self, values: Mapping[str, Any]) -> np.ndarray:
        """Log q(z) of draws: values of all sites as `sample` gives them, with a leading axis.

        Of real sites on their own scales, times the probability of discrete ones; of auxiliary
        weights relative to their base law. A value that a discrete site does not have is -inf.
        """
        with jax.enable_x64(True):
            indices, possible = {}, np.asarray(True)
            for name, value in values.items():
                own = self.values.get(name)
                if own is None:
                    indices[name] = jnp.asarray(value)
                    continue
                array = np.asarray(value)
                nearest = np.abs(array[..., None] - own).argmin(axis=-1)
                found = (own[nearest] == array).reshape(len(array), -1).all(axis=1)
                indices[name], possible = jnp.asarray(nearest), possible & found
            density = np.asarray(self.family.log_prob(self.parameters, indices))
            return np.where(possible, density, -np.inf)

    def record(self) -> dict[str, Any]:
        """The family and its parameters as plain records and arrays, for files."""
        held = self.parameters
        plain = [dict(one) for one in held] if isinstance(held, tuple) else held
        return {"family": family_record(self.family), "naturals": plain}

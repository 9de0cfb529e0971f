"""A Gaussian of all sites with a sparse precision: chains, trees, nested and crossed effects.

Nothing of it is dense: densities are sums over the entries of the precision, draws are solves with
its factor, and variances are those of the entries alone. It is computed on the host, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from lowerbound.family.host_seeds import words
from lowerbound.family.sparse.elimination import AnyFactor, Pattern
from lowerbound.family.sparse.mixing import Mixing, mixing_of
from lowerbound.rewrite.coordinates import Coordinates

Parameters = Mapping[str, Any]
PATTERN = ("rows", "columns", "groups")  # parameters that make the pattern of the precision
AT_ONCE = 2**22  # numbers of draws that are made together


@dataclass(frozen=True, eq=False)
class SparseGaussian:
    """The density N(loc, P^-1) of sites that are real, in the order of their coordinates.

    Parameters: "loc" (d,), "variance" (d,), "precision" (nnz,), the entries of P at "rows" and
    "columns" of its lower triangle, and "groups" (d,), the site of each number. Where P is that of
    other numbers u, with z = M u but for a constant, "mixing" (1, nnz) has the entries of M at
    "mixing_rows" and "mixing_columns".
    """

    coordinates: Coordinates
    prepared: dict[object, Any] = field(default_factory=dict, repr=False)

    def sample(
        self, parameters: Parameters, key: Array, shape: tuple[int, ...] = ()
    ) -> dict[str, Array]:
        """Independent draws of all sites, with leading axes `shape`."""
        held, rng = self._held(parameters), np.random.default_rng(words(key))
        vectors = held.draws(math.prod(shape), rng)
        with jax.enable_x64(True):
            return {
                name: jnp.asarray(vectors[:, self.coordinates.part(name)].reshape(shape + own))
                for name, own in self.coordinates.shapes.items()
            }

    def log_prob(self, parameters: Parameters, values: Mapping[str, Array]) -> Array:
        """Log q(z) of draws."""
        held = self._held(parameters)
        arrays = [np.asarray(values[name]) for name in self.coordinates.shapes]
        vectors = np.concatenate([one.reshape(len(one), -1) for one in arrays], axis=1)
        with jax.enable_x64(True):
            return jnp.asarray(held.log_density(vectors))

    def moments(self, parameters: Parameters, site: str) -> tuple[Array, Array]:
        """Mean and variance of one site, elementwise."""
        own, shape = self.coordinates.part(site), self.coordinates.shapes[site]
        with jax.enable_x64(True):
            mean, variance = (
                jnp.asarray(np.asarray(parameters[name])[own].reshape(shape))
                for name in ("loc", "variance")
            )
        return mean, variance

    def marginal(self, parameters: Parameters, site: str) -> Distribution:
        """The marginal law of each number of a site."""
        mean, variance = self.moments(parameters, site)
        with jax.enable_x64(True):
            return dist.Normal(mean, jnp.sqrt(variance))

    def _held(self, parameters: Parameters) -> _Held:
        """The parameters made ready, kept for the next call."""
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(parameters)):
            raise TypeError("a density with a sparse precision is computed on the host, not traced")
        known = self.prepared.get("held")
        if known is None or known.parameters is not parameters:
            known = _Held(parameters, self.prepared.get("pattern"))
            self.prepared["held"] = known
        ready: _Held = known
        return ready


@dataclass(frozen=True, eq=False)
class _Held:
    """Parameters, and the factor of their precision once it is asked for."""

    parameters: Parameters
    known_pattern: Pattern | None

    @cached_property
    def factor(self) -> AnyFactor:
        """The factor of the precision."""
        rows, columns, groups = (np.asarray(self.parameters[name]) for name in PATTERN)
        pattern = self.known_pattern or Pattern.of(rows, columns, len(groups), groups)
        found = pattern.factor(np.asarray(self.parameters["precision"]))
        assert found is not None, "a stored precision is not positive definite"
        return found

    @cached_property
    def mixing(self) -> Mixing | None:
        """M, where there is one."""
        if "mixing" not in self.parameters:
            return None
        values = np.asarray(self.parameters["mixing"])[0]
        return mixing_of(self.parameters, values, len(np.asarray(self.parameters["loc"])))

    def draws(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Rows of draws of all numbers."""
        loc = np.asarray(self.parameters["loc"])
        most = max(1, AT_ONCE // max(1, len(loc)))
        found = np.empty((count, len(loc)))
        for start in range(0, count, most):
            own = found[start : start + most]
            coloured = self.factor.coloured(rng.standard_normal((len(loc), len(own))))
            own[:] = loc + (coloured if self.mixing is None else self.mixing.mixed(coloured)).T
        return found

    def log_density(self, vectors: np.ndarray) -> np.ndarray:
        """Log q of rows."""
        rows, columns = (np.asarray(self.parameters[name]) for name in PATTERN[:2])
        entries = np.where(rows == columns, 1.0, 2.0) * np.asarray(self.parameters["precision"])
        away = vectors - np.asarray(self.parameters["loc"])
        log_det = self.factor.log_det
        if self.mixing is not None:
            away, log_det = self.mixing.unmixed(away), log_det - 2.0 * self.mixing.log_det
        squares = np.array([entries @ (one[rows] * one[columns]) for one in away])
        constant = log_det - vectors.shape[1] * math.log(2.0 * math.pi)
        return np.asarray(0.5 * (constant - squares))

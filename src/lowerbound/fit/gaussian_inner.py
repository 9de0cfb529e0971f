"""The Gaussian q(z | theta) of what is left when a few scalars are given, for a grid over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.bound.draws import normal_draws
from lowerbound.family.unconstrained import UnconstrainedGaussian
from lowerbound.family.variational import Parameters
from lowerbound.fit.blackbox_start import WIDTH
from lowerbound.fit.blackbox_target import Target, value_and_gradient
from lowerbound.update.gaussian import ascend

TOLERANCE, LIMIT = 1e-4, 100


@dataclass(frozen=True, eq=False)
class GaussianInner:
    """The KL-optimal Gaussian at any theta, over the same draws: its ELBO is smooth in theta.

    `target` is that of the program with theta as data; `name_of(theta)` gives these data by the
    names of the program's arguments. `data` may be tracers.
    """

    target: Target
    name_of: Callable[[Mapping[str, Array]], dict[str, Array]]
    data: Mapping[str, Any]
    draws: np.ndarray
    start: np.ndarray

    @classmethod
    def of(
        cls,
        target: Target,
        name_of: Callable[[Mapping[str, Array]], dict[str, Array]],
        data: Mapping[str, Any],
        count: int | None = None,
        start: np.ndarray | None = None,
    ) -> GaussianInner:
        """With `count` draws (by default 128, or four times the dimension), from u = `start`."""
        size = max(128, 4 * target.size) if count is None else max(count, 2 * target.size + 2)
        draws = normal_draws(size + size % 2, target.size, 0)
        where = np.zeros(target.size) if start is None else start
        return cls(target, name_of, data, draws, where)

    @property
    def family(self) -> UnconstrainedGaussian:
        """The Gaussian of the sites that are left."""
        return UnconstrainedGaussian(self.target.coordinates, self.data, self.target.compiled)

    def first(self, theta: Mapping[str, Array]) -> Parameters:
        """A narrow Gaussian at the starting point."""
        size = self.target.size
        root = jnp.eye(size) * WIDTH / np.sqrt(size)
        return {
            "loc": jnp.asarray(self.start, float),
            "scale_tril": root,
            "given": self.name_of(theta),
        }

    def solve(self, theta: Mapping[str, Array], parameters: Parameters) -> tuple[Parameters, Array]:
        """The optimum at theta and its ELBO, -inf where log p is finite nowhere near the start."""
        given = self.name_of(theta)
        function = value_and_gradient(self.target.closed, {**self.data, **given})
        draws = jnp.asarray(self.draws)
        final = ascend(
            function, draws, parameters["loc"], parameters["scale_tril"], TOLERANCE, LIMIT
        )
        found = {"loc": final.loc, "scale_tril": final.root, "given": given}
        return found, jax.lax.stop_gradient(final.found.elbo)

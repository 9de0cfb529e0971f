"""The Gaussian q(z | theta) of what is left when a few scalars are given, for a grid over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from lowerbound.fit.blackbox_target import Target, target_for, value_and_gradient
from lowerbound.fit.conditional import Solver, given_inputs, given_name
from lowerbound.model import Model
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


def gaussian_solver(
    model: Model, sites: Sequence[str], count: int | None = None, start: np.ndarray | None = None
) -> Solver:
    """The Gaussian of what is left in a program conditioned on some sites, for a grid over them.

    `count` draws; `start` is the vector u from which the ascent begins, by default 0.
    """
    target = target_for(model)
    names = {given_name(site) for site in sites}
    data = {name: array for name, array in target.data.items() if name not in names}

    def inner(inputs: Mapping[str, Any]) -> GaussianInner:
        return GaussianInner.of(target, given_inputs, inputs, count, start)

    family = UnconstrainedGaussian(target.coordinates, data, target.compiled)
    size = sum(np.size(array) for array in data.values()) + target.size**2
    return Solver(inner, family, data, target.compiled, size)

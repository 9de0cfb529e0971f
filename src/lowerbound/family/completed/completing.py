"""A density of some sites, and the others exactly, given these: q(theta) p(z | x, theta)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from numpyro.distributions import Distribution

from lowerbound.compiled import Kept, jit, quickly, traced
from lowerbound.cost import mapped, numbers_computed
from lowerbound.family.variational import Parameters, Variational
from lowerbound.model.dependence import digest
from lowerbound.rewrite.hidden_sites import Elimination

DEAR = 3_000_000_000  # numbers computed for all draws, from which an optimised program pays
BATCH = 64  # draws that are worked on together

Values = dict[str, Array]
Conditionals = Callable[[Values, Values], Any]


class Completed(ABC):
    """A density q(theta) of some sites, and p(z | x, theta) of the others.

    The parameters are those of `inner`, which is q(theta). The ELBO of the pair is that of q(theta)
    in the program with z integrated out. Subclasses are frozen dataclasses.
    """

    inner: Variational
    elimination: Elimination  # the program and its sites z

    @abstractmethod
    def own_moments(self, parameters: Parameters, site: str) -> tuple[Array, Array]:
        """Mean and variance of a site of z."""

    @abstractmethod
    def own_marginal(self, parameters: Parameters, site: str) -> Distribution:
        """The marginal density of a site of z."""

    def moments(self, parameters: Parameters, site: str) -> tuple[Array, Array]:
        """Mean and variance of one site under q, elementwise."""
        own = site in self.elimination.names
        return (self.own_moments if own else self.inner.moments)(parameters, site)

    def marginal(self, parameters: Parameters, site: str) -> Distribution:
        """The marginal density of one site under q, as a NumPyro distribution."""
        own = site in self.elimination.names
        return (self.own_marginal if own else self.inner.marginal)(parameters, site)

    def only(self, sites: Sequence[str]) -> Variational:
        """The density that has all of these sites, and as little more as there is."""
        return self if set(sites) & set(self.elimination.names) else self.inner

    def sample(
        self, parameters: Parameters, key: Array, shape: tuple[int, ...] = ()
    ) -> dict[str, Array]:
        """Joint draws of all sites, with leading axes `shape`; discrete ones as indices."""
        count = math.prod(shape)
        theta = self.inner.sample(parameters, key, (count,))
        drawn = self.completed(theta, jax.random.fold_in(key, 1), count)
        return {name: array.reshape(shape + array.shape[1:]) for name, array in drawn.items()}

    def completed(self, theta: Values, key: Array, count: int) -> dict[str, Array]:
        """So many draws of all sites, given those of theta, which may be nothing."""
        keys = jax.random.split(key, count)

        def draws(conditionals: Conditionals, theta: Values, keys: Array, data: Values) -> Values:
            def one(theta: Values, key: Array) -> Values:
                return self.elimination.draw(conditionals(theta, data), key)

            found: Values = mapped(one, theta, keys, most=BATCH, what="one draw")
            return found

        drawn = {**theta, **self.run("draws", draws, theta, keys)}
        return {name: drawn[name] for name in self.elimination.model.latent}

    def log_prob(self, parameters: Parameters, values: Mapping[str, Array]) -> Array:
        """Log q(theta) + log p(z | x, theta) of draws; discrete sites are indices."""
        names, latent = self.elimination.names, self.elimination.model.latent
        own = {name: jnp.asarray(values[name]) for name in names}
        theta = {n: jnp.asarray(values[n]) for n in latent if n not in names}

        def density(conditionals: Conditionals, theta: Values, own: Values, data: Values) -> Values:
            def one(theta: Values, own: Values) -> Array:
                return self.elimination.log_prob(conditionals(theta, data), theta, own, data)

            return {"z": mapped(one, theta, own, most=BATCH, what="one draw")}

        given: Array = self.run("log_prob", density, theta, own)["z"]
        return self.inner.log_prob(parameters, theta) + given

    def without(
        self, parameters: Parameters, sites: Collection[str]
    ) -> tuple[Variational, Parameters] | None:
        """q(theta), where the sites are those that are integrated out."""
        return (self.inner, parameters) if set(sites) == set(self.elimination.names) else None

    def traced(self, theta: Values) -> ClosedJaxpr:
        """The conditional density of z as a program of one theta and the data."""
        return self._traced(theta)[0]

    def _traced(self, theta: Values) -> tuple[ClosedJaxpr, Any]:
        first = {n: a[0] for n, a in theta.items()}
        program = traced(self.elimination.conditional, return_shape=True)
        closed, shapes = program(first, self.elimination.model.arguments.data)
        return closed, jax.tree.structure(shapes)

    def run(self, what: str, function: Callable[..., Any], theta: Values, *more: Any) -> Any:
        """The function of conditional densities, theta, more and the data, jitted once.

        `conditionals(theta, data)` is that of one theta.
        """
        data = self.elimination.model.arguments.data
        with jax.enable_x64(True):
            return self._compiled(what, function, theta, more, data)

    def _compiled(
        self,
        what: str,
        function: Callable[..., Any],
        theta: Values,
        more: tuple[Any, ...],
        data: dict[str, Any],
    ) -> Any:
        closed, tree = self._traced(theta)
        inputs = theta, *more, data
        leaves, structure = jax.tree.flatten(inputs)
        shapes = [(leaf.shape, leaf.dtype) for leaf in map(_array, leaves)]
        outline = f"{self.elimination.outline}{structure}{shapes}"
        key = type(self).__name__, what, digest(closed, *theta, *data), outline

        def conditionals(theta: Values, data: Values) -> Any:
            found = jaxpr_as_fun(closed)(*jax.tree.leaves((dict(theta), dict(data))))
            return jax.tree.unflatten(tree, found)

        def program() -> _Program:
            # As a program by itself, which does not hold the data of the model that it was made of.
            of_all, found = traced(partial(function, conditionals), return_shape=True)(*inputs)
            count = max((len(array) for array in theta.values()), default=1)
            dear = count * numbers_computed(closed.jaxpr) > DEAR
            run = (jit if dear else quickly)(jaxpr_as_fun(of_all))
            return _Program(run, jax.tree.structure(found))

        known = _programs.of(key, program)
        return jax.tree.unflatten(known.structure, known.run(*leaves))


class _Program(NamedTuple):
    """A compiled function of leaves, and the structure of what it returns."""

    run: Callable[..., Sequence[Any]]
    structure: Any


_programs: Kept[_Program] = Kept(64)  # of equal programs, with whatever data


def _array(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "dtype") else np.asarray(leaf)

"""q(theta) p(z | x, theta): discrete sites given the continuous ones exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from numpyro.distributions import CategoricalProbs, Distribution

from lowerbound.compiled import Kept, jit, quickly, traced
from lowerbound.cost import mapped, numbers_computed
from lowerbound.family.variational import Parameters, Variational
from lowerbound.model.dependence import digest
from lowerbound.rewrite.summing.summation import Summation

DRAWS, FEWEST = 4096, 256  # of theta, over which probabilities of z are averaged
MOST_NUMBERS = 200_000_000  # that such an average is computed from, where there are many rows
MOST_COMPUTED = 10_000_000_000  # on the way there: a density may be a large sum of its own
DEAR = 3_000_000_000  # numbers computed for all draws, from which an optimised program pays
BATCH = 64  # draws that are worked on together

Values = dict[str, Array]
Weights = Callable[[Values, Values], tuple[Array, ...]]


@dataclass(frozen=True, eq=False)
class Summed:
    """A density q(theta) of the continuous sites, and p(z | x, theta) of the discrete ones.

    The parameters are those of `inner`, which is q(theta). The ELBO of the pair is that of q(theta)
    in the program with z summed out.
    """

    inner: Variational
    summation: Summation

    def only(self, sites: Sequence[str]) -> Variational:
        """The density that has all of these sites, and as little more as there is."""
        return self if set(sites) & set(self.summation.names) else self.inner

    def sample(
        self, parameters: Parameters, key: Array, shape: tuple[int, ...] = ()
    ) -> dict[str, Array]:
        """Joint draws of all sites, with leading axes `shape`; discrete ones as indices."""
        count = math.prod(shape)
        theta = self.inner.sample(parameters, key, (count,))
        keys = jax.random.split(jax.random.fold_in(key, 1), count)

        def draws(weights: Weights, theta: Values, keys: Array, data: Values) -> Values:
            def one(theta: Values, key: Array) -> Values:
                return self.summation.draw(weights(theta, data), key)

            found: Values = mapped(one, theta, keys, most=BATCH, what="one draw")
            return found

        drawn = {**theta, **self._run("draws", draws, theta, keys)}
        names = self.summation.model.latent
        return {name: drawn[name].reshape(shape + drawn[name].shape[1:]) for name in names}

    def log_prob(self, parameters: Parameters, values: Mapping[str, Array]) -> Array:
        """Log q(theta) + log p(z | x, theta) of draws; discrete sites are indices."""
        discrete = self.summation.names
        indices = {name: jnp.asarray(values[name]) for name in discrete}
        model = self.summation.model
        theta = {n: jnp.asarray(values[n]) for n in model.latent if n not in discrete}

        def density(weights: Weights, theta: Values, indices: Values, data: Values) -> Values:
            def one(theta: Values, indices: Values) -> Array:
                return self.summation.log_prob(weights(theta, data), theta, indices, data)

            return {"z": mapped(one, theta, indices, most=BATCH, what="one draw")}

        given = self._run("log_prob", density, theta, indices)["z"]
        return self.inner.log_prob(parameters, values) + given

    def moments(self, parameters: Parameters, site: str) -> tuple[Array, Array]:
        """Mean and variance of one site under q, elementwise."""
        if site not in self.summation.names:
            return self.inner.moments(parameters, site)
        values = jnp.asarray(self.summation.model.latent[site].support_values)
        probabilities = self._probabilities(parameters)[site]
        mean = probabilities @ values
        return mean, probabilities @ values**2 - mean**2

    def marginal(self, parameters: Parameters, site: str) -> Distribution:
        """The marginal density of one site under q, as a NumPyro distribution.

        That of a discrete site is over the indices of its values.
        """
        if site not in self.summation.names:
            return self.inner.marginal(parameters, site)
        return CategoricalProbs(self._probabilities(parameters)[site])

    def without(
        self, parameters: Parameters, sites: Collection[str]
    ) -> tuple[Variational, Parameters] | None:
        """q(theta), where the sites are those that are summed out."""
        return (self.inner, parameters) if set(sites) == set(self.summation.names) else None

    def _probabilities(self, parameters: Parameters) -> dict[str, Array]:
        """E_q[p(z = k | x, theta)] of every entry of the discrete sites."""
        if len(self.summation.names) == len(self.summation.model.latent):  # nothing else is latent

            def exactly(weights: Weights, theta: Values, data: Values) -> Values:
                return self.summation.probabilities(weights(theta, data))

            return self._run("probabilities", exactly, {})
        numbers = sum(math.prod(g.table) for g in self.summation.groups)
        draws = int(max(FEWEST, min(DRAWS, MOST_NUMBERS // numbers)))
        theta = self.inner.sample(parameters, jax.random.key(0), (draws // BATCH * BATCH,))
        with jax.enable_x64(True):
            computed = numbers_computed(self._traced(theta).jaxpr)
        batches = int(max(FEWEST, min(draws, MOST_COMPUTED // computed))) // BATCH
        theta = {name: array[: batches * BATCH] for name, array in theta.items()}

        def average(weights: Weights, theta: Values, data: Values) -> Values:
            def one(theta: Values) -> Values:
                return self.summation.probabilities(weights(theta, data))

            def add(total: Values, theta: Values) -> tuple[Values, None]:
                found = mapped(one, theta, what="one draw")
                return jax.tree.map(lambda t, a: t + a.mean(axis=0), total, found), None

            parts = jax.tree.map(lambda a: a.reshape((batches, BATCH, *a.shape[1:])), theta)
            shapes = jax.eval_shape(one, jax.tree.map(lambda a: a[0], theta))
            zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
            total, _ = jax.lax.scan(add, zeros, parts)
            return {name: array / batches for name, array in total.items()}

        return self._run("probabilities", average, theta)

    def _traced(self, theta: Values) -> ClosedJaxpr:
        """The log weights of states as a program of one theta and the data."""
        first = {n: a[0] for n, a in theta.items()}
        found: ClosedJaxpr = traced(self.summation.log_weights)(
            first, self.summation.model.arguments.data
        )
        return found

    def _run(self, what: str, function: Callable[..., Values], theta: Values, *more: Any) -> Values:
        """The function of the log weights of states, theta, more and the data, jitted once.

        `weights(theta, data)` are those of one theta.
        """
        data = self.summation.model.arguments.data
        with jax.enable_x64(True):
            return self._compiled(what, function, theta, more, data)

    def _compiled(
        self,
        what: str,
        function: Callable[..., Values],
        theta: Values,
        more: tuple[Any, ...],
        data: dict[str, Any],
    ) -> Values:
        closed = self._traced(theta)
        inputs = theta, *more, data
        leaves, structure = jax.tree.flatten(inputs)
        groups = [(s.name, s.shape, s.rows) for g in self.summation.groups for s in g.sites]
        kinds = [group.text for group in self.summation.groups]
        shapes = [(leaf.shape, leaf.dtype) for leaf in map(_array, leaves)]
        key = what, digest(closed, *theta, *data), f"{groups}{kinds}{structure}{shapes}"

        def weights(theta: Values, data: Values) -> tuple[Array, ...]:
            return tuple(jaxpr_as_fun(closed)(*jax.tree.leaves((dict(theta), dict(data)))))

        def program() -> _Program:
            # As a program by itself, which does not hold the data of the model that it was made of.
            of_all, found = traced(partial(function, weights), return_shape=True)(*inputs)
            count = max((len(array) for array in theta.values()), default=1)
            dear = count * numbers_computed(closed.jaxpr) > DEAR
            run = (jit if dear else quickly)(jaxpr_as_fun(of_all))
            return _Program(run, jax.tree.structure(found))

        known = _programs.of(key, program)
        found: Values = jax.tree.unflatten(known.structure, known.run(*leaves))
        return found


class _Program(NamedTuple):
    """A compiled function of leaves, and the structure of what it returns."""

    run: Callable[..., Sequence[Any]]
    structure: Any


_programs: Kept[_Program] = Kept(64)  # of equal programs, with whatever data


def _array(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "dtype") else np.asarray(leaf)

"""q(theta) p(z | x, theta): sites with exact factors given the others, integrated out of log p.

log p(x, z, theta) = log h(z) + <eta(theta), t(z)> + c(theta), where eta is the gradient of the
energy of the program given theta, and c the energy at t(z) = 0. So log p(x, theta) =
A(eta(theta)) + c(theta), and z given theta is the member eta(theta) of its family: the complete
conditional (eq:ef-conditional).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from numpyro.distributions import Distribution, biject_to

from lowerbound.compiled import traced
from lowerbound.cost import mapped
from lowerbound.family.completed.completing import BATCH, Completed, Conditionals, Values
from lowerbound.family.densities.averaged import Averaged
from lowerbound.family.exponential import Natural
from lowerbound.family.host_draws import all_drawn
from lowerbound.family.host_seeds import words
from lowerbound.family.meanfield import MeanField
from lowerbound.family.variational import Parameters, Variational
from lowerbound.joint import Joint, energy, gradient
from lowerbound.joint.traced_program import abstract, mask_name
from lowerbound.model import Model
from lowerbound.rewrite.given_values import given_name
from lowerbound.rewrite.hidden_sites import Elimination, Named

DRAWS, FEWEST = 8192, 256  # of theta, over which moments of z given theta are averaged
MOST_NUMBERS, MOST_MIXED = 10_000_000, 1_000_000  # in the factors at these; in those of a mixture

Naturals = tuple[Natural, ...]


@dataclass(frozen=True, eq=False)
class Collapse(Elimination):
    """A program of which some sites are integrated out: each has an exact factor given the rest.

    `joint` is that of the program with the rest as data.
    """

    model: Model
    joint: Joint
    hidden: tuple[str, ...]
    moved: tuple[str, ...]
    _traced: dict[str, tuple[ClosedJaxpr, Any]] = field(default_factory=dict, init=False)

    @functools.cached_property
    def family(self) -> MeanField:
        """The factors of the sites that are integrated out."""
        return MeanField.of(self.joint.blocks)

    @property
    def outline(self) -> str:
        """The factors, in words."""
        return repr([(b.kind, b.layouts, b.batch_shape, b.static) for b in self.joint.blocks])

    @property
    def call(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the program: missing entries are filled, and masked inside."""
        return self.model.arguments.call(self.model._inputs(self.model.arguments.data))

    def inside(self) -> dict[str, Array]:
        """Any values of z that are in its support."""
        found = {}
        for name in self.names:
            site = self.model.latent[name]
            transform: Any = biject_to(site.support)
            found[name] = transform(jnp.zeros(transform.inverse_shape(site.shape)))
        return found

    def factors(self, theta: Named, args: tuple[Any, ...], kwargs: Named) -> dict[str, Array]:
        """Log p(x, theta) of the densities that z is in."""
        given = self.model.arguments.within(args, kwargs)
        # What the program looks at is what it was derived for, a column of a table or not.
        seen = {name: self.model.arguments.data[name] for name in self.model.concrete}
        total = self.log_marginal(theta, {**given, **seen})
        return {f"{', '.join(self.names)} integrated out": total}

    # -- given the rest ----------------------------------------------------------------------------

    def conditional(self, latents: Named, data: Named) -> Naturals:
        """eta(theta): the natural parameters of every factor."""
        return self._given(latents, data)[0]

    def log_marginal(self, latents: Named, data: Named) -> Array:
        """A(eta(theta)) + c(theta) of the densities that z is in."""
        naturals, rest = self._given(latents, data)
        pairs = zip(self.family.families, naturals, strict=True)
        return sum((jnp.sum(family.log_normalizer(own)) for family, own in pairs), start=rest)

    def draw(self, conditional: Naturals, key: Array) -> dict[str, Array]:
        """A draw of z given theta."""
        return self.family.sample(conditional, key)

    def log_prob(self, conditional: Naturals, latents: Named, values: Named, data: Named) -> Array:
        """Log p(z | x, theta)."""
        one = {name: jnp.asarray(values[name])[None] for name in self.names}
        return self.family.log_prob(conditional, one)[0]

    def _given(self, latents: Named, data: Named) -> tuple[Naturals, Array]:
        """eta(theta), and c(theta)."""
        theta = {name: jnp.asarray(latents[name], float) for name in self.rest}
        own = {name: jnp.asarray(data[name]) for name in self.model.arguments.data}
        leaves = jax.tree.leaves((theta, own))
        kinds = str([leaf.dtype for leaf in leaves])
        if kinds not in self._traced:  # derived once, in double or in single precision
            shapes = jax.tree.map(lambda a: abstract(a.shape, a.dtype), (theta, own))
            closed, found = traced(self._derived, return_shape=True)(*shapes)
            self._traced[kinds] = closed, jax.tree.structure(found)
        closed, structure = self._traced[kinds]
        given: tuple[Naturals, Array] = jax.tree.unflatten(structure, jaxpr_as_fun(closed)(*leaves))
        return given

    def _derived(self, latents: Named, data: Named) -> tuple[Naturals, Array]:
        given = {given_name(name): latents[name][None] for name in self.rest}
        named = [n for n in self.joint.model.arguments.names if n is not None]
        own = [name for name in named if name not in given]
        names = [name for name in self.model.arguments.names if name is not None]
        inputs = {new: data[old] for new, old in zip(own, names, strict=True)}
        inputs |= {mask_name(site): mask for site, mask in self.joint.model.missing.items()}
        arrays = self.joint.compress({**inputs, **given})
        summands = [s for s in self.joint.summands if s.site in {*self.hidden, *self.moved}]
        shapes = [family.statistic_shapes() for family in self.family.families]
        zero = tuple({n: jnp.zeros(s) for n, s in each.items()} for each in shapes)
        naturals = tuple(
            {
                **gradient(summands, arrays, zero, block.number),
                **{name: arrays[slot] for name, slot in block.extras.items()},
            }
            for block in self.joint.blocks
        )
        return naturals, energy([s for s in summands if not s.reads], arrays, zero)


@dataclass(frozen=True, eq=False)
class Collapsed(Completed):
    """A density q(theta) of some sites, and exact factors of the others given these."""

    inner: Variational
    elimination: Collapse

    def own_moments(self, parameters: Parameters, site: str) -> tuple[Array, Array]:
        """Mean and variance of a site of z: those given theta, averaged over theta."""
        naturals = self._naturals(parameters, MOST_NUMBERS)
        return Averaged(self.elimination.family).moments(naturals, site)

    def own_marginal(self, parameters: Parameters, site: str) -> Distribution:
        """The marginal density of a site of z: a mixture over draws of theta."""
        naturals = self._naturals(parameters, MOST_MIXED)
        return Averaged(self.elimination.family).marginal(naturals, site)

    def completed(self, theta: Values, key: Array, count: int) -> dict[str, Array]:
        """So many draws of all sites, given those of theta: by NumPy, where it has such laws."""
        naturals, family = self._given(theta), self.elimination.family
        wide = [replace(one, batch_shape=(count, *one.batch_shape)) for one in family.families]
        packed = all_drawn(wide, naturals, 1, words(key))
        if packed is None:
            return super().completed(theta, key, count)
        drawn = dict(theta)
        for block, values in zip(family.blocks, packed, strict=True):
            drawn |= block.unpack({name: array[0] for name, array in values.items()})
        return {name: drawn[name] for name in self.elimination.model.latent}

    def _naturals(self, parameters: Parameters, most: int) -> Naturals:
        """The natural parameters of z at draws of theta, stacked in front: about `most` numbers."""
        latent = self.elimination.model.latent
        numbers = sum(2 * math.prod(latent[name].shape) for name in self.elimination.names)
        count = int(np.clip(most // numbers, FEWEST, DRAWS)) // BATCH * BATCH
        return self._given(self.inner.sample(parameters, jax.random.key(0), (count,)))

    def _given(self, theta: Values) -> Naturals:
        """The natural parameters of z at every draw of theta."""

        def every(conditionals: Conditionals, theta: Values, data: Values) -> Any:
            return mapped(lambda one: conditionals(one, data), theta, most=BATCH, what="one draw")

        found: Naturals = self.run("naturals", every, theta)
        return found

"""The program on an unconstrained space: all latent sites in one real vector u."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import IdentityTransform, Transform
from numpyro.infer.util import potential_energy

from lowerbound.compiled import traced
from lowerbound.errors import DiscreteSiteError
from lowerbound.model.density import strip
from lowerbound.model.dependence import dependence
from lowerbound.model.prior_points import AtQuantile
from lowerbound.model.program import (
    Inspector,
    Message,
    execute,
)
from lowerbound.model.sites import Model
from lowerbound.rewrite.noncentred import (
    Affine,
    Decentred,
    affine,
    centring,
    is_positive,
)
from lowerbound.rewrite.warped import warp_of, warping

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The bijections from u in R^d to the latent sites, each site a run of entries of u.

    `shapes` are the unconstrained shapes of the sites, in the order of the program; `supports`
    holds those that do not depend on other latent sites. Sites z of location and scale that are
    `noncentred` have the coordinates u = (z - loc) / scale, or those of log z. Sites that are
    `straight` are their own coordinates, whatever their bounds: for laws that hardly reach these.
    Sites that are `warped` have u with x = T(u) for unconstrained numbers x, by the tables T among
    the data. Without a model (that of a file), only values can be told, and only where every
    support is fixed.
    """

    model: Model | None
    shapes: dict[str, tuple[int, ...]]
    supports: dict[str, Constraint]
    noncentred: frozenset[str] = field(default=frozenset())
    straight: frozenset[str] = field(default=frozenset())
    warped: frozenset[str] = field(default=frozenset())

    @classmethod
    def of(
        cls,
        model: Model,
        noncentred: Collection[str] = (),
        straight: Collection[str] = (),
        warped: Collection[str] = (),
    ) -> Coordinates:
        """Read the supports of the latent sites; each must be a continuous one."""
        for site in model.latent.values():
            if site.support is not None and site.support.is_discrete:
                raise DiscreteSiteError(
                    site.name,
                    site.distribution,
                    site.where,
                    "continuous latent sites for a Gaussian on the unconstrained space. Sum the "
                    "site out of the model, or fit it by lb.CAVI().",
                )
        shapes = _unconstrained_shapes(model)
        shapes |= {name: tuple(model.latent[name].shape) for name in straight}
        fixed = {
            name: site.support
            for name, site in model.latent.items()
            if site.support is not None and name not in noncentred
        }
        return cls(
            model, shapes, fixed, frozenset(noncentred), frozenset(straight), frozenset(warped)
        )

    @property
    def size(self) -> int:
        """The dimension d."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def part(self, site: str) -> slice:
        """The entries of u that belong to a site."""
        return self._parts[site]

    @cached_property
    def _parts(self) -> dict[str, slice]:
        found: dict[str, slice] = {}
        start = 0
        for name, shape in self.shapes.items():
            found[name] = slice(start, start + math.prod(shape))
            start = found[name].stop
        return found

    def owner(self, entry: int) -> str:
        """The name of one entry of u: its site, with the index where it has several entries."""
        for name, shape in self.shapes.items():
            own = self.part(name)
            if own.start <= entry < own.stop:
                return name if not shape else f"{name}[{entry - own.start}]"
        raise IndexError(entry)

    def is_real(self, entry: int) -> bool:
        """Whether an entry of u is itself an entry of its site, or affine in it: unbounded."""
        name = next(n for n in self.shapes if self.part(n).start <= entry < self.part(n).stop)
        if name in self.straight:
            return True
        if name in self.noncentred:
            return not is_positive(self.program().latent[name].distribution)
        support: Any = self.supports.get(name)
        while hasattr(support, "base_constraint"):
            support = support.base_constraint
        return support is constraints.real

    def split(self, vector: Array) -> dict[str, Array]:
        """The unconstrained values of the sites."""
        return {n: vector[self.part(n)].reshape(shape) for n, shape in self.shapes.items()}

    def log_density(self, vector: Array, data: Mapping[str, Any]) -> Array:
        """Log p(x, z(u)) + log |dz/du|: the density of u."""
        return jnp.asarray(self.log_density_at(self.split(vector), data), vector.dtype)

    def log_density_at(self, parts: Mapping[str, Array], data: Mapping[str, Any]) -> Array:
        """The same, of the unconstrained values of the sites."""
        model = self.program()
        args, kwargs = model.arguments.call(model._inputs(data))
        config = {n: Decentred(parts[n], centring(n, data)) for n in self.noncentred}
        program = handlers.reparam(model.plain(), config=config) if config else model.plain()
        maps = {name: self._fixed(name, data) for name in (*self.straight, *self.warped)}
        if maps:
            plain = {name: fixed(parts[name]) for name, fixed in maps.items()}
            program = handlers.substitute(program, data=plain)
        volumes = [
            jnp.sum(maps[name].log_abs_det_jacobian(parts[name], plain[name]))
            for name in self.warped
        ]
        rest = {name: part for name, part in parts.items() if name not in {*maps, *config}}
        with numpyro.validation_enabled(False), model._mode():
            energy = potential_energy(program, args, kwargs, rest)
        return sum(volumes, start=-jnp.asarray(energy))

    def constrain(self, vector: Array, data: Mapping[str, Any]) -> dict[str, Array]:
        """The values of the latent sites at u."""
        if len(self.supports) == len(self.shapes):
            parts = self.split(vector)
            return {n: jnp.asarray(self._fixed(n, data)(part)) for n, part in parts.items()}
        messages = self._at(self.split(vector), data)
        return {name: jnp.asarray(messages[name]["value"]) for name in self.shapes}

    def _at(self, parts: Mapping[str, Array], data: Mapping[str, Any]) -> dict[str, Message]:
        """The messages of the program at u, site by site."""

        def value(message: Message) -> Any:
            if message["type"] != "sample" or message["name"] not in parts:
                return None
            return self._bijection(message, data)(parts[message["name"]])

        return self._run(data, handlers.substitute(substitute_fn=value))

    def unconstrain(self, values: Mapping[str, Array], data: Mapping[str, Any]) -> Array:
        """The vector u of given values of all latent sites."""
        return self._inverse(self._run(data, handlers.substitute(data=dict(values))), data)

    def placed(self, values: Mapping[str, Array], data: Mapping[str, Any]) -> tuple[Array, Array]:
        """The vector u of given values of all latent sites, and log |dz/du| there."""
        if len(self.supports) == len(self.shapes):
            maps = {name: self._fixed(name, data) for name in self.supports}
        else:
            messages = self._run(data, handlers.substitute(data=dict(values)))
            maps = {name: self._bijection(messages[name], data) for name in self.shapes}
        parts = {name: maps[name].inv(values[name]) for name in self.shapes}
        volume = sum(
            (
                jnp.sum(maps[name].log_abs_det_jacobian(part, values[name]))
                for name, part in parts.items()
            ),
            start=jnp.zeros(()),
        )
        return jnp.concatenate([jnp.ravel(part) for part in parts.values()]), volume

    def prior(
        self, normal: Array, data: Mapping[str, Any], sites: Sequence[str] | None = None
    ) -> Array:
        """A vector u that the prior makes likely, for a standard normal vector; 0: its median.

        Sites whose quantiles are not known in closed form are placed around their mean. `sites`:
        the parts of u that are wanted, in their order; by default all.
        """
        return self._inverse(self._run(data, AtQuantile(self.split(normal))), data, sites)

    def affine(self, parts: Mapping[str, Array], data: Mapping[str, Any], site: str) -> Affine:
        """The map z = loc + scale * u of a non-centred site, at u."""
        found: Affine = self._bijection(self._at(parts, data)[site], data)
        shape = self.shapes[site]
        matrix = (*shape, shape[-1]) if found.matrix else shape
        loc, scale = jnp.broadcast_to(found.loc, shape), jnp.broadcast_to(found.scale, matrix)
        return Affine(loc, scale, found.matrix, found.logs)

    def parents(self, site: str, data: Mapping[str, Any]) -> tuple[str, ...]:
        """The sites whose coordinates set the location and the scale of a non-centred site."""
        parts = {name: np.zeros(shape) for name, shape in self.shapes.items()}

        def read(parts: Mapping[str, Any]) -> tuple[Any, Any]:
            found = self.affine(parts, data, site)
            return found.loc, found.scale

        closed = traced(read)(parts)
        found = frozenset[int]().union(*dependence(closed.jaxpr))
        names = sorted(parts)
        return tuple(n for n in self.shapes if names.index(n) in found)

    def _inverse(
        self,
        messages: Mapping[str, Message],
        data: Mapping[str, Any],
        sites: Sequence[str] | None = None,
    ) -> Array:
        wanted = [messages[name] for name in (self.shapes if sites is None else sites)]
        parts = [self._bijection(site, data).inv(site["value"]) for site in wanted]
        return jnp.concatenate([jnp.ravel(part) for part in parts])

    def transform(self, site: str, data: Mapping[str, Any] = _NOTHING) -> Transform | None:
        """The bijection of a site; None when it depends on other latent sites."""
        return self._fixed(site, data) if site in self.supports else None

    def _fixed(self, site: str, data: Mapping[str, Any]) -> Any:
        """The bijection of a site whose support is fixed."""
        if site in self.straight:
            return IdentityTransform()
        if site in self.warped:
            return warping(self.supports[site], warp_of(site, data))
        return biject_to(self.supports[site])

    def _bijection(self, message: Message, data: Mapping[str, Any]) -> Any:
        """The map from a site's part of u to its value, at the site in one run of the program."""
        name, fn = message["name"], message["fn"]
        if name in self.straight or name in self.warped:
            return self._fixed(name, data)
        if name not in self.noncentred:
            return biject_to(fn.support)
        return affine(strip(fn).base, centring(name, data))

    def program(self) -> Model:
        """The traced program."""
        assert self.model is not None, "the coordinates of a file have no program"
        return self.model

    def _run(self, data: Mapping[str, Any], given: Any) -> dict[str, Message]:
        model = self.program()
        args, kwargs = model.arguments.call(model._inputs(data))
        with model._mode():
            return execute(model.function, args, kwargs, given)


_shapes: WeakKeyDictionary[Model, dict[str, tuple[int, ...]]] = WeakKeyDictionary()


def _unconstrained_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """The shapes of the latent sites on the unconstrained space; the program is run once."""
    if model not in _shapes:
        shapes: dict[str, tuple[int, ...]] = {}

        def read(latents: Mapping[str, Array], data: Mapping[str, Array]) -> None:
            messages = model._messages(latents, data, None, Inspector())
            for name, site in model.latent.items():
                transform = biject_to(messages[name]["fn"].support)
                shapes[name] = tuple(transform.inverse_shape(site.shape))

        latents = {n: np.broadcast_to(0.0, s.shape) for n, s in model.latent.items()}
        jax.eval_shape(read, latents, model.arguments.data)
        _shapes[model] = shapes
    return dict(_shapes[model])

"""One factor integrated out exactly: log p is affine in its statistics, given all others.

log p(x, z, theta) = <eta(theta), t(z)> + c(theta), where eta is the gradient of the energy at the
point statistics of theta, and c the energy at t(z) = 0. So log p(x, theta) = A(eta(theta)) +
c(theta), and z given theta is the member eta(theta) of its family: the complete conditional
(eq:ef-conditional), drawn back afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import biject_to

from lowerbound.compiled.host import CALLS, lightly
from lowerbound.compute.engine import Engine, engine_for
from lowerbound.cost import mapped
from lowerbound.errors import LowerboundError
from lowerbound.joint import Block, energy, gradient, inputs_of
from lowerbound.model import Model

MOST_JOINT = 200  # numbers of one Gaussian vector, whose factor is found at every point
CLOSE = 1e-6  # relative, of log densities that must agree

Values = dict[str, Array]


@dataclass(frozen=True, eq=False)
class Collapsed:
    """The density of the sites that are left, on an unconstrained space, and the others given them.

    shapes: the unconstrained shapes of the sites that are left, in the order of u.
    """

    engine: Engine
    number: int
    arrays: Any
    shapes: dict[str, tuple[int, ...]]
    transforms: dict[str, Any]

    @property
    def block(self) -> Block:
        """The factor that is integrated out."""
        return self.engine.family.blocks[self.number]

    @property
    def size(self) -> int:
        """How many numbers are left."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def owner(self, entry: int) -> str:
        """The name of one entry of u."""
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            if entry < size:
                return name if not shape else f"{name}[{entry}]"
            entry -= size
        raise IndexError(entry)

    def density(self, vector: Array, arrays: Any) -> Array:
        """Log p(x, theta) with the volume of the map, at one u."""
        values, volume = self._values(vector)
        natural, rest = self._conditional(values, arrays)
        factor = self.engine.family.families[self.number]
        return jnp.asarray(factor.log_normalizer(natural).sum() + rest + volume)

    def placed(self, values: Mapping[str, Array]) -> np.ndarray:
        """The vectors u of draws of the sites, one per row."""
        parts = [
            np.asarray(self.transforms[n].inv(jnp.asarray(values[n], float))) for n in self.shapes
        ]
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)

    def values(self, vectors: np.ndarray, key: Array) -> dict[str, np.ndarray]:
        """All sites at rows u: those that are left, and draws of the others given them."""

        def every(vectors: Array, keys: Array, arrays: Any) -> Values:
            def one(vector: Array, key: Array) -> Values:
                values, _ = self._values(vector)
                natural, _ = self._conditional(values, arrays)
                drawn = self.engine.family.families[self.number].sample(natural, key)
                return {**values, **self.block.unpack(drawn)}

            found: Values = mapped(one, vectors, keys, what="one draw")
            return found

        run = self._compiled("values", every)
        found = run(vectors, jax.random.split(key, len(vectors)), self.arrays)
        return {name: np.asarray(array) for name, array in found.items()}

    def agrees(self, values: Mapping[str, Array], log_p: np.ndarray, volumes: np.ndarray) -> bool:
        """Whether the parts make log p of all sites, at some draws; a certificate.

        log_p: on the unconstrained space of all sites, where `volumes` are those of its map.
        """

        def every(values: Values, vectors: Array, arrays: Any) -> Array:
            def one(values: Values, vector: Array) -> Array:
                natural, _ = self._conditional(values, arrays)
                factor = self.engine.family.families[self.number]
                given = factor.log_prob(natural, self.block.pack(values)).sum()
                return self.density(vector, arrays) - self._values(vector)[1] + given

            return jnp.asarray(mapped(one, values, vectors, what="one draw"))

        own = {n: jnp.asarray(a) for n, a in values.items()}
        found = np.asarray(self._compiled("agrees", every)(own, self.placed(values), self.arrays))
        wanted = log_p - volumes
        return bool((np.abs(found - wanted) <= CLOSE * (1.0 + np.abs(wanted))).all())

    def _values(self, vector: Array) -> tuple[Values, Array]:
        values: Values = {}
        volume, start = jnp.zeros(()), 0
        for name, shape in self.shapes.items():
            part = vector[start : start + math.prod(shape)].reshape(shape)
            start += math.prod(shape)
            values[name] = self.transforms[name](part)
            log_volume = self.transforms[name].log_abs_det_jacobian(part, values[name])
            volume = volume + jnp.sum(log_volume)
        return values, volume

    def _conditional(self, values: Values, arrays: Any) -> tuple[dict[str, Array], Array]:
        """eta(theta), and c(theta)."""
        family, summands = self.engine.family, self.engine.joint.summands
        statistics = []
        for block, factor in zip(family.blocks, family.families, strict=True):
            if block.number == self.number:
                shapes = factor.statistic_shapes()
                statistics.append({n: jnp.zeros(shape) for n, shape in shapes.items()})
            else:
                packed = {**block.pack(values), **block.constants(arrays)}
                statistics.append(factor.statistics(packed))
        held = tuple(statistics)
        natural = gradient(summands, arrays, held, self.number)
        extras = self.engine.extras(arrays)[self.number]
        return {**natural, **extras}, energy(summands, arrays, held)

    def _compiled(self, what: str, function: Any) -> Any:
        compiled, key = self.engine.compiled, ("collapsed", self.number, what)
        if key not in compiled:
            compiled[key] = lightly(function, CALLS)
        return compiled[key]


def collapsed(model: Model) -> Collapsed | None:
    """The program without its largest factor, where every other site is continuous; else None."""
    try:
        engine = engine_for(model, np.dtype(float))
        engine.certified()
    except LowerboundError:
        return None
    blocks, latent = engine.family.blocks, model.latent
    number = _largest(engine, blocks, model)
    if number is None:
        return None
    left = [name for name in latent if name not in blocks[number].sites]
    supports: dict[str, Any] = {name: latent[name].support for name in left}
    if not left or any(support is None or support.is_discrete for support in supports.values()):
        return None
    transforms = {name: biject_to(support) for name, support in supports.items()}
    shapes = {n: tuple(transforms[n].inverse_shape(latent[n].shape)) for n in left}
    arrays = engine.prepare(inputs_of(model))
    return Collapsed(engine, number, arrays, shapes, transforms)


def _largest(engine: Engine, blocks: Sequence[Block], model: Model) -> int | None:
    """The factor of the most numbers that can be integrated out at every point."""
    curved = frozenset().union(*(s.curved for s in engine.joint.summands))
    sizes = {}
    for block in blocks:
        discrete = any(model.latent[s].support_values is not None for s in block.sites)
        joint = sum(layout.size for layout in block.layouts.values())
        plain = not (block.family.free_form or block.sequential or block.presence is not None)
        if plain and not discrete and block.number not in curved and joint <= MOST_JOINT:
            sizes[block.number] = sum(math.prod(model.latent[s].shape) for s in block.sites)
    return max(sizes, key=lambda n: sizes[n], default=None)

"""The ELBO as a function of q and of the parameters of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import State
from lowerbound.ascent.maximise import FEW
from lowerbound.compiled import traced
from lowerbound.compute.engine import Engine
from lowerbound.errors import ArgumentError, UnsupportedModelError
from lowerbound.joint import Joint, Summand, energy
from lowerbound.joint.energy.summands import Slot
from lowerbound.joint.terms.indices import Gather
from lowerbound.model.dependence import dependence
from lowerbound.rewrite.parameters import Parameter, parameter_inputs, parameter_name

FLAT = 1e-9  # a curvature, where those of the single parameters are one
EDGE = 30.0  # unconstrained numbers at which a constrained value is on its edge, to rounding


@dataclass(frozen=True)
class Space:
    """The unconstrained numbers of all parameters, in one vector."""

    parameters: tuple[Parameter, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """What a compiled program depends on."""
        return tuple(p.key for p in self.parameters)

    @property
    def sizes(self) -> list[int]:
        """How many numbers each parameter has."""
        return [int(np.prod(p.unconstrained_shape)) for p in self.parameters]

    def start(self) -> np.ndarray:
        """The vector at the starting values."""
        parts = [np.ravel(np.asarray(p.transform.inv(p.initial))) for p in self.parameters]
        return np.concatenate(parts).astype(float)

    def values(self, vector: Array) -> dict[str, Array]:
        """The values of the parameters."""
        parts = jnp.split(vector, np.cumsum(self.sizes)[:-1])
        return {
            p.name: p.transform(part.reshape(p.unconstrained_shape))
            for p, part in zip(self.parameters, parts, strict=True)
        }

    def owner(self, number: int) -> str:
        """The parameter that an entry of the vector belongs to."""
        return self.parameters[int(np.searchsorted(np.cumsum(self.sizes), number, "right"))].name

    def constrained(self) -> np.ndarray:
        """Whether each entry is mapped into a constraint."""
        return np.repeat([not p.is_free for p in self.parameters], self.sizes)

    def unused(self, vector: np.ndarray, hessian: np.ndarray) -> str | None:
        """A parameter that a function with this Hessian does not depend on, where there is one."""
        edge = self.constrained() & (abs(vector) > EDGE)
        unused = np.flatnonzero((np.diagonal(hessian) == 0.0) & ~edge)
        return self.owner(int(unused[0])) if len(unused) else None

    def flat(self, hessian: np.ndarray) -> str | None:
        """A parameter along which a function with this Hessian is flat, where there is one."""
        size = abs(np.diagonal(hessian))
        # What is close to zero beside the others may be rounding, at the edge of a constraint.
        kept = np.flatnonzero(size > 1e-12 * size.max())
        scale = 1.0 / np.sqrt(size[kept])
        curvatures, axes = np.linalg.eigh(hessian[np.ix_(kept, kept)] * scale[:, None] * scale)
        flat = np.flatnonzero(abs(curvatures) < FLAT)
        return self.owner(int(kept[np.argmax(abs(axes[:, flat[0]]))])) if len(flat) else None


def moving(
    joint: Joint, parameters: Sequence[Parameter], inputs: Mapping[str, Any]
) -> frozenset[int]:
    """The compressed arrays that depend on the parameters; raises where there is no M step."""
    closed = traced(joint.compress)(dict(inputs))
    names = sorted(inputs)
    own = {names.index(parameter_name(p.name)) for p in parameters}
    depends = dependence(closed.jaxpr)
    found = frozenset(slot for slot, inside in enumerate(depends) if inside & own)
    for block in joint.blocks:
        if found & {*block.extras.values(), block.presence}:
            raise UnsupportedModelError(
                f"The support of site '{block.sites[0]}', or its mask, depends on a "
                "numpyro.param.\n"
                "Expected both to be fixed: fix that parameter with "
                "numpyro.handlers.substitute(model, data={...})."
            )
    return found


@dataclass(frozen=True)
class Ascent:
    """The ELBO as a function of q and of the parameters."""

    engine: Engine
    space: Space
    moving: frozenset[int]  # the compressed arrays that depend on the parameters

    def arrays(self, inputs: Mapping[str, Array], vector: Array) -> tuple[Array, ...]:
        """The compressed data at given parameters."""
        return self.engine.joint.compress({**inputs, **parameter_inputs(self.space.values(vector))})

    def objective(
        self, inputs: Mapping[str, Array], vector: Array, state: State
    ) -> Callable[[Array], Array]:
        """E_q[log p] of what depends on the parameters, as a function of them.

        It is linear in the arrays that move unless two of them meet in one term: then what q has
        to say is contracted once for the whole M step.
        """
        means = state.means
        summands = [s for s in self.engine.joint.summands if self.moving & set(slots(s))]
        if any(sum(n in self.moving for n in slots(s)) > 1 for s in summands):
            return lambda v: energy(summands, self.arrays(inputs, v), means)
        arrays = self.arrays(inputs, vector)
        order = sorted(self.moving & {n for s in summands for n in slots(s)})

        def moved(parts: Sequence[Array]) -> Array:
            replaced = dict(zip(order, parts, strict=True))
            return energy(summands, [replaced.get(n, a) for n, a in enumerate(arrays)], means)

        weights = jax.grad(moved)([arrays[n] for n in order])

        def linear(v: Array) -> Array:
            new = self.arrays(inputs, v)
            return sum(
                (jnp.sum(w * new[n]) for n, w in zip(order, weights, strict=True)),
                start=jnp.zeros(()),
            )

        return linear

    def curvature(
        self, inputs: Mapping[str, Any], vector: Any, state: State
    ) -> Callable[..., Array]:
        """The Hessian of the ELBO in the parameters, compiled; `state` may be shapes only."""
        key = ("em curvature", self.space.key)
        if key not in self.engine.compiled:

            def hessian(inputs: Mapping[str, Array], vector: Array, state: State) -> Array:
                found: Array = jax.hessian(self.objective(inputs, vector, state))(vector)
                return found

            self.engine.compiled[key] = self.engine.once(hessian, dict(inputs), vector, state)
        return self.engine.compiled[key]  # type: ignore[no-any-return]

    def check_maximum(self, inputs: Mapping[str, Array], vector: Any, state: State) -> str | None:
        """A parameter that has other values as good, where there is one; one unused is an error.

        Rotations of loadings, and the symmetries of networks, leave the ELBO as it is.
        """
        if vector.size > FEW:
            return None
        hessian = self.curvature(inputs, vector, state)(dict(inputs), vector, state)
        name = self.space.unused(np.asarray(vector), np.asarray(hessian))
        if name is not None:
            raise ArgumentError(
                f"The ELBO does not depend on the parameter '{name}'.\n"
                f"Expected a single maximum. Give '{name}' a prior with numpyro.sample, or fix it: "
                f"numpyro.handlers.substitute(model, data={{'{name}': value}})."
            )
        return self.space.flat(np.asarray(hessian))


def slots(summand: Summand) -> list[int]:
    """The compressed arrays that a summand multiplies or is indexed by, repeats included.

    Those inside an expectation by quadrature are there twice, since it is not linear in them.
    """
    indices = (i for read in summand.reads for i in read.index)
    gathers = [
        i.array.number for i in indices if isinstance(i, Gather) and isinstance(i.array, Slot)
    ]
    integrals = [read.integral for read in summand.reads if read.integral is not None]
    moments = [s for integral in integrals for s in (*integral.first, *integral.second)]
    functions = [slot for integral in integrals for f in integral.functions for slot in f.slots]
    inside = [slot for moment in moments for slot in slots(moment)] + functions
    return [slot for slot, _ in summand.constants] + gathers + 2 * inside

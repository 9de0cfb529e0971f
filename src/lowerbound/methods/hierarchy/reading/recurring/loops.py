"""Loops of a program without the loop: side by side, as a matrix, or step after step.

A step that hands on nothing but values of its own (the chain h[t] ~ Normal(rho h[t - 1], s), whose
h are given) is computed for all times at once, and so is one that also moves them on. Where a step
needs what it makes itself, its levels are given (`recurrences`), or what is linear in z becomes a
product with a matrix. Other loops are unrolled while they are short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from lowerbound.joint.rules.scans import Scan
from lowerbound.methods.hierarchy.reading.affine_functions import MOST_COEFFICIENTS, as_products
from lowerbound.methods.hierarchy.reading.dependence_kinds import AFFINE, kind_of, kinds_of
from lowerbound.methods.hierarchy.reading.flat_program import flattened
from lowerbound.methods.hierarchy.reading.recurring.recurrences import recurrence

MOST_UNROLLED = 3_000  # operations

Run = Callable[..., list[Array]]


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop as a function of its inputs and of levels, the shapes and types of which are told.

    It gives the outputs of the loop, and the definition of every level.
    """

    run: Run
    levels: Sequence[tuple[tuple[int, ...], Any]] = ()


def opened_loop(
    params: Mapping[str, Any], touched: Sequence[bool], inputs: Sequence[Any], with_levels: bool
) -> Loop | None:
    """A scan, some of whose inputs are `touched` by z, opened; None where it stays a loop."""
    scan = _Scan(params, touched)
    order = scan.order()
    if order is not None:
        return Loop(lambda *inputs: scan.side_by_side(order, inputs))
    apart = recurrence(scan, inputs)
    if apart is not None and (with_levels or not apart.levels):
        return Loop(apart.run, apart.levels)
    if scan.is_affine:
        return Loop(scan.as_product)
    if scan.length * _operations(scan.body.jaxpr) <= MOST_UNROLLED:
        return Loop(scan.unrolled)
    return None


def _operations(jaxpr: Any) -> int:
    """The operations of one step, with those of all steps of the loops in it."""
    total = 0
    for one in jaxpr.eqns:
        looped = one.primitive.name == "scan"
        total += one.params["length"] * _operations(one.params["jaxpr"].jaxpr) if looped else 1
    return total


def running_sum(params: Mapping[str, Any], shape: Sequence[int], dtype: Any) -> Loop:
    """Sums along an axis: each level is the one before it, and what is added."""
    axis, reverse = params["axis"], params["reverse"]

    def run(added: Array, level: Array) -> list[Array]:
        edge = jnp.zeros_like(jax.lax.slice_in_dim(level, 0, 1, axis=axis))
        count = level.shape[axis]
        if reverse:
            kept = jax.lax.slice_in_dim(level, 1, count, axis=axis)
            before = jnp.concatenate([kept, edge], axis=axis)
        else:
            kept = jax.lax.slice_in_dim(level, 0, count - 1, axis=axis)
            before = jnp.concatenate([edge, kept], axis=axis)
        return [level, before + added]

    return Loop(run, [(tuple(shape), dtype)])


class _Scan(Scan):
    """A scan that need not be side by side: a product with a matrix, or step after step."""

    @property
    def is_affine(self) -> bool:
        """Whether every step is affine in what is touched, and the matrix not too large."""
        flat = flattened(self.body)
        own = [name for name, t in zip(flat.inputs, self.touched, strict=True) if t]
        kinds = kinds_of(flat, (), own)
        if max((kind_of(kinds, atom) for atom in flat.outputs), default=0) > AFFINE:
            return False
        steps = self.length
        start = self.fixed + self.carries
        sizes = [n.size * (steps if i >= start else 1) for i, n in enumerate(flat.inputs)]
        entries = sum(size for size, t in zip(sizes, self.touched, strict=True) if t)
        return entries * steps * sum(atom.size for atom in flat.outputs) <= MOST_COEFFICIENTS

    def as_product(self, *inputs: Any) -> list[Any]:
        """Offsets, and a matrix for each of the inputs that are touched."""

        def run(*inputs: Any) -> list[Any]:
            fixed, first, along = self.parts(inputs)

            def step(carried: Any, along: Any) -> tuple[Any, Any]:
                found = self.step(*fixed, *carried, *along)
                return found[: self.carries], found[self.carries :]

            carried, steps = jax.lax.scan(step, first, along, length=self.length)
            return self.whole(carried, steps)

        own = [number for number, t in enumerate(self.given) if t]
        return as_products(run, inputs, own)

    def unrolled(self, *inputs: Any) -> list[Any]:
        """One step after the other."""
        fixed, carried, along = self.parts(inputs)
        seen = []
        for number in range(self.length):
            found = self.step(*fixed, *carried, *(x[number] for x in along))
            carried = found[: self.carries]
            seen.append(found[self.carries :])
        steps = [jnp.stack(one) for one in zip(*seen, strict=True)] if seen else []
        return self.whole(carried, steps)

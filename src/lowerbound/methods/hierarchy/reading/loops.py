"""Loops of a program without the loop: side by side, as a matrix, or step after step.

A step that hands on nothing but values of its own (the chain h[t] ~ Normal(rho h[t - 1], s), whose
h are given) is computed for all times at once. What a recurrence makes of z, linear in it, is a
product with a matrix. Other loops are unrolled while they are short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from lowerbound.joint.rules.scans import Scan
from lowerbound.methods.hierarchy.reading.affine_functions import MOST_COEFFICIENTS, as_products
from lowerbound.methods.hierarchy.reading.dependence_kinds import AFFINE, kind_of, kinds_of
from lowerbound.methods.hierarchy.reading.flat_program import flattened

MOST_UNROLLED = 3_000  # operations

Loop = Callable[..., list[Array]]


def opened_loop(params: Mapping[str, Any], touched: Sequence[bool]) -> Loop | None:
    """The function of a scan's inputs, some of them `touched` by z; None where it stays a loop."""
    scan = _Scan(params, touched)
    order = scan.order()
    if order is not None:
        return lambda *inputs: scan.side_by_side(order, inputs)
    if scan.is_affine:
        return scan.as_product
    if scan.length * len(scan.body.jaxpr.eqns) <= MOST_UNROLLED:
        return scan.unrolled
    return None


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

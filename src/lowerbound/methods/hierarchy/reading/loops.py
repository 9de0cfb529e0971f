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
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from lowerbound.methods.hierarchy.reading.affine_functions import MOST_COEFFICIENTS, as_products
from lowerbound.methods.hierarchy.reading.dependence_kinds import AFFINE, kind_of, kinds_of
from lowerbound.methods.hierarchy.reading.flat_program import flattened
from lowerbound.model.dependence import dependence, scan_sizes

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


class _Scan:
    """A scan: constants, what is carried, and what is scanned over."""

    def __init__(self, params: Mapping[str, Any], touched: Sequence[bool]) -> None:
        self.body: ClosedJaxpr = params["jaxpr"]
        self.length, self.reverse = int(params["length"]), bool(params["reverse"])
        self.fixed, self.carries = scan_sizes(params)
        self.step = jaxpr_as_fun(self.body)
        self.needs = dependence(self.body.jaxpr)
        self.given, self.touched = tuple(touched), list(touched)
        while True:  # what is carried is touched by what other steps hand on
            new = [
                self.touched[self.fixed + slot] or any(self.touched[i] for i in self.needs[slot])
                for slot in range(self.carries)
            ]
            if new == self.touched[self.fixed :][: self.carries]:
                break
            self.touched[self.fixed : self.fixed + self.carries] = new

    def order(self) -> list[int] | None:
        """The touched slots, each after those that it needs; None where one needs itself."""
        left = [slot for slot in range(self.carries) if self.touched[self.fixed + slot]]
        found: list[int] = []
        while left:
            free = [s for s in left if not any(self.fixed + o in self.needs[s] for o in left)]
            if not free:
                return None
            found += free
            left = [slot for slot in left if slot not in free]
        return found

    def _parts(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        fixed, carried = list(inputs[: self.fixed]), list(inputs[self.fixed :][: self.carries])
        along = list(inputs[self.fixed + self.carries :])
        return fixed, carried, [x[::-1] for x in along] if self.reverse else along

    def _whole(self, carried: Sequence[Any], steps: Sequence[Any]) -> list[Any]:
        return [*carried, *(x[::-1] if self.reverse else x for x in steps)]

    def side_by_side(self, order: Sequence[int], inputs: Sequence[Any]) -> list[Any]:
        """All steps at once: what each is handed is known beforehand."""
        fixed, first, along = self._parts(inputs)
        handed = {
            slot: jnp.broadcast_to(c, (self.length, *c.shape)) for slot, c in enumerate(first)
        }
        handed |= self._untouched(fixed, first, along)

        def outputs(wanted: Sequence[int]) -> list[Any]:
            def at(carried: Sequence[Any], along: Sequence[Any]) -> list[Any]:
                found = self.step(*fixed, *carried, *along)
                return [found[number] for number in wanted]

            carried = [handed[slot] for slot in range(self.carries)]
            found: list[Any] = jax.vmap(at, axis_size=self.length)(carried, along)
            return found

        for slot in order:
            own = outputs([slot])[0]
            handed[slot] = jnp.concatenate([first[slot][None], own[:-1]])
        found = outputs(range(len(self.body.out_avals)))
        last = [one[-1] for one in found[: self.carries]]
        return self._whole(last, found[self.carries :])

    def _untouched(
        self, fixed: Sequence[Any], first: Sequence[Any], along: Sequence[Any]
    ) -> dict[int, Any]:
        """What is handed on apart from z: counters, keys."""
        own = [slot for slot in range(self.carries) if not self.touched[self.fixed + slot]]
        if not own:
            return {}

        needed = frozenset[int]().union(*(self.needs[slot] for slot in own))

        def calm(number: int, value: Any) -> Any:
            return value if number in needed else jnp.zeros_like(value)

        fixed = [calm(n, x) for n, x in enumerate(fixed)]
        along = [calm(self.fixed + self.carries + n, x) for n, x in enumerate(along)]
        still = [calm(self.fixed + slot, c) for slot, c in enumerate(first)]

        def step(carried: Sequence[Any], along: Sequence[Any]) -> tuple[Any, Any]:
            whole = list(still)
            for slot, value in zip(own, carried, strict=True):
                whole[slot] = value
            found = self.step(*fixed, *whole, *along)
            return [found[slot] for slot in own], carried

        _, seen = jax.lax.scan(step, [first[slot] for slot in own], along, length=self.length)
        return dict(zip(own, seen, strict=True))

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
            fixed, first, along = self._parts(inputs)

            def step(carried: Any, along: Any) -> tuple[Any, Any]:
                found = self.step(*fixed, *carried, *along)
                return found[: self.carries], found[self.carries :]

            carried, steps = jax.lax.scan(step, first, along, length=self.length)
            return self._whole(carried, steps)

        own = [number for number, t in enumerate(self.given) if t]
        return as_products(run, inputs, own)

    def unrolled(self, *inputs: Any) -> list[Any]:
        """One step after the other."""
        fixed, carried, along = self._parts(inputs)
        seen = []
        for number in range(self.length):
            found = self.step(*fixed, *carried, *(x[number] for x in along))
            carried = found[: self.carries]
            seen.append(found[self.carries :])
        steps = [jnp.stack(one) for one in zip(*seen, strict=True)] if seen else []
        return self._whole(carried, steps)

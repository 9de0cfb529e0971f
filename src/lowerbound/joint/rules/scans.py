"""Loops whose steps do not wait for each other, without the loop.

A step that hands on nothing but values of its own (the chain z[t] ~ Categorical(P[z[t - 1]]), whose
z are given) is computed for all times at once: what each step is handed is known beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from lowerbound.model.dependence import dependence, scan_sizes


class Scan:
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

    def parts(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Constants, what the first step is handed, and what is scanned over, in order."""
        fixed, carried = list(inputs[: self.fixed]), list(inputs[self.fixed :][: self.carries])
        along = list(inputs[self.fixed + self.carries :])
        return fixed, carried, [x[::-1] for x in along] if self.reverse else along

    def whole(self, carried: Sequence[Any], steps: Sequence[Any]) -> list[Any]:
        """The outputs of the scan: what the last step hands on, and what every step returns."""
        return [*carried, *(x[::-1] if self.reverse else x for x in steps)]

    def side_by_side(self, order: Sequence[int], inputs: Sequence[Any]) -> list[Any]:
        """All steps at once: what each is handed is known beforehand."""
        fixed, first, along = self.parts(inputs)
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
        return self.whole(last, found[self.carries :])

    def _untouched(
        self, fixed: Sequence[Any], first: Sequence[Any], along: Sequence[Any]
    ) -> dict[int, Any]:
        """What is handed on apart from z: counters, keys. Those that do not meet stay apart."""
        own = [slot for slot in range(self.carries) if not self.touched[self.fixed + slot]]
        found: dict[int, Any] = {}
        for slot in own:
            if slot not in found:
                together = self._needed(slot)
                found |= self._loop(together, fixed, first, along)
        return found

    def _needed(self, slot: int) -> list[int]:
        """A slot and those that it needs, however far back."""
        found, new = {slot}, {slot}
        while new:
            needs = {i - self.fixed for one in new for i in self.needs[one]}
            new = {i for i in needs if 0 <= i < self.carries} - found
            found |= new
        return sorted(found)

    def _loop(
        self, own: Sequence[int], fixed: Sequence[Any], first: Sequence[Any], along: Sequence[Any]
    ) -> dict[int, Any]:
        """What some slots are handed in every step, by a loop over them alone."""
        needed = frozenset[int]().union(*(self.needs[slot] for slot in own))
        start = self.fixed + self.carries
        used = [n for n in range(len(along)) if start + n in needed]

        def calm(number: int, value: Any) -> Any:
            return value if number in needed else jnp.zeros_like(value)

        fixed = [calm(n, x) for n, x in enumerate(fixed)]
        still = [calm(self.fixed + slot, c) for slot, c in enumerate(first)]

        def step(carried: Sequence[Any], read: Sequence[Any]) -> tuple[Any, Any]:
            whole = list(still)
            for slot, value in zip(own, carried, strict=True):
                whole[slot] = value
            rows = [jnp.zeros(x.shape[1:], x.dtype) for x in along]
            for number, value in zip(used, read, strict=True):
                rows[number] = value
            found = self.step(*fixed, *whole, *rows)
            return [found[slot] for slot in own], carried

        _, seen = jax.lax.scan(
            step, [first[slot] for slot in own], [along[n] for n in used], length=self.length
        )
        return dict(zip(own, seen, strict=True))

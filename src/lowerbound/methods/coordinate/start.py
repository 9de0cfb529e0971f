"""Where coordinate ascent starts (paper section 2.5, "Initialization").

Every factor starts at its prior given its parents' means, spread out by chance; assignments of a
mixture start from rows of the data, spread out as k-means++ does but in the model's own log
density, so that any mixture (Poisson, Bernoulli, Gaussian, ...) starts the same way. Restarts start
in different ways, in turn: an optimum that all starts of one kind miss is found by another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import State
from lowerbound.compute.engine import Arrays, Engine
from lowerbound.compute.prior_state import curved_blocks, from_prior, narrowed
from lowerbound.joint import Block
from lowerbound.methods.coordinate.seeds import Seeds, one_of


def start(
    engine: Engine,
    arrays: Arrays,
    chance: Chance,
    how: str,
    given: Mapping[str, Array],
    seeded: int | None,
) -> State:
    """A starting state. `seeded` is the block of mixture assignments to seed, if there is one.

    Its kind is number `chance.kind` of those of `start_kinds`.
    """
    state = narrowed(engine, arrays, from_prior(engine, arrays))
    narrow = curved_blocks(engine)
    for number, noise in chance.noise.items():
        if number in narrow or (number == seeded and how != "random"):
            continue
        family = engine.family.families[number]
        mean = family.scattered(state.naturals[number], state.means[number], noise)
        state = state.replaced(number, state.naturals[number], mean)
    if given:
        state = at_values(engine, state, given, arrays)
        state = narrowed(engine, arrays, state, zero=False)
        leading = [b for b in engine.joint.blocks if set(b.sites) & set(given)]
        state = follow(engine, arrays, state, leading)
    elif seeded is not None and how in ("auto", "k-means++", "rows"):
        state = _seeded(engine, arrays, state, chance, seeded, how)
    elif chance.kind is not None:
        discrete = [b for b in engine.joint.blocks if b.family.enumerable]
        led = follow(engine, arrays, state, discrete)
        state = _selected(chance.kind == 1, led, state)
    return engine.cast_tree(state)  # type: ignore[no-any-return]


SOFT, HARD, PARTED = "k-means++", "k-means++, every row in one", "rows parted at random"
SCATTERED, LED = "scattered", "discrete sites at random"
HARD_ROUNDS = 3
FEW_ROWS = 1000  # of more, the parts of a random partition are all alike


def start_kinds(
    engine: Engine, how: str, given: Mapping[str, Any], restarts: int, seeded: int | None
) -> list[str]:
    """How each restart starts: the first as a single start does, the others in turn."""
    if given:
        return ["given values"] * restarts
    if how != "auto":
        return [how] * restarts
    kinds = [SCATTERED]
    if seeded is not None:
        few = engine.joint.blocks[seeded].elements <= FEW_ROWS
        kinds = [SOFT, HARD, *([PARTED] if few else [])]
    elif any(b.family.enumerable and not b.sequential for b in engine.joint.blocks):
        kinds = [SCATTERED, LED]
    return [kinds[number % len(kinds)] for number in range(restarts)]


def _selected(condition: Array, first: State, second: State) -> State:
    chosen: State = jax.tree.map(lambda a, b: jnp.where(condition, a, b), first, second)
    return chosen


def _seeded(
    engine: Engine, arrays: Arrays, state: State, chance: Chance, seeded: int, how: str
) -> State:
    """The start of a mixture, of the kind that chance says."""
    seeds = Seeds(engine, arrays, seeded)
    indicator, led = seeds.soft(state, chance.rows, chance.uniforms, how)
    if chance.kind is None:
        return seeds.settled(led)
    if seeded in chance.noise:  # every row in a component drawn by chance
        parted = one_of(chance.noise[seeded])
        led = seeds.given(jnp.where(chance.kind == 2, parted, indicator), state)
    return seeds.hard(seeds.settled(led), jnp.where(chance.kind == 1, HARD_ROUNDS, 0))


class Chance(NamedTuple):
    """The random numbers of one start, drawn on the host (they cost nothing to compile)."""

    noise: dict[int, Any]  # block -> standard normal or exponential numbers
    rows: Any  # K distinct rows
    uniforms: Any  # K numbers in (0, 1), which pick rows one by one
    kind: Any  # which kind of start it is, where there are several


def chances(
    engine: Engine,
    seed: int,
    restarts: int,
    how: str,
    seeded: int | None,
    kinds: Sequence[str] = (),
) -> Chance:
    """Independent random numbers for every restart; leading axis = restarts."""
    drawn = []
    several = len(set(kinds)) > 1
    for start_number, rng in enumerate(np.random.default_rng(seed).spawn(restarts)):
        noise = {}
        for number, family in enumerate(engine.family.families):
            if how == "prior" or (number == seeded and how != "random"):
                continue  # seeding replaces it
            own = family.noise(rng)
            if own is not None:
                noise[number] = own.astype(engine.dtype)
        rows, uniforms = np.zeros(0, int), np.zeros(0)
        if seeded is not None:
            family = engine.family.families[seeded]
            count = engine.joint.blocks[seeded].elements
            components = family.statistic_shapes()["indicator"][-1]
            rows = rng.choice(count, components, replace=False)
            uniforms = rng.random(components)
            if PARTED in kinds:
                noise[seeded] = rng.random((count, components)).astype(engine.dtype)
        order = (SCATTERED, LED) if seeded is None else (SOFT, HARD, PARTED)
        kind = np.asarray(order.index(kinds[start_number])) if several else None
        drawn.append(Chance(noise, rows, uniforms, kind))
    stacked: Chance = jax.tree.map(lambda *each: np.stack(each), *drawn)
    return stacked


def at_values(engine: Engine, state: State, given: Mapping[str, Array], arrays: Arrays) -> State:
    """Point statistics at the given site values; a block's other sites keep their means."""
    for block, family in zip(engine.joint.blocks, engine.family.families, strict=True):
        if not set(block.sites) & set(given):
            continue
        values = {name: jnp.asarray(given[name]) for name in block.sites if name in given}
        if len(values) < len(block.sites):
            others = block.unpack(family.centre(state.means[block.number]))
            values = {**others, **values}
        mean = family.statistics({**block.pack(values), **block.constants(arrays)})
        state = state.replaced(block.number, state.naturals[block.number], mean)
    return state


def follow(engine: Engine, arrays: Arrays, state: State, leading: list[Block]) -> State:
    """Update all other blocks once, so that the first sweep does not forget the leading ones."""
    lead = {block.number for block in leading}
    for number in engine.sweep.order:
        if number not in lead and not engine.joint.blocks[number].sequential:
            state, _ = engine.sweep.update(arrays, state, number)
    return state

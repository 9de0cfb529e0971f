"""A model of the zoo on its rows: whole, and in two halves, through one derivation of each size."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.ascent import RobbinsMonro, State, Sweep
from lowerbound.compiled.host import lightly
from lowerbound.errors import ArgumentError
from lowerbound.joint import energy, gradient
from lowerbound.methods.stochastic.adding_up import check_locals
from lowerbound.methods.stochastic.batched import SVI
from lowerbound.methods.stochastic.lap import local_sums
from lowerbound.methods.stochastic.minibatch import Minibatch, prepare
from lowerbound.methods.stochastic.row_plan import find_rows, trace_batch
from lowerbound.methods.stochastic.steps import first_carry, one_step
from lowerbound.source.call import Call, open_call
from tests.laws.derived import Derived, random_values
from tests.models.case import Case

DOUBLE = np.dtype("float64")


@dataclass(frozen=True, eq=False)
class Rowwise:
    """The whole data and their halves; `whole` and `half` are derived models."""

    case: Case
    whole: Minibatch
    half: Minibatch
    halves: tuple[dict[str, Any], dict[str, Any]]

    @cached_property
    def values(self) -> list[dict[str, Any]]:
        """Two random points z of the whole."""
        batch, engine = self.whole, self.whole.rows.engine
        derived = Derived(self.case.name, batch.model, engine.joint, engine.family, engine.sweep)
        return [random_values(derived, seed) for seed in (3, 4)]

    @cached_property
    def of_whole(self) -> dict[str, Any]:
        """What the laws compare of all rows, by one function."""
        with jax.enable_x64(True):
            whole = lightly(partial(_whole, self.whole))
            return jax.tree.map(np.asarray, whole(self.whole.example, self.values))

    @cached_property
    def of_halves(self) -> dict[str, Any]:
        """What the laws compare of the halves, by another."""
        with jax.enable_x64(True):
            halves = jax.tree.map(lambda *rows: np.stack(rows), *self.halves)
            both = lightly(partial(_halves, self.half))
            found = both(self.half.fixed, halves, self.of_whole["state"])
            return jax.tree.map(np.asarray, found)


def _state(batch: Minibatch, arrays: Any, values: list[dict[str, Any]]) -> State:
    """Global factors of no special kind: those that one update between two points gives."""
    engine = batch.rows.engine
    points = [engine.family.statistics(value, arrays) for value in values]
    means = jax.tree.map(lambda a, b: 0.5 * (a + b), *points)
    state = State(tuple({} for _ in means), means)
    for number in batch.sweep.order:
        target = gradient(engine.joint.summands, arrays, state.means, number)
        extra = {k: arrays[slot] for k, slot in engine.joint.blocks[number].extras.items()}
        natural = {**target, **extra}
        mean = engine.family.families[number].mean(natural)
        state = state.replaced(number, natural, mean)
    return batch.shared.take(state)


def _whole(batch: Minibatch, inputs: Any, values: list[dict[str, Any]]) -> dict[str, Any]:
    arrays = batch.compress(inputs)
    state = _state(batch, arrays, values)
    means = batch.shared.put(state).means
    local = batch.local(arrays, means)
    sums, entropy = batch.expected(arrays, local)
    merged = tuple(m or own for m, own in zip(means, local.means, strict=True))
    axes = batch.rows.axes
    rows = [s for s in batch.rows.engine.joint.summands if s.site in axes]
    reduced = (*arrays, *sums)
    touched = [n for n in batch.shared.numbers if any(n in s.blocks for s in rows)]
    carry = first_carry(batch, RobbinsMonro(1.0, 1.0), state)
    moved, bound = one_step(batch, RobbinsMonro(1.0, 1.0), inputs, carry, jnp.ones(()))
    engine = batch.rows.engine
    shared = batch.shared.put(state).naturals
    both = tuple({**own, **n} for n, own in zip(shared, local.naturals, strict=True))
    whole = State(both, merged)
    sweep, elbo = Sweep(engine.family, engine.joint.summands, batch.sweep.order)(arrays, whole)
    family = engine.family
    elbo += sum(family.entropy(local.naturals, local.means, arrays, n) for n in batch.rows.local)
    return {
        "state": state,
        "seen": _seen(batch, (sums, (entropy,)), state),
        "energy": (energy(rows, arrays, merged), energy(batch.reduction.summands, reduced, merged)),
        "gradients": [
            (
                gradient(rows, arrays, merged, n),
                gradient(batch.reduction.summands, reduced, merged, n),
            )
            for n in touched
        ],
        "step": moved.state.naturals,
        "sweep": batch.shared.take(sweep).naturals,
        "bounds": (bound, elbo),
    }


def _halves(batch: Minibatch, fixed: Any, halves: Any, state: State) -> dict[str, Any]:
    """Each half, and what global factors see of both."""
    parts = jax.vmap(lambda rows: _half(batch, {**fixed, **rows}, state))(halves)
    both = jax.tree.map(lambda array: array.sum(axis=0), parts["kept"])
    each = tuple(jax.tree.map(lambda array, n=n: array[n], parts) for n in range(2))
    return {"parts": each, "added": _seen(batch, both, state)}


def _half(batch: Minibatch, inputs: Any, state: State) -> dict[str, Any]:
    """Statistics of a half, by itself and with only its first row counting."""
    means = batch.shared.put(state).means
    weights = jnp.ones(batch.rows.count)
    sums, entropies = local_sums(batch, {**inputs, "weights": weights}, means)
    first = jnp.zeros(batch.rows.count).at[0].set(1.0)
    ones = [local_sums(batch, {**inputs, "weights": w}, means) for w in (first, weights - first)]
    # A full step on the half, as though it were repeated: N/B = 2.
    schedule = RobbinsMonro(1.0, 1.0)
    carry = first_carry(batch, schedule, state)
    repeated = {**inputs, "weights": weights}
    moved, _ = one_step(batch, schedule, repeated, carry, 2.0 * jnp.ones(()))
    return {
        "kept": (sums, entropies),
        "added": jax.tree.map(jnp.add, *ones),
        "step": moved.state.naturals,
    }


def _seen(batch: Minibatch, kept: Any, state: State) -> dict[str, Any]:
    """What global factors see of rows: their energy and entropy, and each block's gradient."""
    means = batch.shared.put(state).means
    first = batch.rows.engine.joint.slots
    arrays = (*(jnp.zeros(()) for _ in range(first)), *kept[0])
    summands = batch.reduction.summands
    touched = [n for n in batch.shared.numbers if any(n in s.blocks for s in summands)]
    return {
        "worth": batch.worth(kept, means),
        "gradients": [gradient(summands, arrays, means, n) for n in touched],
    }


def rowwise(case: Case) -> Rowwise | None:
    """The case by rows; None where its rows are not exchangeable."""
    args, kwargs = case.arguments(0)
    if not case.rows or not case.adds_up:
        return None
    # The certificate has laws of its own.
    with jax.enable_x64(True), patch("lowerbound.compute.engine.in_background", lambda check: None):
        call = open_call(case.model, args, kwargs)
        try:
            plan = find_rows(case.model, call, SVI())
            batches = [_rows(call, plan, part) for part in (0, 1)]
            model = trace_batch(case.model, call, plan, _joined(*batches))
            whole = prepare(model, plan.names, DOUBLE, None)
            check_locals(model, whole.rows.engine.joint)
        except ArgumentError:
            return None
        small = trace_batch(case.model, call, plan, batches[0])
        half = prepare(small, plan.names, DOUBLE, None, weighted=True, origins={})
        halves = tuple(half.inputs(rows) for rows in batches)
        return Rowwise(case, whole, half, halves)  # type: ignore[arg-type]


def _rows(call: Call, plan: Any, part: int) -> dict[str, Any]:
    source = call.source(plan.names)
    count = plan.total // 2
    return source.take(np.arange(part * count, (part + 1) * count))  # type: ignore[attr-defined]


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {n: np.ma.concatenate([first[n], second[n]]) if np.ma.isMaskedArray(first[n])
            else np.concatenate([first[n], second[n]]) for n in first}  # fmt: skip

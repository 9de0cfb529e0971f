"""Trajectories of NUTS (Hoffman and Gelman 2014; NumPyro's) over any density of one vector.

What is compiled takes a few steps of all chains from where they stand; the host asks for as many as
it can wait for. So chains can be interrupted, stop when time is over, and show how far they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import jaxpr_as_fun

from lowerbound.compiled import traced
from lowerbound.cost import Stopwatch, allowance
from lowerbound.methods.chains.rounds_of_chains import FEWEST_DRAWN, Chains
from lowerbound.methods.chains.units import Units

WARM = 300
LOOK = 6  # draws that tell what hundreds would take
ACCEPTED = 0.8
DEEPEST = 10  # doublings of a trajectory
PART = 100  # draws of each chain between two looks of the host, at most
PATIENCE = 0.5  # seconds between two such looks, about

Density = Callable[[Array, Any], Array]  # of a vector and data


class Place(NamedTuple):
    """Where chains stand: NumPyro's state of each, which says nothing before they have begun."""

    begun: Any
    state: Any


class _Part(NamedTuple):
    """Some draws (C, n, d) of chains, with what `trajectories` says of them (C, n)."""

    draws: np.ndarray
    values: np.ndarray
    diverged: np.ndarray
    gradients: np.ndarray

    def since(self, first: int, thin: int) -> Chains:
        """Those from the first on, of so many trajectories each."""
        draws, values, diverged, gradients = (array[:, first:] for array in self)
        return Chains(draws, values, thin * values.size, int(diverged.sum()), int(gradients.sum()))


def trajectories(
    density: Density,
    dense: bool,
    forward: bool = False,
    thin: int = 1,
    warm: int = WARM,
    shallow: int = DEEPEST,
) -> Any:
    """A function of a place, starts, keys, mean, root, data and a count: the place after so many
    draws, at most `PART`; the draws (C, PART, d), log p at them, and of each how many trajectories
    diverged and how many gradients they took.

    The chains go in coordinates where a Gaussian of that mean and root (a matrix, or sds) is
    standard, and begin at such. `dense`: the metric adapts as a matrix. `forward`: the density is
    differentiated forwards. `thin`: how many trajectories a draw is made of. `warm`: draws in which
    the metric and the steps adapt, whose trajectories are doubled at most `shallow` times.
    """

    def chain(held: Any, start: Array, key: Array, begun: Array, given: Any, count: Array) -> Any:
        loc, root, data = given

        def placed(inside: Array) -> Any:
            return loc + (root * inside if root.ndim == 1 else root @ inside)

        begin, once = _nuts(
            lambda inside: -density(placed(inside), data), dense, forward, thin * warm, shallow
        )
        fresh = begin(start, key)
        zero = jnp.zeros((), int)

        def step(number: Array, held: Any) -> Any:
            def more(_: Any, held: Any) -> Any:
                state, diverged, steps = held
                state = once(state)
                return state, diverged + state.diverging, steps + state.num_steps

            state, draws, values, lost, taken = held
            state, diverged, steps = jax.lax.fori_loop(0, thin, more, (state, zero, zero))
            return (
                state,
                draws.at[number].set(placed(state.z)),
                values.at[number].set(-state.potential_energy),
                lost.at[number].set(diverged),
                taken.at[number].set(steps),
            )

        state = jax.tree.map(lambda here, new: jnp.where(begun, here, new), held, fresh)
        none = jnp.zeros(PART, int)
        first = state, jnp.zeros((PART, len(start))), jnp.zeros(PART), none, none
        # One loop for all, which is compiled once.
        return jax.lax.fori_loop(0, count, step, first)

    def every(
        place: Place, starts: Array, keys: Array, loc: Array, root: Array, data: Any, count: Array
    ) -> Any:
        def one(held: Any, start: Array, key: Array) -> Any:
            return chain(held, start, key, place.begun, (loc, root, data), count)

        state, *found = jax.vmap(one)(place.state, starts, keys)
        return Place(jnp.ones((), bool), state), *found

    return every


def _nuts(potential: Any, dense: bool, forward: bool, warm: int, shallow: int) -> tuple[Any, Any]:
    """How chains of a potential begin, from a start and a key, and how they take a step."""
    from numpyro.infer.hmc import hmc

    begin, once = hmc(potential, algo="NUTS")

    def begun(start: Array, key: Array) -> Any:
        return begin(
            start,
            warm,
            dense_mass=dense,
            target_accept_prob=ACCEPTED,
            max_tree_depth=(shallow, DEEPEST),
            forward_mode_differentiation=forward,
            rng_key=key,
        )

    return begun, once


def _nowhere(starts: np.ndarray, keys: Array, dense: bool) -> Place:
    """The place of chains that have not begun: its form is the same for all potentials."""
    begin, _ = _nuts(lambda inside: 0.5 * inside @ inside, dense, False, WARM, DEEPEST)
    form = jax.eval_shape(jax.vmap(begin), starts, keys)

    def empty(leaf: Any) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return keys
        return jnp.zeros(leaf.shape, leaf.dtype)

    return Place(jnp.zeros((), bool), jax.tree.map(empty, form))


@dataclass(frozen=True, eq=False)
class Nuts:
    """Rounds of such trajectories.

    run: what `trajectories` has made, compiled, with the same `dense`, `thin` and `warm`. seen: is
    told how many draws of a round each chain has made, those in which it adapts among them.
    partial: whether an interruption leaves the draws that there are, if chains can be compared.
    """

    run: Any
    data: Any
    key: Array
    dense: bool
    thin: int = 1
    warm: int = WARM
    seen: Callable[[int], None] = lambda done: None
    partial: bool = False

    def __call__(self, starts: np.ndarray, units: Units, count: int, number: int) -> Chains:
        """So many draws of each chain; fewer, or none, where the time that there is has run out."""
        done, parts = 0, []
        try:
            for part in self._parts(starts, units, self.warm + count, number):
                parts.append(part)
                done += part.values.shape[1]
                self.seen(done)
                if allowance().over:
                    break
        except KeyboardInterrupt:
            if not self.partial or done < self.warm + FEWEST_DRAWN:
                raise
        whole = _Part(*(np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True)))
        return whole.since(self.warm, self.thin)

    def _parts(self, starts: np.ndarray, units: Units, count: int, number: int) -> Iterator[_Part]:
        """So many draws of each chain from where they begin, a few at a time."""
        go = self._going(starts, units, number)
        done, size = 0, LOOK
        while done < count:
            size = min(size, count - done, PART)
            began = time.perf_counter()
            yield go(size)
            pace = (time.perf_counter() - began) / size
            done += size
            size = max(1, min(2 * size, int(PATIENCE / max(pace, 1e-9))))

    def _going(self, starts: np.ndarray, units: Units, number: int) -> Callable[[int], _Part]:
        """What makes so many more draws of each chain."""
        inside = units.inward(starts - units.loc)
        keys = jax.random.split(jax.random.fold_in(self.key, number), len(starts))
        place = _nowhere(inside, keys, self.dense)

        def go(count: int) -> _Part:
            nonlocal place
            place, *found = self.run(place, inside, keys, *units, self.data, count)
            return _Part(*(np.asarray(array)[:, :count] for array in found))

        return go

    def foreseen(self, starts: np.ndarray, units: Units, count: int) -> float:
        """The seconds of so many draws of each chain, by the first few of those before them."""
        go = self._going(starts, units, 0)
        go(0)  # which compiles, and draws nothing
        watch = Stopwatch()
        go(LOOK)
        return watch.own_seconds / LOOK * (self.warm + count)


def differentiated(density: Density, vector: Array, data: Any) -> Density:
    """The same density, traced with its gradient once, however often a sampler asks for both.

    vector, data: of the shapes that it is traced for.
    """
    given, structure = jax.tree.flatten(data)

    def flat(vector: Array, *leaves: Any) -> Any:
        return jax.value_and_grad(density)(vector, jax.tree.unflatten(structure, leaves))

    closed = traced(flat)(vector, *given)

    @jax.custom_vjp
    def value(vector: Array, data: Any) -> Array:
        return jnp.asarray(jaxpr_as_fun(closed)(vector, *jax.tree.leaves(data))[0])

    def both(vector: Array, data: Any) -> Any:
        return tuple(jaxpr_as_fun(closed)(vector, *jax.tree.leaves(data)))

    value.defvjp(both, lambda slope, by: (by * slope, None))
    found: Density = value
    return found

"""Trajectories of NUTS (Hoffman and Gelman 2014; NumPyro's) over any density of one vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import jaxpr_as_fun

from lowerbound.compiled import traced
from lowerbound.cost import Stopwatch
from lowerbound.methods.chains.rounds_of_chains import Chains
from lowerbound.methods.chains.units import Units

WARM = 300
LOOK = 6  # draws that tell what hundreds would take
ACCEPTED = 0.8
DEEPEST = 10  # doublings of a trajectory

Density = Callable[[Array, Any], Array]  # of a vector and data


def trajectories(
    density: Density,
    kept: int,
    dense: bool,
    forward: bool = False,
    thin: int = 1,
    warm: int = WARM,
    shallow: int = DEEPEST,
) -> Any:
    """A function of starts, keys, mean, root, data and a count: draws (C, S, d), log p at them, and
    of each how many trajectories diverged and how many gradients they took.

    The chains go in coordinates where a Gaussian of that mean and root (a matrix, or sds) is
    standard, and begin at such. `kept`: the most draws, of which the first `count` are made.
    `dense`: the metric adapts as a matrix. `forward`: the density is differentiated forwards.
    `thin`: how many trajectories a draw is kept after. `warm`: draws before the first that is kept,
    whose trajectories are doubled at most `shallow` times.
    """
    from numpyro.infer.hmc import hmc

    def chain(start: Array, key: Array, loc: Array, root: Array, data: Any, count: Array) -> Any:
        def placed(inside: Array) -> Array:
            return loc + (root * inside if root.ndim == 1 else root @ inside)

        begin, once = hmc(lambda inside: -density(placed(inside), data), algo="NUTS")
        state = begin(
            start,
            warm * thin,
            dense_mass=dense,
            target_accept_prob=ACCEPTED,
            max_tree_depth=(shallow, DEEPEST),
            forward_mode_differentiation=forward,
            rng_key=key,
        )
        zero = jnp.zeros((), int)

        def step(number: Array, held: Any) -> Any:
            def more(_: Any, held: Any) -> Any:
                state, diverged, steps = held
                state = once(state)
                return state, diverged + state.diverging, steps + state.num_steps

            state, draws, values, lost, taken = held
            state, diverged, steps = jax.lax.fori_loop(0, thin, more, (state, zero, zero))
            at = jnp.where(number < warm, kept, number - warm)
            return (
                state,
                draws.at[at].set(placed(state.z), mode="drop"),
                values.at[at].set(-state.potential_energy, mode="drop"),
                lost.at[at].set(diverged, mode="drop"),
                taken.at[at].set(steps, mode="drop"),
            )

        none = jnp.zeros(kept, int)
        first = state, jnp.zeros((kept, len(start))), jnp.zeros(kept), none, none
        # One loop for all, which is compiled once.
        return jax.lax.fori_loop(0, warm + count, step, first)[1:]

    def every(starts: Array, keys: Array, loc: Array, root: Array, data: Any, count: Array) -> Any:
        return jax.vmap(lambda s, k: chain(s, k, loc, root, data, count))(starts, keys)

    return every


@dataclass(frozen=True, eq=False)
class Nuts:
    """Rounds of such trajectories, compiled for at most `kept` draws of each chain.

    run: what `trajectories` has made, compiled. thin: how many are taken for a draw. warm: draws
    before the first that is kept.
    """

    run: Any
    data: Any
    key: Array
    kept: int
    thin: int = 1
    warm: int = WARM

    def __call__(self, starts: np.ndarray, units: Units, count: int, number: int) -> Chains:
        """So many draws of each chain; none, but for what is compiled, where `count` is below 0."""
        inside = units.inward(starts - units.loc)
        keys = jax.random.split(jax.random.fold_in(self.key, number), len(starts))
        count = min(count, self.kept)
        found = self.run(inside, keys, *units, self.data, count)
        draws, values, lost, taken = (np.asarray(array)[:, : max(count, 0)] for array in found)
        return Chains(draws, values, self.thin * values.size, int(lost.sum()), int(taken.sum()))

    def foreseen(self, starts: np.ndarray, units: Units, count: int) -> float:
        """The seconds of so many draws of each chain, by the first few of those before them."""
        self(starts, units, -self.warm, 0)  # which compiles, and draws nothing
        watch = Stopwatch()
        self(starts, units, LOOK - self.warm, 0)
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

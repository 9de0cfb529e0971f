"""Chains of NUTS (Hoffman and Gelman 2014; NumPyro's) over any density of one vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

CHAINS, WARM = 4, 300
ACCEPTED = 0.8

Density = Callable[[Array, Any], Array]  # of a vector and data


def trajectories(
    density: Density, kept: int, dense: bool, forward: bool = False, thin: int = 1
) -> Any:
    """A function of starts, keys, mean, root and data: draws (C, S, d), divergences, lengths.

    The chains go in coordinates where a Gaussian of that mean and root (a matrix, or sds) is
    standard, and begin at such. `dense`: the metric adapts as a matrix. `forward`: the density is
    differentiated forwards. `thin`: how many trajectories a draw is kept after.
    """
    from numpyro.infer.hmc import hmc

    def chain(start: Array, key: Array, loc: Array, root: Array, data: Any) -> Any:
        def placed(inside: Array) -> Array:
            return loc + (root * inside if root.ndim == 1 else root @ inside)

        begin, once = hmc(lambda inside: -density(placed(inside), data), algo="NUTS")
        state = begin(
            start,
            WARM * thin,
            dense_mass=dense,
            target_accept_prob=ACCEPTED,
            forward_mode_differentiation=forward,
            rng_key=key,
        )

        def step(state: Any, _: None) -> tuple[Any, Any]:
            def more(_: Any, held: Any) -> Any:
                state, diverged, steps = held
                state = once(state)
                return state, diverged + state.diverging, steps + state.num_steps

            zero = jnp.zeros((), int)
            state, diverged, steps = jax.lax.fori_loop(0, thin, more, (state, zero, zero))
            return state, (placed(state.z), diverged, steps)

        # One loop for all, which is compiled once.
        found = jax.lax.scan(step, state, None, length=WARM + kept)[1]
        return jax.tree.map(lambda array: array[WARM:], found)

    def every(starts: Array, keys: Array, loc: Array, root: Array, data: Any) -> Any:
        return jax.vmap(lambda s, k: chain(s, k, loc, root, data))(starts, keys)

    return every

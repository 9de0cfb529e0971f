"""The density of a linear-Gaussian state space with its states integrated out: a Kalman filter."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


class StateSpace(NamedTuple):
    """z[t] = A z[t - 1] + N(0, Q), y[t] = C[t] z[t] + N(0, diag(R)), the first z of N(m, P) before.

    C: (d, k), or (steps, d, k) where it moves. R: (d,).
    """

    A: Any
    Q: Any
    C: Any
    R: Any
    m: Any
    P: Any


def marginal(space: StateSpace, y: Any) -> None:
    """A factor: the log density of y (steps, d) without the states, a series at a time."""
    y = jnp.asarray(y)
    loadings = jnp.broadcast_to(space.C, (len(y), y.shape[1], len(space.m)))

    def step(state: Any, now: Any) -> tuple[Any, Any]:
        (mean, spread), (y, C) = state, now
        mean, spread = space.A @ mean, space.A @ spread @ space.A.T + space.Q
        log_p = 0.0
        for own, c, r in zip(y, C, space.R, strict=True):
            across = spread @ c
            total = c @ across + r
            log_p += dist.Normal(c @ mean, jnp.sqrt(total)).log_prob(own)
            mean = mean + across * (own - c @ mean) / total
            spread = spread - jnp.outer(across, across) / total
        return (mean, spread), log_p

    _, log_p = jax.lax.scan(step, (space.m, space.P), (y, loadings))
    numpyro.factor("y", log_p.sum())

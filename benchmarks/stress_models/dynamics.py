"""Differential equations: an epidemic (solved numerically), a drug in the body (closed form)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.experimental.ode import odeint

from benchmarks.stress_models.program import Data, Program

BOYS = 763.0


def flow(state, _, beta, gamma):
    s, i, _ = state
    infected, recovered = beta * s * i / BOYS, gamma * i
    return jnp.stack([-infected, infected - recovered, recovered])


def influenza(rng: np.random.Generator) -> Data:
    state, path = np.array([BOYS - 1, 1.0]), []
    for _ in range(14):
        for _ in range(1000):
            infected, recovered = 1.7 * state[0] * state[1] / BOYS, 0.5 * state[1]
            state = state + np.array([-infected, infected - recovered]) / 1000
        path.append(state[1])
    mean = np.array(path)
    return {"days": np.arange(15.0), "in_bed": rng.negative_binomial(10, 10 / (10 + mean))}


def epidemic(days, in_bed=None):
    beta = numpyro.sample("beta", dist.TruncatedNormal(2.0, 1.0, low=0.0))
    gamma = numpyro.sample("gamma", dist.TruncatedNormal(0.4, 0.5, low=0.0))
    phi_inv = numpyro.sample("phi_inv", dist.Exponential(5.0))
    start = jnp.array([BOYS - 1, 1.0, 0.0])
    path = odeint(flow, start, jnp.asarray(days), beta, gamma, rtol=1e-6, atol=1e-6)
    numpyro.deterministic("r0", beta / gamma)
    mean = jnp.maximum(path[1:, 1], 1e-6)
    numpyro.sample("in_bed", dist.NegativeBinomial2(mean, 1 / phi_inv), obs=in_bed)


def blood(rng: np.random.Generator) -> Data:
    time = np.array([0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0])
    ka, ke, volume = 1.4, 0.15, 30.0
    mean = 320 * ka / (volume * (ka - ke)) * (np.exp(-ke * time) - np.exp(-ka * time))
    return {"time": time, "concentration": mean * np.exp(rng.normal(0, 0.15, 12))}


def one_compartment(time, concentration=None):
    ka = numpyro.sample("ka", dist.LogNormal(jnp.log(1.0), 0.7))
    clearance = numpyro.sample("clearance", dist.LogNormal(jnp.log(5.0), 0.7))
    volume = numpyro.sample("volume", dist.LogNormal(jnp.log(30.0), 0.5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    ke = clearance / volume
    rise = ka / (volume * (ka - ke))
    mean = 320 * rise * (jnp.exp(-ke * time) - jnp.exp(-ka * time))
    law = dist.LogNormal(jnp.log(jnp.maximum(mean, 1e-12)), sigma)
    numpyro.sample("concentration", law, obs=concentration)


PROGRAMS = {
    "epidemic": Program(epidemic, influenza),
    "one_compartment": Program(one_compartment, blood),
}

"""Numbers that no linear predictor holds, around common ones: discriminations, shapes, shifts."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program

GROUPS = 10


def answers(rng: np.random.Generator) -> Data:
    ability, easy = rng.normal(size=60), rng.normal(size=8)
    slope = rng.lognormal(0, 0.3, 8)
    chance = 1 / (1 + np.exp(-slope * (ability[:, None] - easy)))
    return {"y": (rng.random((60, 8)) < chance).astype(int)}


def discriminations(y):
    # the two-parameter logistic model of item response theory
    spread = numpyro.sample("spread", dist.HalfNormal(0.5))
    with numpyro.plate("items", y.shape[1]):
        slope = numpyro.sample("slope", dist.LogNormal(0, spread))
        easy = numpyro.sample("easy", dist.Normal(0, 1.5))
    with numpyro.plate("people", y.shape[0]):
        ability = numpyro.sample("ability", dist.Normal(0, 1))
    numpyro.sample("y", dist.Bernoulli(logits=slope * (ability[:, None] - easy)), obs=y)


def visits(rng: np.random.Generator) -> Data:
    return {"group": np.repeat(np.arange(GROUPS), 8), "y": rng.negative_binomial(3, 0.4, 80)}


def shapes_by_group(group, y=None):
    m = numpyro.sample("m", dist.Normal(0, 1))
    t = numpyro.sample("t", dist.HalfNormal(0.4))
    mu = numpyro.sample("mu", dist.Normal(1, 1))
    sd = numpyro.sample("sd", dist.HalfNormal(1))
    with numpyro.plate("groups", GROUPS):
        shape = numpyro.sample("shape", dist.LogNormal(m, t))
        u = numpyro.sample("u", dist.Normal(0, sd))
    with numpyro.plate("rows", len(group)):
        law = dist.NegativeBinomial2(jnp.exp(mu + u[group]), shape[group])
        numpyro.sample("y", law, obs=y)


def responses(rng: np.random.Generator) -> Data:
    group, x = np.repeat(np.arange(GROUPS), 8), np.tile(np.linspace(-1.5, 1.5, 8), GROUPS)
    mean = rng.normal(0, 0.5, GROUPS)[group] + np.tanh(x + rng.normal(0, 0.3, GROUPS)[group])
    return {"group": group, "x": x, "y": rng.normal(mean, 0.2)}


def shifted_curves(group, x, y=None):
    m = numpyro.sample("m", dist.Normal(0, 1))
    t = numpyro.sample("t", dist.HalfCauchy(0.5))
    level = numpyro.sample("level", dist.HalfNormal(1))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    with numpyro.plate("groups", GROUPS):
        shift = numpyro.sample("shift", dist.Normal(m, t))
        u = numpyro.sample("u", dist.Normal(0, level))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(u[group] + jnp.tanh(x + shift[group]), noise), obs=y)


PROGRAMS = {
    "discriminations": Program(discriminations, answers),
    "shapes_by_group": Program(shapes_by_group, visits),
    "shifted_curves": Program(shifted_curves, responses),
}

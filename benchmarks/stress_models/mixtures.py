"""Marginalised mixtures and hidden Markov models, with ordered components."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp

from benchmarks.stress_models.program import Data, Program, flat_ordered


def two_groups(rng: np.random.Generator) -> Data:
    group = rng.uniform(size=300) < 0.35
    return {"y": np.where(group, rng.normal(-2.0, 0.8, 300), rng.normal(1.5, 1.2, 300))}


def mixture_2(y):
    theta = numpyro.sample("theta", dist.Beta(5, 5))
    mu = flat_ordered("mu", 2)
    numpyro.factor("mu_prior", dist.Normal(0, 2).log_prob(mu).sum())
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0).expand([2]).to_event(1))
    parts = dist.Normal(mu, sigma).log_prob(jnp.asarray(y)[:, None])
    weights = jnp.log(jnp.stack([theta, 1 - theta]))
    numpyro.factor("y", logsumexp(weights + parts, axis=1).sum())


def five_groups(rng: np.random.Generator) -> Data:
    group = rng.choice(5, 500, p=[0.15, 0.2, 0.3, 0.15, 0.2])
    return {"y": np.array([-8.0, -4.0, 0.0, 4.5, 9.0])[group] + rng.normal(0, 0.8, 500)}


def mixture_5(y):
    theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(5, 2.0)))
    mu = flat_ordered("mu", 5)
    numpyro.factor("mu_prior", dist.Normal(0, 10).log_prob(mu).sum())
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0).expand([5]).to_event(1))
    law = dist.MixtureSameFamily(dist.Categorical(probs=theta), dist.Normal(mu, sigma))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", law, obs=y)


def eggs(rng: np.random.Generator) -> Data:
    x = rng.normal(0, 1, 200)
    count = np.where(rng.uniform(size=200) < 0.3, 0, rng.poisson(np.exp(1.0 + 0.4 * x)))
    return {"x": x, "count": count}


def zero_inflated(x, count):
    pi = numpyro.sample("pi", dist.Beta(1, 1))
    alpha = numpyro.sample("alpha", dist.Normal(0, 5))
    beta = numpyro.sample("beta", dist.Normal(0, 5))
    log_rate = alpha + beta * jnp.asarray(x)
    present = jnp.log1p(-pi) + dist.Poisson(jnp.exp(log_rate)).log_prob(count)
    absent = jnp.where(count == 0, jnp.log(pi), -jnp.inf)
    numpyro.factor("count", logsumexp(jnp.stack([present, absent]), axis=0).sum())


def regimes(rng: np.random.Generator) -> Data:
    transition = np.array([[0.9, 0.07, 0.03], [0.05, 0.9, 0.05], [0.04, 0.06, 0.9]])
    states = [0]
    for _ in range(249):
        states.append(rng.choice(3, p=transition[states[-1]]))
    return {"y": np.array([-2.0, 0.5, 3.0])[states] + rng.normal(0, [0.5, 0.7, 0.9], (250, 3))[
        np.arange(250), states]}  # fmt: skip


def hmm_gaussian(y):
    rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(3) + 4 * jnp.eye(3)).to_event(1))
    mu = flat_ordered("mu", 3)
    numpyro.factor("mu_prior", dist.Normal(0, 5).log_prob(mu).sum())
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0).expand([3]).to_event(1))
    emitted = dist.Normal(mu, sigma).log_prob(jnp.asarray(y)[:, None])
    log_rows = jnp.log(rows)

    def step(forward, now):
        return logsumexp(forward[:, None] + log_rows, axis=0) + now, None

    forward, _ = jax.lax.scan(step, emitted[0] - jnp.log(3.0), emitted[1:])
    numpyro.factor("y", logsumexp(forward))


PROGRAMS = {
    "mixture_2": Program(mixture_2, two_groups),
    "mixture_5": Program(mixture_5, five_groups),
    "zero_inflated": Program(zero_inflated, eggs),
    "hmm_gaussian": Program(hmm_gaussian, regimes),
}

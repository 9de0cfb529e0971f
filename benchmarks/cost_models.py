"""A dozen programs whose fits are hard to foretell: many numbers, many starts, many rows.

They are of `benchmarks.costs` alone; the counts of Gaussians were set with some of them in view.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program


def plane(rng: np.random.Generator) -> Data:
    centres = rng.normal(0, 4, (6, 2))
    return {"x": centres[rng.integers(6, size=600)] + rng.normal(0, 0.7, (600, 2)), "K": 6}


def mixture_plane(x, K):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    with numpyro.plate("rows", len(x)):
        c = numpyro.sample("c", dist.Categorical(weights))
        numpyro.sample("x", dist.Normal(mu[c], tau[c, None] ** -0.5).to_event(1), obs=x)


def votes(rng: np.random.Generator) -> Data:
    kind = rng.integers(3, size=400)
    return {"y": (rng.uniform(size=(400, 12)) < rng.uniform(size=(3, 12))[kind]).astype(int)}


def latent_classes(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("items", y.shape[1], dim=-1), numpyro.plate("classes", 3, dim=-2):
        p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    with numpyro.plate("rows", len(y)):
        c = numpyro.sample("c", dist.Categorical(weights))
        numpyro.sample("y", dist.Bernoulli(p[c]).to_event(1), obs=y)


def ratings(rng: np.random.Generator) -> Data:
    u, v = rng.normal(size=(60, 3)), rng.normal(size=(40, 3))
    i, j = rng.integers(60, size=900), rng.integers(40, size=900)
    return {"i": i, "j": j, "y": (u[i] * v[j]).sum(1) + rng.normal(0, 0.5, 900)}


def factorisation(i, j, y):
    u = numpyro.sample("u", dist.Normal(0, 1).expand([60, 3]).to_event(2))
    v = numpyro.sample("v", dist.Normal(0, 1).expand([40, 3]).to_event(2))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal((u[i] * v[j]).sum(-1), tau**-0.5), obs=y)


def answers(rng: np.random.Generator) -> Data:
    skill, hard = rng.normal(size=150), rng.normal(size=20)
    p = 0.2 + 0.8 / (1 + np.exp(-1.3 * (skill[:, None] - hard)))
    return {"y": (rng.uniform(size=(150, 20)) < p).astype(int)}


def guessing(y):
    persons, items = y.shape
    skill = numpyro.sample("skill", dist.Normal(0, 1).expand([persons]).to_event(1))
    hard = numpyro.sample("hard", dist.Normal(0, 2).expand([items]).to_event(1))
    slope = numpyro.sample("slope", dist.LogNormal(0, 0.5).expand([items]).to_event(1))
    guess = numpyro.sample("guess", dist.Beta(5, 17).expand([items]).to_event(1))
    p = guess + (1 - guess) * jax.nn.sigmoid(slope * (skill[:, None] - hard))
    numpyro.sample("y", dist.Bernoulli(p).to_event(2), obs=y)


def populations(rng: np.random.Generator) -> Data:
    n = [1.0]
    for _ in range(119):
        n.append(n[-1] * np.exp(0.7 * (1 - n[-1] / 5.0) + rng.normal(0, 0.1)))
    return {"y": rng.poisson(20 * np.array(n))}


def ricker(y):
    rate = numpyro.sample("rate", dist.LogNormal(-0.5, 0.5))
    capacity = numpyro.sample("capacity", dist.LogNormal(1.5, 0.5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.3))
    noise = numpyro.sample("noise", dist.Normal(0, 1).expand([len(y)]).to_event(1))

    def step(log_n, e):
        log_n = log_n + rate * (1 - jnp.exp(log_n) / capacity) + sigma * e
        return log_n, log_n

    _, log_n = jax.lax.scan(step, jnp.zeros(()), noise)
    numpyro.sample("y", dist.Poisson(20 * jnp.exp(log_n)).to_event(1), obs=y)


def wave(rng: np.random.Generator) -> Data:
    x = rng.uniform(-2, 2, 200)
    return {"x": x, "y": np.sin(2 * x) + rng.normal(0, 0.2, 200)}


def network(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2, 16]).to_event(2))
    v = numpyro.sample("v", dist.Normal(0, 0.5).expand([16]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    hidden = jnp.tanh(x[:, None] * w[0] + w[1])
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(hidden @ v, sigma), obs=y)


def clicks(rng: np.random.Generator) -> Data:
    x = rng.normal(size=(20_000, 12))
    p = 1 / (1 + np.exp(-(x @ rng.normal(0, 0.5, 12) - 1)))
    return {"x": x, "y": (rng.uniform(size=20_000) < p).astype(int)}


def many_rows(x, y):
    alpha = numpyro.sample("alpha", dist.Normal(0, 2))
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=alpha + x @ beta), obs=y)


def visits(rng: np.random.Generator) -> Data:
    ward, x = rng.integers(300, size=3000), rng.normal(size=3000)
    effect = rng.normal(0, 0.5, 300)
    return {"ward": ward, "x": x, "y": rng.poisson(np.exp(0.5 + effect[ward] + 0.2 * x))}


def wards(ward, x, y):
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    beta = numpyro.sample("beta", dist.Normal(0, 1))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("wards", 300):
        effect = numpyro.sample("effect", dist.Normal(0, tau))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Poisson(jnp.exp(mu + effect[ward] + beta * x)), obs=y)


def doses(rng: np.random.Generator) -> Data:
    t = np.tile(np.linspace(0.5, 12, 9), (80, 1))
    clearance = np.exp(rng.normal(-1.5, 0.3, (80, 1)))
    return {"t": t, "y": np.log(10 * np.exp(-clearance * t)) + rng.normal(0, 0.2, (80, 9))}


def subjects(t, y):
    centre = numpyro.sample("centre", dist.Normal(jnp.array([2.0, -1.0]), 1.0).to_event(1))
    spread = numpyro.sample("spread", dist.HalfNormal(0.5).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    with numpyro.plate("subjects", len(y)):
        own = numpyro.sample("own", dist.Normal(centre, spread).to_event(1))
        level = own[:, :1] - jnp.exp(own[:, 1:]) * t
        numpyro.sample("y", dist.StudentT(5.0, level, sigma).to_event(1), obs=y)


def waits(rng: np.random.Generator) -> Data:
    x = rng.normal(size=(250, 4))
    return {"x": x, "y": rng.gamma(2.0, np.exp(0.3 * x[:, 0] - 0.2 * x[:, 1]) / 2)}


def gamma_regression(x, y):
    shape = numpyro.sample("shape", dist.Gamma(2.0, 0.5))
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([4]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Gamma(shape, shape * jnp.exp(-x @ beta)), obs=y)


def curve(rng: np.random.Generator) -> Data:
    x = np.sort(rng.uniform(0, 10, 400))
    return {"x": x, "y": rng.poisson(np.exp(1 + np.sin(x)))}


def bumps(x, y):
    width = numpyro.sample("width", dist.HalfNormal(2.0))
    basis = jnp.exp(-0.5 * (x[:, None] - jnp.linspace(0, 10, 25)) ** 2)
    w = numpyro.sample("w", dist.Normal(0, 1).expand([25]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Poisson(jnp.exp(basis @ w * width)), obs=y)


PROGRAMS = {
    "mixture_plane": Program(mixture_plane, plane),
    "latent_classes": Program(latent_classes, votes),
    "factorisation": Program(factorisation, ratings),
    "guessing": Program(guessing, answers),
    "ricker": Program(ricker, populations),
    "network": Program(network, wave),
    "many_rows": Program(many_rows, clicks),
    "wards": Program(wards, visits),
    "subjects": Program(subjects, doses),
    "gamma_regression": Program(gamma_regression, waits),
    "bumps": Program(bumps, curve),
}


def load(name: str) -> Program:
    """The program of that name."""
    return PROGRAMS[name]

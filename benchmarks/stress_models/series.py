"""Time series: ARMA by scan, latent levels, stochastic volatility, a change point."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from jax.scipy.special import logsumexp

from benchmarks.stress_models.program import Data, Program


def arma(rng: np.random.Generator) -> Data:
    noise = rng.normal(0, 0.5, 201)
    y = np.zeros(201)
    for t in range(1, 201):
        y[t] = 0.3 + 0.6 * y[t - 1] + noise[t] + 0.4 * noise[t - 1]
    return {"y": y[1:]}


def arma_11(y):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    phi = numpyro.sample("phi", dist.Normal(0, 2))
    theta = numpyro.sample("theta", dist.Normal(0, 2))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))

    def step(carry, now):
        previous, error = carry
        error = now - (mu + phi * previous + theta * error)
        return (now, error), error

    first = y[0] - (mu + phi * mu)
    _, errors = lax.scan(step, (jnp.asarray(y[0]), first), jnp.asarray(y[1:]))
    numpyro.sample("errors", dist.Normal(0, sigma), obs=jnp.append(first, errors))


def river(rng: np.random.Generator) -> Data:
    return {"flow": 10 + np.cumsum(rng.normal(0, 0.4, 100)) + rng.normal(0, 1.2, 100)}


def local_level(flow):
    first = numpyro.sample("first", dist.Normal(10, 10))
    sigma_level = numpyro.sample("sigma_level", dist.HalfNormal(2.0))
    sigma_flow = numpyro.sample("sigma_flow", dist.HalfNormal(2.0))
    steps = numpyro.sample("steps", dist.Normal(0, 1).expand([99]).to_event(1))
    level = jnp.append(first, first + sigma_level * jnp.cumsum(steps))
    numpyro.deterministic("level", level)
    numpyro.sample("flow", dist.Normal(level, sigma_flow), obs=flow)


def ar1_states(flow):
    """The centred form: each state is a site's element given the one before."""
    mu = numpyro.sample("mu", dist.Normal(10, 10))
    rho = numpyro.sample("rho", dist.Uniform(-1, 1))
    sigma_state = numpyro.sample("sigma_state", dist.HalfCauchy(1.0))
    sigma_flow = numpyro.sample("sigma_flow", dist.HalfCauchy(1.0))
    state = numpyro.sample("state", dist.Normal(mu, 10).expand([100]).to_event(1))
    jumps = dist.Normal(mu + rho * (state[:-1] - mu), sigma_state).log_prob(state[1:]).sum()
    wide = dist.Normal(mu, 10).log_prob(state[1:]).sum()
    numpyro.factor("transitions", jumps - wide)
    numpyro.sample("flow", dist.Normal(state, sigma_flow), obs=flow)


def returns(rng: np.random.Generator) -> Data:
    h = np.zeros(100)
    h[0] = rng.normal(-1.0, 0.25 / np.sqrt(1 - 0.95**2))
    for t in range(1, 100):
        h[t] = -1.0 + 0.95 * (h[t - 1] + 1.0) + rng.normal(0, 0.25)
    return {"y": rng.normal(0, np.exp(h / 2))}


def stochastic_volatility(y):
    mu = numpyro.sample("mu", dist.Cauchy(0, 10))
    phi = numpyro.sample("phi", dist.Uniform(-1, 1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(5.0))
    h_std = numpyro.sample("h_std", dist.Normal(0, 1).expand([len(y)]).to_event(1))
    noise = h_std * sigma
    start = noise[0] / jnp.sqrt(1 - phi**2)

    def step(h, e):
        h = phi * h + e
        return h, h

    _, rest = lax.scan(step, start, noise[1:])
    h = numpyro.deterministic("h", mu + jnp.append(start, rest))
    numpyro.sample("y", dist.Normal(0, jnp.exp(h / 2)), obs=y)


def volatility_walk(y):
    """NumPyro's own example: a Gaussian random walk and Student-t returns."""
    step_size = numpyro.sample("sigma", dist.Exponential(10.0))
    s = numpyro.sample("s", dist.GaussianRandomWalk(scale=step_size, num_steps=len(y)))
    nu = numpyro.sample("nu", dist.Exponential(0.1))
    numpyro.sample("r", dist.StudentT(df=nu, loc=0.0, scale=jnp.exp(s)), obs=y)


def disasters(rng: np.random.Generator) -> Data:
    return {"count": np.concatenate([rng.poisson(3.1, 40), rng.poisson(0.9, 71)])}


def change_point(count):
    early = numpyro.sample("early", dist.Exponential(1.0))
    late = numpyro.sample("late", dist.Exponential(1.0))
    before = jnp.cumsum(dist.Poisson(early).log_prob(count))
    after = jnp.cumsum(dist.Poisson(late).log_prob(count)[::-1])[::-1]
    numpyro.factor("counts", logsumexp(before[:-1] + after[1:]) - jnp.log(len(count) - 1))


PROGRAMS = {
    "arma_11": Program(arma_11, arma),
    "local_level": Program(local_level, river),
    "ar1_states": Program(ar1_states, river),
    "stochastic_volatility": Program(stochastic_volatility, returns),
    "volatility_walk": Program(volatility_walk, returns),
    "change_point": Program(change_point, disasters),
}

"""Growth: of rats (linear, by animal), of dugongs (saturating), of a population (exponential)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program, flat


def rats(rng: np.random.Generator) -> Data:
    day = np.array([8.0, 15.0, 22.0, 29.0, 36.0])
    alpha, beta = rng.normal(242, 14, (30, 1)), rng.normal(6.2, 0.5, (30, 1))
    return {"day": day, "weight": alpha + beta * (day - day.mean()) + rng.normal(0, 6, (30, 5))}


def rats_model(day, weight=None):
    mu_alpha = numpyro.sample("mu_alpha", dist.Normal(0, 100))
    mu_beta = numpyro.sample("mu_beta", dist.Normal(0, 100))
    tau_alpha = numpyro.sample("tau_alpha", dist.Gamma(1e-3, 1e-3))
    tau_beta = numpyro.sample("tau_beta", dist.Gamma(1e-3, 1e-3))
    tau_y = numpyro.sample("tau_y", dist.Gamma(1e-3, 1e-3))
    with numpyro.plate("rats", 30):
        alpha = numpyro.sample("alpha", dist.Normal(mu_alpha, 1 / jnp.sqrt(tau_alpha)))
        beta = numpyro.sample("beta", dist.Normal(mu_beta, 1 / jnp.sqrt(tau_beta)))
    mean = alpha[:, None] + beta[:, None] * (day - day.mean())
    numpyro.deterministic("alpha0", mu_alpha - day.mean() * mu_beta)
    numpyro.sample("weight", dist.Normal(mean, 1 / jnp.sqrt(tau_y)), obs=weight)


def dugongs(rng: np.random.Generator) -> Data:
    age = np.sort(rng.gamma(2.0, 5.0, 27) + 1.0)
    return {"age": age, "length": 2.65 - 0.97 * 0.86**age + rng.normal(0, 0.1, 27)}


def dugongs_model(age, length=None):
    alpha = numpyro.sample("alpha", dist.Normal(0, 1000))
    beta = numpyro.sample("beta", dist.Normal(0, 1000))
    gamma = numpyro.sample("gamma", dist.Uniform(0.5, 1.0))
    tau = numpyro.sample("tau", dist.Gamma(1e-4, 1e-4))
    numpyro.deterministic("sigma", 1 / jnp.sqrt(tau))
    mean = alpha - beta * gamma ** jnp.asarray(age)
    numpyro.sample("length", dist.Normal(mean, 1 / jnp.sqrt(tau)), obs=length)


def population(rng: np.random.Generator) -> Data:
    year = np.arange(25.0)
    return {"year": year, "count": 12.0 * np.exp(0.11 * year + rng.normal(0, 0.2, 25))}


def exponential_growth(year, count=None):
    start = numpyro.sample("start", dist.LogNormal(2.0, 1.0))
    rate = numpyro.sample("rate", dist.Normal(0, 0.5))
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    mean = jnp.log(start) + rate * jnp.asarray(year)
    numpyro.sample("count", dist.LogNormal(mean, sigma), obs=count)


def capacity(rng: np.random.Generator) -> Data:
    time = np.linspace(0, 12, 20)
    size = 100.0 / (1 + (100 / 5 - 1) * np.exp(-0.8 * time))
    return {"time": time, "size": size + rng.normal(0, 3, 20)}


def logistic_growth(time, size=None):
    ceiling = numpyro.sample("ceiling", dist.HalfNormal(200.0))
    begin = numpyro.sample("begin", dist.HalfNormal(20.0))
    rate = numpyro.sample("rate", dist.HalfNormal(2.0))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(5.0))
    mean = ceiling / (1 + (ceiling / begin - 1) * jnp.exp(-rate * jnp.asarray(time)))
    numpyro.sample("size", dist.Normal(mean, sigma), obs=size)


def temperatures(rng: np.random.Generator) -> Data:
    year = np.arange(1952.0, 2014.0)
    return {"year": year, "celsius": 9.3 + 0.02 * (year - 1983) + rng.normal(0, 1.1, 62)}


def kilpisjarvi(year, celsius=None):
    alpha = numpyro.sample("alpha", dist.Normal(9.3, 100.0))
    beta = numpyro.sample("beta", dist.Normal(0, 0.0333))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(5.0))
    numpyro.sample("celsius", dist.Normal(alpha + beta * year, sigma), obs=celsius)


def kilpisjarvi_flat(year, celsius=None):
    alpha, beta = flat("alpha"), flat("beta")
    log_sigma = flat("log_sigma")
    numpyro.sample("celsius", dist.Normal(alpha + beta * year, jnp.exp(log_sigma)), obs=celsius)


PROGRAMS = {
    "rats": Program(rats_model, rats),
    "dugongs": Program(dugongs_model, dugongs),
    "exponential_growth": Program(exponential_growth, population),
    "logistic_growth": Program(logistic_growth, capacity),
    "kilpisjarvi": Program(kilpisjarvi, temperatures),
    "kilpisjarvi_flat": Program(kilpisjarvi_flat, temperatures),
}

"""Measurements: nested and looped groups, scales with predictors, censoring, errors in x."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.stats import norm
from numpyro.infer.reparam import LocScaleReparam

from benchmarks.stress_models.program import Data, Program


def costs(rng: np.random.Generator) -> Data:
    ward, age = np.repeat(np.arange(14), 12), rng.normal(size=168)
    mu = np.exp(2.0 + 0.3 * age + rng.normal(0, 0.4, 14)[ward])
    return {"ward": ward, "age": age, "y": rng.gamma(4.0, mu / 4.0)}


def gamma_costs(ward, age, y=None):
    b = numpyro.sample("b", dist.Normal(0, 5).expand([2]).to_event(1))
    shape = numpyro.sample("shape", dist.Exponential(0.3))
    s = numpyro.sample("s", dist.HalfNormal(1))
    with numpyro.plate("wards", 14):
        u = numpyro.sample("u", dist.Normal(0, 1))
    mu = jnp.exp(b[0] + b[1] * age + s * u[ward])
    with numpyro.plate("stays", len(age)):
        numpyro.sample("y", dist.Gamma(shape, shape / mu), obs=y)


def reactions(rng: np.random.Generator) -> Data:
    person, x = np.repeat(np.arange(18), 12), np.tile(np.linspace(-1, 1, 12), 18)
    mean = 2.0 + 0.5 * x + rng.normal(0, 0.5, 18)[person]
    spread = np.exp(-0.7 + 0.4 * x + rng.normal(0, 0.35, 18)[person])
    return {"person": person, "x": x, "y": rng.normal(mean, spread)}


def location_and_scale(person, x, y=None):
    # brms: bf(y ~ x + (1 | person), sigma ~ x + (1 | person))
    b = numpyro.sample("b", dist.Normal(0, 5).expand([2]).to_event(1))
    c = numpyro.sample("c", dist.Normal(0, 2).expand([2]).to_event(1))
    sd = numpyro.sample("sd", dist.HalfNormal(1))
    sd_sigma = numpyro.sample("sd_sigma", dist.HalfNormal(1))
    with numpyro.plate("people", 18):
        u = numpyro.sample("u", dist.Normal(0, 1))
        v = numpyro.sample("v", dist.Normal(0, 1))
    mu = b[0] + b[1] * x + sd * u[person]
    log_sigma = c[0] + c[1] * x + sd_sigma * v[person]
    with numpyro.plate("trials", len(x)):
        numpyro.sample("y", dist.Normal(mu, jnp.exp(log_sigma)), obs=y)


def schools(rng: np.random.Generator) -> Data:
    return {
        "y": np.array([28.0, 8, -3, 7, -1, 1, 18, 12, 5, 14, -6, 10]),
        "se": np.array([15.0, 10, 16, 11, 9, 11, 10, 18, 7, 12, 9, 14]),
    }


def _meta(se, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("studies", len(se)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, se), obs=y)


meta_analysis = numpyro.handlers.reparam(_meta, config={"theta": LocScaleReparam(0)})


def censored_doses(rng: np.random.Generator) -> Data:
    site, x = np.repeat(np.arange(12), 12), rng.normal(size=144)
    y = 1.0 + 0.6 * x + rng.normal(0, 0.7, 12)[site] + rng.normal(0, 0.8, 144)
    return {"site": site, "x": x, "low": y < 0.5, "y": np.maximum(y, 0.5)}


def tobit(site, x, low, y):
    alpha = numpyro.sample("alpha", dist.Normal(0, 5))
    beta = numpyro.sample("beta", dist.Normal(0, 5))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    tau = numpyro.sample("tau", dist.Exponential(1))
    with numpyro.plate("sites", 12):
        a = numpyro.sample("a", dist.Normal(alpha, tau))
    mu = a[site] + beta * x
    with numpyro.handlers.mask(mask=~low):
        numpyro.sample("y", dist.Normal(mu, sigma), obs=y)
    numpyro.factor("below", jnp.where(low, norm.logcdf((0.5 - mu) / sigma), 0.0))


def errors(rng: np.random.Generator) -> Data:
    group, x = np.repeat(np.arange(8), 10), rng.normal(1.0, 1.0, 80)
    y = 0.5 + 1.2 * x + rng.normal(0, 0.6, 8)[group] + rng.normal(0, 0.5, 80)
    return {"group": group, "seen": x + rng.normal(0, 0.5, 80), "y": y}


def measurement_error(group, seen, y=None):
    a = numpyro.sample("a", dist.Normal(0, 2))
    b = numpyro.sample("b", dist.Normal(0, 2))
    mu_x = numpyro.sample("mu_x", dist.Normal(0, 2))
    s_x = numpyro.sample("s_x", dist.HalfNormal(2))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("groups", 8):
        u = numpyro.sample("u", dist.Normal(0, tau))
    with numpyro.plate("rows", len(group)):
        x = numpyro.sample("x", dist.Normal(mu_x, s_x))
        numpyro.sample("seen", dist.Normal(x, 0.5), obs=seen)
        numpyro.sample("y", dist.Normal(a + b * x + u[group], sigma), obs=y)


def casks(rng: np.random.Generator) -> Data:
    y = (
        60
        + rng.normal(0, 2, (6, 1, 1))
        + rng.normal(0, 1, (6, 4, 1))
        + rng.normal(0, 0.7, (6, 4, 3))
    )
    return {"y": y}


def loops(y):
    # A loop over groups with a site each, and a plate within
    mu = numpyro.sample("mu", dist.Normal(60, 10))
    s_batch = numpyro.sample("s_batch", dist.HalfNormal(5))
    s_cask = numpyro.sample("s_cask", dist.HalfNormal(5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(5))
    for i in range(6):
        batch = numpyro.sample(f"batch_{i}", dist.Normal(mu, s_batch))
        with numpyro.plate(f"casks_{i}", 4):
            cask = numpyro.sample(f"cask_{i}", dist.Normal(batch, s_cask))
        numpyro.sample(f"y_{i}", dist.Normal(cask[:, None], sigma), obs=y[i])


def chicks(rng: np.random.Generator) -> Data:
    diet, chick = np.repeat(np.arange(4), 8), np.repeat(np.arange(32), 6)
    day = np.tile(np.linspace(0, 1, 6), 32)
    slope = 2 + rng.normal(0, 0.5, 4)[diet] + rng.normal(0, 0.4, 32)
    y = 1 + rng.normal(0, 0.3, 32)[chick] + slope[chick] * day + 0.2 * rng.standard_t(5, 192)
    return {"diet": diet, "chick": chick, "day": day, "y": y}


def student_growth(diet, chick, day, y=None):
    with numpyro.plate("coefficients", 2):
        mean = numpyro.sample("mean", dist.Normal(0, 5))
        s_chick = numpyro.sample("s_chick", dist.HalfCauchy(1))
    s_diet = numpyro.sample("s_diet", dist.HalfCauchy(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    nu = numpyro.sample("nu", dist.Gamma(2, 0.1))
    with numpyro.plate("diets", 4):
        d = numpyro.sample("d", dist.Normal(0, s_diet))
    with numpyro.plate("chicks", 32):
        u = numpyro.sample("u", dist.Normal(0, s_chick).to_event(1))
    slope = mean[1] + d[diet[chick]] + u[chick, 1]
    numpyro.sample("y", dist.StudentT(nu, mean[0] + u[chick, 0] + slope * day, sigma), obs=y)


PROGRAMS = {
    "gamma_costs": Program(gamma_costs, costs),
    "location_and_scale": Program(location_and_scale, reactions),
    "meta_analysis": Program(meta_analysis, schools),
    "tobit": Program(tobit, censored_doses),
    "measurement_error": Program(measurement_error, errors),
    "loops": Program(loops, casks),
    "student_growth": Program(student_growth, chicks),
}

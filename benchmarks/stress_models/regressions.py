"""Regressions: logarithms, robust errors, counts, durations, shrinkage."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program, flat, flat_positive


def mesquite(rng: np.random.Generator) -> Data:
    n = 46
    size = rng.normal(0, 0.4, n)
    wide, narrow, height, total = (
        np.exp(size + rng.normal(m, 0.25, n)) for m in (0.7, 0.5, 0, 0.3)
    )
    density = rng.poisson(0.8, n) + 1.0
    group = rng.binomial(1, 0.43, n).astype(float)
    volume = 0.4 * np.log(wide) + 1.1 * np.log(narrow) + 0.4 * np.log(total)
    log_weight = 4.8 + volume + 0.1 * np.log(density) - 0.6 * group
    columns = {"wide": wide, "narrow": narrow, "height": height, "total": total}
    weight = np.exp(log_weight + rng.normal(0, 0.33, n))
    return columns | {"density": density, "group": group, "weight": weight}


def log_mesquite(wide, narrow, height, total, density, group, weight=None):
    beta = flat("beta", 7)
    sigma = flat_positive("sigma")
    columns = [jnp.log(c) for c in (wide, narrow, height, total, density)]
    x = jnp.stack([jnp.ones(len(wide)), *columns, jnp.asarray(group)], 1)
    obs = None if weight is None else jnp.log(weight)
    numpyro.sample("log_weight", dist.Normal(x @ beta, sigma), obs=obs)


def raw_mesquite(wide, narrow, height, total, density, group, weight=None):
    beta = flat("beta", 7)
    sigma = flat_positive("sigma")
    x = np.stack([np.ones(len(wide)), wide, narrow, height, total, density, group], 1)
    numpyro.sample("weight", dist.Normal(jnp.dot(x, beta), sigma), obs=weight)


def outliers(rng: np.random.Generator) -> Data:
    x = np.column_stack([np.ones(120), rng.normal(0, 1, (120, 3))])
    return {"x": x, "y": x @ [1.0, 2.0, -1.0, 0.0] + 0.7 * rng.standard_t(3.0, 120)}


def student_regression(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([4]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    nu = numpyro.sample("nu", dist.Gamma(2.0, 0.1))
    numpyro.sample("y", dist.StudentT(nu, x @ beta, sigma), obs=y)


def lasso_regression(x, y=None):
    lam = numpyro.sample("lam", dist.HalfCauchy(1.0))
    beta = numpyro.sample("beta", dist.Laplace(0, lam).expand([4]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def roaches(rng: np.random.Generator) -> Data:
    n = 150
    before = rng.gamma(0.5, 40.0, n)
    treated, senior = (rng.binomial(1, p, n).astype(float) for p in (0.6, 0.3))
    days = rng.uniform(0.5, 1.5, n)
    mean = np.exp(2.4 + 0.013 * before - 0.7 * treated - 0.3 * senior) * days
    count = rng.negative_binomial(0.5, 0.5 / (0.5 + mean))
    return {"before": before, "treated": treated, "senior": senior, "days": days, "count": count}


def negative_binomial(before, treated, senior, days, count=None):
    alpha = numpyro.sample("alpha", dist.Normal(0, 5))
    beta = numpyro.sample("beta", dist.Normal(0, 2.5).expand([3]).to_event(1))
    reciprocal_phi = numpyro.sample("reciprocal_phi", dist.HalfCauchy(5.0))
    x = jnp.stack([before, treated, senior], 1)
    log_mean = jnp.log(days) + alpha + x @ beta
    law = dist.NegativeBinomial2(jnp.exp(log_mean), 1 / reciprocal_phi)
    numpyro.sample("count", law, obs=count)


def poisson_unscaled(before, treated, senior, days, count=None):
    beta = flat("beta", 4)
    x = jnp.stack([jnp.ones(len(before)), before, treated, senior], 1)
    rate = jnp.exp(jnp.log(days) + x @ beta)
    numpyro.sample("count", dist.Poisson(rate), obs=count)


def survival(rng: np.random.Generator) -> Data:
    x = rng.normal(0, 1, (100, 2))
    time = np.exp(-(x @ [0.5, -0.3])) * 10 * rng.weibull(1.5, 100)
    end = rng.uniform(5, 20, 100)
    return {"x": x, "time": np.minimum(time, end), "died": (time <= end).astype(float)}


def weibull_censored(x, time, died):
    shape = numpyro.sample("shape", dist.Gamma(1.0, 0.1))
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([2]).to_event(1))
    scale = jnp.exp(mu + x @ beta)
    hazard = jnp.log(shape) - jnp.log(scale) + (shape - 1) * jnp.log(time / scale)
    numpyro.factor("log_likelihood", jnp.sum(died * hazard - (time / scale) ** shape))


def sparse(rng: np.random.Generator) -> Data:
    x = rng.normal(0, 1, (80, 20))
    beta = np.zeros(20)
    beta[:3] = 2.0, -1.5, 0.8
    return {"x": x, "y": 0.5 + x @ beta + rng.normal(0, 1, 80)}


def horseshoe_linear(x, y=None):
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    lam = numpyro.sample("lam", dist.HalfCauchy(1.0).expand([20]).to_event(1))
    raw = numpyro.sample("raw", dist.Normal(0, 1).expand([20]).to_event(1))
    alpha = numpyro.sample("alpha", dist.Normal(0, 5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    beta = numpyro.deterministic("beta", raw * lam * tau)
    numpyro.sample("y", dist.Normal(alpha + x @ beta, sigma), obs=y)


def exports(rng: np.random.Generator) -> Data:
    x = rng.normal(0, 1, (60, 3))
    return {"x": x, "y": 2.0 + 1.5 * x @ [0.6, 0.3, 0.1] + rng.normal(0, 0.5, 60)}


def simplex_weights(x, y=None):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    alpha = numpyro.sample("alpha", dist.Normal(0, 5))
    scale = numpyro.sample("scale", dist.Normal(0, 5))
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    numpyro.sample("y", dist.Normal(alpha + scale * (x @ weights), sigma), obs=y)


PROGRAMS = {
    "log_mesquite": Program(log_mesquite, mesquite),
    "raw_mesquite": Program(raw_mesquite, mesquite),
    "student_regression": Program(student_regression, outliers),
    "lasso_regression": Program(lasso_regression, outliers),
    "negative_binomial": Program(negative_binomial, roaches),
    "poisson_unscaled": Program(poisson_unscaled, roaches),
    "weibull_censored": Program(weibull_censored, survival),
    "horseshoe_linear": Program(horseshoe_linear, sparse),
    "simplex_weights": Program(simplex_weights, exports),
}

"""Radon in houses of 85 counties: pooled, varying intercepts and slopes, a county predictor."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program, flat, flat_positive

COUNTIES, HOUSES = 85, 919


def radon(rng: np.random.Generator) -> Data:
    shares = rng.dirichlet(np.full(COUNTIES, 0.7))
    county = np.concatenate(
        [np.arange(COUNTIES), rng.choice(COUNTIES, HOUSES - COUNTIES, p=shares)]
    )
    floor = rng.binomial(1, 0.17, HOUSES).astype(float)
    uranium = rng.normal(0, 0.4, COUNTIES)
    intercept = 1.5 + 0.7 * uranium + rng.normal(0, 0.25, COUNTIES)
    slope = -0.65 + rng.normal(0, 0.3, COUNTIES)
    radon = intercept[county] + slope[county] * floor + rng.normal(0, 0.75, HOUSES)
    return {"county": county, "floor": floor, "uranium": uranium, "radon": radon}


def pooled(county, floor, uranium, radon=None):
    alpha = numpyro.sample("alpha", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 10))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    numpyro.sample("radon", dist.Normal(alpha + beta * floor, sigma), obs=radon)


def unpooled(county, floor, uranium, radon=None):
    alpha = numpyro.sample("alpha", dist.Normal(0, 10).expand([COUNTIES]).to_event(1))
    beta = numpyro.sample("beta", dist.Normal(0, 10))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    numpyro.sample("radon", dist.Normal(alpha[county] + beta * floor, sigma), obs=radon)


def intercepts_centred(county, floor, uranium, radon=None):
    mu_alpha = numpyro.sample("mu_alpha", dist.Normal(0, 10))
    sigma_alpha = numpyro.sample("sigma_alpha", dist.HalfCauchy(2.5))
    beta = numpyro.sample("beta", dist.Normal(0, 10))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    with numpyro.plate("counties", COUNTIES):
        alpha = numpyro.sample("alpha", dist.Normal(mu_alpha, sigma_alpha))
    with numpyro.plate("houses", len(floor)):
        numpyro.sample("radon", dist.Normal(alpha[county] + beta * floor, sigma), obs=radon)


def intercepts_noncentred(county, floor, uranium, radon=None):
    mu_alpha = numpyro.sample("mu_alpha", dist.Normal(0, 10))
    sigma_alpha = numpyro.sample("sigma_alpha", dist.HalfNormal(1))
    beta = numpyro.sample("beta", dist.Normal(0, 10))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("counties", COUNTIES):
        raw = numpyro.sample("alpha_raw", dist.Normal(0, 1))
    alpha = numpyro.deterministic("alpha", mu_alpha + sigma_alpha * raw)
    with numpyro.plate("houses", len(floor)):
        numpyro.sample("radon", dist.Normal(alpha[county] + beta * floor, sigma), obs=radon)


def slopes_noncentred(county, floor, uranium, radon=None):
    mu = numpyro.sample("mu", dist.Normal(0, 10).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("counties", COUNTIES):
        raw = numpyro.sample("raw", dist.Normal(0, 1).expand([2]).to_event(1))
    effect = mu + tau * raw
    mean = effect[county, 0] + effect[county, 1] * floor
    with numpyro.plate("houses", len(floor)):
        numpyro.sample("radon", dist.Normal(mean, sigma), obs=radon)


def county_predictor(county, floor, uranium, radon=None):
    gamma = flat("gamma", 2)
    mu_beta = flat("mu_beta")
    sigma_a = flat_positive("sigma_a")
    sigma_b = flat_positive("sigma_b")
    sigma_y = flat_positive("sigma_y")
    a = numpyro.sample("a", dist.Normal(gamma[0] + gamma[1] * jnp.asarray(uranium), sigma_a))
    b = numpyro.sample("b", dist.Normal(mu_beta, sigma_b).expand([COUNTIES]).to_event(1))
    numpyro.sample("radon", dist.Normal(a[county] + b[county] * floor, sigma_y), obs=radon)


PROGRAMS = {
    "radon_pooled": Program(pooled, radon),
    "radon_unpooled": Program(unpooled, radon),
    "radon_intercepts_centred": Program(intercepts_centred, radon),
    "radon_intercepts_noncentred": Program(intercepts_noncentred, radon),
    "radon_slopes_noncentred": Program(slopes_noncentred, radon),
    "radon_county_predictor": Program(county_predictor, radon),
}

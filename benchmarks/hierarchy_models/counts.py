"""Counts: crossed effects with offsets, an effect per row, zeros, neighbourhoods, walks."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from benchmarks.stress_models.program import Data, Program


def claims(rng: np.random.Generator) -> Data:
    region, brand = rng.integers(12, size=200), rng.integers(8, size=200)
    years, x = rng.uniform(0.2, 2.0, 200), rng.normal(size=200)
    eta = 0.7 + 0.3 * x + rng.normal(0, 0.5, 12)[region] + rng.normal(0, 0.3, 8)[brand]
    rate = years * np.exp(eta)
    y = rng.poisson(rate * rng.gamma(3.0, 1 / 3.0, 200))
    return {"region": region, "brand": brand, "log_years": np.log(years), "x": x, "y": y}


def negative_binomial(region, brand, log_years, x, y=None):
    # brms: y ~ x + offset(log_years) + (1 | region) + (1 | brand), negbinomial
    intercept = numpyro.sample("Intercept", dist.StudentT(3, 0.7, 2.5))
    b = numpyro.sample("b", dist.Normal(0, 1))
    sd_1 = numpyro.sample("sd_1", dist.HalfCauchy(1.0))
    sd_2 = numpyro.sample("sd_2", dist.HalfCauchy(1.0))
    shape = numpyro.sample("shape", dist.Gamma(0.01, 0.01))
    z_1 = numpyro.sample("z_1", dist.Normal(0, 1).expand([12]).to_event(1))
    z_2 = numpyro.sample("z_2", dist.Normal(0, 1).expand([8]).to_event(1))
    mu = intercept + x * b + log_years + sd_1 * z_1[region] + sd_2 * z_2[brand]
    numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(mu), shape), obs=y)


def ticks(rng: np.random.Generator) -> Data:
    brood, height = np.repeat(np.arange(25), 5), rng.normal(size=125)
    eta = 1.0 - 0.5 * height + rng.normal(0, 0.8, 25)[brood] + rng.normal(0, 0.5, 125)
    return {"brood": brood, "height": height, "y": rng.poisson(np.exp(eta))}


def effect_per_row(brood, height, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 3).expand([2]).to_event(1))
    sd_brood = numpyro.sample("sd_brood", dist.Exponential(1))
    sd_row = numpyro.sample("sd_row", dist.Exponential(1))
    with numpyro.plate("broods", 25):
        a = numpyro.sample("a", dist.Normal(0, sd_brood))
    with numpyro.plate("rows", len(brood)):
        e = numpyro.sample("e", dist.Normal(beta[0] + beta[1] * height + a[brood], sd_row))
        numpyro.sample("y", dist.Poisson(jnp.exp(e)), obs=y)


def catches(rng: np.random.Generator) -> Data:
    lake, party = np.repeat(np.arange(10), 20), rng.normal(size=200)
    none = rng.binomial(1, 1 / (1 + np.exp(1.0 - rng.normal(0, 0.7, 10)[lake])))
    y = rng.poisson(np.exp(0.8 + 0.5 * party + rng.normal(0, 0.5, 10)[lake])) * (1 - none)
    return {"lake": lake, "party": party, "y": y}


def zero_inflated(lake, party, y=None):
    a = numpyro.sample("a", dist.Normal(0, 2))
    b = numpyro.sample("b", dist.Normal(0, 2))
    gate = numpyro.sample("gate", dist.Normal(0, 2))
    s_rate = numpyro.sample("s_rate", dist.HalfNormal(1))
    s_gate = numpyro.sample("s_gate", dist.HalfNormal(1))
    with numpyro.plate("lakes", 10):
        u = numpyro.sample("u", dist.Normal(0, s_rate))
        v = numpyro.sample("v", dist.Normal(0, s_gate))
    rate = jnp.exp(a + b * party + u[lake])
    numpyro.sample(
        "y", dist.ZeroInflatedDistribution(dist.Poisson(rate), gate_logits=gate + v[lake]), obs=y
    )


def districts(rng: np.random.Generator) -> Data:
    side = 6
    number = np.arange(side * side).reshape(side, side)
    pairs = [*zip(number[:, :-1].flat, number[:, 1:].flat, strict=True)]
    pairs += [*zip(number[:-1].flat, number[1:].flat, strict=True)]
    first, second = np.array(pairs).T
    lap = np.zeros((36, 36))
    np.add.at(lap, (first, first), 1)
    np.add.at(lap, (second, second), 1)
    lap[first, second] = lap[second, first] = -1
    values, vectors = np.linalg.eigh(lap)
    field = vectors[:, 1:] @ (rng.normal(size=35) / np.sqrt(values[1:]))
    expected, x = rng.uniform(5, 40, 36), rng.normal(size=36)
    y = rng.poisson(expected * np.exp(0.1 + 0.2 * x + 0.6 * field + rng.normal(0, 0.15, 36)))
    return {"first": first, "second": second, "expected": expected, "x": x, "y": y}


def neighbourhood(first, second, expected, x, y=None):
    # Besag, York and Mollie as in Stan's case study: pairwise differences and a soft sum to zero.
    b0 = numpyro.sample("b0", dist.Normal(0, 5))
    b1 = numpyro.sample("b1", dist.Normal(0, 5))
    tau_theta = numpyro.sample("tau_theta", dist.Gamma(3.2761, 1.81))
    tau_phi = numpyro.sample("tau_phi", dist.Gamma(1.0, 1.0))
    theta = numpyro.sample("theta", dist.Normal(0, 1).expand([36]).to_event(1))
    phi = numpyro.sample(
        "phi", dist.ImproperUniform(dist.constraints.real_vector, (), event_shape=(36,))
    )
    numpyro.factor("icar", -0.5 * jnp.sum((phi[first] - phi[second]) ** 2))
    numpyro.factor("centre", dist.Normal(0, 0.001 * 36).log_prob(jnp.sum(phi)))
    eta = b0 + b1 * x + phi / jnp.sqrt(tau_phi) + theta / jnp.sqrt(tau_theta)
    numpyro.sample("y", dist.Poisson(expected * jnp.exp(eta)), obs=y)


def sightings(rng: np.random.Generator) -> Data:
    level = 2.0 + np.cumsum(rng.normal(0, 0.25, 50))
    site = np.repeat(np.arange(4), 50)
    eta = np.tile(level, 4) + rng.normal(0, 0.5, 4)[site]
    return {"site": site, "year": np.tile(np.arange(50), 4), "y": rng.poisson(np.exp(eta))}


def random_walk(site, year, y=None):
    drift = numpyro.sample("drift", dist.HalfNormal(1))
    s_site = numpyro.sample("s_site", dist.HalfNormal(1))
    start = numpyro.sample("start", dist.Normal(0, 3))
    with numpyro.plate("sites", 4):
        a = numpyro.sample("a", dist.Normal(0, s_site))

    def step(level, _):
        level = numpyro.sample("level", dist.Normal(level, drift))
        return level, level

    _, levels = scan(step, start, jnp.arange(50))
    numpyro.sample("y", dist.Poisson(jnp.exp(levels[year] + a[site])), obs=y)


PROGRAMS = {
    "negative_binomial": Program(negative_binomial, claims),
    "effect_per_row": Program(effect_per_row, ticks),
    "zero_inflated": Program(zero_inflated, catches),
    "neighbourhood": Program(neighbourhood, districts),
    "random_walk": Program(random_walk, sightings),
}

"""Rates: one or two binomials, hospitals, pumps, tumours, crosses, sizes of a population."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from benchmarks.stress_models.program import Data, Program, flat_positive


def one_binomial(rng: np.random.Generator) -> Data:
    return {"n": 10, "k": 5}


def rate_1(n, k=None):
    theta = numpyro.sample("theta", dist.Beta(1, 1))
    numpyro.sample("k", dist.Binomial(n, theta), obs=k)


def two_binomials(rng: np.random.Generator) -> Data:
    return {"n1": 10, "n2": 12, "k1": 5, "k2": 9}


def rate_2(n1, n2, k1=None, k2=None):
    theta1 = numpyro.sample("theta1", dist.Beta(1, 1))
    theta2 = numpyro.sample("theta2", dist.Beta(1, 1))
    numpyro.deterministic("delta", theta1 - theta2)
    numpyro.sample("k1", dist.Binomial(n1, theta1), obs=k1)
    numpyro.sample("k2", dist.Binomial(n2, theta2), obs=k2)


def rate_5(n1, n2, k1=None, k2=None):
    theta = numpyro.sample("theta", dist.ImproperUniform(constraints.unit_interval, (), ()))
    numpyro.sample("k1", dist.Binomial(n1, theta), obs=k1)
    numpyro.sample("k2", dist.Binomial(n2, theta), obs=k2)


def hospitals(rng: np.random.Generator) -> Data:
    n = rng.integers(47, 800, 12)
    return {"n": n, "deaths": rng.binomial(n, 1 / (1 + np.exp(2.5 - rng.normal(0, 0.4, 12))))}


def surgical(n, deaths=None):
    mu = numpyro.sample("mu", dist.Normal(0, 1000.0))
    sigma_squared = numpyro.sample("sigma_squared", dist.InverseGamma(1e-3, 1e-3))
    sigma = numpyro.deterministic("sigma", jnp.sqrt(sigma_squared))
    b = numpyro.sample("b", dist.Normal(mu, sigma).expand([12]).to_event(1))
    numpyro.sample("deaths", dist.Binomial(n, logits=b), obs=deaths)


def pumps(rng: np.random.Generator) -> Data:
    hours = np.array([94.3, 15.7, 62.9, 126.0, 5.24, 31.4, 1.05, 1.05, 2.1, 10.5])
    return {"hours": hours, "failures": rng.poisson(rng.gamma(0.8, 0.9, 10) * hours)}


def pumps_model(hours, failures=None):
    alpha = numpyro.sample("alpha", dist.Exponential(1.0))
    beta = numpyro.sample("beta", dist.Gamma(0.1, 1.0))
    with numpyro.plate("pumps", 10):
        theta = numpyro.sample("theta", dist.Gamma(alpha, beta))
        numpyro.sample("failures", dist.Poisson(theta * hours), obs=failures)


def tumours(rng: np.random.Generator) -> Data:
    n = rng.integers(10, 52, 71)
    return {"n": n, "y": rng.binomial(n, rng.beta(2.4, 14.0, 71))}


def rat_tumours(n, y=None):
    phi = numpyro.sample("phi", dist.Uniform(0, 1))
    kappa = numpyro.sample("kappa", dist.Pareto(0.1, 1.5))
    with numpyro.plate("experiments", len(n)):
        theta = numpyro.sample("theta", dist.Beta(phi * kappa, (1 - phi) * kappa))
        numpyro.sample("y", dist.Binomial(n, theta), obs=y)


def beta_binomial(n, y=None):
    alpha, beta = flat_positive("alpha"), flat_positive("beta")
    numpyro.factor("prior", -2.5 * jnp.log(alpha + beta))
    numpyro.sample("y", dist.BetaBinomial(alpha, beta, n), obs=y)


def words(rng: np.random.Generator) -> Data:
    shares = rng.dirichlet([2.0, 1.0, 0.5, 3.0], 40)
    return {"counts": np.array([rng.multinomial(30, p) for p in shares])}


def dirichlet_multinomial(counts):
    alpha = numpyro.sample("alpha", dist.Exponential(0.3).expand([4]).to_event(1))
    with numpyro.plate("documents", len(counts)):
        law = dist.DirichletMultinomial(alpha, total_count=30)
        numpyro.sample("counts", law, obs=counts)


def germination(rng: np.random.Generator) -> Data:
    n = rng.integers(4, 80, 21)
    seed = (np.arange(21) >= 11).astype(float)
    extract = (np.arange(21) % 11 >= 5).astype(float)
    logit = -0.5 + 0.1 * seed + 1.3 * extract - 0.8 * seed * extract + rng.normal(0, 0.3, 21)
    return {"n": n, "seed_type": seed, "extract": extract,
            "r": rng.binomial(n, 1 / (1 + np.exp(-logit)))}  # fmt: skip


def seeds_noncentred(n, seed_type, extract, r=None):
    alpha = numpyro.sample("alpha", dist.Normal(0, 10).expand([4]).to_event(1))
    tau = numpyro.sample("tau", dist.Gamma(1e-2, 1e-2))
    with numpyro.plate("plates", len(n)):
        c = numpyro.sample("c", dist.Normal(0, 1))
    sigma = numpyro.deterministic("sigma", 1 / jnp.sqrt(tau))
    x = jnp.stack([jnp.ones(len(n)), seed_type, extract, seed_type * extract], 1)
    numpyro.sample("r", dist.Binomial(n, logits=x @ alpha + sigma * c), obs=r)


def captures(rng: np.random.Generator) -> Data:
    p = np.array([0.3, 0.4, 0.25, 0.35, 0.3])
    caught = rng.uniform(size=(100, 5)) < p
    seen = caught[caught.any(1)].astype(float)
    return {"history": np.vstack([seen, np.zeros((150, 5))])}


def capture_same(history):
    """M0: animals are in the population with probability omega, caught with probability p."""
    omega = numpyro.sample("omega", dist.Uniform(0, 1))
    p = numpyro.sample("p", dist.Uniform(0, 1))
    marginal(history, omega, history.sum(1) * jnp.log(p) + (5 - history.sum(1)) * jnp.log1p(-p))
    missed = omega * (1 - p) ** 5
    inside = jnp.where(history.any(1), 1.0, missed / (missed + 1 - omega))
    numpyro.deterministic("size", inside.sum())


def capture_by_time(history):
    """Mt: each occasion has a probability of its own."""
    omega = numpyro.sample("omega", dist.Uniform(0, 1))
    p = numpyro.sample("p", dist.Uniform(0, 1).expand([5]).to_event(1))
    marginal(history, omega, (history * jnp.log(p) + (1 - history) * jnp.log1p(-p)).sum(1))


def capture_by_behaviour(history):
    """Mb: animals that were caught before are caught with another probability."""
    omega = numpyro.sample("omega", dist.Uniform(0, 1))
    p = numpyro.sample("p", dist.Uniform(0, 1))
    c = numpyro.sample("c", dist.Uniform(0, 1))
    before = np.cumsum(history, 1) - history > 0
    chance = jnp.where(before, c, p)
    marginal(history, omega, dist.Bernoulli(chance).log_prob(history).sum(1))


def marginal(history, omega, log_caught):
    """Sum over whether an animal that was never seen exists."""
    inside = jnp.log(omega) + log_caught
    outside = jnp.where(history.any(1), -jnp.inf, jnp.log1p(-omega))
    numpyro.factor("animals", jnp.logaddexp(inside, outside).sum())


PROGRAMS = {
    "rate_1": Program(rate_1, one_binomial),
    "rate_2": Program(rate_2, two_binomials),
    "rate_5": Program(rate_5, two_binomials),
    "surgical": Program(surgical, hospitals),
    "pumps": Program(pumps_model, pumps),
    "rat_tumours": Program(rat_tumours, tumours),
    "beta_binomial": Program(beta_binomial, tumours),
    "dirichlet_multinomial": Program(dirichlet_multinomial, words),
    "seeds_noncentred": Program(seeds_noncentred, germination),
    "capture_same": Program(capture_same, captures),
    "capture_by_time": Program(capture_by_time, captures),
    "capture_by_behaviour": Program(capture_by_behaviour, captures),
}

"""Yes or no, and one of several: slopes that vary together, items, matches, recaptures."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program


def _expit(x):
    return 1.0 / (1.0 + np.exp(-x))


def contraception(rng: np.random.Generator) -> Data:
    district, urban = np.repeat(np.arange(20), 15), rng.binomial(1, 0.4, 300).astype(float)
    own = rng.multivariate_normal([-0.7, 0.8], [[0.6, -0.3], [-0.3, 0.5]], 20)
    y = rng.binomial(1, _expit(own[district, 0] + own[district, 1] * urban))
    return {"district": district, "urban": urban, "y": y}


def correlated_slopes(district, urban, y=None):
    # McElreath, centred
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.Exponential(1).expand([2]).to_event(1))
    rho = numpyro.sample("rho", dist.LKJ(2, concentration=4))
    cov = jnp.outer(sigma, sigma) * rho
    with numpyro.plate("districts", 20):
        own = numpyro.sample("own", dist.MultivariateNormal(mean, covariance_matrix=cov))
    logits = own[district, 0] + own[district, 1] * urban
    numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def answers(rng: np.random.Generator) -> Data:
    person, item = (np.ravel(a) for a in np.meshgrid(np.arange(60), np.arange(12)))
    slope, place = rng.lognormal(0.2, 0.3, 12), rng.normal(0, 1, 12)
    guess = 0.15
    p = guess + (1 - guess) * _expit(slope[item] * (rng.normal(size=60)[person] - place[item]))
    return {"person": person, "item": item, "y": rng.binomial(1, p)}


def two_parameters(person, item, y=None):
    with numpyro.plate("people", 60):
        theta = numpyro.sample("theta", dist.Normal(0, 1))
    mu_b = numpyro.sample("mu_b", dist.Normal(0, 2))
    s_b = numpyro.sample("s_b", dist.HalfNormal(2))
    with numpyro.plate("items", 12):
        alpha = numpyro.sample("alpha", dist.LogNormal(0.0, 0.5))
        b = numpyro.sample("b", dist.Normal(mu_b, s_b))
    numpyro.sample("y", dist.Bernoulli(logits=alpha[item] * (theta[person] - b[item])), obs=y)


def three_parameters(person, item, y=None):
    with numpyro.plate("people", 60):
        theta = numpyro.sample("theta", dist.Normal(0, 1))
    with numpyro.plate("items", 12):
        alpha = numpyro.sample("alpha", dist.LogNormal(0.0, 0.5))
        b = numpyro.sample("b", dist.Normal(0, 1.5))
        c = numpyro.sample("c", dist.Beta(5, 20))
    p = jax.nn.sigmoid(alpha[item] * (theta[person] - b[item]))
    numpyro.sample("y", dist.Bernoulli(probs=c[item] + (1 - c[item]) * p), obs=y)


def matches(rng: np.random.Generator) -> Data:
    pairs = np.array([rng.choice(14, 2, replace=False) for _ in range(200)])
    skill = rng.normal(0, 1, 14)
    return {"pairs": pairs, "won": rng.binomial(1, _expit(skill[pairs[:, 0]] - skill[pairs[:, 1]]))}


def bradley_terry(pairs, won=None):
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    raw = numpyro.sample("raw", dist.ZeroSumNormal(sigma, event_shape=(14,)))
    logits = raw[pairs[:, 0]] - raw[pairs[:, 1]]
    with numpyro.plate("matches", len(pairs)):
        numpyro.sample("won", dist.Bernoulli(logits=logits), obs=won)


def votes(rng: np.random.Generator) -> Data:
    state, x = np.repeat(np.arange(15), 16), rng.normal(size=240)
    eta = np.stack([0.4 + 0.7 * x, -0.2 - 0.4 * x], axis=1) + rng.normal(0, 0.7, (15, 2))[state]
    logits = np.concatenate([np.zeros((240, 1)), eta], axis=1)
    return {"state": state, "x": x, "y": (logits + rng.gumbel(size=(240, 3))).argmax(axis=1)}


def three_classes(state, x, y=None):
    a = numpyro.sample("a", dist.Normal(0, 2).expand([2]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    s = numpyro.sample("s", dist.Exponential(1).expand([2]).to_event(1))
    chol = numpyro.sample("chol", dist.LKJCholesky(2, 2.0))
    with numpyro.plate("states", 15):
        z = numpyro.sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    own = z @ (s[:, None] * chol).T
    eta = a + b * x[:, None] + own[state]
    logits = jnp.pad(eta, ((0, 0), (1, 0)))
    numpyro.sample("y", dist.Categorical(logits=logits), obs=y)


def recaptures(rng: np.random.Generator) -> Data:
    p = _expit(-0.6 + rng.normal(0, 0.8, 90)[:, None] + rng.normal(0, 0.4, 6))
    seen = rng.binomial(1, p)
    return {"seen": seen[seen.sum(axis=1) > 0]}


def closed_captures(seen):
    # Huggins: histories of those that were seen at all, with individual and occasion effects
    n, occasions = seen.shape
    mu = numpyro.sample("mu", dist.Normal(0, 1.5))
    s_time = numpyro.sample("s_time", dist.HalfNormal(1))
    s_own = numpyro.sample("s_own", dist.HalfNormal(1))
    with numpyro.plate("occasions", occasions):
        time = numpyro.sample("time", dist.Normal(0, s_time))
    with numpyro.plate("animals", n):
        own = numpyro.sample("own", dist.Normal(0, s_own))
    logits = mu + own[:, None] + time
    log_prob = dist.Bernoulli(logits=logits).log_prob(seen).sum(axis=1)
    none = -jax.nn.softplus(logits).sum(axis=1)
    numpyro.factor("seen", jnp.sum(log_prob - jnp.log1p(-jnp.exp(none))))


def trials(rng: np.random.Generator) -> Data:
    study, treated = np.repeat(np.arange(12), 2), np.tile([0.0, 1.0], 12)
    n = rng.integers(20, 60, 24)
    logit = rng.normal(-1, 0.6, 12)[study] + treated * rng.normal(0.6, 0.3, 12)[study]
    return {"study": study, "treated": treated, "n": n, "y": rng.binomial(n, _expit(logit))}


def bounded_coefficients(study, treated, n, y=None):
    # WinBUGS habits: flat priors between bounds, for scales too
    delta = numpyro.sample("delta", dist.Uniform(-20, 20))
    base = numpyro.sample("base", dist.Uniform(-20, 20))
    tau = numpyro.sample("tau", dist.Uniform(0, 5))
    omega = numpyro.sample("omega", dist.Uniform(0, 5))
    mu = numpyro.sample("mu", dist.Normal(base, omega).expand([12]))
    d = numpyro.sample("d", dist.Normal(delta, tau).expand([12]))
    numpyro.sample("y", dist.Binomial(n, logits=mu[study] + d[study] * treated), obs=y)


PROGRAMS = {
    "correlated_slopes": Program(correlated_slopes, contraception),
    "two_parameters": Program(two_parameters, answers),
    "three_parameters": Program(three_parameters, answers),
    "bradley_terry": Program(bradley_terry, matches),
    "three_classes": Program(three_classes, votes),
    "closed_captures": Program(closed_captures, recaptures),
    "bounded_coefficients": Program(bounded_coefficients, trials),
}

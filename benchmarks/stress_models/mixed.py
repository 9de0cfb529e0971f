"""Generalised linear mixed models: seizures, item responses, correlated intercepts and slopes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program

PATIENTS, VISITS = 59, 4


def seizures(rng: np.random.Generator) -> Data:
    base = np.log(rng.gamma(2.0, 4.0, PATIENTS) + 1.0)
    treated = rng.binomial(1, 0.5, PATIENTS).astype(float)
    fourth = np.array([0.0, 0.0, 0.0, 1.0])
    patient = rng.normal(0, 0.5, (PATIENTS, 1))
    visit = rng.normal(0, 0.36, (PATIENTS, VISITS))
    base, treated = base - base.mean(), treated - treated.mean()
    fixed = 1.6 + 0.9 * base[:, None] - 0.3 * treated[:, None] - 0.1 * fourth
    y = rng.poisson(np.exp(fixed + patient + visit))
    return {"base": base, "treated": treated, "fourth": fourth, "y": y}


def epilepsy(base, treated, fourth, y=None):
    a0 = numpyro.sample("a0", dist.Normal(0, 10))
    a = numpyro.sample("a", dist.Normal(0, 10).expand([3]).to_event(1))
    sigma_patient = numpyro.sample("sigma_patient", dist.HalfCauchy(2.5))
    sigma_visit = numpyro.sample("sigma_visit", dist.HalfCauchy(2.5))
    with numpyro.plate("patients", PATIENTS, dim=-2):
        patient = numpyro.sample("patient", dist.Normal(0, sigma_patient))
        with numpyro.plate("visits", VISITS, dim=-1):
            visit = numpyro.sample("visit", dist.Normal(0, sigma_visit))
            fixed = a0 + a[0] * base[:, None] + a[1] * treated[:, None] + a[2] * fourth
            numpyro.sample("y", dist.Poisson(jnp.exp(fixed + patient + visit)), obs=y)


def test_answers(rng: np.random.Generator) -> Data:
    ability, difficulty = rng.normal(0, 1, (100, 1)), rng.normal(0.3, 1, 20)
    slope = rng.lognormal(0, 0.4, 20)
    logit = slope * (ability - difficulty)
    person, item = np.divmod(np.arange(2000), 20)
    answer = rng.binomial(1, 1 / (1 + np.exp(-logit))).ravel()
    return {"person": person, "item": item, "answer": answer}


def rasch(person, item, answer=None):
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    theta = numpyro.sample("theta", dist.Normal(0, 1).expand([100]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 1.5).expand([20]).to_event(1))
    with numpyro.plate("answers", len(person)):
        logits = theta[person] - b[item] + mu
        numpyro.sample("answer", dist.Bernoulli(logits=logits), obs=answer)


def two_parameter(person, item, answer=None):
    mu_b = numpyro.sample("mu_b", dist.Normal(0, 5))
    sigma_a = numpyro.sample("sigma_a", dist.HalfCauchy(2.0))
    sigma_b = numpyro.sample("sigma_b", dist.HalfCauchy(2.0))
    with numpyro.plate("people", 100):
        theta = numpyro.sample("theta", dist.Normal(0, 1))
    with numpyro.plate("items", 20):
        a = numpyro.sample("a", dist.LogNormal(0, sigma_a))
        b = numpyro.sample("b", dist.Normal(mu_b, sigma_b))
    with numpyro.plate("answers", len(person)):
        logits = a[item] * (theta[person] - b[item])
        numpyro.sample("answer", dist.Bernoulli(logits=logits), obs=answer)


def cafes(rng: np.random.Generator) -> Data:
    cafe = np.repeat(np.arange(20), 10)
    afternoon = np.tile([0.0, 1.0], 100)
    cov = np.array([[1.0, -0.35], [-0.35, 0.25]])
    effect = rng.multivariate_normal([3.5, -1.0], cov, 20)
    wait = effect[cafe, 0] + effect[cafe, 1] * afternoon + rng.normal(0, 0.5, 200)
    return {"cafe": cafe, "afternoon": afternoon, "wait": wait}


def correlated_effects(cafe, afternoon, wait=None):
    mean = numpyro.sample("mean", dist.Normal(jnp.array([5.0, -1.0]), 2.0).to_event(1))
    spread = numpyro.sample("spread", dist.Exponential(1.0).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    chol = numpyro.sample("chol", dist.LKJCholesky(2, 2.0))
    scale = spread[:, None] * chol
    with numpyro.plate("cafes", 20):
        effect = numpyro.sample("effect", dist.MultivariateNormal(mean, scale_tril=scale))
    numpyro.deterministic("correlation", (chol @ chol.T)[0, 1])
    mu = effect[cafe, 0] + effect[cafe, 1] * afternoon
    numpyro.sample("wait", dist.Normal(mu, sigma), obs=wait)


def correlated_noncentred(cafe, afternoon, wait=None):
    mean = numpyro.sample("mean", dist.Normal(jnp.array([5.0, -1.0]), 2.0).to_event(1))
    spread = numpyro.sample("spread", dist.HalfCauchy(2.0).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.0))
    chol = numpyro.sample("chol", dist.LKJCholesky(2, 2.0))
    raw = numpyro.sample("raw", dist.Normal(0, 1).expand([2, 20]).to_event(2))
    effect = numpyro.deterministic("effect", mean + ((spread[:, None] * chol) @ raw).T)
    mu = effect[cafe, 0] + effect[cafe, 1] * afternoon
    numpyro.sample("wait", dist.Normal(mu, sigma), obs=wait)


PROGRAMS = {
    "epilepsy": Program(epilepsy, seizures),
    "rasch": Program(rasch, test_answers),
    "two_parameter": Program(two_parameter, test_answers),
    "correlated_effects": Program(correlated_effects, cafes),
    "correlated_noncentred": Program(correlated_noncentred, cafes),
}

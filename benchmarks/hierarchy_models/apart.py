"""Ten models that are kept apart: written first, and looked at last."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program


def _expit(x):
    return 1.0 / (1.0 + np.exp(-x))


def yields(rng: np.random.Generator) -> Data:
    batch, temp = np.repeat(np.arange(10), 12), np.tile(np.linspace(-1, 1, 12), 10)
    operator = rng.integers(6, size=120)
    mu = _expit(0.3 + 0.8 * temp + rng.normal(0, 0.6, 10)[batch] + rng.normal(0, 0.3, 6)[operator])
    y = np.clip(rng.beta(mu * 20, (1 - mu) * 20), 1e-4, 1 - 1e-4)
    return {"batch": batch, "operator": operator, "temp": temp, "y": y}


def beta_regression(batch, operator, temp, y=None):
    intercept = numpyro.sample("Intercept", dist.StudentT(3, 0, 2.5))
    b = numpyro.sample("b_temp", dist.Normal(0, 2))
    sd_1 = numpyro.sample("sd_batch", dist.HalfNormal(1))
    sd_2 = numpyro.sample("sd_operator", dist.HalfNormal(1))
    phi = numpyro.sample("phi", dist.Gamma(0.01, 0.01))
    with numpyro.plate("batches", 10):
        z_1 = numpyro.sample("z_1", dist.Normal(0, 1))
    with numpyro.plate("operators", 6):
        z_2 = numpyro.sample("z_2", dist.Normal(0, 1))
    eta = intercept + b * temp + (sd_1 * z_1)[batch] + (sd_2 * z_2)[operator]
    mu = 1 / (1 + jnp.exp(-eta))
    numpyro.sample("y", dist.Beta(mu * phi, (1 - mu) * phi), obs=y)


def visits(rng: np.random.Generator) -> Data:
    clinic, x = np.repeat(np.arange(15), 12), rng.normal(size=180)
    some = rng.binomial(1, _expit(0.5 - 0.7 * x + rng.normal(0, 0.8, 15)[clinic]))
    rate = np.exp(0.9 + 0.4 * x + rng.normal(0, 0.4, 15)[clinic])
    y = np.array([0 if not s else _positive(rng, r) for s, r in zip(some, rate, strict=True)])
    return {"clinic": clinic, "x": x, "y": y}


def _positive(rng, rate):
    while True:
        if count := rng.poisson(rate):
            return count


def hurdle(clinic, x, y=None):
    a = numpyro.sample("a", dist.Normal(0, 2).expand([2]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfCauchy(1).expand([2]).to_event(1))
    with numpyro.plate("clinics", 15):
        u = numpyro.sample("u", dist.Normal(jnp.zeros(2), tau).to_event(1))
    logit = a[0] + b[0] * x + u[clinic, 0]
    rate = jnp.exp(a[1] + b[1] * x + u[clinic, 1])
    log_some = -jnp.logaddexp(0.0, -logit)
    log_none = -jnp.logaddexp(0.0, logit)
    log_rest = dist.Poisson(rate).log_prob(y) - jnp.log1p(-jnp.exp(-rate))
    numpyro.factor("hurdle", jnp.where(y == 0, log_none, log_some + log_rest).sum())


def doses(rng: np.random.Generator) -> Data:
    patient = np.repeat(np.arange(12), 8)
    dose = np.tile([0, 1, 2, 5, 10, 20, 50, 100.0], 12)
    base = 4 + rng.normal(0, 1.0, 12)
    y = base[patient] + 12 * dose / (8 + dose) + rng.normal(0, 0.8, 96)
    return {"patient": patient, "dose": dose, "y": y}


def emax(patient, dose, y=None):
    e0 = numpyro.sample("e0", dist.Normal(0, 10))
    top = numpyro.sample("emax", dist.Normal(0, 20))
    ed50 = numpyro.sample("ed50", dist.LogNormal(2, 1))
    tau = numpyro.sample("tau", dist.HalfNormal(3))
    sigma = numpyro.sample("sigma", dist.HalfNormal(3))
    with numpyro.plate("patients", 12):
        u = numpyro.sample("u", dist.Normal(0, tau))
    mu = e0 + u[patient] + top * dose / (ed50 + dose)
    numpyro.sample("y", dist.Normal(mu, sigma), obs=y)


def failures(rng: np.random.Generator) -> Data:
    center, treated = np.repeat(np.arange(20), 8), np.tile([0.0, 1.0], 80)
    scale = np.exp(1.0 + 0.6 * treated + rng.normal(0, 0.4, 20)[center])
    time = scale * rng.weibull(1.6, 160)
    end = rng.uniform(1, 8, 160)
    return {
        "center": center,
        "treated": treated,
        "time": np.minimum(time, end),
        "event": (time <= end).astype(float),
    }


def frailty(center, treated, time, event):
    shape = numpyro.sample("shape", dist.Gamma(2.0, 1.0))
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("centers", 20):
        frail = numpyro.sample("frail", dist.Normal(0, sigma))
    scale = jnp.exp(beta[0] + beta[1] * treated + frail[center])
    hazard = jnp.log(shape / scale) + (shape - 1) * jnp.log(time / scale)
    survival = -((time / scale) ** shape)
    numpyro.factor("likelihood", jnp.sum(event * hazard + survival))


def memberships(rng: np.random.Generator) -> Data:
    weights = np.zeros((120, 12))
    for row in weights:
        row[rng.choice(12, size=rng.integers(1, 4), replace=False)] = 1
    weights /= weights.sum(axis=1, keepdims=True)
    x, total = rng.normal(size=120), rng.integers(5, 30, 120)
    y = rng.binomial(total, _expit(-0.5 + 0.6 * x + weights @ rng.normal(0, 0.9, 12)))
    return {"weights": weights, "x": x, "total": total, "y": y}


def multiple_membership(weights, x, total, y=None):
    alpha = numpyro.sample("alpha", dist.Normal(0, 1.5))
    beta = numpyro.sample("beta", dist.Normal(0, 1))
    sd_school = numpyro.sample("sd_school", dist.Exponential(1))
    with numpyro.plate("schools", weights.shape[1]):
        school = numpyro.sample("school", dist.Normal(0, sd_school))
    with numpyro.plate("pupils", len(x)):
        p = alpha + beta * x + weights @ school
        numpyro.sample("y", dist.Binomial(total, logits=p), obs=y)


def ratings(rng: np.random.Generator) -> Data:
    judge, wine = (np.ravel(a) for a in np.meshgrid(np.arange(15), np.arange(10)))
    latent = rng.normal(0, 0.7, 15)[judge] + rng.normal(0, 1.0, 10)[wine] + rng.logistic(size=150)
    return {"judge": judge, "wine": wine, "y": np.digitize(latent, [-1.5, 0.0, 1.0, 2.2])}


def ordinal(judge, wine, y=None):
    cut = numpyro.sample(
        "cut",
        dist.TransformedDistribution(
            dist.Normal(0, 2).expand([4]).to_event(1), dist.transforms.OrderedTransform()
        ),
    )
    sd_judge = numpyro.sample("sd_judge", dist.HalfNormal(1.5))
    sd_wine = numpyro.sample("sd_wine", dist.HalfNormal(1.5))
    with numpyro.plate("judges", 15):
        a = numpyro.sample("a", dist.Normal(0, sd_judge))
    with numpyro.plate("wines", 10):
        b = numpyro.sample("b", dist.Normal(0, sd_wine))
    numpyro.sample("y", dist.OrderedLogistic(a[judge] + b[wine], cut), obs=y)


def pupils(rng: np.random.Generator) -> Data:
    school = np.repeat(np.arange(8), 3)
    room = np.repeat(np.arange(24), 8)
    size, prior = rng.normal(size=8), rng.normal(size=192)
    y = 50 + 3 * size[school][room] + 4 * prior + rng.normal(0, 2, 8)[school][room]
    y = y + rng.normal(0, 1.5, 24)[room] + 3 * rng.standard_t(4, 192)
    return {"school": school, "room": room, "size": size, "prior": prior, "y": y}


def nested_student(school, room, size, prior, y=None):
    g0 = numpyro.sample("g0", dist.Normal(50, 20))
    g1 = numpyro.sample("g1", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 10))
    sd_school = numpyro.sample("sd_school", dist.HalfCauchy(5))
    sd_room = numpyro.sample("sd_room", dist.HalfCauchy(5))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(5))
    nu = numpyro.sample("nu", dist.Gamma(2, 0.1))
    with numpyro.plate("schools", 8):
        a = numpyro.sample("a", dist.Normal(g0 + g1 * size, sd_school))
    with numpyro.plate("rooms", 24):
        c = numpyro.sample("c", dist.Normal(a[school], sd_room))
    with numpyro.plate("pupils", len(y)):
        numpyro.sample("y", dist.StudentT(nu, c[room] + beta * prior, sigma), obs=y)


def heights(rng: np.random.Generator) -> Data:
    child, age = np.repeat(np.arange(20), 7), np.tile(np.linspace(-1, 1, 7), 20)
    own = rng.normal(size=(20, 3)) * np.array([4.0, 1.5, 0.5])
    y = (140 + own[child, 0]) + (8 + own[child, 1]) * age + (0.5 + own[child, 2]) * age**2
    return {"child": child, "age": age, "y": y + rng.normal(0, 0.6, 140)}


def growth_curves(child, age, y=None):
    basis = jnp.stack([jnp.ones_like(age), age, age**2], axis=1)
    beta = numpyro.sample("beta", dist.Normal(jnp.array([140.0, 0, 0]), 20.0).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(5))
    tau = numpyro.sample("tau", dist.HalfNormal(5).expand([3]).to_event(1))
    corr = numpyro.sample("L_corr", dist.LKJCholesky(3, concentration=2))
    with numpyro.plate("children", 20):
        z = numpyro.sample("z", dist.Normal(0, 1).expand([3]).to_event(1))
    own = beta + z @ (tau[:, None] * corr).T
    numpyro.sample("y", dist.Normal(jnp.sum(own[child] * basis, axis=1), sigma), obs=y)


def cases(rng: np.random.Generator) -> Data:
    week, region = np.tile(np.arange(40), 5), np.repeat(np.arange(5), 40)
    curve = 0.8 * np.sin(week / 6) + rng.normal(0, 0.4, 5)[region]
    return {"week": week / 39 * 2 - 1, "region": region, "y": rng.poisson(np.exp(1.5 + curve))}


def hilbert_counts(week, region, y=None):
    m, bound = 12, 1.5
    j = jnp.arange(1, m + 1)
    phi = jnp.sin(jnp.pi * j * (week[:, None] + bound) / (2 * bound)) / jnp.sqrt(bound)
    alpha = numpyro.sample("alpha", dist.Normal(0, 2))
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(1))
    length = numpyro.sample("length", dist.InverseGamma(5, 2))
    omega = jnp.pi * j / (2 * bound)
    density = amplitude**2 * jnp.sqrt(2 * jnp.pi) * length * jnp.exp(-0.5 * (length * omega) ** 2)
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([m]).to_event(1))
    sd_region = numpyro.sample("sd_region", dist.HalfNormal(1))
    with numpyro.plate("regions", 5):
        u = numpyro.sample("u", dist.Normal(0, sd_region))
    f = phi @ (jnp.sqrt(density) * beta)
    numpyro.sample("y", dist.Poisson(jnp.exp(alpha + f + u[region])), obs=y)


def choices(rng: np.random.Generator) -> Data:
    town, x = np.repeat(np.arange(12), 20), rng.normal(size=240)
    logits = np.stack([np.zeros(240), 0.5 + 0.8 * x, -0.3 - 0.5 * x, 0.1 * x], axis=1)
    logits[:, 1:] += rng.normal(0, 0.7, (12, 3))[town]
    noise = rng.gumbel(size=logits.shape)
    return {"town": town, "x": x, "y": (logits + noise).argmax(axis=1)}


def multinomial(town, x, y=None):
    with numpyro.plate("classes", 3):
        alpha = numpyro.sample("alpha", dist.Normal(0, 2))
        beta = numpyro.sample("beta", dist.Normal(0, 2))
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        with numpyro.plate("towns", 12):
            u = numpyro.sample("u", dist.Normal(0, tau))
    eta = alpha + beta * x[:, None] + u[town]
    logits = jnp.concatenate([jnp.zeros((len(x), 1)), eta], axis=1)
    with numpyro.plate("people", len(x)):
        numpyro.sample("y", dist.Categorical(logits=logits), obs=y)


PROGRAMS = {
    "beta_regression": Program(beta_regression, yields),
    "hurdle": Program(hurdle, visits),
    "emax": Program(emax, doses),
    "frailty": Program(frailty, failures),
    "multiple_membership": Program(multiple_membership, memberships),
    "ordinal": Program(ordinal, ratings),
    "nested_student": Program(nested_student, pupils),
    "growth_curves": Program(growth_curves, heights),
    "hilbert_counts": Program(hilbert_counts, cases),
    "multinomial": Program(multinomial, choices),
}

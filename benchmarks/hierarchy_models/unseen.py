"""Eleven more that were written first and looked at last."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program


def _expit(x):
    return 1.0 / (1.0 + np.exp(-x))


def dyes(rng: np.random.Generator) -> Data:
    return {"y": 5.7 + rng.normal(0, 0.1, (6, 1)) + rng.normal(0, 3.5, (6, 5))}


def dyestuff(y=None):
    # Box and Tiao's second set: hardly any variance between batches
    mu = numpyro.sample("mu", dist.Normal(5, 20))
    between = numpyro.sample("between", dist.Uniform(0, 20))
    within = numpyro.sample("within", dist.Uniform(0, 20))
    with numpyro.plate("batches", 6, dim=-2):
        batch = numpyro.sample("batch", dist.Normal(0, between))
        with numpyro.plate("samples", 5, dim=-1):
            numpyro.sample("y", dist.Normal(mu + batch, within), obs=y)


def infections(rng: np.random.Generator) -> Data:
    patient, age = np.repeat(np.arange(38), 2), rng.normal(size=76)
    scale = np.exp(1.0 + 0.3 * age + np.log(rng.gamma(3, 1 / 3, 38))[patient])
    t = scale * rng.weibull(1.3, 76)
    return {"patient": patient, "age": age, "t": np.minimum(t, 6.0), "seen": t < 6.0}


def weibull_frailty(patient, age, t, seen):
    # BUGS' kidney: hazards of a Weibull law with a frailty for every patient
    alpha = numpyro.sample("alpha", dist.Normal(0, 5))
    beta = numpyro.sample("beta", dist.Normal(0, 5))
    shape = numpyro.sample("shape", dist.Gamma(1, 0.1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    b = numpyro.sample("b", dist.Normal(0, sigma).expand([38]).to_event(1))
    eta = alpha + beta * age + b[patient]
    log_hazard = jnp.log(shape) + (shape - 1) * jnp.log(t) + eta
    numpyro.factor("times", jnp.sum(jnp.where(seen, log_hazard, 0.0) - t**shape * jnp.exp(eta)))


def quiz(rng: np.random.Generator) -> Data:
    items = rng.multivariate_normal([0.0, 0.2], [[1.0, 0.15], [0.15, 0.1]], 10)
    theta = rng.normal(size=80)
    p = _expit(np.exp(items[:, 1]) * (theta[:, None] - items[:, 0]))
    return {"y": rng.binomial(1, p)}


def hierarchical_2pl(y):
    # Stan's case study: difficulty and log discrimination have one joint law
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.Exponential(1.0).expand([2]).to_event(1))
    chol = numpyro.sample("chol", dist.LKJCholesky(2, 4.0))
    with numpyro.plate("items", 10):
        xi = numpyro.sample("xi", dist.MultivariateNormal(mean, scale_tril=tau[:, None] * chol))
    with numpyro.plate("people", 80, dim=-2):
        theta = numpyro.sample("theta", dist.Normal(0, 1))
        logits = jnp.exp(xi[:, 0]) * (theta - xi[:, 1])
        with numpyro.plate("answers", 10, dim=-1):
            numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def cases(rng: np.random.Generator) -> Data:
    area, year = (np.ravel(a) for a in np.mgrid[:12, :8])
    trend = np.cumsum(rng.normal(0, 0.25, 8))
    eta = rng.normal(0, 0.5, 12)[area] + trend[year] + rng.normal(0, 0.15, 96)
    return {"area": area, "year": year, "y": rng.poisson(np.exp(2.0 + eta))}


def space_time(area, year, y=None):
    # Knorr-Held's first type: area, a walk over years, and an effect of every cell
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    taus = numpyro.sample("taus", dist.Gamma(1, 0.1).expand([3]).to_event(1))
    sd = 1 / jnp.sqrt(taus)
    with numpyro.plate("areas", 12):
        a = numpyro.sample("a", dist.Normal(0, sd[0]))
    walk = numpyro.sample("walk", dist.GaussianRandomWalk(sd[1], num_steps=8))
    with numpyro.plate("cells", 96):
        cell = numpyro.sample("cell", dist.Normal(0, sd[2]))
        numpyro.sample("y", dist.Poisson(jnp.exp(mu + a[area] + walk[year] + cell)), obs=y)


def patients(rng: np.random.Generator) -> Data:
    ward = np.repeat(np.arange(15), 10)
    u = rng.normal(0, 0.8, 15)
    pressure = 120 + 6 * u[ward] + rng.normal(0, 5, 150)
    return {"ward": ward, "pressure": pressure, "ill": rng.binomial(1, _expit(-0.5 + u[ward]))}


def two_outcomes(ward, pressure, ill):
    # One effect for two kinds of outcomes, with a loading
    a = numpyro.sample("a", dist.Normal(120, 20))
    c = numpyro.sample("c", dist.Normal(0, 2))
    loading = numpyro.sample("loading", dist.HalfNormal(10))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(10))
    with numpyro.plate("wards", 15):
        u = numpyro.sample("u", dist.Normal(0, tau))
    numpyro.sample("pressure", dist.Normal(a + loading * u[ward], sigma), obs=pressure)
    numpyro.sample("ill", dist.Bernoulli(logits=c + u[ward]), obs=ill)


def rain(rng: np.random.Generator) -> Data:
    station, season = np.repeat(np.arange(10), 16), np.tile(np.linspace(-1, 1, 16), 10)
    wet = rng.binomial(1, _expit(0.4 + season + rng.normal(0, 0.5, 10)[station]))
    amount = rng.gamma(2.0, np.exp(0.5 + rng.normal(0, 0.4, 10)[station]) / 2.0)
    return {"station": station, "season": season, "y": wet * amount}


def hurdle_gamma(station, season, y):
    wet = y > 0
    a = numpyro.sample("a", dist.Normal(0, 2).expand([3]).to_event(1))
    shape = numpyro.sample("shape", dist.LogNormal(0, 1))
    sd = numpyro.sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    corr = numpyro.sample("corr", dist.LKJCholesky(2, 2.0))
    with numpyro.plate("stations", 10):
        u = numpyro.sample(
            "u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=sd[:, None] * corr)
        )
    numpyro.sample("wet", dist.Bernoulli(logits=a[0] + a[1] * season + u[station, 0]), obs=wet)
    mean = jnp.exp(a[2] + u[station, 1])
    with numpyro.handlers.mask(mask=wet):
        numpyro.sample("amount", dist.Gamma(shape, shape / mean), obs=jnp.where(wet, y, 1.0))


def tumours(rng: np.random.Generator) -> Data:
    x, beta = rng.normal(size=(150, 20)), np.zeros(20)
    beta[[1, 4, 13]] = [1.5, -1.5, 0.8]
    return {"x": x, "y": rng.binomial(1, _expit(x @ beta - 0.3))}


def logistic_horseshoe(x, y=None):
    alpha = numpyro.sample("alpha", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.HalfCauchy(0.05))
    slab = numpyro.sample("slab", dist.InverseGamma(2, 4))
    local = numpyro.sample("local", dist.HalfCauchy(jnp.ones(20)))
    z = numpyro.sample("z", dist.Normal(jnp.zeros(20), 1.0))
    bent = jnp.sqrt(slab) * local / jnp.sqrt(slab + tau**2 * local**2)
    numpyro.sample("y", dist.Bernoulli(logits=alpha + x @ (tau * bent * z)), obs=y)


def outlying(rng: np.random.Generator) -> Data:
    group = np.repeat(np.arange(20), 6)
    u = 0.5 * rng.standard_t(3, 20)
    return {"group": group, "y": 1.0 + u[group] + rng.normal(0, 0.6, 120)}


def robust_effects(group, y=None):
    # Student effects, normal errors
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    with numpyro.plate("groups", 20):
        u = numpyro.sample("u", dist.StudentT(4, 0, tau))
    numpyro.sample("y", dist.Normal(mu + u[group], sigma), obs=y)


def fish(rng: np.random.Generator) -> Data:
    lake, x = np.repeat(np.arange(10), 18), rng.normal(size=180)
    rate = np.exp(1.0 + 0.4 * x + rng.normal(0, 0.5, 10)[lake]) * rng.gamma(2.5, 1 / 2.5, 180)
    return {"lake": lake, "x": x, "y": rng.poisson(rate) * rng.binomial(1, 0.7, 180)}


def inflated_negative_binomial(lake, x, y=None):
    b0 = numpyro.sample("b0", dist.Normal(0, 2))
    b1 = numpyro.sample("b1", dist.Normal(0, 2))
    zi = numpyro.sample("zi", dist.Beta(1, 1))
    shape = numpyro.sample("shape", dist.Gamma(2, 0.5))
    sd = numpyro.sample("sd", dist.HalfNormal(1))
    r = numpyro.sample("r", dist.Normal(0, 1).expand([10]).to_event(1))
    mu = jnp.exp(b0 + b1 * x + (sd * r)[lake])
    numpyro.sample("y", dist.ZeroInflatedNegativeBinomial2(mu, shape, gate=zi), obs=y)


def tastings(rng: np.random.Generator) -> Data:
    taster, wine = (np.ravel(a) for a in np.mgrid[:15, :8])
    u = rng.multivariate_normal([0, 0], [[0.6, 0.2], [0.2, 0.3]], 15)
    warm = np.tile([0, 1], 60)
    eta = 0.8 * warm + u[taster, 0] + u[taster, 1] * warm + rng.normal(0, 0.7, 8)[wine]
    score = np.digitize(eta + rng.normal(0, 1, 120), [-1.0, 0.2, 1.3])
    return {"taster": taster, "wine": wine, "warm": warm, "y": score}


def ordered_probit(taster, wine, warm, y=None):
    b = numpyro.sample("b", dist.Normal(0, 2))
    cuts = numpyro.sample(
        "cuts", dist.ImproperUniform(dist.constraints.ordered_vector, (), event_shape=(3,))
    )
    numpyro.factor("around", dist.Normal(0, 3).log_prob(cuts).sum())
    sd = numpyro.sample("sd", dist.HalfNormal(1).expand([3]))
    chol = numpyro.sample("chol", dist.LKJCholesky(2, 1.0))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([15, 2]))
    w = numpyro.sample("w", dist.Normal(0, 1).expand([8]))
    u = z @ (sd[:2, None] * chol).T
    eta = b * warm + u[taster, 0] + u[taster, 1] * warm + sd[2] * w[wine]
    numpyro.sample("y", dist.OrderedProbit(eta, cuts), obs=y)


def coupons(rng: np.random.Generator) -> Data:
    store, price = np.repeat(np.arange(12), 14), rng.normal(size=168)
    slope = -1.0 + 0.5 * rng.normal(size=12)
    y = np.exp(2 + rng.normal(0, 0.4, 12)[store] + slope[store] * 0.3 * price)
    return {"store": store, "price": price, "y": y * np.exp(rng.normal(0, 0.25, 168))}


def demand(store, price, y=None):
    # Elasticities that are negative in every store: minus a lognormal, log sales normal
    mu_a = numpyro.sample("mu_a", dist.Normal(0, 5))
    s_a = numpyro.sample("s_a", dist.HalfNormal(1))
    mu_b = numpyro.sample("mu_b", dist.Normal(-1, 1))
    s_b = numpyro.sample("s_b", dist.HalfNormal(0.5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("stores", 12):
        a = numpyro.sample("a", dist.Normal(mu_a, s_a))
        b = numpyro.sample("b", dist.LogNormal(mu_b, s_b))
    numpyro.sample("y", dist.LogNormal(a[store] - b[store] * price, sigma), obs=y)


PROGRAMS = {
    "dyestuff": Program(dyestuff, dyes),
    "weibull_frailty": Program(weibull_frailty, infections),
    "hierarchical_2pl": Program(hierarchical_2pl, quiz),
    "space_time": Program(space_time, cases),
    "two_outcomes": Program(two_outcomes, patients),
    "hurdle_gamma": Program(hurdle_gamma, rain),
    "logistic_horseshoe": Program(logistic_horseshoe, tumours),
    "robust_effects": Program(robust_effects, outlying),
    "inflated_negative_binomial": Program(inflated_negative_binomial, fish),
    "ordered_probit": Program(ordered_probit, tastings),
    "demand": Program(demand, coupons),
}

"""The shapes of textbook examples, as Stan, BUGS, lme4 and PyMC users port them; data simulated."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.nn import sigmoid

from benchmarks.stress_models.program import Data, Program, flat, flat_positive


def _expit(x):
    return 1.0 / (1.0 + np.exp(-x))


def homes(rng: np.random.Generator) -> Data:
    size = rng.integers(1, 15, 30)
    county = np.repeat(np.arange(30), size)
    floor, u = rng.binomial(1, 0.3, size.sum()), rng.normal(0, 0.4, 30)
    a = 1.4 + 0.7 * u + rng.normal(0, 0.3, 30)
    b = -0.7 - 0.4 * u + rng.normal(0, 0.25, 30)
    y = a[county] + b[county] * floor + rng.normal(0, 0.7, size.sum())
    return {"county": county, "floor": floor, "u": u, "log_radon": y}


def radon(county, floor, u, log_radon=None):
    # Gelman and Hill: intercepts and slopes by county, both with a county predictor
    g_a = numpyro.sample("g_a", dist.Normal(0, 10).expand([2]).to_event(1))
    g_b = numpyro.sample("g_b", dist.Normal(0, 10).expand([2]).to_event(1))
    s_a = numpyro.sample("s_a", dist.Exponential(1))
    s_b = numpyro.sample("s_b", dist.Exponential(1))
    with numpyro.plate("counties", len(u)):
        z_a = numpyro.sample("z_a", dist.Normal(0, 1))
        z_b = numpyro.sample("z_b", dist.Normal(0, 1))
    a = numpyro.deterministic("a", g_a[0] + g_a[1] * u + s_a * z_a)
    b = numpyro.deterministic("b", g_b[0] + g_b[1] * u + s_b * z_b)
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    numpyro.sample("y", dist.Normal(a[county] + b[county] * floor, sigma), obs=log_radon)


def weights(rng: np.random.Generator) -> Data:
    age = np.array([8.0, 15, 22, 29, 36])
    line = rng.multivariate_normal([242, 6.2], [[180, 1.5], [1.5, 0.25]], 30)
    return {
        "age": age,
        "y": line[:, :1] + line[:, 1:] * (age - 22) + rng.normal(0, 6, (30, 5)),
    }


def rats(age, y=None):
    # BUGS volume 1: precisions with flat gammas, centred, a line for every rat
    alpha_c = numpyro.sample("alpha_c", dist.Normal(0, 1e3))
    beta_c = numpyro.sample("beta_c", dist.Normal(0, 1e3))
    tau_c = numpyro.sample("tau_c", dist.Gamma(1e-3, 1e-3))
    tau_a = numpyro.sample("tau_a", dist.Gamma(1e-3, 1e-3))
    tau_b = numpyro.sample("tau_b", dist.Gamma(1e-3, 1e-3))
    with numpyro.plate("rats", 30):
        alpha = numpyro.sample("alpha", dist.Normal(alpha_c, 1 / jnp.sqrt(tau_a)))
        beta = numpyro.sample("beta", dist.Normal(beta_c, 1 / jnp.sqrt(tau_b)))
    mu = alpha[:, None] + beta[:, None] * (age - age.mean())
    numpyro.sample("y", dist.Normal(mu, 1 / jnp.sqrt(tau_c)), obs=y)


def plates(rng: np.random.Generator) -> Data:
    seed, root = np.tile([0, 1], 11)[:21], np.repeat([0, 1], 11)[:21]
    n = rng.integers(5, 80, 21)
    eta = -0.5 + 0.1 * seed + 1.3 * root - 0.8 * seed * root + rng.normal(0, 0.35, 21)
    return {"bean": seed, "root": root, "n": n, "r": rng.binomial(n, _expit(eta))}


def seeds(bean, root, n, r=None):
    a0, a1, a2, a12 = (flat(name) for name in ("a0", "a1", "a2", "a12"))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    with numpyro.plate("plates", len(n)):
        b = numpyro.sample("b", dist.Normal(0, sigma))
        eta = a0 + a1 * bean + a2 * root + a12 * bean * root + b
        numpyro.sample("r", dist.Binomial(n, logits=eta), obs=r)


def seizures(rng: np.random.Generator) -> Data:
    base, treated = rng.normal(0, 0.7, 40), rng.binomial(1, 0.5, 40)
    age, last = rng.normal(0, 0.2, 40), np.array([0.0, 0, 0, 1])
    eta = 1.6 + 0.9 * base - 0.4 * treated + 0.3 * base * treated + 0.4 * age
    eta = eta + rng.normal(0, 0.5, 40)
    y = rng.poisson(np.exp(eta[:, None] - 0.15 * last + rng.normal(0, 0.35, (40, 4))))
    return {"base": base, "treated": treated, "age": age, "last": last, "y": y}


def epil(base, treated, age, last, y=None):
    names = ("a0", "base", "treated", "both", "age", "last")
    a = [numpyro.sample(f"b_{name}", dist.Normal(0, 100)) for name in names]
    s_subject = numpyro.sample("s_subject", dist.HalfNormal(2))
    s_visit = numpyro.sample("s_visit", dist.HalfNormal(2))
    subjects = numpyro.plate("subjects", 40, dim=-2)
    visits = numpyro.plate("visits", 4, dim=-1)
    with subjects:
        b1 = numpyro.sample("b1", dist.Normal(0, 1))
    own = a[0] + a[1] * base + a[2] * treated + a[3] * base * treated + a[4] * age
    with subjects, visits:
        b = numpyro.sample("b", dist.Normal(0, 1))
        log_mu = own[:, None] + s_subject * b1 + a[5] * last + s_visit * b
        numpyro.sample("y", dist.Poisson(jnp.exp(log_mu)), obs=y)


def matings(rng: np.random.Generator) -> Data:
    female, male = rng.integers(20, size=120), rng.integers(20, size=120)
    cross = 2 * (female >= 10) + (male >= 10)
    eta = np.array([1.0, 0.4, -1.6, 1.1])[cross]
    eta = eta + rng.normal(0, 1.0, 20)[female] + rng.normal(0, 1.0, 20)[male]
    return {"cross": cross, "female": female, "male": male, "y": rng.binomial(1, _expit(eta))}


def salamanders(cross, female, male, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 1.5).expand([4]).to_event(1))
    sd = {sex: numpyro.sample(f"sd_{sex}", dist.HalfNormal(1.5)) for sex in ("f", "m")}
    with numpyro.plate("females", 20):
        f = numpyro.sample("f", dist.Normal(0, sd["f"]))
    with numpyro.plate("males", 20):
        m = numpyro.sample("m", dist.Normal(0, sd["m"]))
    with numpyro.plate("rows", len(cross)):
        p = sigmoid(beta[cross] + f[female] + m[male])
        numpyro.sample("y", dist.Bernoulli(probs=p), obs=y)


def diameters(rng: np.random.Generator) -> Data:
    plate, sample = (np.ravel(a) for a in np.mgrid[:24, :6])
    y = 23 + rng.normal(0, 0.85, 24)[plate] + rng.normal(0, 1.9, 6)[sample]
    return {"plate": plate, "sample": sample, "y": y + rng.normal(0, 0.55, 144)}


def penicillin(plate, sample, y=None):
    # lme4: diameter ~ 1 + (1 | plate) + (1 | sample), with rstanarm's priors
    centre, spread = float(np.mean(y)), float(np.std(y))
    intercept = numpyro.sample("intercept", dist.Normal(centre, 2.5 * spread))
    aux = numpyro.sample("aux", dist.Exponential(1 / spread))
    sd_plate = numpyro.sample("sd_plate", dist.Gamma(1.0, 1 / spread))
    sd_sample = numpyro.sample("sd_sample", dist.Gamma(1.0, 1 / spread))
    b_plate = numpyro.sample("b_plate", dist.Normal(0, 1).expand((24,)))
    b_sample = numpyro.sample("b_sample", dist.Normal(0, 1).expand((6,)))
    mu = intercept + sd_plate * b_plate[plate] + sd_sample * b_sample[sample]
    numpyro.sample("y", dist.Normal(mu, aux), obs=y)


def wafers(rng: np.random.Generator) -> Data:
    lot = np.repeat(np.arange(8), 9)
    wafer, source = np.repeat(np.arange(24), 3), np.repeat([0, 1], 36)
    y = 2000 + 10 * source + rng.normal(0, 11, 8)[lot] + rng.normal(0, 6, 24)[wafer]
    return {"source": source, "lot": lot, "wafer": wafer, "y": y + rng.normal(0, 3.5, 72)}


def oxide(source, lot, wafer, y=None):
    # nlme: random = ~ 1 | Lot / Wafer, with a variance for each source; flat priors
    mean = flat("mean", 2)
    s_lot, s_wafer = flat_positive("s_lot"), flat_positive("s_wafer")
    with numpyro.plate("sources", 2):
        sigma = numpyro.sample("sigma", dist.HalfNormal(20))
    lots = numpyro.sample("lots", dist.Normal(jnp.zeros(8), s_lot))
    own = numpyro.sample("wafers", dist.Normal(lots[np.arange(24) // 3], s_wafer))
    numpyro.sample("y", dist.Normal(2000 + mean[source] + own[wafer], sigma[source]), obs=y)


def few_trials(rng: np.random.Generator) -> Data:
    n = rng.integers(20, 90, (5, 2))
    base, effect = rng.normal(-1.0, 0.5, 5), rng.normal(0.5, 0.3, 5)
    eta = np.stack([base - effect / 2, base + effect / 2], 1)
    return {"n": n, "r": rng.binomial(n, _expit(eta))}


def few_studies(n, r=None):
    # Arms of five trials: baselines of their own, effects that are exchangeable
    d = numpyro.sample("d", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.HalfNormal(0.5))
    with numpyro.plate("studies", 5):
        mu = numpyro.sample("mu", dist.Normal(0, 10))
        delta = numpyro.sample("delta", dist.Normal(d, tau))
    logits = mu[:, None] + delta[:, None] * jnp.array([-0.5, 0.5])
    numpyro.sample("r", dist.Binomial(n, logits=logits).to_event(2), obs=r)


def exam(rng: np.random.Generator) -> Data:
    school = np.repeat(np.arange(10), 12)
    ses = rng.normal(size=120)
    ability = 0.5 * ses + rng.normal(0, 0.5, 10)[school] + rng.normal(0, 0.8, 120)
    p = _expit(ability[:, None] - np.linspace(-1.5, 1.5, 8))
    return {"school": school, "ses": ses, "y": rng.binomial(1, p)}


def rasch(school, ses, y=None):
    # 1PL: pupils in schools, a matrix of answers
    b_ses = numpyro.sample("b_ses", dist.Normal(0, 1))
    s_school = numpyro.sample("s_school", dist.HalfNormal(1))
    s_person = numpyro.sample("s_person", dist.HalfNormal(1))
    s_item = numpyro.sample("s_item", dist.HalfNormal(2))
    easy = numpyro.sample("easy", dist.Normal(0, 2))
    item = numpyro.sample("item", dist.Normal(0, s_item).expand([8]).to_event(1))
    u = numpyro.sample("u", dist.Normal(0, s_school).expand([10]).to_event(1))
    theta = numpyro.sample("theta", dist.Normal(b_ses * ses + u[school], s_person).to_event(1))
    logits = easy + theta[:, None] - item[None, :]
    numpyro.sample("y", dist.Bernoulli(logits=logits).to_event(2), obs=y)


PROGRAMS = {
    "radon": Program(radon, homes),
    "rats": Program(rats, weights),
    "seeds": Program(seeds, plates),
    "epil": Program(epil, seizures),
    "salamanders": Program(salamanders, matings),
    "penicillin": Program(penicillin, diameters),
    "oxide": Program(oxide, wafers),
    "few_studies": Program(few_studies, few_trials),
    "rasch": Program(rasch, exam),
}

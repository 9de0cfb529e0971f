"""Ways of writing: plates in plates, loops, reparametrisations, `@`, scans, pandas codes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import LocScaleReparam

from benchmarks.stress_models.program import Data, Program


def _expit(x):
    return 1.0 / (1.0 + np.exp(-x))


def litters(rng: np.random.Generator) -> Data:
    lab, dose = np.repeat(np.arange(9), 6), np.tile(np.linspace(-1, 1, 6), 9)
    p = _expit(-0.6 + 1.1 * dose + rng.normal(0, 0.5, 9)[lab])
    n = rng.integers(6, 16, 54)
    return {"lab": lab, "dose": dose, "n": n, "dead": rng.binomial(n, rng.beta(8 * p, 8 * (1 - p)))}


def beta_binomial(lab, dose, n, dead=None):
    a = numpyro.sample("a", dist.Normal(0, 1.5))
    b = numpyro.sample("b", dist.Normal(0, 1.5))
    phi = numpyro.sample("phi", dist.LogNormal(2, 1))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("labs", 9):
        u = numpyro.sample("u", dist.Normal(0, tau))
    p = jax.nn.sigmoid(a + b * dose + u[lab])
    numpyro.sample("dead", dist.BetaBinomial(p * phi, (1 - p) * phi, n), obs=dead)


def lifetimes(rng: np.random.Generator) -> Data:
    clinic, x = np.repeat(np.arange(12), 10), rng.normal(size=120)
    t = np.exp(1.0 - 0.4 * x + rng.normal(0, 0.5, 12)[clinic] + rng.normal(0, 0.7, 120))
    return {"clinic": clinic, "x": x, "t": np.minimum(t, 5.0), "censored": t > 5.0}


def lognormal_times(clinic, x, t, censored):
    mu = numpyro.sample("mu", dist.Normal(0, 3))
    b = numpyro.sample("b", dist.Normal(0, 3))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    tau = numpyro.sample("tau", dist.HalfCauchy(1))
    with numpyro.plate("clinics", 12):
        u = numpyro.sample("u", dist.Normal(0, tau))
    law = dist.LogNormal(mu + b * x + u[clinic], sigma)
    with numpyro.handlers.mask(mask=~censored):
        numpyro.sample("died", law, obs=t)
    with numpyro.handlers.mask(mask=censored):
        alive = jax.scipy.special.log_ndtr((mu + b * x + u[clinic] - jnp.log(t)) / sigma)
        numpyro.factor("alive", alive)


def nights(rng: np.random.Generator) -> Data:
    subject, day = np.repeat(np.arange(18), 10), np.tile(np.arange(10.0), 18)
    line = rng.multivariate_normal([250, 10], [[600, 10], [10, 36]], 18)
    y = line[subject, 0] + line[subject, 1] * day + 20 * rng.standard_t(4, 180)
    return {"subject": subject, "day": day, "y": y}


def cholesky_slopes(subject, day, y=None):
    # brms' own Stan code: r_1 = (diag_pre_multiply(sd_1, L_1) * z_1)', Student errors
    b = numpyro.sample("b", dist.Normal(0, 50))
    intercept = numpyro.sample("Intercept", dist.StudentT(3, 290, 60))
    with numpyro.plate("D", 2):
        sd = numpyro.sample("sd", dist.HalfNormal(40))
    chol = numpyro.sample("L", dist.LKJCholesky(2, concentration=1.0))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([2, 18]).to_event(2))
    r = ((jnp.diag(sd) @ chol) @ z).T
    nu = numpyro.sample("nu", dist.Gamma(2, 0.1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(40))
    mu = intercept + b * (day - 4.5) + r[subject, 0] + r[subject, 1] * day
    numpyro.sample("Y", dist.StudentT(nu, mu, sigma), obs=y)


def marks(rng: np.random.Generator) -> Data:
    eta = 0.4 + rng.normal(0, 0.6, (6, 1, 1)) + rng.normal(0, 0.5, (6, 4, 1))
    eta = eta + rng.normal(0, 0.4, (6, 4, 3))
    return {"n": np.full((6, 4, 3), 12), "y": rng.binomial(12, _expit(eta))}


def nested_plates(n, y=None):
    # Regions, schools within, classes within: plates in plates, centred
    mu = numpyro.sample("mu", dist.Normal(0, 1.5))
    s = numpyro.sample("s", dist.HalfNormal(1).expand([3]).to_event(1))
    with numpyro.plate("regions", 6, dim=-3):
        region = numpyro.sample("region", dist.Normal(mu, s[0]))
        with numpyro.plate("schools", 4, dim=-2):
            school = numpyro.sample("school", dist.Normal(region, s[1]))
            with numpyro.plate("classes", 3, dim=-1):
                room = numpyro.sample("room", dist.Normal(school, s[2]))
                numpyro.sample("y", dist.Binomial(n, logits=room), obs=y)


def panels(rng: np.random.Generator) -> Data:
    u = np.zeros((30, 6))
    for t in range(30):
        u[t] = 0.8 * (u[t - 1] if t else 0) + rng.normal(0, 0.4, 6)
    y = 1.0 + rng.normal(0, 0.5, 6) + u + rng.normal(0, 0.3, (30, 6))
    return {"y": y}


def autoregressive_groups(y):
    # Every group has a level and an AR(1) of its own; a scan over time with a plate inside
    mean = numpyro.sample("mean", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    rho = numpyro.sample("rho", dist.Uniform(0, 1))
    s = numpyro.sample("s", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("groups", 6):
        level = numpyro.sample("level", dist.Normal(mean, tau))
        start = numpyro.sample("start", dist.Normal(0, s / jnp.sqrt(1 - rho**2)))

    def step(last, seen):
        with numpyro.plate("groups", 6):
            u = numpyro.sample("u", dist.Normal(rho * last, s))
            numpyro.sample("y", dist.Normal(level + u, sigma), obs=seen)
        return u, None

    scan(step, start, y)


def harvests(rng: np.random.Generator) -> Data:
    year, field = (np.ravel(a) for a in np.mgrid[:12, :10])
    frame = pd.DataFrame({"year": year + 2001, "field": [f"field {i:02d}" for i in field]})
    effect = rng.normal(0, 0.4, 12)[year] + rng.normal(0, 0.6, 10)[field]
    rain = rng.normal(size=120)
    y = rng.poisson(np.exp(1.5 + 0.2 * rain + effect))
    codes = {c: pd.Categorical(frame[c]).codes for c in frame}  # int8
    return {"codes": codes, "rain": rain, "y": y}


def pandas_codes(codes, rain, y=None):
    # PyMC: one dictionary of codes, log-scales rather than scales, a deterministic rate
    alpha = numpyro.sample("alpha", dist.Normal(0, 5))
    beta = numpyro.sample("beta", dist.Laplace(0, 1))
    eta = alpha + beta * rain
    for factor, size in (("year", 12), ("field", 10)):
        log_sd = numpyro.sample(f"log_sd_{factor}", dist.Normal(-1, 1))
        with numpyro.plate(factor, size):
            z = numpyro.sample(f"z_{factor}", dist.Normal())
        effect = numpyro.deterministic(f"effect_{factor}", jnp.exp(log_sd) * z)
        eta = eta + effect[codes[factor]]
    rate = numpyro.deterministic("rate", jnp.exp(eta))
    with numpyro.plate("obs", len(rain), subsample_size=len(rain)):
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def bats(rng: np.random.Generator) -> Data:
    n = rng.integers(20, 120, 18)
    return {"n": n, "hits": rng.binomial(n, _expit(rng.normal(-1.0, 0.3, 18)))}


def _batting(n, hits=None):
    mu = numpyro.sample("mu", dist.Normal(-1, 1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    with numpyro.plate("players", len(n)):
        alpha = numpyro.sample("alpha", dist.Normal(mu, sigma))
        numpyro.sample("hits", dist.Binomial(n, logits=alpha), obs=hits)


half_centred = numpyro.handlers.reparam(_batting, config={"alpha": LocScaleReparam(0.5)})


def soils(rng: np.random.Generator) -> Data:
    sizes = (4, 9, 6, 12, 3, 7)
    x = [rng.normal(size=n) for n in sizes]
    a, b = rng.normal(1, 0.8, 6), rng.normal(-0.5, 0.4, 6)
    y = [a[j] + b[j] * x[j] + rng.normal(0, 0.4, n) for j, n in enumerate(sizes)]
    return {"x": x, "y": y}


def looped_slopes(x, y=None):
    # A list of arrays of different lengths; a vector site sliced in a loop
    mean = numpyro.sample("mean", dist.MultivariateNormal(jnp.zeros(2), 4 * jnp.eye(2)))
    tau = numpyro.sample("tau", dist.HalfNormal(jnp.ones(2)))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    raw = numpyro.sample("raw", dist.Normal(jnp.zeros((6, 2)), 1))
    for j in range(6):
        own = mean + tau * raw[j]
        with numpyro.plate(f"rows_{j}", len(x[j])):
            numpyro.sample(f"y_{j}", dist.Normal(own[0] + own[1] * x[j], sigma), obs=y[j])


def panel_scores(rng: np.random.Generator) -> Data:
    judge, item = (np.ravel(a) for a in np.mgrid[:12, :15])
    eta = rng.normal(0, 0.8, 12)[judge] + rng.normal(0, 1.0, 15)[item]
    cuts = np.array([-1.5, -0.3, 0.6, 1.8])
    p = np.diff(_expit(cuts - eta[:, None]), prepend=0.0, append=1.0, axis=1)
    return {"judge": judge, "item": item, "y": np.array([rng.choice(5, p=row) for row in p])}


def induced_cuts(judge, item, y=None):
    # Cut points with ordered normals around spread centres, a judge and an item effect
    with numpyro.plate("levels", 1):
        cuts = numpyro.sample(
            "cuts",
            dist.TransformedDistribution(
                dist.Normal(0, 1.5).expand([4]).to_event(1),
                dist.transforms.OrderedTransform(),
            ),
        )[0]
    sds = numpyro.sample("sds", dist.Exponential(1.0).expand([2]))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([12 + 15]))
    eta = sds[0] * z[:12][judge] + sds[1] * z[12:][item]
    numpyro.sample("y", dist.OrderedLogistic(eta, cuts), obs=y)


def teams(rng: np.random.Generator) -> Data:
    member = np.array([rng.choice(15, 3, replace=False) for _ in range(90)])
    x = rng.normal(size=90)
    eta = 0.3 + 0.5 * x + rng.normal(0, 1.2, 15)[member].mean(1)
    return {"member": member, "x": x, "y": rng.binomial(1, _expit(eta))}


def team_members(member, x, y=None):
    # Multiple membership by a gather of a table of codes and a mean over it
    b = numpyro.sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    sd = numpyro.sample("sd", dist.HalfNormal(2))
    u = numpyro.sample("u", dist.Normal(0, 1).expand([15]).to_event(1)) * sd
    logits = b[0] + b[1] * x + u[member].mean(axis=1)
    numpyro.sample("y", dist.BernoulliLogits(logits), obs=y)


def assays(rng: np.random.Generator) -> Data:
    lab = np.repeat(np.arange(12), 5)
    own = np.exp(rng.normal(-0.5, 0.5, 12))
    return {"lab": lab, "y": rng.normal(rng.normal(3, 1, 12)[lab], own[lab])}


def own_scales(lab, y=None):
    # Groups of five rows, each with a mean and a spread of its own
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    centre = numpyro.sample("centre", dist.Normal(0, 2))
    spread = numpyro.sample("spread", dist.HalfNormal(1))
    with numpyro.plate("labs", 12):
        m = numpyro.sample("m", dist.Normal(mu, tau))
        log_s = numpyro.sample("log_s", dist.Normal(centre, spread))
    numpyro.sample("y", dist.Normal(m[lab], jnp.exp(log_s[lab])), obs=y)


def levers(rng: np.random.Generator) -> Data:
    actor = np.repeat(np.arange(7), 72)
    block = np.tile(np.repeat(np.arange(6), 12), 7)
    treatment = rng.integers(0, 4, 504)
    own = rng.normal(0, 1.2, (7, 1)) + rng.normal(0, 0.5, (7, 4))
    eta = np.array([0.2, 0.6, -0.1, 0.5])[treatment] + own[actor, treatment]
    eta = eta + rng.normal(0, 0.3, (6, 4))[block, treatment]
    left = rng.binomial(1, _expit(eta))
    return {"actor": actor, "block": block, "treatment": treatment, "left": left}


def two_groups_of_four(actor, block, treatment, left=None):
    # Four effects of every actor and of every block, with their correlations: twenty scales
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([4]))

    def effects(name, count):
        scale = numpyro.sample(f"scale_{name}", dist.Exponential(1).expand([4]))
        chol = numpyro.sample(f"L_{name}", dist.LKJCholesky(4, 2))
        z = numpyro.sample(f"z_{name}", dist.Normal(0, 1).expand([4, count]))
        return ((scale[:, None] * chol) @ z).T

    by_actor, by_block = effects("actor", 7), effects("block", 6)
    eta = mean[treatment] + by_actor[actor, treatment] + by_block[block, treatment]
    numpyro.sample("left", dist.Bernoulli(logits=eta), obs=left)


PROGRAMS = {
    "beta_binomial": Program(beta_binomial, litters),
    "lognormal_times": Program(lognormal_times, lifetimes),
    "cholesky_slopes": Program(cholesky_slopes, nights),
    "nested_plates": Program(nested_plates, marks),
    "autoregressive_groups": Program(autoregressive_groups, panels),
    "pandas_codes": Program(pandas_codes, harvests),
    "half_centred": Program(half_centred, bats),
    "looped_slopes": Program(looped_slopes, soils),
    "induced_cuts": Program(induced_cuts, panel_scores),
    "team_members": Program(team_members, teams),
    "own_scales": Program(own_scales, assays),
    "two_groups_of_four": Program(two_groups_of_four, levers),
}

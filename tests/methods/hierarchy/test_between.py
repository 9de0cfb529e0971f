"""Between the points of an integral q is the posterior still, however the program is written.

Rows that tell sums of effects closely make draws of q sensitive: their weights say how near it is.
"""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density

import lowerbound as lb
from lowerbound.methods.hierarchy import hierarchies

ROWS, NOISE, DRAWS = 1_000, 0.3, 400
rng = np.random.default_rng(1)
LARGE, SMALL = rng.integers(6, size=30), rng.integers(30, size=ROWS)
FIRST, SECOND = rng.integers(12, size=ROWS), rng.integers(8, size=ROWS)
Y_NESTED = 2 + (0.7 * rng.normal(size=6)[LARGE] + 0.4 * rng.normal(size=30))[SMALL]
Y_NESTED = Y_NESTED + NOISE * rng.normal(size=ROWS)
Y_CROSSED = 2 + 0.7 * rng.normal(size=12)[FIRST] + 0.4 * rng.normal(size=8)[SECOND]
Y_CROSSED = Y_CROSSED + NOISE * rng.normal(size=ROWS)


def scales():
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    return mu, *(numpyro.sample(f"s{i}", dist.HalfNormal(2.0)) for i in range(3))


def effects(name, count, scale, centred, around=0.0):
    """The effects of groups, written in either way."""
    with numpyro.plate(f"groups_{name}", count):
        if centred:
            return numpyro.sample(name, dist.Normal(around, scale))
        return around + scale * numpyro.sample(name, dist.Normal(0.0, 1.0))


def nested(centred, y=None):
    mu, s0, s1, s2 = scales()
    b = effects("b", 30, s1, centred, effects("a", 6, s0, centred)[LARGE])
    numpyro.deterministic("told", mu + b)
    with numpyro.plate("rows", ROWS):
        numpyro.sample("y", dist.Normal((mu + b)[SMALL], s2), obs=y)


def crossed(centred, y=None):
    mu, s0, s1, s2 = scales()
    a, b = effects("a", 12, s0, centred), effects("b", 8, s1, centred)
    numpyro.deterministic("told", mu + a[:, None] + b)
    with numpyro.plate("rows", ROWS):
        numpyro.sample("y", dist.Normal((mu + a[FIRST] + b[SECOND]), s2), obs=y)


PROGRAMS = {"nested": (nested, Y_NESTED), "crossed": (crossed, Y_CROSSED)}


@cache
def fitted(name, centred):
    program, y = PROGRAMS[name]
    fit = lb.fit(program, centred, y, until="fitted")
    return fit, {site: np.asarray(a) for site, a in fit.sample(2000, seed=0).items()}


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_weights_of_draws_are_even(name, centred):
    """They were worth 0.46 and 0.03 of the draws (nested), 0.10 and 0.50, each number by itself."""
    fit, draws = fitted(name, centred)
    program, y = PROGRAMS[name]
    with jax.enable_x64(True):
        some = {n: jnp.asarray(a[:DRAWS]) for n, a in draws.items() if n in fit.posterior}
        log_p = jax.vmap(lambda values: log_density(program, (centred, y), {}, values)[0])(some)
        ratios = np.asarray(log_p) - np.asarray(fit.answer.q.log_prob(some))
    weights = np.exp(ratios - ratios.max())
    assert weights.sum() ** 2 / (weights**2).sum() > 0.3 * DRAWS


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_rows_tell_is_the_same_in_both_ways(name):
    """Its sds were 1.37 (nested) and 1.1 times those now, where effects are not centred."""
    told = [fitted(name, centred)[1]["told"] for centred in (True, False)]
    ratio = told[1].std(axis=0) / told[0].std(axis=0)
    assert abs(np.log(ratio)).max() < 0.1  # of 2,000 draws: an error of 0.022 each, 30 or 96 times
    assert abs(told[1].mean(axis=0) - told[0].mean(axis=0)).max() < 0.15 * told[0].std()


@pytest.mark.judged
def test_a_law_that_is_missed_between_points_is_compared_with_the_posterior(monkeypatch):
    """Given hyperparameters all is Gaussian, which does not say that draws between points are."""
    program, y = PROGRAMS["crossed"]
    monkeypatch.setattr(hierarchies, "UNEVEN", 0.0)
    fit = lb.fit(program, True, y, until="fitted")
    assert fit.verdict.evidence is not None
    assert fit.verdict.trust == "all"


def admissions(department, male, n, y):
    """Effects of unit scale, of which those of the slope may have none at all."""
    mu = numpyro.sample("mu", dist.Normal(0, jnp.array([4.0, 1.0])).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(jnp.ones(2)).to_event(1))
    z = numpyro.sample("z", dist.Normal(jnp.zeros((6, 2)), 1).to_event(2))
    level, slope = jnp.unstack(mu + sigma * z[department], axis=1)
    numpyro.sample("y", dist.Binomial(n, logits=level + slope * male), obs=y)


def test_effects_of_unit_scale_have_it_where_their_scale_vanishes():
    """They are followed as sigma z, and an error in it is large in z where sigma is small."""
    department, male = np.repeat(np.arange(6), 2), np.tile([1, 0], 6)
    rng = np.random.default_rng(2)
    n = rng.integers(25, 800, 12)
    y = rng.binomial(n, 1 / (1 + np.exp(-0.6 + 0.6 * department)))
    fit = lb.fit(admissions, department, male, n, y, method=lb.Integrated())
    drawn = fit.sample(8_000, seed=1)
    smallest = np.argsort(drawn["sigma"][:, 1])[:80]
    assert abs(drawn["z"][smallest]).max() < 6.0
    assert fit.sd("z").max() < 1.0

"""Programs of a few scalars and discrete sites: scalars on a grid, the rest exact given them."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

import lowerbound as lb
from lowerbound.ladder.rungs import chosen
from lowerbound.run.problem import Problem

RNG = np.random.default_rng(4)
COUNTS = RNG.poisson(3.0, 30) * RNG.binomial(1, 0.6, 30)
SEEN = RNG.binomial(4, 0.4 * RNG.binomial(1, 0.6, 40))
SWITCHED = np.concatenate([RNG.poisson(2.0, 12), RNG.poisson(6.0, 8)])


def inflated(y):
    gate = numpyro.sample("a", dist.Beta(1, 1))
    rate = numpyro.sample("b", dist.Gamma(2, 1))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(gate), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Poisson(jnp.where(z == 1, rate, 1e-6)), obs=y)


def occupied(y):
    psi = numpyro.sample("a", dist.Normal(0, 1.5))
    found = numpyro.sample("b", dist.Beta(1, 1))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(logits=psi))
        numpyro.sample("y", dist.Binomial(4, found * z), obs=y)


def switching(y):
    before = numpyro.sample("a", dist.Exponential(0.2))
    after = numpyro.sample("b", dist.Exponential(0.2))
    when = numpyro.sample("z", dist.DiscreteUniform(0, len(y) - 1))
    rates = jnp.where(jnp.arange(len(y)) < when, before, after)
    numpyro.sample("y", dist.Poisson(rates), obs=y)


def summed_inflated(a, b):
    with_rate = scipy.stats.poisson.logpmf(COUNTS, b) + np.log(a)
    without = scipy.stats.poisson.logpmf(COUNTS, 1e-6) + np.log1p(-a)
    prior = scipy.stats.gamma.logpdf(b[..., 0], 2)
    return prior + np.logaddexp(with_rate, without).sum(-1)


def summed_occupied(a, b):
    there = scipy.stats.binom.logpmf(SEEN, 4, b) - np.log1p(np.exp(-a))
    absent = np.where(SEEN == 0, 0.0, -np.inf) - np.log1p(np.exp(a))
    prior = scipy.stats.norm.logpdf(a[..., 0], scale=1.5)
    return prior + np.logaddexp(there, absent).sum(-1)


def summed_switching(a, b):
    before, after = (scipy.stats.poisson.logpmf(SWITCHED, rate) for rate in (a, b))
    none = np.zeros_like(before[..., :1])
    left = np.concatenate([none, before.cumsum(-1)[..., :-1]], -1)
    right = after.sum(-1, keepdims=True) - np.concatenate([none, after.cumsum(-1)[..., :-1]], -1)
    return -0.2 * (a + b)[..., 0] + np.logaddexp.reduce(left + right, axis=-1)


CASES = {
    inflated: (COUNTS, summed_inflated, (1e-3, 1 - 1e-3), (0.5, 7.0)),
    occupied: (SEEN, summed_occupied, (-4.0, 7.0), (1e-3, 1 - 1e-3)),
    switching: (SWITCHED, summed_switching, (0.05, 9.0), (0.05, 14.0)),
}


@pytest.mark.parametrize("model", CASES, ids=lambda model: model.__name__)
def test_moments_are_those_of_the_sum_over_all_values(model):
    data, log_density, *ranges = CASES[model]
    a, b = np.meshgrid(*(np.linspace(*ends, 240) for ends in ranges), indexing="ij")
    heights = log_density(a[..., None], b[..., None])
    weights = np.exp(heights - heights.max())
    weights /= weights.sum()
    with lb.computing(verdicts=True):
        fit = lb.fit(model, data)
    assert fit.converged
    assert fit.verdict.trust == "all"
    for site, values in (("a", a), ("b", b)):
        mean = (weights * values).sum()
        sd = np.sqrt((weights * (values - mean) ** 2).sum())
        np.testing.assert_allclose(fit.mean(site), mean, atol=0.02 * sd)
        np.testing.assert_allclose(fit.sd(site), sd, rtol=0.02)


def test_a_grid_that_would_hold_too_many_probabilities_is_refused():
    found = chosen(Problem(inflated, (np.tile(COUNTS, 2000),)), "auto")
    refused = "a grid over 'a', 'b' would hold about 3e+07 probabilities of discrete sites"
    assert any(refused in line for line in found.lines)
    assert found.taken == "coordinate ascent"

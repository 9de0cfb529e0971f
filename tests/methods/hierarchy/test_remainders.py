"""What Gaussians given hyperparameters miss: against integrals over one effect at a time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp

import lowerbound as lb
from lowerbound.compiled.host.calling import Light
from lowerbound.compiled.jitted import Jitted
from lowerbound.methods.hierarchy.finding_theta import predictors_of
from lowerbound.methods.hierarchy.inner.given_hyperparameters import GivenHyperparameters
from lowerbound.methods.hierarchy.missed.remainders import remainder
from lowerbound.model import trace_model

Y = np.array([0, 0, 5, 1, 0, 2, 0, 9, 0, 1, 0, 0])


def counts(y=None):
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    with numpyro.plate("rows", len(Y)):
        e = numpyro.sample("e", dist.Normal(0.0, tau))
        numpyro.sample("y", dist.Poisson(jnp.exp(e)), obs=y)


def given(log_tau):
    """Log p(y, log tau), E e and E e^2 given log tau, by sums over each effect."""
    x = np.linspace(-9.0, 9.0, 2001)
    e = np.exp(log_tau) * x
    terms = stats.norm.logpdf(x) + stats.poisson.logpmf(Y[:, None], np.exp(e))
    total = logsumexp(terms, axis=1, keepdims=True)
    share = np.exp(terms - total)
    prior = stats.halfnorm.logpdf(np.exp(log_tau), scale=2.0) + log_tau
    return float(np.sum(total + np.log(x[1] - x[0])) + prior), share @ e, share @ e**2


@pytest.fixture(scope="module")
def surface():
    with jax.enable_x64(True):
        return GivenHyperparameters.of(predictors_of(trace_model(counts, (Y,), {}, None)))


@pytest.mark.parametrize("log_tau", [-1.0, 0.0, 0.5])
def test_what_the_bound_misses_given_theta(surface, log_tau):
    with jax.enable_x64(True):
        solved = surface(np.array([log_tau]), (), False)
        found = remainder(surface, solved)
    log_p, mean, square = given(log_tau)
    gap = log_p - solved.value
    assert gap > 0
    # Exact of single effects, but for what a table of 49 places says of far tails.
    assert found.missed == pytest.approx(gap, rel=0.1, abs=2e-3)
    sd = np.sqrt(square - mean**2)
    corrected = solved.loc + found.shift * np.sqrt(solved.variance)
    assert abs((corrected - mean) / sd).max() < 0.05
    before, after = 0.5 * np.log(solved.variance), 0.5 * np.log(solved.variance) + found.stretch
    assert abs(after - np.log(sd)).max() < 0.04
    assert abs(after - np.log(sd)).max() <= abs(before - np.log(sd)).max() + 1e-9


def test_scales_and_effects_of_single_counts_are_those_of_the_posterior():
    t = np.linspace(-4.0, 2.5, 200)
    logs, first, second = map(np.array, zip(*map(given, t), strict=True))
    weights = np.exp(logs - logs.max())
    evidence = logs.max() + np.log(weights.sum() * (t[1] - t[0]))
    weights = weights / weights.sum()
    fit = lb.fit(counts, Y, method=lb.Integrated(), progress=False)
    tau = np.exp(t)
    mean = weights @ tau
    sd = np.sqrt(weights @ (tau - mean) ** 2)
    assert fit.mean("tau") == pytest.approx(mean, abs=0.05 * sd)
    assert fit.sd("tau") == pytest.approx(sd, rel=0.05)
    mean = weights @ first
    sd = np.sqrt(weights @ second - mean**2)
    assert abs((fit.mean("e") - mean) / sd).max() < 0.06
    assert abs(np.log(fit.sd("e") / sd)).max() < 0.06
    assert fit.elbo < evidence
    assert fit.notes[0].startswith("Given tau the others are not quite Gaussian: ")
    stated = float(fit.notes[0].rsplit(" ", 1)[1].rstrip("."))
    assert stated == pytest.approx(evidence, abs=0.05)


ROWS = np.random.default_rng(3).normal(0.5, 1.0, (4, 5)) * np.array([0.4, 1.0, 1.0, 2.5])[:, None]


def places_and_scales(y=None):
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    with numpyro.plate("groups", len(ROWS), dim=-2):
        u = numpyro.sample("u", dist.Normal(0.0, tau))
        v = numpyro.sample("v", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", ROWS.shape[1]):
            numpyro.sample("y", dist.Normal(u, jnp.exp(v)), obs=y)


def of_groups(count):
    def program(y=None):
        tau = numpyro.sample("tau", dist.HalfNormal(2.0))
        with numpyro.plate("groups", count):
            u = numpyro.sample("u", dist.Normal(0.0, tau))
            v = numpyro.sample("v", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(u, jnp.exp(v)), obs=y)

    return program


@pytest.mark.parametrize(("groups", "kind"), [(10, Light), (90, Jitted)])
def test_sums_over_the_nodes_of_many_that_meet_are_optimised(groups, kind):
    """A hundred predictors that meet have as many numbers as thousands of single ones."""
    y = np.random.default_rng(0).standard_normal(groups)
    with jax.enable_x64(True):
        one = predictors_of(trace_model(of_groups(groups), (y,), {}, None))
        assert one.meet
        still = np.zeros(one.lines)
        one.expected(np.zeros(1), np.zeros(one.count), still)
    assert isinstance(one.compiled["expected"], kind)


def test_what_the_bound_misses_where_predictors_meet():
    """Groups are independent given tau: sums over the place and the log scale of each."""
    with jax.enable_x64(True):
        one = predictors_of(trace_model(places_and_scales, (ROWS,), {}, None))
        surface = GivenHyperparameters.of(one)
        solved = surface(np.array([0.0]), (), False)
        found = remainder(surface, solved)
    assert one.joint.clusters.shape == (len(ROWS), 2)
    u, v = np.linspace(-6.0, 6.0, 1201)[:, None], np.linspace(-4.0, 4.0, 401)
    cell = (u[1, 0] - u[0, 0]) * (v[1] - v[0])
    log_p = stats.halfnorm.logpdf(1.0, scale=2.0)
    means, sds = [], []
    for rows in ROWS:
        terms = stats.norm.logpdf(u) + stats.norm.logpdf(v)
        terms = terms + sum(stats.norm.logpdf(y, u, np.exp(v)) for y in rows)
        total = logsumexp(terms)
        log_p += total + np.log(cell)
        share = np.exp(terms - total)
        first = [float((share * x).sum()) for x in (u, v)]
        means.append(first)
        sds.append(
            [np.sqrt((share * x**2).sum() - m**2) for x, m in zip((u, v), first, strict=True)]
        )
    mean, sd = np.array(means).T.ravel(), np.array(sds).T.ravel()
    gap = log_p - solved.value
    assert gap > 0.05
    assert found.missed == pytest.approx(gap, rel=0.02)
    corrected = solved.loc + found.shift * np.sqrt(solved.variance)
    assert abs((corrected - mean) / sd).max() < 0.01
    before = 0.5 * np.log(solved.variance / sd**2)
    after = before + found.stretch
    assert abs(before).max() > 0.2
    assert abs(after).max() < 0.03


def test_parabolas_miss_nothing():
    def line(y=None):
        tau = numpyro.sample("tau", dist.HalfNormal(2.0))
        with numpyro.plate("rows", len(Y)):
            e = numpyro.sample("e", dist.Normal(0.0, tau))
            numpyro.sample("y", dist.Normal(e, 1.0), obs=y)

    fit = lb.fit(line, Y.astype(float), method=lb.Integrated(), progress=False)
    assert fit.notes == ()

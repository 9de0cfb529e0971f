"""Hyperparameters around others: scales of groups around a common one, integrated without a funnel.

With the mean of all rows integrated by hand, evidence and moments are sums over a box.
"""

from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import lowerbound as lb
from lowerbound.model import trace_model

GROUP = np.repeat([0, 1], 5)
Y = np.array([0.3, -0.6, 1.1, 0.2, 0.9, 2.1, -1.9, 0.4, 3.0, -2.2])


def log_normal(y, group):
    spread = numpyro.sample("spread", dist.HalfNormal(0.7))
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    with numpyro.plate("groups", 2):
        sd = numpyro.sample("sd", dist.LogNormal(0.2, spread))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean, sd[group]), obs=y)


def by_logarithm(y, group):
    spread = numpyro.sample("spread", dist.HalfNormal(0.7))
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    with numpyro.plate("groups", 2):
        log_sd = numpyro.sample("log_sd", dist.Normal(0.2, spread))
    sd = numpyro.deterministic("sd", jnp.exp(log_sd))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean, sd[group]), obs=y)


def by_force():
    """The log evidence, and means and sds of the spread and of the sds of both groups."""
    spread = np.linspace(1e-3, 4.0, 300)
    unit = np.linspace(-7.0, 7.0, 281)  # (log sd - 0.2) / spread
    log_sd = 0.2 + spread[:, None] * unit
    precision = np.exp(-2 * log_sd)
    rows = [Y[g == GROUP] for g in (0, 1)]
    # Of a group: log p(y | mean, sd) = constant - precision (S - 2 mean s + n mean^2) / 2.
    alone = [-5 * log_sd - 0.5 * precision * (y**2).sum() for y in rows]
    total = 0.25 + 5 * (precision[:, :, None] + precision[:, None, :])
    pushed = precision[:, :, None] * rows[0].sum() + precision[:, None, :] * rows[1].sum()
    value = alone[0][:, :, None] + alone[1][:, None, :] + 0.5 * pushed**2 / total
    value += 0.5 * np.log(0.25 / total) - 5 * np.log(2 * np.pi)
    laws = stats.norm.logpdf(unit)
    value += laws[:, None] + laws + stats.halfnorm.logpdf(spread, scale=0.7)[:, None, None]
    cell = (spread[1] - spread[0]) * (unit[1] - unit[0]) ** 2
    top = value.max()
    weights = np.exp(value - top)
    evidence = top + np.log(weights.sum() * cell)
    weights /= weights.sum()
    moments = {}
    places = {"spread": spread[:, None, None], 0: np.exp(log_sd)[:, :, None]}
    places[1] = np.exp(log_sd)[:, None, :]
    for name, place in places.items():
        mean = (weights * place).sum()
        moments[name] = mean, np.sqrt((weights * (place - mean) ** 2).sum())
    return evidence, moments


@cache
def fitted(model):
    sites = None if model is log_normal else ("log_sd",)
    return lb.fit(model, Y, GROUP, method=lb.Integrated(sites=sites))


@pytest.mark.parametrize("model", [log_normal, by_logarithm])
def test_evidence_and_moments_are_those_of_brute_force(model, tmp_path):
    evidence, moments = by_force()
    site = "sd" if model is log_normal else "log_sd"
    fit = fitted(model)
    assert fit.converged
    assert fit.q.parameters["relative"]["widths"].astype(bool).sum() == 2
    assert fit.elbo == pytest.approx(evidence, abs=0.03)
    draws = fit.sample(20_000, seed=1)
    for name, (mean, sd) in moments.items():
        one = draws["spread"] if name == "spread" else draws["sd"][:, name]
        # A mean of so many draws is 0.007 sds off, and an sd of these tails by 2%.
        assert np.mean(one) == pytest.approx(mean, abs=0.05 * sd)
        assert np.std(one) == pytest.approx(sd, rel=0.1)
    assert fit.mean("spread") == pytest.approx(moments["spread"][0], rel=0.03)
    fit.save(tmp_path / "fit.lb")
    again = lb.load(tmp_path / "fit.lb", model).sample(5, seed=3)
    np.testing.assert_array_equal(again[site], fit.sample(5, seed=3)[site])


def test_log_q_is_the_density_of_draws():
    """log p - log q is constant where z given theta is Gaussian, up to the surrogate's error."""
    fit = fitted(log_normal)
    draws = fit.sample(300, seed=2)
    density = trace_model(log_normal, (Y, GROUP))
    log_q = fit.q.log_prob({n: draws[n] for n in fit.sites})
    log_p = np.array(
        [
            float(density.log_density({n: a[i] for n, a in draws.items()}, density.arguments.data))
            for i in range(300)
        ]
    )
    ratios = log_p - np.asarray(log_q)
    assert np.quantile(abs(ratios - np.median(ratios)), 0.9) < 0.2
    assert np.median(ratios) == pytest.approx(fit.elbo, abs=0.1)

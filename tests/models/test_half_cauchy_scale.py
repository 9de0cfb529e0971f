"""Normal data with a half-Cauchy scale: its factor is free-form, normalised by quadrature."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import lowerbound as lb
from tests.models.case import Arguments, Case


def model(x):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.0))
    with numpyro.plate("n", x.shape[0]):
        numpyro.sample("x", dist.Normal(mu, sigma), obs=x)


def arguments(seed: int) -> Arguments:
    return (np.random.default_rng(seed).normal(1.0, 1.3, size=25),), {}


def log_joint(x, mu, log_sigma):
    """log p(x, mu, sigma) + log sigma on a grid: the density of log sigma."""
    sigma = np.exp(log_sigma)
    each = stats.norm.logpdf(x, mu[..., None], sigma[..., None]).sum(-1)
    prior = stats.norm.logpdf(mu, 0.0, 10.0) + stats.halfcauchy.logpdf(sigma, scale=2.0)
    return each + prior + log_sigma


def evidence(x) -> float:
    """log p(x) by a sum over a fine grid of the mean and of the log scale."""
    centre, spread = x.mean(), x.std() / np.sqrt(len(x))
    mu = centre + spread * np.linspace(-12.0, 12.0, 401)
    log_sigma = np.log(x.std()) + np.linspace(-1.5, 2.5, 401)
    grid = np.meshgrid(mu, log_sigma, indexing="ij")
    step = (mu[1] - mu[0]) * (log_sigma[1] - log_sigma[0])
    return float(np.logaddexp.reduce(log_joint(x, *grid).ravel()) + np.log(step))


CASE = Case("half_cauchy_scale", model, arguments, evidence=evidence)


def test_the_plan_says_how():
    plan = lb.explain(model, *arguments(0)[0], method="cavi")
    row = {row.site: row for row in plan.rows}["sigma"]
    assert (row.family, row.update) == ("Free", "exact (quadrature)")


def test_conditioned_on_the_scale_the_posterior_is_exact():
    """q(sigma) q(mu | sigma) is the posterior: the ELBO is the evidence, and above mean field's."""
    (x,), _ = arguments(0)
    fit = lb.fit(model, x)
    assert fit.method == "Given(('sigma',))"
    assert fit.elbo == pytest.approx(evidence(x), abs=1e-6)
    assert lb.fit(model, x, method=lb.CAVI()).elbo < fit.elbo
    both = lb.fit(model, x, method=lb.Given(("mu", "sigma")))
    assert both.elbo == pytest.approx(evidence(x), abs=1e-4)

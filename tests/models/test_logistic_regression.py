"""Logistic regression: the KL-optimal Gaussian by quadrature of the linear predictor."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from tests.models.case import Arguments, Case


def model(x, y):
    n, D = x.shape
    beta = numpyro.sample("beta", dist.Normal(jnp.zeros(D), 2.0).to_event(1))
    with numpyro.plate("data", n):
        numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(20, 2))
    return (x, rng.binomial(1, 1 / (1 + np.exp(-x[:, 0])))), {}


def evidence(x, y) -> float:
    """By a sum over a grid of both coefficients."""
    axis = np.linspace(-12.0, 12.0, 481)
    beta = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    a = beta @ x.T
    log_joint = (y * a - np.logaddexp(0.0, a)).sum(1) - (beta**2).sum(1) / 8.0
    log_joint -= np.log(2.0 * np.pi * 4.0)
    return float(np.logaddexp.reduce(log_joint) + 2.0 * np.log(axis[1] - axis[0]))


CASE = Case("logistic_regression", model, arguments, rows=(0, 1), adds_up=False, evidence=evidence)


def test_the_plan_says_how():
    (x, y), _ = arguments(0)
    plan = lb.explain(model, x, y, method="cavi")
    (row,) = plan.rows
    assert (row.family, row.update) == ("MultivariateNormal", "natural gradient (quadrature)")


def test_the_bound_is_below_the_evidence_and_near_it():
    """The posterior is nearly Gaussian."""
    (x, y), _ = arguments(0)
    fit = lb.fit(model, x, y, method="cavi")
    assert np.diff(fit.history.elbo).min() >= -1e-10 * abs(fit.elbo)
    assert evidence(x, y) - 0.1 < fit.elbo < evidence(x, y)


def test_held_out_rows_have_densities():
    """Those of the predictive distribution: probabilities of both labels sum to one."""
    (x, y), _ = arguments(0)
    fit = lb.fit(model, x, y, method="cavi")
    new = x[:3]
    both = [fit.log_predictive(new, np.full(3, label)) for label in (0, 1)]
    assert np.exp(both).sum(axis=0) == pytest.approx(np.ones(3), abs=1e-6)

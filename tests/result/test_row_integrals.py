"""Densities of new rows whose own latent sites have several factors: estimates, not bounds."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import nbinom

import lowerbound as lb

OUTCOMES = np.arange(12)


def allocated(y):
    """The rate is twice a sum of two Gamma(1, 1), and their sum is Gamma(2, 1)."""
    with numpyro.plate("rows", len(y)):
        theta = numpyro.sample("theta", dist.Gamma(1.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Poisson(theta @ jnp.array([2.0, 2.0])), obs=y)


def multiplied(y):
    """A discrete site whose values are not their indices, times a Gamma."""
    with numpyro.plate("rows", len(y)):
        k = numpyro.sample("k", dist.DiscreteUniform(1, 3))
        theta = numpyro.sample("theta", dist.Gamma(2.0, 1.0))
        numpyro.sample("y", dist.Poisson(k * theta), obs=y)


CASES = {
    "allocated": (
        allocated,
        lb.Augmented({"y": "indicator"}, lb.CAVI()),
        nbinom.logpmf(OUTCOMES, 2, 1 / 3),
    ),
    "multiplied": (
        multiplied,
        lb.CAVI(),
        np.log(np.mean([nbinom.pmf(OUTCOMES, 2, 1 / (1 + k)) for k in (1, 2, 3)], axis=0)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_density_of_a_row_is_no_bound(name):
    """Eight seeds show the error, and the true density is within five standard errors of them."""
    model, method, expected = CASES[name]
    fit = lb.fit(model, np.array([0, 1, 2, 4, 7]), method=method)
    found = np.array([fit.log_predictive(OUTCOMES, draws=100, seed=seed) for seed in range(8)])
    densities = np.exp(found - expected)
    error = densities.std(axis=0, ddof=1) / math.sqrt(len(densities))
    assert error.max() < 0.05
    assert (abs(densities.mean(axis=0) - 1.0) < 5 * error + 1e-3).all()


def test_sites_that_auxiliary_ones_decide_have_a_term():
    model, method, _ = CASES["allocated"]
    fit = lb.fit(model, np.array([0, 1, 2, 4, 7]), method=method)
    assert [*fit.elbo_terms] == ["theta", "y:counts", "y"]
    assert fit.elbo_terms["y"] == 0.0
    assert sum(fit.elbo_terms.values()) == pytest.approx(fit.elbo, rel=1e-12)

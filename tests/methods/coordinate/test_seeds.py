"""Starts of mixtures from their rows, whatever the factors of the components are."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb

Y = np.random.default_rng(0).normal(size=20) + np.repeat([0.0, 6.0], 10)


def mixture(y, prior):
    w = numpyro.sample("w", dist.Beta(1.0, 1.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", prior.expand([2]).to_event(1))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(w))
        numpyro.sample("y", dist.Normal(mu[z], sigma[z]), obs=y)


@pytest.mark.parametrize("prior", [dist.HalfCauchy(1.0), dist.LogNormal(jnp.log(1.0), 0.5)])
def test_scales_with_free_form_factors(prior):
    fit = lb.fit(mixture, Y, prior, method=lb.CAVI(restarts=4))
    np.testing.assert_allclose(np.sort(fit.mean("mu")), [Y[:10].mean(), Y[10:].mean()], atol=0.3)

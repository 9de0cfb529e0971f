"""Polynomials by `jnp.polyval`, an operation of its own from JAX 0.12 on, are read as sums."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb

X = np.linspace(-1.0, 1.0, 30)
Y = 1 + 2 * X + 0.1 * np.sin(9 * X)


def by_polyval(w, x):
    return jnp.polyval(w, x)


def by_hand(w, x):
    return w[0] * x**2 + w[1] * x + w[2]


def curve(value, x, y):
    tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(value(w, x), 1 / jnp.sqrt(tau)), obs=y)


@pytest.mark.parametrize("method", ["auto", lb.Integrated()], ids=str)
def test_the_posterior_is_that_of_the_sum(method):
    fits = [lb.fit(curve, value, X, Y, method=method) for value in (by_polyval, by_hand)]
    assert not any("Gaussian" in fit.method for fit in fits)
    np.testing.assert_allclose(fits[0].elbo, fits[1].elbo, atol=1e-3)
    for of in (lb.Fit.mean, lb.Fit.sd):
        np.testing.assert_allclose(of(fits[0], "w"), of(fits[1], "w"), atol=1e-4)

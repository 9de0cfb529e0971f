"""More than 200 numbers, where log p and its slope are finite and its second derivatives are not.

Newton's steps found no curvature at any start, and shrank q to a point that was called a fit.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound import errors

N = 210
Y = np.random.default_rng(5).normal(1.0, 1.0, N)


@jax.custom_vjp
def quadratic(x):
    return -0.5 * x**2


def _forward(x):
    return quadratic(x), x


def _backward(x, weight):
    # The slope is -x; that of the root at zero is infinite, times zero.
    return (weight * (jnp.sqrt(0.0 * x) - x),)


quadratic.defvjp(_forward, _backward)


def program(y):
    """Normal(0, 1) effects, with a density whose Hessian is no number."""
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.factor("prior", quadratic(z))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def test_steps_by_slopes_alone_are_taken():
    fit = lb.fit(program, Y, method=lb.Gaussian())
    # q(z | y) is N(y / 2, 1 / 2)
    assert fit.mean("z") == pytest.approx(0.5 * Y, abs=0.1)
    assert fit.sd("z") == pytest.approx(0.5**0.5, rel=0.1)


def test_a_covariance_that_needs_them_says_so():
    with pytest.raises(errors.NoFiniteStartError, match="curvature of the log density"):
        lb.fit(program, Y, method=lb.Gaussian(rank="full"))

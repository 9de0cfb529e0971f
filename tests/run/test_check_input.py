"""Data that do not vary: refused where the spread is to be found, and nowhere else."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound import errors
from lowerbound.model import trace_model
from lowerbound.run.check_input import check_observed_variance

SAME = np.full(6, 2.0)


def known(y):
    numpyro.sample("y", dist.Normal(numpyro.sample("m", dist.Normal(0.0, 1.0)), 0.5), obs=y)


def known_of_each_row(y):
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    with numpyro.plate("rows", 6):
        a = numpyro.sample("a", dist.Normal(0.0, tau))
        numpyro.sample("y", dist.StudentT(4.0, a, np.linspace(0.5, 1.0, 6)), obs=y)


def known_matrix(y):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", 3):
        numpyro.sample("y", dist.MultivariateNormal(m, jnp.eye(2)), obs=y.reshape(3, 2))


def unknown(y):
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Laplace(0.0, sigma), obs=y)


def unknown_matrix(y):
    factor = numpyro.sample("L", dist.LKJCholesky(2, 1.0))
    scale = numpyro.sample("s", dist.HalfCauchy(1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", 6):
        both = dist.MultivariateNormal(jnp.zeros(2), scale_tril=scale[:, None] * factor)
        numpyro.sample("y", both, obs=y)


@pytest.mark.parametrize("program", [known, known_of_each_row, known_matrix])
def test_a_known_spread(program):
    check_observed_variance(trace_model(program, (SAME,), {}))


@pytest.mark.parametrize(("program", "y"), [(unknown, SAME), (unknown_matrix, np.ones((6, 2)))])
def test_an_unknown_spread(program, y):
    with pytest.raises(errors.ZeroVarianceError):
        check_observed_variance(trace_model(program, (y,), {}))


def test_a_fit_of_equal_values():
    precision = 1.0 + 6.0 / 0.25
    fit = lb.fit(known, SAME)
    assert fit.mean("m") == pytest.approx(6.0 * 2.0 / 0.25 / precision)
    assert fit.sd("m") == pytest.approx(precision**-0.5)

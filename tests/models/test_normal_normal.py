"""Normal data with a normal mean: the posterior and the evidence are exact."""

import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_exact
from tests.models.case import Arguments, Case
from tests.oracles import evidence as closed
from tests.oracles.expectations import Moments


def model(x, prior_mean=1.0, prior_sd=2.0, sd=0.7):
    mu = numpyro.sample("mu", dist.Normal(prior_mean, prior_sd))
    with numpyro.plate("n", x.shape[0]):
        numpyro.sample("x", dist.Normal(mu, sd), obs=x)


def arguments(seed: int) -> Arguments:
    return (np.random.default_rng(seed).normal(3.0, 0.7, size=20),), {}


def evidence(x, prior_mean=1.0, prior_sd=2.0, sd=0.7) -> float:
    ones = np.ones((len(x), 1))
    return closed.linear_gaussian(x - prior_mean, ones, np.array([[prior_sd**2]]), sd**2)


CASE = Case("normal_normal", model, arguments, evidence=evidence, exact=True)


def test_posterior_and_evidence_are_exact():
    (x,), _ = arguments(0)
    precision = 1 / 2.0**2 + len(x) / 0.7**2
    mean = (1.0 / 2.0**2 + x.sum() / 0.7**2) / precision
    assert_exact(CASE, {"mu": Moments(mean, precision**-0.5)})

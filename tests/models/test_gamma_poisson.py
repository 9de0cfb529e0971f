"""Counts with known exposures and a Gamma rate: the posterior and the evidence are exact."""

import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_exact
from tests.models.case import Arguments, Case
from tests.oracles import evidence as closed
from tests.oracles import expectations as ex


def model(x, exposure, shape=3.0, rate=2.0):
    risk = numpyro.sample("risk", dist.Gamma(shape, rate))
    with numpyro.plate("counties", x.shape[0]):
        numpyro.sample("x", dist.Poisson(exposure * risk), obs=x)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    exposure = rng.uniform(0.5, 3.0, size=20)
    return (rng.poisson(1.5 * exposure), exposure), {}


def evidence(x, exposure, shape=3.0, rate=2.0) -> float:
    return closed.gamma_poisson(x, exposure, shape, rate)


CASE = Case("gamma_poisson", model, arguments, rows=(0, 1), evidence=evidence, exact=True)


def test_posterior_and_evidence_are_exact():
    (x, exposure), _ = arguments(0)
    assert_exact(CASE, {"risk": ex.gamma_moments(3.0 + x.sum(), 2.0 + exposure.sum())})

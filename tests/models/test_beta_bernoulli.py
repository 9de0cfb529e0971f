"""Coin flips with a Beta probability: the posterior and the evidence are exact."""

import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_exact
from tests.models.case import Arguments, Case
from tests.oracles import evidence as closed
from tests.oracles import expectations as ex


def model(x, a=2.0, b=3.0):
    theta = numpyro.sample("theta", dist.Beta(a, b))
    with numpyro.plate("flips", len(x)):
        numpyro.sample("x", dist.Bernoulli(probs=theta), obs=x)


def arguments(seed: int) -> Arguments:
    return (np.random.default_rng(seed).binomial(1, 0.7, size=25),), {}


def evidence(x, a=2.0, b=3.0) -> float:
    return closed.beta_bernoulli(x, a, b)


CASE = Case("beta_bernoulli", model, arguments, evidence=evidence, exact=True)


def test_posterior_and_evidence_are_exact():
    (x,), _ = arguments(0)
    assert_exact(CASE, {"theta": ex.beta_moments(2.0 + x.sum(), 3.0 + (1 - x).sum())})

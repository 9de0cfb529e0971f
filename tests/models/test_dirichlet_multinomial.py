"""Rows of counts with Dirichlet proportions: the posterior and the evidence are exact."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_exact
from tests.models.case import Arguments, Case
from tests.oracles import evidence as closed
from tests.oracles import expectations as ex

PRIOR = np.array([0.5, 1.0, 2.0, 1.5])


def model(x, total=15):
    theta = numpyro.sample("theta", dist.Dirichlet(jnp.asarray(PRIOR)))
    with numpyro.plate("polls", x.shape[0]):
        numpyro.sample("x", dist.Multinomial(total_count=total, probs=theta), obs=x)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    return (rng.multinomial(15, [0.1, 0.2, 0.4, 0.3], size=20),), {"total": 15}


def evidence(x, total) -> float:
    return closed.dirichlet_multinomial(x, PRIOR)


CASE = Case("dirichlet_multinomial", model, arguments, evidence=evidence, exact=True)


def test_posterior_and_evidence_are_exact():
    (x,), _ = arguments(0)
    assert_exact(CASE, {"theta": ex.dirichlet_moments(PRIOR + x.sum(0))})

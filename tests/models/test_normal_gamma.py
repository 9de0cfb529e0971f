"""Normal data under the conjugate Normal-Gamma prior: one joint block, exact."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_exact
from tests.models.case import Arguments, Case
from tests.oracles.components import NormalGamma

PRIOR = NormalGamma(m0=0.5, b0=0.3, a0=2.0, r0=1.5)


def model(x, m0=0.5, b0=0.3, a0=2.0, r0=1.5):
    tau = numpyro.sample("tau", dist.Gamma(a0, r0))
    mu = numpyro.sample("mu", dist.Normal(m0, 1.0 / jnp.sqrt(b0 * tau)))
    with numpyro.plate("n", x.shape[0]):
        numpyro.sample("x", dist.Normal(mu, 1.0 / jnp.sqrt(tau)), obs=x)


def arguments(seed: int) -> Arguments:
    return (np.random.default_rng(seed).normal(2.0, 1.5, size=30),), {}


def evidence(x) -> float:
    return PRIOR.evidence(x[:, None])


CASE = Case("normal_gamma", model, arguments, evidence=evidence, exact=True)


def test_posterior_and_evidence_are_exact():
    (x,), _ = arguments(0)
    posterior = PRIOR.moments(PRIOR.posterior(np.ones((len(x), 1)), x[:, None]))
    assert_exact(CASE, posterior)

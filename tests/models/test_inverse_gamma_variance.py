"""Normal data whose variance is the latent site: Normal(mu, sqrt(v)) and Normal(mu, v ** 0.5)."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_exact, assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles.components import NormalGamma
from tests.oracles.expectations import Moments
from tests.oracles.regression import Regression

PRIOR = NormalGamma(m0=0.0, b0=0.3, a0=3.0, r0=2.0)


def model(x):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    v = numpyro.sample("v", dist.InverseGamma(3.0, 2.0))
    with numpyro.plate("n", x.shape[0]):
        numpyro.sample("x", dist.Normal(mu, jnp.sqrt(v)), obs=x)


def scaled(x):
    """The conjugate version: the mean's prior variance is v / 0.3."""
    variance = numpyro.sample("v", dist.InverseGamma(3.0, 2.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, (variance / 0.3) ** 0.5))
    with numpyro.plate("n", x.shape[0]):
        numpyro.sample("x", dist.Normal(mu, variance**0.5), obs=x)


def arguments(seed: int) -> Arguments:
    return (np.random.default_rng(seed).normal(1.0, 1.3, size=25),), {}


def start(seed: int) -> dict[str, np.ndarray]:
    return {"mu": np.array(0.3)}


def regression(x) -> Regression:
    ones = np.ones((len(x), 1))
    return Regression(ones, x, np.array([[100.0]]), (3.0, 2.0), {"mu": 0}, noise="v", inverse=True)


def oracle(start, x):
    return regression(x).trajectory(start)


def evidence(x) -> float:
    return regression(x).evidence()


def scaled_evidence(x) -> float:
    return PRIOR.evidence(x[:, None])


CASE = Case(
    "inverse_gamma_variance", model, arguments, start=start, oracle=oracle, evidence=evidence
)
SCALED = Case("normal_inverse_gamma", scaled, arguments, evidence=scaled_evidence, exact=True)


def test_sweeps_equal_the_hand_written_ones():
    assert_sweeps_equal(CASE)


def test_conjugate_version_is_exact():
    (x,), _ = arguments(0)
    q = PRIOR.posterior(np.ones((len(x), 1)), x[:, None])
    a, rate = q["a"].item(), q["rate"].item()
    variance = Moments(rate / (a - 1), rate / ((a - 1) * np.sqrt(a - 2)))
    assert_exact(SCALED, {"mu": PRIOR.moments(q)["mu"], "v": variance})

"""The diagonal mixture of Appendix B, q(mu, tau) joint."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import enumeration
from tests.oracles.components import NormalGamma
from tests.oracles.mixture import Mixture

COMPONENT = NormalGamma(m0=0.0, b0=1.0, a0=1.0, r0=1.0)


def model(x, K=3, m0=0.0, b0=1.0, alpha0=1.0, beta0=1.0):
    n, D = x.shape
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.full(K, 1.0 / K)))
    with numpyro.plate("components", K, dim=-2), numpyro.plate("dimensions", D, dim=-1):
        tau = numpyro.sample("tau", dist.Gamma(alpha0, beta0))
        mu = numpyro.sample("mu", dist.Normal(m0, 1 / jnp.sqrt(b0 * tau)))
    with numpyro.plate("data", n):
        z = numpyro.sample("z", dist.Categorical(pi))
        numpyro.sample("x", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])).to_event(1), obs=x)


def simulate(rng: np.random.Generator, n: int) -> np.ndarray:
    centres = np.array([[-3.0, 0.0], [3.0, 1.0], [0.0, 5.0]])
    scales = np.array([[0.5, 1.0], [1.0, 0.4], [0.8, 0.8]])
    c = rng.integers(3, size=n)
    return centres[c] + scales[c] * rng.normal(size=(n, 2))


def arguments(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 50),), {"K": 3}


def small(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 7),), {"K": 2}


def start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    return {
        "pi": rng.dirichlet(np.full(3, 5.0)),
        "tau": rng.gamma(5.0, 0.2, size=(3, 2)),
        "mu": rng.normal(0.0, 2.0, size=(3, 2)),
    }


def oracle(start, x, K):
    return Mixture(COMPONENT, K, concentration=1 / K).trajectory(x, start)


def evidence(x, K) -> float:
    return enumeration.mixture(COMPONENT, x, K, 1 / K)


CASE = Case(
    "diagonal_mixture",
    model,
    arguments,
    start=start,
    oracle=oracle,
    evidence=evidence,
    small=small,
    restarts=5,
)


def test_sweeps_equal_appendix_b():
    assert_sweeps_equal(CASE)

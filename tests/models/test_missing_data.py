"""A diagonal mixture with missing entries: a masked array, or NumPyro's own mask."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import enumeration
from tests.oracles.components import NormalGamma
from tests.oracles.mixture import Mixture

COMPONENT = NormalGamma(m0=0.0, b0=0.5, a0=2.0, r0=1.0)


def model(x, observed=None, K=2):
    n, D = x.shape
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K, dim=-2), numpyro.plate("columns", D, dim=-1):
        tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 1 / jnp.sqrt(0.5 * tau)))
    with numpyro.plate("rows", n, dim=-2):
        z = numpyro.sample("z", dist.Categorical(pi))[:, 0]
        with numpyro.plate("columns", D, dim=-1):
            entry = dist.Normal(mu[z], tau[z] ** -0.5)
            numpyro.sample("x", entry if observed is None else entry.mask(observed), obs=x)


def complete(seed: int, n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Data with every entry, and which entries are observed."""
    rng = np.random.default_rng(seed)
    x = np.array([[-2.0, 0.0, 1.0], [2.0, 1.0, -1.0]])[rng.integers(2, size=n)]
    return x + 0.7 * rng.normal(size=(n, 3)), rng.random((n, 3)) > 0.2


def arguments(seed: int) -> Arguments:
    x, observed = complete(seed)
    return (np.ma.masked_array(x, mask=~observed),), {"K": 2}


def masked_arguments(seed: int) -> Arguments:
    return complete(seed), {"K": 2}


def start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    return {
        "pi": rng.dirichlet(np.full(2, 5.0)),
        "tau": rng.gamma(5.0, 0.2, size=(2, 3)),
        "mu": rng.normal(0.0, 1.5, size=(2, 3)),
    }


def small(seed: int) -> Arguments:
    x, observed = complete(seed, n=7)
    return (np.ma.masked_array(x, mask=~observed),), {"K": 2}


def masked_small(seed: int) -> Arguments:
    return complete(seed, n=7), {"K": 2}


def oracle(start, x, K):
    return Mixture(COMPONENT, K, concentration=1.0).trajectory(x, start)


def masked_oracle(start, x, observed, K):
    return oracle(start, np.ma.masked_array(x, mask=~observed), K)


def evidence(x, K) -> float:
    return enumeration.mixture(COMPONENT, x, K, concentration=1.0)


def masked_evidence(x, observed, K) -> float:
    return evidence(np.ma.masked_array(x, mask=~observed), K)


CASE = Case(
    "missing_data",
    model,
    arguments,
    start=start,
    oracle=oracle,
    evidence=evidence,
    small=small,
    restarts=3,
)
MASKED = Case(
    "masked_data",
    model,
    masked_arguments,
    rows=(0, 1),
    start=start,
    oracle=masked_oracle,
    evidence=masked_evidence,
    small=masked_small,
    restarts=3,
)


@pytest.mark.parametrize("case", [CASE, MASKED], ids=lambda case: case.name)
def test_sweeps_equal_the_hand_written_ones(case):
    assert_sweeps_equal(case)

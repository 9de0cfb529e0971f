"""A mixed-membership blockmodel: each ordered pair draws a sender and a receiver community."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import enumeration, network


def model(i, j, y, nodes, K=2):
    B = numpyro.sample("B", dist.Beta(jnp.ones((K, K)), 1.5).to_event(2))
    with numpyro.plate("nodes", nodes):
        theta = numpyro.sample("theta", dist.Dirichlet(0.6 * jnp.ones(K)))
    with numpyro.plate("pairs", y.shape[0]):
        send = numpyro.sample("send", dist.Categorical(theta[i]))
        receive = numpyro.sample("receive", dist.Categorical(theta[j]))
        numpyro.sample("y", dist.Bernoulli(probs=B[send, receive]), obs=y)


def simulate(rng: np.random.Generator, nodes: int) -> Arguments:
    i, j = np.nonzero(~np.eye(nodes, dtype=bool))
    z = np.arange(nodes) % 2
    y = rng.binomial(1, np.array([[0.8, 0.1], [0.2, 0.7]])[z[i], z[j]])
    return (i, j, y), {"nodes": nodes, "K": 2}


def arguments(seed: int) -> Arguments:
    return simulate(np.random.default_rng(seed), 7)


def small(seed: int) -> Arguments:
    return simulate(np.random.default_rng(seed), 3)


def start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    return {
        "B": rng.beta(2.0, 2.0, size=(2, 2)),
        "theta": rng.dirichlet(np.ones(2), size=7),
        "send": rng.integers(2, size=42),
    }


def oracle(start, i, j, y, nodes, K):
    return network.mixed_membership(i, j, y, nodes, K, prior=(0.6, 1.0, 1.5), start=start)


def evidence(i, j, y, nodes, K) -> float:
    return enumeration.mixed_membership(i, j, y, nodes, K, concentration=0.6, a=1.0, b=1.5)


CASE = Case(
    "mixed_membership_blockmodel",
    model,
    arguments,
    rows=(0, 1, 2),
    start=start,
    oracle=oracle,
    evidence=evidence,
    small=small,
    restarts=5,
)


def test_sweeps_equal_the_hand_written_ones():
    assert_sweeps_equal(CASE)

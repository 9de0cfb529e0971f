"""A stochastic blockmodel on the pairs i < j of an undirected graph."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpy.testing import assert_allclose
from scipy.special import digamma, softmax

import lowerbound as lb
from tests.models.case import Arguments, Case
from tests.oracles import enumeration


def model(i, j, y, nodes, K=2):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    B = numpyro.sample("B", dist.Beta(1.0, 1.5).expand([K, K]).to_event(2))
    with numpyro.plate("nodes", nodes):
        z = numpyro.sample("z", dist.Categorical(pi))
    with numpyro.plate("pairs", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(B[z[i], z[j]]), obs=y)


def simulate(rng: np.random.Generator, nodes: int) -> Arguments:
    i, j = np.triu_indices(nodes, k=1)
    z = np.arange(nodes) % 2
    y = rng.binomial(1, np.array([[0.8, 0.1], [0.2, 0.7]])[z[i], z[j]])
    return (i, j, y), {"nodes": nodes, "K": 2}


def arguments(seed: int) -> Arguments:
    return simulate(np.random.default_rng(seed), 12)


def small(seed: int) -> Arguments:
    return simulate(np.random.default_rng(seed), 6)


def start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    return {
        "pi": np.array([0.5, 0.5]),
        "B": rng.beta(2.0, 2.0, size=(2, 2)),
        "z": rng.integers(2, size=12),
    }


def evidence(i, j, y, nodes, K) -> float:
    return enumeration.blockmodel(i, j, y, nodes, K, concentration=1.0, a=1.0, b=1.5)


CASE = Case(
    "blockmodel",
    model,
    arguments,
    rows=(0, 1, 2),
    start=start,
    evidence=evidence,
    small=small,
    restarts=5,
)


def test_fit_is_a_fixed_point_and_finds_the_planted_blocks():
    (i, j, y), kwargs = arguments(0)
    fit = lb.fit(model, i, j, y, method=lb.CAVI(restarts=60, tolerance=1e-13), seed=0, **kwargs)
    phi = np.asarray(fit.posterior["z"].probs)
    joint = phi[i][:, :, None] * phi[j][:, None, :]
    a = 1.0 + np.einsum("p,pkl->kl", y, joint)
    b = 1.5 + np.einsum("p,pkl->kl", 1 - y, joint)
    assert_allclose(fit.mean("B"), a / (a + b), atol=1e-5)
    assert_allclose(fit.mean("pi"), (1.0 + phi.sum(0)) / (2.0 + len(phi)), atol=1e-5)

    log, log1m = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
    table = y[:, None, None] * log + (1 - y)[:, None, None] * log1m
    logits = np.tile(digamma(1.0 + phi.sum(0)), (len(phi), 1))
    np.add.at(logits, i, np.einsum("pl,pkl->pk", phi[j], table))
    np.add.at(logits, j, np.einsum("pk,pkl->pl", phi[i], table))
    assert_allclose(phi, softmax(logits, axis=1), atol=1e-5)

    found = phi.argmax(1)
    assert np.ptp(found[0::2]) == np.ptp(found[1::2]) == 0
    assert found[0] != found[1]

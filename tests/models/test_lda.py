"""Latent Dirichlet allocation with one topic per word (Appendix C, alg:cavi_lda)."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import enumeration, lda


def model(w, K=2, V=6, eta=0.4, alpha=0.7):
    docs, words = w.shape
    with numpyro.plate("topics", K):
        beta = numpyro.sample("beta", dist.Dirichlet(eta * jnp.ones(V)))
    with numpyro.plate("documents", docs, dim=-2):
        theta = numpyro.sample("theta", dist.Dirichlet(alpha * jnp.ones(K)))
        with numpyro.plate("words", words, dim=-1):
            z = numpyro.sample("z", dist.Categorical(theta))
            numpyro.sample("w", dist.Categorical(beta[z]), obs=w)


def padded(w, present, K=2, V=6, eta=0.4, alpha=0.7):
    """Documents of unequal length: rows are padded and `present` marks the real words."""
    docs, words = w.shape
    beta = numpyro.sample("beta", dist.Dirichlet(jnp.full((K, V), eta)).to_event(1))
    with numpyro.plate("documents", docs, dim=-2):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(K, alpha)))
        with numpyro.plate("words", words, dim=-1), numpyro.handlers.mask(mask=present):
            z = numpyro.sample("z", dist.Categorical(probs=theta))
            numpyro.sample("w", dist.Categorical(probs=beta[z]), obs=w)


def simulate(rng: np.random.Generator, docs: int, words: int) -> np.ndarray:
    topics = np.array([[0.5, 0.3, 0.2, 0.0, 0.0, 0.0], [0.0, 0.0, 0.1, 0.2, 0.3, 0.4]])
    theta = rng.dirichlet([0.5, 0.5], size=docs)
    return np.stack([rng.choice(6, size=words, p=p) for p in theta @ topics])


def arguments(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 8, 10),), {"K": 2, "V": 6}


def padded_arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    present = np.arange(10) < rng.integers(4, 11, size=(8, 1))
    return (np.where(present, simulate(rng, 8, 10), 0), present), {"K": 2, "V": 6}


def small(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 2, 4),), {"K": 2, "V": 6}


def start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    return {
        "beta": rng.dirichlet(np.ones(6), size=2),
        "theta": rng.dirichlet(np.ones(2), size=(8, 1)),
    }


def padded_oracle(start, w, present, K, V):
    return lda.trajectory(w, present, start, V, eta=0.4, alpha=0.7)


def oracle(start, w, K, V):
    return padded_oracle(start, w, np.ones(w.shape, dtype=bool), K, V)


def evidence(w, K, V) -> float:
    return enumeration.topics(w, K, V, eta=0.4, alpha=0.7)


CASE = Case(
    "lda", model, arguments, start=start, oracle=oracle, evidence=evidence, small=small, restarts=3
)
PADDED = Case(
    "lda_padded",
    padded,
    padded_arguments,
    rows=(0, 1),
    start=start,
    oracle=padded_oracle,
    restarts=3,
)


@pytest.mark.parametrize("case", [CASE, PADDED], ids=lambda case: case.name)
def test_sweeps_equal_algorithm_4(case):
    assert_sweeps_equal(case)

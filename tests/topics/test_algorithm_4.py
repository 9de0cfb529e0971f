"""The kernel is the derived update: both are alg:cavi_lda, sweep by sweep."""

from itertools import islice

import numpy as np
import pytest
from numpy.testing import assert_allclose

from lowerbound.topics.documents import Documents
from lowerbound.topics.lda_program import latent_dirichlet_allocation, rows_of
from lowerbound.topics.native import library
from lowerbound.topics.native.threaded import NativeEngine
from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Case
from tests.oracles import lda
from tests.oracles import topics as oracle
from tests.oracles.expectations import dirichlet_moments

ENGINE = NativeEngine("float64")
needs_kernel = pytest.mark.skipif(library() is None, reason="the compiled kernel is not built")


def tokens(seed: int) -> Documents:
    return oracle.corpus(seed, [3, 1, 6, 4, 5, 2, 5, 2], 6, longest=3)


def program_arguments(seed: int):
    settings = {"topics": 2, "vocabulary": 6, "document_prior": np.full(2, 0.7)}
    return (), {**rows_of(tokens(seed)), **settings, "topic_prior": np.array([0.4])}


def program_start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    theta = rng.dirichlet(np.ones(2), size=(8, 1))
    return {"beta": rng.dirichlet(np.ones(6), size=2), "theta": theta}


def algorithm_4(start, words, present, topics, vocabulary, document_prior, topic_prior):
    alpha, eta = document_prior[0], topic_prior[0]
    return lda.trajectory(words, present, start, vocabulary, eta=eta, alpha=alpha)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_derived_sweeps_of_the_program_are_algorithm_4(seed):
    case = Case(
        "topics", latent_dirichlet_allocation, program_arguments,
        start=program_start, oracle=algorithm_4,
    )  # fmt: skip
    assert_sweeps_equal(case, seed=seed)


@needs_kernel
@pytest.mark.parametrize("seed", range(3))
def test_the_kernel_is_algorithm_4(seed):
    """Sweep by sweep: one iteration is gamma, and phi at the gamma before gives lambda."""
    documents = tokens(seed)
    arguments = program_arguments(seed)[1]
    alpha, eta = arguments["document_prior"], arguments["topic_prior"]
    first, *later = islice(algorithm_4(program_start(seed), **arguments), 6)
    phi = np.nan_to_num(first.sites["z"])
    gamma = alpha + phi.sum(1)
    lam = np.full((6, 2), eta[0])
    np.add.at(lam, arguments["words"][arguments["present"]], phi[arguments["present"]])
    batch = ENGINE.pack(documents)
    for step in later:
        weights = ENGINE.weights(ENGINE.place(lam), "mean field")
        still = ENGINE.local(weights, batch, alpha, gamma, iterations=0)
        moved = ENGINE.local(weights, batch, alpha, gamma, iterations=1, tolerance=0.0)
        gamma, lam = ENGINE.fetch(moved.gamma), eta + ENGINE.fetch(still.statistics)
        for name, found in (("theta", gamma), ("beta", lam.T)):
            assert_allclose(dirichlet_moments(found).mean, step.sites[name].mean, rtol=1e-10)
            assert_allclose(dirichlet_moments(found).sd, step.sites[name].sd, rtol=1e-10)

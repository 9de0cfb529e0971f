"""Sweeps of CVB0 by the compiled engine, against the same done entry by entry."""

import numpy as np
import pytest

from lowerbound.topics.documents import Documents
from lowerbound.topics.native import library
from lowerbound.topics.native.threaded import RECOUNT, NativeEngine
from tests.oracles import topics as oracle

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled kernel is not built")

V = 300
# Empty documents, documents of one word, one that holds most words.
SIZES = [0, 1, 7, 8, 9, 0, 16, 1, 12, 5, 211, 3]


def topics(K: int) -> np.ndarray:
    return np.random.default_rng(1).gamma(0.5, 2.0, size=(V, K)) + 0.05


def alpha(K: int) -> np.ndarray:
    return np.linspace(0.05, 0.5, K)


def swept_in_turn(documents: Documents, phi, prior, eta) -> np.ndarray:
    """A sweep as the kernel makes it: N_k stands still within a document, and 1 / (N_k - phi) is
    taken to be (1 + phi / N_k) / N_k."""
    phi = np.array(phi)
    eta = np.broadcast_to(eta, documents.vocabulary)
    by_word, by_document = (
        oracle.word_counts(documents, phi),
        oracle.document_counts(documents, phi),
    )
    for d in range(len(documents)):
        inverse = 1 / (by_word.sum(0) + eta.sum())
        for e in range(documents.starts[d], documents.starts[d + 1]):
            w, own = documents.words[e], phi[e].copy()
            value = (by_word[w] - own + eta[w]) * (by_document[d] - own + prior)
            value *= inverse * (1 + own * inverse)
            phi[e] = value / value.sum()
            by_word[w] += documents.counts[e] * (phi[e] - own)
            by_document[d] += documents.counts[e] * (phi[e] - own)
    return phi


def assign(engine: NativeEngine, documents: Documents, K: int):
    weights = engine.weights(engine.place(topics(K)), "collapsed")
    return engine.assign(documents, weights, alpha(K))


@pytest.mark.parametrize("K", [6, 131])
def test_assign_is_the_collapsed_rule(K):
    documents = oracle.corpus(2, SIZES, V)
    engine = NativeEngine("float64")
    assigned = assign(engine, documents, K)
    expected = oracle.local_in_turn(
        oracle.weights(topics(K), "collapsed"), documents, alpha(K), None, 20, 1e-2
    )
    np.testing.assert_allclose(engine.word_counts(assigned), expected.statistics, atol=1e-9)
    np.testing.assert_allclose(
        engine.document_counts(assigned), expected.gamma - alpha(K), atol=1e-9
    )
    phi = engine.responsibilities(assigned)
    np.testing.assert_allclose(oracle.word_counts(documents, phi), expected.statistics, atol=1e-9)


@pytest.mark.parametrize("eta", [np.array([0.2]), np.linspace(0.01, 0.5, V)])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("K", [6, 131])
def test_sweeps_are_those_of_each_entry_in_turn(eta, seed, K):
    documents = oracle.corpus(seed, SIZES, V)
    engine = NativeEngine("float64")
    assigned = assign(engine, documents, K)
    phi = engine.responsibilities(assigned)
    for _ in range(3):
        assigned = engine.reassign(assigned, alpha(K), eta)
        phi = swept_in_turn(documents, phi, alpha(K), eta)
        np.testing.assert_allclose(engine.responsibilities(assigned), phi, atol=1e-9)
    np.testing.assert_allclose(
        engine.word_counts(assigned), oracle.word_counts(documents, phi), atol=1e-9
    )
    np.testing.assert_allclose(
        engine.document_counts(assigned), oracle.document_counts(documents, phi), atol=1e-9
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_sweep_is_that_of_the_formula(seed):
    """Topics of about 400 tokens, documents of 20: N_k off by a document's changes, a few percent
    at the most, is an error of phi of that size; (phi / N_k)^2 is 1e-5."""
    documents, K = oracle.corpus(seed, [8] * 300, V), 6
    engine, eta = NativeEngine("float64"), np.array([0.2])
    assigned = assign(engine, documents, K)
    exact = oracle.reassigned_in_place(
        documents, engine.responsibilities(assigned), alpha(K), np.broadcast_to(eta, V)
    )
    found = engine.responsibilities(engine.reassign(assigned, alpha(K), eta))
    assert np.abs(found - exact).max() < 0.02
    assert np.abs(found - exact).mean() < 5e-4


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("precision", "within"), [("float32", 2e-4), ("float64", 1e-9)])
def test_counts_are_those_of_phi_after_sixty_sweeps(threads, precision, within):
    """With a recount on the way, and ten sweeps since; tolerances per token of the largest count.
    Sixteen bits of phi sum to one up to 2^-8, which the counts share with it."""
    documents, K = oracle.corpus(9, SIZES * 20, V), 21
    engine = NativeEngine(precision, threads)
    assigned = assign(engine, documents, K)
    assert RECOUNT < 60
    for _ in range(60):
        assigned = engine.reassign(assigned, alpha(K), np.array([0.05]))
    phi = engine.responsibilities(assigned)
    by_word, by_document = (
        oracle.word_counts(documents, phi),
        oracle.document_counts(documents, phi),
    )
    np.testing.assert_allclose(
        engine.word_counts(assigned), by_word, atol=within * by_word.max(), rtol=0
    )
    np.testing.assert_allclose(
        engine.document_counts(assigned), by_document, atol=within * by_document.max(), rtol=0
    )
    np.testing.assert_allclose(assigned.by_topic[:K], by_word.sum(0), rtol=within)
    share = 2**-8 if precision == "float32" else 1e-9
    np.testing.assert_allclose(by_document.sum(1), documents.lengths, rtol=share)
    np.testing.assert_allclose(by_word.sum(), documents.tokens, rtol=share / 4)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_sweeps_repeat(threads, precision):
    documents, K = oracle.corpus(4, SIZES * 5, V), 6

    def run() -> np.ndarray:
        engine = NativeEngine(precision, threads)
        assigned = assign(engine, documents, K)
        for _ in range(5):
            assigned = engine.reassign(assigned, alpha(K), np.array([0.05]))
        return engine.responsibilities(assigned)

    np.testing.assert_array_equal(run(), run())


@pytest.mark.parametrize("threads", [1, 2])
def test_no_documents_are_assigned(threads):
    engine = NativeEngine("float32", threads)
    assigned = engine.reassign(assign(engine, oracle.corpus(0, [], V), 6), alpha(6), np.ones(1))
    assert not engine.word_counts(assigned).any()
    assert engine.document_counts(assigned).shape == (0, 6)

"""The score of documents that were not learned from."""

import numpy as np
import pytest

from lowerbound.topics.documents import Documents
from lowerbound.topics.looks import completion
from lowerbound.topics.looks.completion import HeldOut, hold_out, score_words
from lowerbound.topics.looks.completion_split import split_tokens
from lowerbound.topics.native import library
from lowerbound.topics.native.threaded import NativeEngine
from tests.oracles import topics as oracle

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled kernel is not built")

V, K = 60, 5
ENGINE = NativeEngine("float64")


def planted(seed: int, documents: int, length: int) -> tuple[Documents, np.ndarray, np.ndarray]:
    """Documents of topics beta (V, K) in proportions theta (D, K)."""
    rng = np.random.default_rng(seed)
    beta = rng.dirichlet(np.full(V, 0.1), size=K).T
    theta = rng.dirichlet(np.full(K, 0.5), size=documents)
    counts = np.stack([rng.multinomial(length, p) for p in theta @ beta.T])
    words = [np.flatnonzero(row) for row in counts]
    starts = np.concatenate([[0], np.cumsum([len(w) for w in words])])
    entries = np.concatenate([row[w] for row, w in zip(counts, words, strict=True)])
    found = Documents(starts, np.concatenate(words).astype(np.int32), entries.astype(np.float32), V)
    return found, beta, theta


@pytest.mark.parametrize("seed", range(3))
def test_equal_topics_foretell_nothing(seed):
    """Flat topics: every word has the probability 1 / V, whatever theta is."""
    documents, _, _ = planted(seed, 20, 30)
    judge = hold_out(ENGINE, documents, seed)
    score = judge.score(ENGINE.place(np.full((V, K), 3.0)), np.full(K, 0.1))
    assert score == pytest.approx(-np.log(V), rel=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_true_topics_come_close_to_the_entropy_of_the_words(seed):
    """500 documents of 400 tokens: the score falls short of the mean of sum_w p log p by what 200
    tokens leave unknown of theta, (K - 1) / 2 / 200 = 0.01, and differs by chance, sd 1 / sqrt(1e5)
    times the spread of log p, about 0.004. Six sd are allowed: false failures below 1e-8."""
    documents, beta, theta = planted(seed, 500, 400)
    p = theta @ beta.T
    rate = np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0).sum(1).mean()
    judge = hold_out(ENGINE, documents, seed)
    score = judge.score(ENGINE.place(1e6 * beta + 1e-6), np.full(K, 0.5))
    assert rate - 0.036 < score < rate + 0.024


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(3))
def test_the_first_half_gives_theta_and_the_second_is_scored(seed, precision):
    documents = oracle.corpus(seed, [0, 1, 3, 9, 20, 1, 40], V)
    lam = np.random.default_rng(seed).gamma(0.3, size=(V, K)) + 0.01
    alpha = np.linspace(0.1, 0.6, K)
    shown, foretold = split_tokens(documents, seed)
    gamma = oracle.local(oracle.weights(lam, "mean"), shown, alpha, rule="mean").gamma
    theta, beta = gamma / gamma.sum(1, keepdims=True), lam / lam.sum(0)
    logs = np.log(theta @ beta.T)
    dense = foretold.matrix().toarray()
    engine = NativeEngine(precision)
    found = hold_out(engine, documents, seed).score(engine.place(lam), alpha)
    within = 1e-9 if precision == "float64" else 1e-4
    assert found == pytest.approx((dense * logs).sum() / dense.sum(), rel=within)


@pytest.mark.parametrize("seed", range(3))
def test_the_second_half_is_the_smaller_one(seed):
    documents = oracle.corpus(seed, [0, 1, 3, 9, 20, 1, 40], V)
    judge = hold_out(ENGINE, documents, seed)
    np.testing.assert_array_equal(judge.foretold.lengths, documents.lengths // 2)
    shown = judge.shown.documents
    both = shown.matrix().toarray() + judge.foretold.matrix().toarray()
    np.testing.assert_array_equal(both, documents.matrix().toarray())


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_documents_does_not_matter(seed):
    documents, beta, _ = planted(seed, 40, 30)
    judge = hold_out(ENGINE, documents, seed)
    order = np.random.default_rng(seed).permutation(40)
    other = HeldOut(
        ENGINE, ENGINE.pack(judge.shown.documents.take(order)), judge.foretold.take(order)
    )
    arguments = (ENGINE.place(beta + 1e-3), np.full(K, 0.5))
    assert other.score(*arguments) == pytest.approx(judge.score(*arguments), rel=1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_topics_that_say_more_score_higher(seed):
    documents, beta, _ = planted(seed, 200, 40)
    judge = hold_out(ENGINE, documents, seed)
    mixed = [share * beta + (1 - share) / V for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    scores = [judge.score(ENGINE.place(1e4 * topics + 1e-4), np.full(K, 0.5)) for topics in mixed]
    assert (np.diff(scores) > 0).all()


def test_entries_are_scored_in_parts(monkeypatch):
    documents, beta, theta = planted(0, 30, 20)
    whole = score_words(documents, theta, beta)
    monkeypatch.setattr(completion, "CHUNK", 7)
    assert score_words(documents, theta, beta) == pytest.approx(whole, rel=1e-13)


def test_documents_of_one_word_have_no_score():
    documents = oracle.corpus(0, [1, 0, 1], V, longest=1)
    judge = hold_out(ENGINE, documents, 0)
    assert np.isnan(judge.score(ENGINE.place(np.ones((V, K))), np.ones(K)))

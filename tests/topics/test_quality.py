"""Judging topics: every figure equals its definition, written out in loops."""

import itertools

import numpy as np
import pytest
from scipy.sparse import random_array
from scipy.spatial.distance import jensenshannon

from lowerbound.errors import ArgumentError
from lowerbound.topics.documents import Documents
from lowerbound.topics.looks import quality as q
from lowerbound.topics.looks.divergence import divergence_from, divergences, means, near

SEEDS = range(4)


def corpus(rows, vocabulary):
    """Documents from lists of word numbers."""
    words = [np.unique(row) for row in rows]
    starts = np.cumsum([0, *map(len, words)]).astype(np.int64)
    flat = np.concatenate(words).astype(np.int32)
    return Documents(starts, flat, np.ones(len(flat), np.float32), vocabulary)


def drawn(seed, D=60, V=30):
    """Counts at random, the first document empty."""
    rng = np.random.default_rng(seed)
    dense = random_array((D, V), density=0.2, rng=rng, format="csr").toarray() > 0
    dense[0] = False
    return corpus([np.flatnonzero(row) for row in dense], V), dense


def topics(seed, K=7, V=30, concentration=0.3):
    return 0.01 + 100 * np.random.default_rng(seed).gamma(concentration, size=(K, V))


# --- Top words ---


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [1, 5, 30])
def test_top_words_are_those_of_a_stable_sort(seed, n):
    values = np.random.default_rng(seed).integers(0, 5, size=(6, 30))  # many ties
    expected = np.argsort(-values, axis=1, kind="stable")[:, :n]
    np.testing.assert_array_equal(q.top_words(values, n), expected)


@pytest.mark.parametrize("n", [0, 31])
def test_top_words_beyond_the_vocabulary(n):
    with pytest.raises(ArgumentError) as error:
        q.top_words(topics(0), n)
    assert str(error.value) == (
        f"top_words got n={n} for topics over 30 words.\nExpected a number from 1 to 30."
    )


# --- Coherence ---


def npmi(words, dense):
    """The definition, pair by pair; p is over documents that hold a word."""
    held = dense[dense.any(axis=1)]
    scores = []
    for i, j in itertools.combinations(words, 2):
        both, one, other = (held[:, i] & held[:, j]).mean(), held[:, i].mean(), held[:, j].mean()
        if both == 0:
            scores.append(-1.0)
        elif both == 1:
            scores.append(1.0)
        else:
            scores.append(np.log(both / (one * other)) / -np.log(both))
    return np.mean(scores)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("together", [2000, 10])  # all topics at once, and two by two
def test_coherence_is_npmi(seed, together, monkeypatch):
    monkeypatch.setattr(q, "TOGETHER", together)
    documents, dense = drawn(seed)
    components = topics(seed)
    expected = [npmi(row, dense) for row in q.top_words(components, 5)]
    np.testing.assert_allclose(q.coherence(components, documents, 5), expected, rtol=1e-12)


def test_coherence_at_its_limits():
    """Words always together 1, never together -1, independent 0, of no document -1."""
    documents = corpus([[0, 1, 4, 6], [0, 1, 4], [2, 4, 6], [3, 4]], 8)
    pairs = [(0, 1), (2, 3), (0, 6), (0, 7)]
    components = np.full((4, 8), 1.0)
    for row, pair in zip(components, pairs, strict=True):
        row[list(pair)] = 9.0
    found = q.coherence(components, documents, 2)
    np.testing.assert_allclose(found, [1.0, -1.0, 0.0, -1.0], atol=1e-12)
    everywhere = corpus([[0, 1], [0, 1, 2]], 3)
    assert q.coherence(np.array([[5.0, 5.0, 1.0]]), everywhere, 2) == [1.0]


def test_coherence_needs_pairs_and_words():
    documents, _ = drawn(0)
    with pytest.raises(ArgumentError) as error:
        q.coherence(topics(0), documents, 1)
    assert str(error.value) == (
        "coherence got n_words=1.\nExpected 2 or more: it is a mean over pairs."
    )
    with pytest.raises(ArgumentError) as error:
        q.coherence(topics(0), documents.between(0, 1))
    assert str(error.value) == (
        "coherence got 1 documents, none with a word.\n"
        "Expected documents in which words can meet: those of the fit, or others alike."
    )


# --- Diversity ---


def test_diversity_counts_distinct_words():
    first = np.array([9.0, 8.0, 1.0, 1.0, 1.0])
    assert q.diversity(np.stack([first, first]), 2) == 0.5
    assert q.diversity(np.stack([first, first[::-1]]), 2) == 1.0
    assert q.diversity(np.stack([first, np.roll(first, 1)]), 2) == 0.75


# --- Divergences and duplicates ---


@pytest.mark.parametrize("seed", SEEDS)
def test_divergence_is_that_of_scipy_in_bits(seed, monkeypatch):
    beta = means(topics(seed))
    beta[0, 3:] = 0.0  # words without probability add nothing
    beta[0] /= beta[0].sum()
    expected = [[jensenshannon(p, r, base=2) ** 2 for r in beta] for p in beta]
    np.testing.assert_allclose(divergences(beta), expected, atol=1e-12)
    monkeypatch.setattr("lowerbound.topics.looks.divergence.BLOCK", 64)  # two rows at a time
    np.testing.assert_allclose(divergence_from(beta, beta[1]), expected[1], atol=1e-12)


@pytest.mark.parametrize("concentration", [0.02, 0.3, 5.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_product_that_spares_pairs_loses_none(seed, concentration):
    """The squared Hellinger distance is at most JS, and `near` finds what all pairs give."""
    beta = means(topics(seed, K=20, concentration=concentration))
    apart = divergences(beta)
    hellinger = 1 - np.sqrt(beta) @ np.sqrt(beta).T
    assert (hellinger <= apart + 1e-12).all()
    threshold = float(np.quantile(apart[np.triu_indices(20, 1)], 0.3))
    found = near(beta, threshold)
    pairs = {(j, k) for j, k in itertools.combinations(range(20), 2) if apart[j, k] < threshold}
    assert {(j, k) for j, k, _ in found} == pairs
    assert len(pairs) > 10
    assert [d for *_, d in found] == sorted(d for *_, d in found)
    np.testing.assert_allclose([apart[j, k] for j, k, _ in found], [d for *_, d in found])


def test_duplicates_are_found_whatever_their_size():
    components = topics(3, V=200)
    components[5] = 40 * components[2]
    ((j, k, bits),) = q.duplicates(components)
    assert (j, k) == (2, 5)
    assert bits == pytest.approx(0, abs=1e-12)
    assert q.duplicates(components, 0.0) == []
    with pytest.raises(ArgumentError) as error:
        q.duplicates(components, 2.0)
    assert str(error.value) == (
        "duplicates got threshold=2.0.\n"
        "Expected bits from 0 (the same topic) to 1 (no word in common)."
    )


# --- Dead topics ---


def test_dead_topics_are_small_and_say_what_the_prior_says():
    V, eta = 200, 0.1
    rng = np.random.default_rng(0)
    components = np.full((6, V), eta)
    components[0] += 1000 * rng.dirichlet(np.full(V, 0.1))  # in use
    components[1] += 15 * rng.dirichlet(np.full(V, 0.05))  # fewer tokens than the prior's 20
    components[2] += 900 * rng.dirichlet(np.full(V, 500.0))  # flat, but never small
    components[3] += 90 * rng.dirichlet(np.full(V, 500.0))  # flat and small: a diffuse start
    components[4] += 90 * rng.dirichlet(np.full(V, 0.05))  # small, but it says something
    components[5] += 15 * rng.dirichlet(np.full(V, 0.05))  # as 1, but with a share
    weights = np.array([0.5, 0.001, 0.3, 0.01, 0.01, 0.179])
    np.testing.assert_array_equal(q.dead(components, weights, eta), [1, 3])
    np.testing.assert_array_equal(q.dead(components, weights, np.full(V, eta)), [1, 3])
    with pytest.raises(ArgumentError) as error:
        q.dead(components, weights[:2], eta)
    assert str(error.value) == (
        "dead got weights of shape (2,) for 6 topics.\n"
        "Expected the share of each topic, shape (6,)."
    )


# --- All together ---


def blocks():
    """Three topics over words 0-3, 4-7, 8-11, and documents of each."""
    components = np.full((3, 12), 0.1)
    for k in range(3):
        components[k, 4 * k : 4 * k + 4] = [40.0, 30.0, 20.0, 10.0]
    documents = corpus([np.arange(4 * k, 4 * k + 4) for k in (0, 1, 2) * 5], 12)
    return components, documents


def test_quality_of_good_topics_says_so():
    components, documents = blocks()
    found = q.quality(components, np.full(3, 1 / 3), 0.1, documents)
    np.testing.assert_array_equal(found.coherence, q.coherence(components, documents, 10))
    assert found.duplicates == ()
    assert found.dead.size == 0
    good = q.Quality(np.array([0.5, 0.25]), 1.0, (), found.dead, (("a", "b"), ("c", "d")))
    assert str(good) == (
        "2 topics: coherence 0.38 on average (NPMI: 0 is chance, 1 the most), 100% of the top words"
        " distinct.\n"
        "Most coherent: topic 0 (a, b), 0.50.\n"
        "Least coherent: topic 1 (c, d), 0.25.\n"
        "No two topics say the same, and all are in use."
    )


def test_quality_reads_as_advice():
    components, documents = blocks()
    components = np.concatenate([components, 2 * components[:1], np.full((2, 12), 0.1)])
    weights = np.array([0.2, 0.2, 0.3, 0.29, 0.005, 0.005])
    found = q.quality(components, weights, 0.1, documents, [f"w{i}" for i in range(12)])
    ((j, k, bits),) = found.duplicates  # the two unused ones are the same too, which is no news
    assert (j, k) == (0, 3)
    assert bits < 0.01
    np.testing.assert_array_equal(found.dead, [4, 5])
    advice = str(found).splitlines()[3:]
    assert advice == [
        "1 pair of topics says the same: 0 and 3 (w0, w1, w2; 0.00 bits apart); consider fewer "
        "topics.",
        "2 topics not in use: 4, 5; 4 topics would do.",
        "The top words of 4 topics seldom meet in these documents (coherence below 0): 0, 1, 2, 3; "
        "read them with care.",
    ]


def test_long_lists_are_cut():
    pairs = tuple((0, k, 0.05) for k in range(1, 6))
    many = q.Quality(np.full(20, 0.1), 0.2, pairs, np.arange(6, 20), (("a",),) * 20)
    said = str(many).splitlines()
    assert said[3].startswith("5 pairs of topics say the same: 0 and 1 (a; 0.05 bits apart), ")
    assert said[3].endswith("0 and 3 (a; 0.05 bits apart) and 2 more; consider fewer topics.")
    assert said[4] == (
        "14 topics not in use: 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17 and 2 more; "
        "6 topics would do."
    )
    one = q.Quality(np.array([0.1]), 1.0, (), np.zeros(0, int), (("a",),))
    assert str(one).splitlines()[0].startswith("1 topic: coherence 0.10 on average")
    assert len(str(one).splitlines()) == 2

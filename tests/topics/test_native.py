"""Each step of the compiled engine against the same step done document by document."""

import numpy as np
import pytest
from scipy.special import digamma

from lowerbound.topics.inference_steps import Engine, Rule
from lowerbound.topics.native import library
from lowerbound.topics.native.threaded import NativeEngine
from tests.oracles import topics as oracle

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled kernel is not built")

RULES: tuple[Rule, ...] = ("mean field", "collapsed", "mean")
CLOSE = {"float32": 1e-4, "float64": 1e-9}
V = 300
# Empty documents, documents of one word, one that holds most words.
SIZES = [0, 1, 7, 8, 9, 0, 16, 1, 12, 5, 211, 3]
# One lane, whole vectors of either precision, what does not fill one, and more than all registers.
COUNTS = (1, 3, 8, 16, 21, 37, 131)


def topics(K: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).gamma(0.5, 2.0, size=(V, K)) + 0.05


def alpha(K: int) -> np.ndarray:
    return np.linspace(0.05, 0.5, K)


def expected_local(lam, documents, prior, start=None, *, rule, iterations, tolerance=0.0):
    weights = oracle.weights(lam, rule)
    if rule == "collapsed":
        return oracle.local_in_turn(weights, documents, prior, start, iterations, tolerance)
    return oracle.local(
        weights, documents, prior, start, rule=rule, iterations=iterations, tolerance=tolerance
    )


def assert_close(found, expected, precision: str) -> None:
    within = CLOSE[precision]
    size = np.abs(expected).max(initial=1e-12)
    np.testing.assert_allclose(found, expected, rtol=within, atol=within * 1e-3 * size)


def assert_same(engine: NativeEngine, found, expected) -> None:
    assert_close(engine.fetch(found.gamma), expected.gamma, engine.precision)
    assert_close(engine.fetch(found.statistics), expected.statistics, engine.precision)
    assert found.bound == pytest.approx(expected.bound, rel=CLOSE[engine.precision])


def solve(engine: NativeEngine, lam, documents, prior, start=None, **limits):
    weights = engine.weights(engine.place(lam), limits["rule"])
    return engine.local(weights, engine.pack(documents), prior, start, **limits)


def test_is_an_engine():
    engine: Engine = NativeEngine()
    assert engine.name == "native"
    assert NativeEngine("float64", 2) == NativeEngine("float64", 2)


# --------------------------------------------------------------------------------------------------
# Topics


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("precision", CLOSE)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("K", COUNTS)
def test_weights(rule, precision, K, threads):
    engine = NativeEngine(precision, threads)
    found = engine.weights(engine.place(topics(K)), rule)
    rows = np.array(found.rows, float) * np.exp(found.offsets)[:, None]
    np.testing.assert_allclose(rows, oracle.weights(topics(K), rule), rtol=CLOSE[precision] * 0.1)


@pytest.mark.parametrize("precision", CLOSE)
def test_rows_of_weights_have_a_topic_of_weight_one(precision):
    """exp psi(1e-3) is e^-1000, which no float holds; divided by the largest, a row keeps a 1."""
    lam = np.full((V, 5), 1e-3)
    lam[:, 2] = 3e-3
    found = NativeEngine(precision).weights(NativeEngine(precision).place(lam), "mean field")
    np.testing.assert_allclose(np.max(found.rows, axis=1), 1.0, rtol=1e-6)
    expected = (digamma(lam) - digamma(lam.sum(0))).max(1)
    np.testing.assert_allclose(found.offsets, expected, rtol=1e-9)


@pytest.mark.parametrize("eta", [np.array([0.3]), np.linspace(0.1, 2.0, V)])
@pytest.mark.parametrize("step", [0.0, 0.37, 1.0])
def test_blend(eta, step):
    engine = NativeEngine(threads=2)
    lam, statistics = topics(11), topics(11, seed=2)
    found = engine.blend(engine.place(lam), engine.place(statistics), eta, step, 17.5)
    np.testing.assert_allclose(found, oracle.blend(lam, statistics, eta, step, 17.5), rtol=1e-14)


def test_blend_leaves_the_topics():
    """A look keeps them; the statistics are used up."""
    engine = NativeEngine()
    lam, statistics = engine.place(topics(8)), engine.place(topics(8, seed=2))
    engine.blend(lam, statistics, np.ones(1), 0.5, 3.0)
    np.testing.assert_array_equal(lam, topics(8))


@pytest.mark.parametrize("K", [5, 8])
def test_place_and_fetch(K):
    engine = NativeEngine()
    lam = topics(K)
    placed = engine.place(lam)
    fetched = engine.fetch(placed)
    np.testing.assert_array_equal(fetched, lam)
    fetched[0] = lam[0] = -1.0
    np.testing.assert_array_equal(placed, topics(K))


# --------------------------------------------------------------------------------------------------
# Batches


@pytest.mark.parametrize("seed", range(3))
def test_pack_transposes(seed):
    documents = oracle.corpus(seed, SIZES, V)
    by_word = NativeEngine().pack(documents).by_word
    columns = documents.matrix().tocsc()
    distinct = np.diff(columns.indptr)
    np.testing.assert_array_equal(by_word.words, np.flatnonzero(distinct))
    np.testing.assert_array_equal(np.diff(by_word.starts), distinct[distinct > 0])
    np.testing.assert_array_equal(by_word.owners, columns.indices)
    np.testing.assert_array_equal(documents.counts[by_word.places], columns.data)
    np.testing.assert_array_equal(
        documents.words[by_word.places], np.repeat(by_word.words, np.diff(by_word.starts))
    )


@pytest.mark.parametrize("sizes", [[], [0, 0]])
def test_no_words(sizes):
    engine, K = NativeEngine("float64"), 3
    documents = oracle.corpus(0, sizes, V)
    for rule in RULES:
        found = solve(engine, topics(K), documents, alpha(K), rule=rule)
        np.testing.assert_allclose(found.gamma, np.tile(alpha(K), (len(sizes), 1)), rtol=1e-15)
        assert not np.any(found.statistics)
        assert found.bound == pytest.approx(0.0, abs=1e-12)


# --------------------------------------------------------------------------------------------------
# Documents given topics


@pytest.mark.parametrize("precision", CLOSE)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("iterations", [0, 1, 2, 15])
@pytest.mark.parametrize("K", COUNTS)
def test_local_is_that_of_each_document(rule, precision, iterations, K):
    documents = oracle.corpus(K, SIZES, V)
    limits = {"rule": rule, "iterations": iterations, "tolerance": 0.0}
    engine = NativeEngine(precision)
    found = solve(engine, topics(K), documents, alpha(K), **limits)
    assert_same(engine, found, expected_local(topics(K), documents, alpha(K), **limits))
    assert found.iterations == iterations


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-6])
def test_each_document_stops_on_its_own(rule, tolerance):
    documents, K = oracle.corpus(0, SIZES, V), 6
    limits = {"rule": rule, "iterations": 100, "tolerance": tolerance}
    engine = NativeEngine("float64")
    found = solve(engine, topics(K), documents, alpha(K), **limits)
    expected = expected_local(topics(K), documents, alpha(K), **limits)
    assert_same(engine, found, expected)
    assert found.iterations == pytest.approx(expected.iterations, rel=1e-12)
    assert 1 < expected.iterations < 100


@pytest.mark.parametrize("rule", RULES)
def test_words_in_turn_and_all_words_at_once_come_to_rest_at_the_same_place(rule):
    documents, K = oracle.corpus(3, SIZES, V), 6
    limits = {"rule": rule, "iterations": 5000, "tolerance": 1e-12}
    found = solve(NativeEngine("float64"), topics(K), documents, alpha(K), **limits)
    expected = oracle.local(oracle.weights(topics(K), rule), documents, alpha(K), **limits)
    np.testing.assert_allclose(found.gamma, expected.gamma, rtol=1e-7)
    np.testing.assert_allclose(found.statistics, expected.statistics, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("precision", CLOSE)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("iterations", [0, 3])
def test_local_from_a_start(rule, precision, iterations):
    documents, K = oracle.corpus(0, SIZES, V), 6
    # The collapsed rule takes a start for counts, of which a word's own are a part.
    start = alpha(K) + np.random.default_rng(3).gamma(2.0, size=(len(documents), K))
    limits = {"rule": rule, "iterations": iterations, "tolerance": 0.0}
    engine = NativeEngine(precision)
    kept = start.copy()
    found = solve(engine, topics(K), documents, alpha(K), start, **limits)
    assert_same(engine, found, expected_local(topics(K), documents, alpha(K), start, **limits))
    np.testing.assert_array_equal(start, kept)
    if iterations == 0:
        np.testing.assert_array_equal(found.gamma, start.astype(engine.dtype))


def test_its_own_gamma_is_a_start_that_stays():
    """Two calls of 3 iterations are one of 6, and the first result is not written over."""
    documents, K = oracle.corpus(0, SIZES, V), 6
    engine, limits = NativeEngine("float64"), {"rule": "mean field", "tolerance": 0.0}
    half = solve(engine, topics(K), documents, alpha(K), iterations=3, **limits)
    kept = half.gamma.copy()
    again = solve(engine, topics(K), documents, alpha(K), half.gamma, iterations=3, **limits)
    once = solve(engine, topics(K), documents, alpha(K), iterations=6, **limits)
    np.testing.assert_allclose(again.gamma, once.gamma, rtol=1e-12)
    np.testing.assert_array_equal(half.gamma, kept)


@pytest.mark.parametrize("precision", CLOSE)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("K", [6, 131])
def test_any_number_of_threads_gives_the_same_bits(rule, precision, K):
    """But for the order in which threads' own sums are added, in collapsed statistics."""
    documents = oracle.corpus(5, SIZES * 30, V)
    found = [
        solve(NativeEngine(precision, threads), topics(K), documents, alpha(K), rule=rule)
        for threads in (1, 2, 3)
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(other.gamma, found[0].gamma)
        if rule == "collapsed":
            np.testing.assert_allclose(
                other.statistics, found[0].statistics, rtol=1e-12, atol=1e-14
            )
        else:
            np.testing.assert_array_equal(other.statistics, found[0].statistics)
        assert other.bound == found[0].bound
        assert other.iterations == found[0].iterations


@pytest.mark.parametrize("rule", RULES)
def test_statistics_may_be_left_out(rule):
    documents, K = oracle.corpus(0, SIZES, V), 6
    engine = NativeEngine("float64")
    weights, batch = engine.weights(engine.place(topics(K)), rule), engine.pack(documents)
    with_them = engine.local(weights, batch, alpha(K), rule=rule)
    without = engine.local(weights, batch, alpha(K), rule=rule, statistics=False)
    assert without.statistics is None
    np.testing.assert_array_equal(without.gamma, with_them.gamma)
    assert without.bound == with_them.bound


@pytest.mark.parametrize("precision", CLOSE)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("heights", [(1e-3, 1e-3), (1e-3, 1e6), (1e6, 1e-3), (1e6, 1e6)])
def test_small_and_large_parameters_lose_no_token(rule, precision, heights):
    """Lambda and alpha from 1e-3 to 1e6, alone and mixed: gamma is finite, phi sums to one."""
    documents, K = oracle.corpus(7, SIZES, V), 21
    rng = np.random.default_rng(0)
    engine = NativeEngine(precision)
    low, high = sorted(heights)
    lam = np.exp(rng.uniform(np.log(low), np.log(high), size=(V, K)))
    prior = np.full(K, heights[0])
    found = solve(engine, lam, documents, prior, rule=rule)
    gamma, statistics = engine.fetch(found.gamma), engine.fetch(found.statistics)
    assert np.isfinite(gamma).all()
    assert (gamma > 0).all()
    assert np.isfinite(found.bound)
    within = {"float32": 1e-5, "float64": 1e-12}[precision]
    np.testing.assert_allclose(statistics.sum(), documents.tokens, rtol=within)
    by_word = oracle.word_counts(documents, np.ones((len(documents.words), 1)))
    np.testing.assert_allclose(statistics.sum(1), by_word[:, 0], rtol=within)
    np.testing.assert_allclose(gamma.sum(1), prior.sum() + documents.lengths, rtol=within)

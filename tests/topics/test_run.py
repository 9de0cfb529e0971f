"""Runs: why they stop, what they judge by, and that what judges is never learned from."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import lowerbound as lb
from lowerbound.topics import inference, one_run, outcome
from lowerbound.topics.corpus import open_corpus
from lowerbound.topics.documents import Documents
from lowerbound.topics.looks import watch
from lowerbound.topics.looks.completion import HeldOut, hold_out
from lowerbound.topics.looks.watch import Watch
from lowerbound.topics.native import library
from lowerbound.topics.native.threaded import NativeEngine
from lowerbound.topics.one_run import split_corpus
from lowerbound.topics.priors import Priors
from lowerbound.topics.settings import Setting
from tests.oracles import topics as oracle

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled kernel is not built")

ENGINE = NativeEngine("float64")
V, K, D = 40, 5, 100
PRIORS = Priors(np.full(K, 0.5), np.array([0.1]))
METHODS = ("svi", "cavi", "collapsed")
MANY = (0.05, 2000)


def setting(method: str, **changes) -> Setting:
    values = {
        "topics": K,
        "inference": method,
        "batch_size": 25,
        "passes": 6,
        "tolerance": 0.0,
        "delay": 1.0,
        "forgetting": 0.7,
        "seed": 0,
        "learn_document": False,
        "learn_topic": False,
        "sweeps": method == "collapsed",
        "why": "It was asked for.",
    }
    return Setting(**{**values, **changes})


def documents(seed: int = 0, count: int = D) -> Documents:
    """Documents of a few blocks of words each, so that there are topics to be found."""
    rng = np.random.default_rng(seed)
    beta = np.kron(np.eye(K), np.ones(V // K)) + 0.02
    theta = rng.dirichlet(np.full(K, 0.2), size=count)
    p = theta @ (beta / beta.sum(1, keepdims=True))
    return open_corpus(np.stack([rng.multinomial(30, row) for row in p])).held


class Stream:
    """Documents that come in chunks, again and again; their number is not said."""

    def __init__(self, held: Documents, size: int = 17) -> None:
        self.held, self.size = held, size

    def __iter__(self):
        for low in range(0, len(self.held), self.size):
            part = self.held.between(low, min(low + self.size, len(self.held)))
            yield part.matrix()


def made(
    source, method: str, *, validation=(0.0, 0), priors: Priors = PRIORS, **changes
) -> outcome.Run:
    return one_run.run(
        ENGINE, open_corpus(source), priors, setting(method, **changes),
        validation=validation, progress=False,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------
# Documents held out


@pytest.mark.parametrize("share", [0.05, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_a_corpus_is_split_by_chance(share, seed):
    corpus = open_corpus(documents())
    reading, judged = split_corpus(corpus, share, 2000, seed)
    assert len(judged) == int(share * D)
    assert reading.count == len(reading.kept) == D - len(judged)
    both = np.concatenate(
        [judged.matrix().toarray(), corpus.held.take(reading.kept).matrix().toarray()]
    )
    whole = corpus.held.matrix().toarray()
    assert sorted(map(tuple, both)) == sorted(map(tuple, whole))
    again = split_corpus(corpus, share, 2000, seed)[0].kept
    np.testing.assert_array_equal(reading.kept, again)
    other = split_corpus(corpus, share, 2000, seed + 1)[0].kept
    assert (reading.kept != other).any()


@pytest.mark.parametrize(
    ("share", "most", "expected"), [(0.0, 2000, 0), (0.009, 2000, 0), (0.5, 7, 7), (0.05, 0, 0)]
)
def test_how_many_are_held_out(share, most, expected):
    for source in (documents(), Stream(documents())):
        reading, judged = split_corpus(open_corpus(source), share, most, 0)
        assert (0 if judged is None else len(judged)) == expected
        assert sum(len(part) for part in reading.chunks(10)) == D - expected


@pytest.mark.parametrize("count", [30, 100, 400])
def test_the_head_of_a_stream_is_held_out_and_never_more_than_its_share(count):
    held = documents(count=count)
    reading, judged = split_corpus(open_corpus(Stream(held)), 0.1, 20, 0)
    wanted = min(20, count // 10)
    np.testing.assert_array_equal(judged.words, held.between(0, wanted).words)
    assert reading.count in (count - wanted, None)
    learned = np.concatenate([part.matrix().toarray() for part in reading.chunks(13)])
    np.testing.assert_array_equal(learned, held.matrix().toarray()[wanted:])


@pytest.mark.parametrize("kind", ["memory", "stream"])
@pytest.mark.parametrize("method", METHODS)
def test_documents_held_out_are_not_learned_from(kind, method):
    """A word that only they hold stays at its prior, up to what is left of the random start."""
    held = documents()
    corpus = open_corpus(held if kind == "memory" else Stream(held))
    reading, judged = split_corpus(corpus, 0.2, 2000, 0)
    dense = held.matrix().toarray()
    chosen = np.arange(20)
    if kind == "memory":
        chosen = np.setdiff1d(np.arange(D), reading.kept)
    assert len(judged) == len(chosen) == 20
    marked = np.concatenate([dense, np.zeros((D, 1))], axis=1)
    marked[chosen, V] = 50
    marked = open_corpus(marked).held
    start = inference.random_topics(ENGINE, V + 1, setting(method))
    found = made(
        marked if kind == "memory" else Stream(marked), method, validation=(0.2, 2000), passes=8
    )
    if method == "svi":
        # What is left of the start after all steps.
        left = np.prod(1 - (np.arange(found.steps) + 1.0) ** -0.7)
        assert left < 1e-6
    assert_allclose(found.topics[V], PRIORS.topic[0], rtol=1e-5)
    assert (found.topics[:V].sum(1) > 5).all()
    assert start.shape == found.topics.shape
    kept = (found.topics - PRIORS.topic).sum()
    assert kept == pytest.approx(dense.sum() * 0.8, rel=1e-9)
    # A document held out is foretold badly where its own word was never seen.
    assert found.held_out < np.log(PRIORS.topic[0]) / 4


@pytest.mark.parametrize("method", METHODS)
def test_the_last_score_is_that_of_the_topics(method):
    held = documents()
    found = made(held, method, validation=(0.2, 2000), learn_document=True, learn_topic=True)
    judged = split_corpus(open_corpus(held), 0.2, 2000, 0)[1]
    judge = hold_out(ENGINE, judged, 0)
    score = judge.score(ENGINE.place(found.topics), found.priors.document)
    assert found.held_out == pytest.approx(score, rel=1e-12)


# --------------------------------------------------------------------------------------------------
# Streams


@pytest.mark.parametrize("method", ["svi", "cavi"])
def test_a_stream_and_memory_agree_where_the_order_is_the_same(method, monkeypatch):
    """Sweeps go through documents in their order; a batch of all documents has no other. SVI learns
    the length of a stream in its first pass, and needs it in none when a batch is all of it."""
    # A start takes documents drawn in memory, the first ones of a stream.
    monkeypatch.setattr(
        one_run, "first_topics", lambda engine, reading, _, s: inference.random_topics(engine, V, s)
    )
    held = documents()
    limits = {"batch_size": D, "passes": 5}
    memory, stream = made(held, method, **limits), made(Stream(held), method, **limits)
    assert_allclose(stream.topics, memory.topics, rtol=1e-8)
    assert_allclose(stream.history.elbo, memory.history.elbo, rtol=1e-10)
    assert stream.elbo == pytest.approx(memory.elbo, rel=1e-10)
    assert (stream.passes, stream.steps, stream.documents) == (5.0, 5, 5 * D)
    assert stream.corpus_size == memory.corpus_size == D
    np.testing.assert_array_equal(stream.history.rows, memory.history.rows)


def test_a_stream_of_unknown_length_is_looked_at_on_the_way(monkeypatch):
    """In its first pass, in which nobody knows how far it is; later, once a pass."""
    monkeypatch.setattr(inference, "STREAM_LOOK", 2)
    found = made(Stream(documents()), "svi", batch_size=10, passes=3)
    np.testing.assert_array_equal(found.history.rows, [20, 40, 60, 80, 100, 200, 300])
    assert found.passes == 3.0
    assert found.corpus_size == D
    # The ELBO of all documents is not known before their number is.
    np.testing.assert_array_equal(np.isfinite(found.history.elbo), found.history.rows >= D)
    assert_allclose(found.history.elbo[4:], found.elbo, rtol=0.05)


def test_batches_of_a_stream_count_for_what_was_seen(monkeypatch):
    """N in N / B: the documents so far in the first pass, all of them from then on."""
    taken = []

    def spy(engine, topics, batch, size, priors, rule, total, step):
        if rule == "mean field":
            taken.append((size, total))
        return take(engine, topics, batch, size, priors, rule, total, step)

    take = inference.take_step
    monkeypatch.setattr(inference, "take_step", spy)
    made(Stream(documents()), "svi", batch_size=40, passes=2)
    assert taken == [(40, 40), (40, 80), (20, 100), (40, 100), (40, 100), (20, 100)]


# --------------------------------------------------------------------------------------------------
# When to stop


@pytest.mark.parametrize("method", METHODS)
def test_all_passes(method):
    found = made(documents(), method, validation=MANY, tolerance=0.0, passes=2)
    assert found.reason == "all 2 passes were made"
    assert not found.converged
    assert found.passes == 2.0


@pytest.mark.parametrize("method", ["svi", "collapsed"])
def test_the_held_out_score_stops(method):
    found = made(documents(), method, validation=MANY, tolerance=10.0, passes=50)
    assert found.reason == "the held-out score gained less than 10 nats per token in 3 looks"
    assert found.converged
    assert len(found.history.held_out) == watch.PATIENCE + 1


def test_the_elbo_stops_coordinate_ascent():
    found = made(documents(), "cavi", tolerance=1e-4, passes=100)
    assert found.reason == "the ELBO gained less than 0.0001 of its size in a sweep"
    assert found.converged
    gains = np.diff(found.history.elbo) / np.abs(found.history.elbo[1:])
    assert gains[-1] <= 1e-4 < gains[:-1].min()


def test_without_documents_held_out_svi_stops_by_its_elbo():
    found = made(documents(), "svi", tolerance=1e-2, passes=200)
    assert found.reason == "the ELBO of batches gained less than 0.01 of its size in 3 looks"
    assert found.converged
    assert 4 < found.passes < 200


def test_without_documents_held_out_collapsed_runs_on():
    found = made(documents(), "collapsed", tolerance=100.0, passes=30)
    assert found.reason == "all 30 passes were made"
    assert np.isnan(found.held_out)
    assert found.history.held_out.shape == (0,)


@pytest.mark.parametrize(
    ("scores", "settled"),
    [([1, 2, 3], False), ([1, 2, 3, 4], False), ([5, 1, 2, 3], True), ([5, 1, 2, 5.05], True),
     ([5, 1, 2, 5.2], False)],
)  # fmt: skip
def test_three_looks_without_a_gain_are_enough(scores, settled):
    watch = Watch(setting("svi", tolerance=0.1), list(map(float, scores)))
    assert (watch.settled() is not None) == settled


# --------------------------------------------------------------------------------------------------
# Learned priors


@pytest.mark.parametrize("method", METHODS)
def test_priors_are_learned_late(method, monkeypatch):
    calls = []
    learned = Priors.learned

    def spy(self, rule, gamma, topics, **which):
        calls.append((rule, which))
        return learned(self, rule, gamma, topics, **which)

    monkeypatch.setattr(Priors, "learned", spy)
    found = made(documents(), method, passes=20, learn_document=True)
    rule = "collapsed" if method == "collapsed" else "mean field"
    assert calls[0] == (rule, {"document": True, "topic": False})
    assert len(calls) < len(found.history.elbo)
    assert (found.priors.document != PRIORS.document).all()
    np.testing.assert_array_equal(found.priors.topic, PRIORS.topic)


@pytest.mark.parametrize("method", METHODS)
def test_priors_that_foretell_worse_are_not_kept(method, monkeypatch):
    """Planted: a prior that makes all proportions equal."""

    def bad(self, rule, gamma, topics, **which):
        return replace(self, document=np.full(K, 1e4))

    monkeypatch.setattr(Priors, "learned", bad)
    found = made(documents(), method, validation=(0.3, 2000), passes=20, learn_document=True)
    assert found.reason.endswith(
        "; learned priors scored worse on the documents held out, and were not kept"
    )
    assert found.priors is PRIORS
    assert found.held_out > found.history.held_out[-1]
    assert found.held_out in found.history.held_out
    kept = found.topics
    monkeypatch.undo()
    before = made(documents(), method, validation=(0.3, 2000), passes=20)
    if method != "cavi":
        # The topics are those of the look before priors were learned.
        assert found.documents < before.documents
    assert np.isfinite(kept).all()


def test_priors_learned_at_the_very_end_are_judged_too(monkeypatch):
    def bad(self, rule, gamma, topics, **which):
        return replace(self, document=np.full(K, 1e4))

    monkeypatch.setattr(Priors, "learned", bad)
    found = made(documents(), "svi", validation=(0.3, 2000), passes=1, learn_document=True)
    assert found.priors is PRIORS
    assert found.reason == (
        "all 1 passes were made; learned priors scored worse on the documents held out, and were "
        "not kept"
    )


@pytest.mark.parametrize("method", METHODS)
def test_good_priors_are_kept(method):
    found = made(
        documents(count=400), method, validation=(0.2, 2000), passes=40, learn_document=True,
        priors=Priors(np.full(K, 5.0), np.array([0.1])),
    )  # fmt: skip
    assert "not kept" not in found.reason
    # Planted: 0.2 for each topic.
    assert (found.priors.document < 1.5).all()


# --------------------------------------------------------------------------------------------------
# What is kept of a run


@pytest.mark.parametrize("method", METHODS)
def test_history_and_snapshots_have_a_row_for_each_look(method):
    found = made(documents(), method, validation=(0.2, 2000), passes=9)
    history, shots = found.history, found.snapshots
    looks = {"svi": 9, "cavi": 9, "collapsed": 5}[method]  # three passes, then sweeps 5 and 6
    for values in (history.elbo, history.seconds, history.held_out, history.rows):
        assert values.shape == (looks,)
    assert shots.weights.shape == (looks, K)
    assert shots.words.shape == (looks, K, 10)
    np.testing.assert_array_equal(shots.documents, history.rows)
    np.testing.assert_array_equal(shots.score, history.held_out)
    assert_allclose(shots.weights.sum(1), 1.0, rtol=1e-12)
    assert (np.diff(history.rows) > 0).all()
    assert (np.diff(history.seconds) > 0).all()
    assert np.isnan(history.elbo).all() == (method == "collapsed")
    assert found.documents == history.rows[-1] == 9 * 80
    order = np.argsort(-found.topics, axis=0)[:10].T
    assert_allclose(
        np.take_along_axis(found.topics.T, shots.words[-1], 1),
        np.take_along_axis(found.topics.T, order, 1),
    )


def test_the_elbo_of_many_documents_is_estimated_from_some():
    """From documents in all parts of the corpus: these are sorted by length, and the first ones
    are far from the mean. Within five standard errors of the ELBO of all."""
    held = oracle.corpus(0, [*range(1, 31)] * 10, V)
    held = held.take(np.argsort(held.lengths))
    found = made(held, "svi", passes=3)
    reading = split_corpus(open_corpus(held), 0.0, 0, 0)[0]
    topics = ENGINE.place(found.topics)
    whole, none = outcome.documents_terms(ENGINE, reading, PRIORS, topics)
    part, error = outcome.documents_terms(ENGINE, reading, PRIORS, topics, 100)
    assert none == 0.0
    exact, estimate = sum(whole.values()), sum(part.values())
    assert abs(estimate - exact) < 0.02 * abs(exact)
    assert error > 0
    assert abs(estimate - exact) < 5 * error


def test_the_standard_error_is_that_of_the_estimate():
    """Over 200 random orders of the corpus, the spread of estimates from 60 of 300 documents is the
    standard error that each states, within 25% (its own error is about 5%)."""
    held = oracle.corpus(0, [*range(1, 31)] * 10, V)
    topics = ENGINE.place(np.random.default_rng(0).gamma(1.0, size=(V, K)))
    estimates, errors = [], []
    for seed in range(200):
        order = np.random.default_rng(seed).permutation(len(held))
        reading = split_corpus(open_corpus(held.take(order)), 0.0, 0, 0)[0]
        terms, error = outcome.documents_terms(ENGINE, reading, PRIORS, topics, 60)
        estimates.append(sum(terms.values()))
        errors.append(error)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(estimates), rel=0.25)
    whole, _ = outcome.documents_terms(ENGINE, reading, PRIORS, topics)
    assert np.mean(estimates) == pytest.approx(
        sum(whole.values()), abs=6 * np.std(estimates) / np.sqrt(200)
    )


def test_an_interrupted_run_is_answered_after_its_last_whole_pass(monkeypatch):
    score, seen = HeldOut.score, []

    def pressed(self, *given):
        seen.append(given)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return score(self, *given)

    held = documents()
    monkeypatch.setattr(HeldOut, "score", pressed)
    with pytest.raises(KeyboardInterrupt):
        made(held, "svi", validation=MANY)
    seen.clear()
    with lb.interruptible():
        found = made(held, "svi", validation=MANY)
    assert (found.passes, found.converged) == (3.0, False)
    assert found.reason == "interrupted after pass 3"
    monkeypatch.undo()
    shorter = made(held, "svi", validation=MANY, passes=3)
    np.testing.assert_array_equal(found.topics, shorter.topics)
    np.testing.assert_array_equal(found.history.elbo, shorter.history.elbo)

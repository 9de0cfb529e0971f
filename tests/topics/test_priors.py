"""Learned priors maximise the bound they are said to maximise, and recover what was planted."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import digamma, gammaln

from lowerbound.topics import priors
from lowerbound.topics.priors import Priors, from_counts, from_mean_log, learn_topic_scale

PLANTED = np.array([0.02, 0.1, 0.5, 1.0, 3.0, 0.3])


def mean_log(alpha: np.ndarray) -> np.ndarray:
    return digamma(alpha) - digamma(alpha.sum())


def counts_of(alpha: np.ndarray, documents: int, length: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    theta = rng.dirichlet(alpha, size=documents)
    return np.stack([rng.multinomial(length, p) for p in theta]).astype(float)


def log_rise(counts: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """E log (alpha)(alpha + 1)...(alpha + N - 1), N one of the whole numbers beside its mean."""
    low = np.floor(counts)
    return gammaln(low + alpha) - gammaln(alpha) + (counts - low) * np.log(low + alpha)


def evidence(counts: np.ndarray, alpha: np.ndarray) -> float:
    """sum_d log p(counts_d | alpha) without the multinomial coefficient, counts (D, K)."""
    lengths, total = counts.sum(1), alpha.sum()
    below = gammaln(lengths + total) - gammaln(total)
    return float(log_rise(counts, alpha).sum() - below.sum())


def slopes(objective, at: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The gradient in log alpha by central differences."""
    moves = np.exp(step * np.eye(len(at)))
    ups = np.array([objective(at * move) for move in moves])
    downs = np.array([objective(at / move) for move in moves])
    return (ups - downs) / (2 * step)


# --------------------------------------------------------------------------------------------------
# The documents' prior


@pytest.mark.parametrize("start", [1e-3, 0.05, 1.0, 50.0])
@pytest.mark.parametrize(
    "alpha", [PLANTED, np.full(10, 0.1), np.array([100.0, 0.01]), np.full(300, 0.02)]
)
def test_from_mean_log_inverts_the_mean_of_the_logarithm(alpha, start):
    found = from_mean_log(mean_log(alpha), np.full(len(alpha), start))
    np.testing.assert_allclose(found, alpha, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_mean_field_maximises_the_expected_log_prior(seed):
    """argmax of sum_d E_q log p(theta_d | alpha), q(theta_d) = Dirichlet(gamma_d)."""
    rng = np.random.default_rng(seed)
    start = np.full(6, 0.3)
    gamma = start + counts_of(PLANTED, 200, 30, seed) + rng.uniform(0, 1e-3, (200, 6))
    logs = (digamma(gamma) - digamma(gamma.sum(1))[:, None]).sum(0)

    def objective(alpha):
        return 200 * (gammaln(alpha.sum()) - gammaln(alpha).sum()) + (alpha - 1) @ logs

    found = priors.learn_document_prior("mean field", gamma, start)
    assert np.abs(slopes(objective, found)).max() < 1e-3
    assert np.abs(slopes(objective, start)).max() > 1.0


@pytest.mark.parametrize("fractions", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_collapsed_maximises_the_evidence_of_counts(seed, fractions):
    """Within 0.1 nats of the best of 500 documents: the fixed point stops when alpha moves by less
    than 1e-3 of itself."""
    counts = counts_of(PLANTED, 500, 40, seed)
    if fractions:
        counts = 0.7 * counts + 0.3 * np.roll(counts, 1, axis=1)
    start = np.full(6, 0.3)
    found = priors.learn_document_prior("collapsed", counts + start, start)
    best = minimize(lambda log: -evidence(counts, np.exp(log)), np.log(found), method="BFGS")
    assert evidence(counts, found) > -best.fun - 0.1
    assert evidence(counts, found) > evidence(counts, start) + 10
    np.testing.assert_allclose(found, np.exp(best.x), rtol=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_a_planted_prior_is_recovered_from_counts(seed):
    """4,000 documents of 50 tokens: sd of log alpha_k is about 2.5% (4% at 0.02), the tolerance six
    times that; false-failure rate below 1e-8 a case."""
    found = from_counts(counts_of(PLANTED, 4000, 50, seed), np.full(6, 1.0))
    np.testing.assert_allclose(found[1:], PLANTED[1:], rtol=0.15)
    np.testing.assert_allclose(found[0], PLANTED[0], rtol=0.3)


def test_no_tokens_leave_the_prior_as_it_is():
    start = np.array([0.1, 0.2])
    np.testing.assert_array_equal(from_counts(np.zeros((4, 2)), start), start)


def test_priors_stay_within_limits():
    """Topic 0 is in no document; all documents are alike, so that no finite prior is best."""
    counts = np.tile([0.0, 30.0, 10.0], (50, 1))
    found = from_counts(counts, np.full(3, 0.5))
    assert found[0] == priors.SMALLEST
    assert (found <= priors.LARGEST).all()
    alike = from_mean_log(np.log([0.25, 0.25, 0.5]) - 1e-12, np.full(3, 0.5))
    np.testing.assert_array_equal(alike <= priors.LARGEST, True)


# --------------------------------------------------------------------------------------------------
# The topics' prior


@pytest.mark.parametrize("eta", [np.array([0.3]), np.linspace(0.1, 0.5, 80)])
@pytest.mark.parametrize("rule", ["mean field", "collapsed"])
def test_the_height_of_the_topics_prior_maximises_its_bound(rule, eta):
    counts = counts_of(np.full(80, 0.05), 12, 4000, 3).T
    full = np.broadcast_to(eta, 80)
    lam = counts + full[:, None]
    logs = digamma(lam) - digamma(lam.sum(0))

    def objective(scale):
        own = scale[0] * full
        if rule == "collapsed":
            return evidence(counts.T, own)
        return 12 * (gammaln(own.sum()) - gammaln(own).sum()) + ((own - 1) @ logs).sum()

    found = learn_topic_scale(rule, lam, eta)
    # A fixed point of Minka's stops a little before it has arrived.
    slope = slopes(objective, np.array([found]))[0]
    assert abs(slope) < (1e-2 if rule == "mean field" else 5.0)
    assert objective(np.array([found])) >= max(
        objective(np.array([found * factor])) for factor in (0.97, 1.03)
    )
    assert abs(slopes(objective, np.ones(1))[0]) > 50


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_height_is_recovered_from_counts(seed):
    """40 topics of 10,000 tokens over 300 words: sd of log eta about 1%."""
    counts = counts_of(np.full(300, 0.05), 40, 10_000, seed).T
    found = 0.4 * learn_topic_scale("collapsed", counts + 0.4, np.array([0.4]))
    assert found == pytest.approx(0.05, rel=0.08)


# --------------------------------------------------------------------------------------------------
# Both


@pytest.mark.parametrize("rule", ["mean field", "collapsed"])
@pytest.mark.parametrize("document", [False, True])
@pytest.mark.parametrize("topic", [False, True])
def test_what_is_not_to_be_learned_stays(rule, document, topic):
    given = Priors(np.full(6, 0.4), np.linspace(0.1, 0.5, 80))
    gamma = counts_of(PLANTED, 100, 30, 0) + given.document
    lam = counts_of(np.full(80, 0.05), 6, 500, 1).T + given.topic[:, None]
    found = given.learned(rule, gamma, lam, document=document, topic=topic)
    assert (found.document is given.document) != document
    assert (found.topic is given.topic) != topic
    # Of the topics' prior, the height alone is learned.
    np.testing.assert_allclose(np.ptp(found.topic / given.topic), 0.0, atol=1e-12)


def test_documents_in_all_parts_of_a_corpus_are_learned_from(monkeypatch):
    """Of more documents than are wanted, every n-th."""
    monkeypatch.setattr(priors, "DOCUMENTS", 100)
    given = Priors(np.full(6, 0.4), np.array([0.1]))
    gamma = np.repeat(counts_of(PLANTED, 100, 30, 0) + given.document, 3, axis=0)
    found = given.learned("collapsed", gamma, np.ones((5, 6)), document=True, topic=False)
    expected = from_counts(gamma[::3] - given.document, given.document)
    np.testing.assert_array_equal(found.document, expected)


def test_no_documents_teach_nothing():
    given = Priors(np.full(6, 0.4), np.array([0.1]))
    found = given.learned(
        "collapsed", np.zeros((0, 6)), np.ones((5, 6)), document=True, topic=False
    )
    assert found.document is given.document

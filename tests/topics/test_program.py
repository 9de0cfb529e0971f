"""The NumPyro program of a topic model, and the `Fit` of a run of the kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpy.testing import assert_allclose

import lowerbound as lb
from lowerbound.topics.corpus import open_corpus
from lowerbound.topics.documents import Documents
from lowerbound.topics.lda_program import latent_dirichlet_allocation, make_fit, rows_of
from lowerbound.topics.native import library
from lowerbound.topics.native.threaded import NativeEngine
from lowerbound.topics.one_run import run
from lowerbound.topics.outcome import Run
from lowerbound.topics.priors import Priors
from lowerbound.topics.settings import Setting
from tests.oracles import topics as oracle

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled kernel is not built")

ENGINE = NativeEngine("float64")
V, K = 30, 4
PRIORS = Priors(np.linspace(0.2, 0.8, K), np.linspace(0.1, 0.4, V))


def corpus() -> Documents:
    return oracle.corpus(0, [5, 1, 9, 12, 7, 3, 8, 2, 20, 6] * 3, V)


def made(method: str) -> Run:
    setting = Setting(
        topics=K, inference=method, batch_size=10, passes=15, tolerance=0.0, delay=1.0,
        forgetting=0.7, seed=7, learn_document=False, learn_topic=False,
        sweeps=method == "collapsed", why="It was asked for.",
    )  # fmt: skip
    return run(
        ENGINE, open_corpus(corpus()), PRIORS, setting, validation=(0.1, 2000), progress=False
    )


@pytest.fixture(scope="module")
def found() -> Run:
    return made("cavi")


@pytest.fixture(scope="module")
def fit(found) -> lb.Fit:
    return make_fit(found, "native", "float64")


def test_rows_are_the_tokens_in_the_order_of_words():
    documents = Documents(
        np.array([0, 2, 2, 3]), np.array([1, 4, 0], np.int32), np.array([2, 1, 1], np.float32), 5
    )
    rows = rows_of(documents)
    np.testing.assert_array_equal(rows["words"], [[1, 1, 4], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(rows["present"].sum(1), [3, 0, 1])
    np.testing.assert_array_equal(rows["present"][0], True)
    np.testing.assert_array_equal(rows["present"][2], [True, False, False])


@pytest.mark.parametrize("seed", range(3))
def test_rows_hold_all_tokens(seed):
    documents = oracle.corpus(seed, [0, 3, 9, 1, 0, 15], V)
    rows = rows_of(documents)
    dense = np.zeros((len(documents), V))
    owners = np.broadcast_to(np.arange(len(documents))[:, None], rows["words"].shape)
    np.add.at(dense, (owners[rows["present"]], rows["words"][rows["present"]]), 1)
    np.testing.assert_array_equal(dense, documents.matrix().toarray())


def test_documents_without_words_have_a_place_that_is_not_in_use():
    rows = rows_of(oracle.corpus(0, [0, 0], V))
    np.testing.assert_array_equal(rows["words"], [[0], [0]])
    assert not rows["present"].any()


@pytest.mark.slow
def test_the_density_of_the_program_is_that_of_the_model():
    """At one point: log p(beta) + log p(theta) + sum over tokens of log theta_z beta_zw."""
    from scipy.stats import dirichlet

    rng = np.random.default_rng(0)
    documents = oracle.corpus(0, [3, 0, 5], V)
    rows = rows_of(documents)
    beta = rng.dirichlet(PRIORS.topic + 1, size=K)
    theta = rng.dirichlet(PRIORS.document, size=(3, 1))
    z = rng.integers(K, size=rows["words"].shape)
    with jax.enable_x64(True):
        density, _ = numpyro.infer.util.log_density(
            latent_dirichlet_allocation, (),
            {**rows, "topics": K, "vocabulary": V, "document_prior": PRIORS.document,
             "topic_prior": PRIORS.topic},
            {"beta": jnp.asarray(beta), "theta": jnp.asarray(theta), "z": jnp.asarray(z)},
        )  # fmt: skip
    expected = sum(dirichlet.logpdf(row, PRIORS.topic) for row in beta)
    expected += sum(dirichlet.logpdf(row, PRIORS.document) for row in theta[:, 0])
    d, n = np.nonzero(rows["present"])
    expected += np.log(theta[d, 0, z[d, n]] * beta[z[d, n], rows["words"][d, n]]).sum()
    assert float(density) == pytest.approx(expected, rel=1e-6)


def test_the_posterior_of_topics_is_lambda(found, fit):
    lam = found.topics.T
    q = fit.posterior["beta"]
    while hasattr(q, "base_dist"):
        q = q.base_dist
    assert_allclose(q.concentration, lam, rtol=1e-12)
    assert_allclose(fit.mean("beta"), lam / lam.sum(1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("method", ["cavi", "svi", "collapsed"])
def test_what_a_fit_says_of_a_run(method):
    found = made(method)
    fit = make_fit(found, "native", "float32")
    assert fit.elbo == found.elbo
    assert fit.elbo_error == found.elbo_error
    assert fit.elbo_terms == found.terms
    assert sum(fit.elbo_terms.values()) == pytest.approx(fit.elbo, rel=1e-13)
    assert fit.history is found.history
    assert fit.converged == found.converged
    assert fit.stop_reason == f"{'converged' if found.converged else 'stopped'}: {found.reason}"
    assert fit.method == f"{method} (native)"
    assert (fit.seed, fit.precision) == (7, "float32")
    assert fit.restarts[0].sweeps == found.steps
    text = str(fit.plan)
    assert "It was asked for." in text
    assert "documents (27)" in text
    kernel = "The local step is that of the native kernel"
    last = {"collapsed": ", collapsed; the ELBO is that of its topics under mean field."}
    assert kernel + last.get(method, ", equal to the derived one.") in text


def concentration(posterior) -> np.ndarray:
    theta = posterior["theta"]
    while hasattr(theta, "base_dist"):
        theta = theta.base_dist
    return np.asarray(theta.concentration).reshape(-1, K)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_local_factors_are_those_of_the_kernel(found, fit, seed):
    """Both from the prior until they rest (from elsewhere, a document may rest elsewhere). The
    derived search stops when the ELBO of all documents gains less than 1e-6 of its size in a sweep,
    or after 50: elements of gamma are then within 0.05 of their limits."""
    documents = oracle.corpus(seed, [5, 1, 9, 12, 0, 3], V)
    derived = concentration(fit.local(**rows_of(documents)))
    weights = ENGINE.weights(ENGINE.place(found.topics), "mean field")
    batch, alpha = ENGINE.pack(documents), PRIORS.document
    start = np.tile(alpha, (len(documents), 1))
    limit = ENGINE.local(weights, batch, alpha, start, iterations=5000, tolerance=1e-12)
    assert_allclose(derived, limit.gamma, atol=0.05)
    assert_allclose(derived.sum(1), alpha.sum() + documents.lengths, rtol=1e-10)
    # And where it stops the kernel, too, hardly moves.
    again = ENGINE.local(weights, batch, alpha, derived, iterations=1, tolerance=0.0)
    assert np.abs(again.gamma - derived).mean() < 1e-3


def test_a_fit_is_saved_and_loaded(found, fit, tmp_path):
    fit.save(tmp_path / "run.lb")
    again = lb.load(tmp_path / "run.lb", latent_dirichlet_allocation)
    assert again.elbo == fit.elbo
    assert again.elbo_terms == pytest.approx(fit.elbo_terms)
    assert again.stop_reason == fit.stop_reason
    assert_allclose(again.mean("beta"), fit.mean("beta"), rtol=1e-12)
    np.testing.assert_array_equal(again.history.elbo, fit.history.elbo)


@pytest.mark.slow
def test_a_loaded_fit_solves_new_documents(fit, tmp_path):
    fit.save(tmp_path / "run.lb")
    again = lb.load(tmp_path / "run.lb", latent_dirichlet_allocation)
    settings = {
        "topics": K, "vocabulary": V,
        "document_prior": PRIORS.document, "topic_prior": PRIORS.topic,
    }  # fmt: skip
    rows = rows_of(oracle.corpus(5, [5, 1, 9], V))
    before, after = fit.local(**rows), again.local(**rows, **settings)
    assert_allclose(concentration(after), concentration(before), rtol=1e-10)


def test_draws_are_topics(fit):
    draws = fit.sample(50, seed=0)
    assert draws["beta"].shape == (50, K, V)
    assert_allclose(draws["beta"].sum(-1), 1.0, rtol=1e-5)


def test_the_page_and_the_curve_of_many_topics(tmp_path, monkeypatch):
    """A posterior too large to draw from is shown by its exact moments; scores are per token."""
    pytest.importorskip("matplotlib").use("Agg")
    import lowerbound as lb
    from tests.topics.asked import asked

    counts = np.random.default_rng(0).poisson(1.0, size=(200, 30))
    fit = asked(4, inference="collapsed", max_passes=3).fit(counts).result_
    monkeypatch.setattr("lowerbound.reporting.writing.DRAWN", 100)
    monkeypatch.setattr("lowerbound.reporting.illustrating.DRAWN", 100)
    monkeypatch.setattr(type(fit), "sample", None)
    page = lb.report(fit, tmp_path / "page.html").read_text()
    assert "Posterior (60 of 120 numbers, those that stand out most)" in page
    assert f"{fit.mean('beta').max():.3f}" in page
    ax = lb.plot.elbo(fit)
    assert [line.get_label() for line in ax.get_lines() if "noisy" in str(line.get_label())] == []
    labels = [one.get_ylabel() for one in ax.figure.axes]
    assert labels[1] == "held-out log predictive\n(nats per token)"

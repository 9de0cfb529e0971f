"""What other programs are handed is what they ask for."""

import importlib.util
import inspect
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

from lowerbound.errors import ArgumentError, UnfittedModelError
from lowerbound.topics.documents import Documents
from lowerbound.topics.looks import export

K, V = 4, 30


def model(words=None):
    rng = np.random.default_rng(0)
    components = 0.1 + 50 * rng.gamma(0.3, size=(K, V))

    def transform(documents):
        assert isinstance(documents, Documents)
        assert (documents.lengths > 0).all()
        shares = documents.matrix() @ components.T
        return (1 + 1e-7) * shares / shares.sum(axis=1, keepdims=True)  # a rounding of float32

    return SimpleNamespace(
        components_=components, topic_weights_=np.full(K, 1 / K), words_=words, transform=transform
    )


def counts(D=25, seed=1):
    X = np.random.default_rng(seed).poisson(0.5, size=(D, V))
    X[[2, 7]] = 0
    return X


@pytest.mark.parametrize("batch", [65536, 4, 1])  # with one, some batches are empty
def test_the_arguments_of_pyldavis(batch, monkeypatch):
    monkeypatch.setattr(export, "BATCH", batch)
    X, fitted = counts(), model()
    parts = export.pyldavis(fitted, csr_array(X))
    kept = X[X.sum(axis=1) > 0]
    assert parts["topic_term_dists"].shape == (K, V)
    assert parts["doc_topic_dists"].shape == (len(kept), K) == (23, K)
    for name in ("topic_term_dists", "doc_topic_dists"):
        np.testing.assert_allclose(parts[name].sum(axis=1), 1, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(parts["doc_lengths"], kept.sum(axis=1))
    np.testing.assert_array_equal(parts["term_frequency"], X.sum(axis=0))
    expected = kept @ fitted.components_.T
    np.testing.assert_allclose(
        parts["doc_topic_dists"], expected / expected.sum(axis=1, keepdims=True), rtol=1e-6
    )
    assert parts["vocab"][17] == "word 17"
    assert export.pyldavis(model(np.array([f"w{i}" for i in range(V)])), X)["vocab"][17] == "w17"


def test_pyldavis_needs_words_and_a_fit():
    empty = Documents(np.zeros(4, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), V)
    with pytest.raises(ArgumentError) as error:
        export.pyldavis(model(), empty)
    assert str(error.value) == (
        "export.pyldavis got documents without a word of the model's vocabulary.\n"
        "Expected at least one document with words: those of the fit, or others alike."
    )
    with pytest.raises(UnfittedModelError) as error:
        export.pyldavis(SimpleNamespace(), counts())
    assert str(error.value) == (
        "export.pyldavis got a SimpleNamespace without `components_`.\n"
        "Expected a fitted topic model: call its fit first."
    )


@pytest.mark.skipif(
    importlib.util.find_spec("pyLDAvis") is None,
    reason="pyLDAvis is not installed; `pip install pyLDAvis` to check that it takes the export",
)
def test_pyldavis_prepares_it():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own and those of what it stands on
        import pyLDAvis

        parts = export.pyldavis(model(), counts())
        assert set(parts) <= set(inspect.signature(pyLDAvis.prepare).parameters)
        prepared = pyLDAvis.prepare(**parts, R=10, n_jobs=1)
    assert len(prepared.topic_coordinates) == K

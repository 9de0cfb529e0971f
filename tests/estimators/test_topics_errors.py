"""What latent Dirichlet allocation refuses, in full, and what it warns of."""

import warnings

import numpy as np
import pytest

from lowerbound.errors import (
    ArgumentError,
    ConvergenceWarning,
    EmptyDocumentsWarning,
    NativeKernelWarning,
    NotFittedError,
    SettingError,
    UnknownWordsWarning,
    VocabularyError,
)
from lowerbound.estimators import Inference, LatentDirichletAllocation
from lowerbound.estimators import lda as estimator
from lowerbound.topics import choice
from lowerbound.topics.native import library
from tests.topics.asked import asked

needs_kernel = pytest.mark.skipif(library() is None, reason="the compiled kernel is not built")
COUNTS = np.random.default_rng(0).integers(0, 4, (30, 8))
STEPS = "only then do the steps sum to infinity while their squares do not."


def lda(n_components: int = 3, **settings) -> LatentDirichletAllocation:
    return asked(n_components, **{"max_passes": 3, **settings})


def message(error, call, *arguments) -> str:
    with pytest.raises(error) as caught:
        call(*arguments)
    return str(caught.value)


SETTINGS = [
    ({"n_components": 0}, "n_components=0.\nExpected a whole number of at least 1."),
    ({"n_components": 2.0}, "n_components=2.0.\nExpected a whole number of at least 1."),
    ({"n_components": True}, "n_components=True.\nExpected a whole number of at least 1."),
    ({"n_components": None}, "n_components=None.\nExpected a whole number of at least 1."),
    ({"n_jobs": -2}, "n_jobs=-2.\nExpected a whole number of at least 1, or None."),
    ({"random_state": -1}, "random_state=-1.\nExpected a whole number of at least 0."),
    ({"random_state": None}, "random_state=None.\nExpected a whole number of at least 0."),
    ({"document_prior": 0.0},
     'document_prior=0.0.\nExpected a positive number, one for each of the 3 topics, or "learn".'),
    ({"document_prior": "asymmetric"},
     "document_prior='asymmetric'.\n"
     'Expected a positive number, one for each of the 3 topics, or "learn".'),
    ({"document_prior": [1.0, 2.0]},
     "document_prior has shape (2,).\n"
     'Expected a positive number, one for each of the 3 topics, or "learn".'),
    ({"topic_prior": -0.1},
     'topic_prior=-0.1.\nExpected a positive number, one for each of the 8 words, or "learn".'),
    ({"topic_prior": np.inf},
     'topic_prior=inf.\nExpected a positive number, one for each of the 8 words, or "learn".'),
    ({"topic_prior": None},
     'topic_prior=None.\nExpected a positive number, one for each of the 8 words, or "learn".'),
    ({"topic_prior": np.ones((3, 8))},
     "topic_prior has shape (3, 8).\n"
     'Expected a positive number, one for each of the 8 words, or "learn".'),
    ({"n_components": 9},
     "n_components=9, but the vocabulary has 8 words.\nExpected at most one topic for each word."),
]  # fmt: skip


OF_INFERENCE = [
    ({"batch_size": 0}, "batch_size=0.\nExpected a whole number of at least 1, or None."),
    ({"max_passes": -1}, "max_passes=-1.\nExpected a whole number of at least 1, or None."),
    ({"kind": "gibbs"}, "kind='gibbs'.\nExpected one of 'auto', 'svi', 'cavi', 'collapsed'."),
    ({"forgetting": 0.5}, f"forgetting=0.5.\nExpected a number in (0.5, 1]: {STEPS}"),
    ({"forgetting": "fast"}, f"forgetting='fast'.\nExpected a number in (0.5, 1]: {STEPS}"),
    ({"delay": 0.5}, "delay=0.5.\nExpected a number of at least 1."),
    ({"delay": np.inf}, "delay=inf.\nExpected a number of at least 1."),
    ({"validation_fraction": 1.0}, "validation_fraction=1.0.\nExpected a number in [0, 1)."),
    ({"validation_fraction": None}, "validation_fraction=None.\nExpected a number in [0, 1)."),
    ({"tolerance": -1e-3}, "tolerance=-0.001.\nExpected a number of at least 0."),
    ({"tolerance": np.nan}, "tolerance=nan.\nExpected a number of at least 0."),
    ({"tolerance": "tight"}, "tolerance='tight'.\nExpected a number of at least 0."),
]


@pytest.mark.parametrize(("settings", "text"), OF_INFERENCE, ids=lambda value: str(value)[:40])
def test_settings_of_the_inference(settings, text):
    assert message(SettingError, lambda: Inference(**settings)) == f"Inference got {text}"


def test_an_inference_is_a_kind_or_a_value():
    for wrong in ("gibbs", 3, None):
        model = LatentDirichletAllocation(3, inference=wrong)
        assert message(SettingError, model.fit, COUNTS) == (
            f"inference={wrong!r}.\n"
            "Expected one of 'auto', 'svi', 'cavi', 'collapsed', or an Inference."
        )


@pytest.mark.parametrize("wrong", [0, 10.0])
def test_the_size_of_the_corpus_of_parts(wrong):
    with pytest.raises(SettingError) as caught:
        lda().partial_fit(COUNTS, total_documents=wrong)
    expected = f"total_documents={wrong}.\nExpected a whole number of at least 1."
    assert str(caught.value) == expected


@pytest.mark.parametrize(("settings", "text"), SETTINGS, ids=lambda value: str(value)[:40])
def test_settings(settings, text):
    assert message(ArgumentError, lda(**settings).fit, COUNTS) == text
    if settings.get("inference") != "cavi":
        assert message(ArgumentError, lda(**settings).partial_fit, COUNTS) == text


def test_settings_are_checked_before_documents_are_read():
    class Unread:
        def __iter__(self):
            raise AssertionError("was read")

    with pytest.raises(ArgumentError, match="n_jobs"):
        lda(n_jobs=0).fit(Unread())


def test_parts_are_not_swept_over():
    assert message(ArgumentError, lda(inference="cavi").partial_fit, COUNTS) == (
        'partial_fit learns from batches, and inference="cavi" sweeps over all documents.\n'
        'Expected inference="svi", "collapsed" or "auto".'
    )


@pytest.mark.parametrize(
    "use",
    ["transform", "score", "perplexity", "topics", "quality", "result_", "get_feature_names_out"],
)
def test_nothing_is_used_before_it_is_fitted(use):
    def call():
        found = getattr(lda(), use)
        return found() if use in ("topics", "get_feature_names_out") else found(COUNTS)

    wanted = "score" if use == "perplexity" else use
    assert message(NotFittedError, call) == (
        f"This LatentDirichletAllocation is not fitted yet, so it has no {wanted}.\n"
        "Expected a call of fit (or partial_fit) first."
    )


@pytest.fixture(scope="module")
def fitted():
    return lda().fit(COUNTS)


@pytest.fixture(scope="module")
def named():
    tokens = [["gene", "dna", "cell"], ["star", "orbit", "planet"]] * 30
    return lda(2).fit(tokens)


@needs_kernel
def test_documents_that_cannot_be_split(fitted):
    text = message(ArgumentError, fitted.score, np.eye(8, dtype=int))
    assert text == (
        "score got no document of two or more known words.\n"
        "Expected documents that can be split into halves."
    )


@pytest.mark.parametrize("use", ["transform", "score", "partial_fit"])
@needs_kernel
def test_another_number_of_words(use):
    fitted = lda().fit(COUNTS)
    with pytest.raises(VocabularyError, match="7") as error:
        getattr(fitted, use)(COUNTS[:, :7])
    assert "8" in str(error.value)


@needs_kernel
def test_tokens_where_words_have_no_names(fitted):
    with pytest.raises(VocabularyError, match="numbers alone"):
        fitted.transform([["gene", "dna"]])


@needs_kernel
def test_documents_without_words_have_the_prior_and_one_warning(fitted):
    documents = np.concatenate([COUNTS[:5], np.zeros((2, 8), int)])
    with pytest.warns(EmptyDocumentsWarning) as caught:
        theta = fitted.transform(documents)
    assert [str(one.message) for one in caught] == [
        "2 documents of X have no words: their proportions are those of the prior."
    ]
    np.testing.assert_allclose(theta[5:], 1 / 3, rtol=1e-6)
    np.testing.assert_allclose(theta.sum(1), 1.0, rtol=1e-12)


@needs_kernel
def test_words_that_were_not_learned_are_left_out(named):
    with pytest.warns(UnknownWordsWarning) as caught:
        theta = named.transform([["gene", "dna", "cell", "quark"]])
    assert [str(one.message) for one in caught] == [
        "1 token of X is not in the vocabulary and left out, e.g. 'quark'."
    ]
    np.testing.assert_allclose(theta, named.transform([["gene", "dna", "cell"]]), rtol=1e-12)


@needs_kernel
def test_a_later_part_may_bring_unknown_words():
    model = lda(2)
    first = [["gene", "dna", "cell"], ["star", "orbit", "planet"]] * 15
    model.partial_fit(first, total_documents=60)
    words = model.words_.copy()
    second = [["gene", "dna", "quark"], ["star", "orbit", "planet"]] * 15
    with pytest.warns(UnknownWordsWarning, match="'quark'"):
        model.partial_fit(second, total_documents=60)
    np.testing.assert_array_equal(model.words_, words)
    assert model.components_.shape == (2, 6)


@needs_kernel
def test_too_few_passes_are_told():
    model = asked(3, inference="svi", tolerance=0.0, n_jobs=1)
    rng = np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(estimator.PASSES, "svi", 2)
        with pytest.warns(ConvergenceWarning) as caught:
            model.fit(rng.integers(0, 4, (60, 8)))
    assert [str(one.message) for one in caught] == [
        "The fit stopped before it converged: 2 passes.\n"
        "Give more with Inference(max_passes=...), or loosen tolerance."
    ]
    assert caught[0].filename == __file__


@needs_kernel
def test_passes_that_are_given_are_meant():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lda(inference="svi", tolerance=0.0).fit(COUNTS)


def test_without_the_kernel(monkeypatch):
    monkeypatch.setattr(choice, "library", lambda: None)
    with pytest.warns(NativeKernelWarning) as caught:
        model = lda(inference="svi", max_passes=1).fit(COUNTS)
    assert caught[0].filename == __file__
    assert model.result_.method == "svi (xla)"

"""Latent Dirichlet allocation as an estimator: inputs, outputs, and scikit-learn's contract."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

import lowerbound as lb
from lowerbound.estimators import Inference, LatentDirichletAllocation
from lowerbound.topics import one_run
from lowerbound.topics.corpus import open_corpus
from lowerbound.topics.inference import random_topics
from lowerbound.topics.native import library
from lowerbound.topics.native.threaded import NativeEngine
from tests.oracles import topics as oracle
from tests.topics.asked import asked

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled kernel is not built")

WORDS = np.array(
    ["ant", "bee", "cat", "dog", "elk", "fox", "iron", "jade", "kelp", "lead", "mica", "onyx"]
)
V, D = len(WORDS), 120


def counts(seed: int = 0, documents: int = D) -> np.ndarray:
    """Each document mostly from one half of the words; none is empty."""
    rng = np.random.default_rng(seed)
    share = rng.beta(0.2, 0.2, size=(documents, 1))
    p = np.concatenate([share * np.ones((1, 6)), (1 - share) * np.ones((1, 6))], axis=1) + 0.02
    return np.stack([rng.multinomial(20, row / row.sum()) for row in p])


COUNTS = counts()
TOKENS = [np.repeat(WORDS, row).tolist() for row in COUNTS]


def lda(n_components: int = 2, **settings) -> LatentDirichletAllocation:
    return asked(n_components, **{"max_passes": 12, "n_jobs": 1, **settings})


@pytest.fixture(scope="module")
def fitted() -> LatentDirichletAllocation:
    return lda().fit(TOKENS)


# --------------------------------------------------------------------------------------------------
# What goes in


class Chunks:
    """Documents that come again and again."""

    def __init__(self, parts) -> None:
        self.parts = parts

    def __iter__(self):
        return iter(self.parts)


def bags():
    return [[(int(w), int(row[w])) for w in np.flatnonzero(row)] for row in COUNTS]


KINDS = {
    "array": lambda: COUNTS,
    "float array": lambda: COUNTS.astype(float),
    "nested lists": COUNTS.tolist,
    "csr": lambda: sp.csr_array(COUNTS),
    "csc": lambda: sp.csc_matrix(COUNTS),
    "coo": lambda: sp.coo_array(COUNTS),
    "pandas": lambda: pd.DataFrame(COUNTS, columns=WORDS),
    "polars": lambda: pl.DataFrame(COUNTS, schema=WORDS.tolist()),
    "tokens": lambda: TOKENS,
    "series of tokens": lambda: pd.Series(TOKENS),
    "bags": bags,
    "documents": lambda: open_corpus(COUNTS).held,
    "chunks": lambda: Chunks([COUNTS[:50], COUNTS[50:]]),
    "sparse chunks": lambda: Chunks([sp.csr_array(COUNTS[:7]), sp.csr_array(COUNTS[7:])]),
    "stream of tokens": lambda: Chunks(TOKENS),
}
NAMED = {"pandas", "polars", "tokens", "series of tokens", "stream of tokens"}


@pytest.mark.parametrize("kind", [*KINDS, "file"])
def test_every_kind_of_corpus_gives_the_same_topics(kind, tmp_path):
    """Sweeps go through documents in their order, whatever they are read from."""
    expected = lda(inference="cavi").fit(COUNTS)
    if kind == "file":
        sp.save_npz(tmp_path / "counts.npz", sp.csr_array(COUNTS))
        source = tmp_path / "counts.npz"
    else:
        source = KINDS[kind]()
    found = lda(inference="cavi").fit(source)
    assert_allclose(found.components_, expected.components_, rtol=1e-9)
    assert_allclose(found.transform(source), expected.transform(COUNTS), rtol=1e-9)
    assert found.score(source) == pytest.approx(expected.score(COUNTS), rel=1e-9)
    assert found.n_features_in_ == V
    if kind in NAMED:
        assert_array_equal(found.words_, WORDS)
        assert_array_equal(found.feature_names_in_, WORDS)
    else:
        assert found.words_ is None
        assert not hasattr(found, "feature_names_in_")


def test_a_vocabulary_names_the_columns():
    found = lda(vocabulary=WORDS.tolist()).fit(COUNTS)
    assert_array_equal(found.words_, WORDS)
    assert_allclose(found.transform(TOKENS), found.transform(COUNTS), rtol=1e-12)


def test_names_do_not_outlive_their_fit():
    found = lda().fit(TOKENS).fit(COUNTS)
    assert not hasattr(found, "feature_names_in_")
    assert found.topics(1)[0][0].startswith("word ")


# --------------------------------------------------------------------------------------------------
# What comes out


@pytest.mark.parametrize("inference", ["svi", "cavi", "collapsed"])
def test_fitted_attributes(inference):
    found = lda(3, inference=inference, document_prior=[0.1, 0.2, 0.3]).fit(TOKENS)
    assert found.components_.shape == (3, V)
    assert found.components_.dtype == np.float64
    assert (found.components_ > 0).all()
    assert_allclose(found.topic_weights_.sum(), 1.0, rtol=1e-12)
    assert_array_equal(found.document_prior_, [0.1, 0.2, 0.3])
    assert found.topic_prior_ == 0.01
    assert found.inference_ == inference
    assert found.reason_ == f'inference="{inference}" was asked for.'
    assert found.n_iter_ <= 12
    assert found.snapshots_.weights.shape[1] == 3
    assert found.get_feature_names_out().tolist() == ["topic0", "topic1", "topic2"]


def test_one_number_for_each_word_of_the_prior():
    eta = np.linspace(0.01, 0.2, V)
    assert_array_equal(lda(topic_prior=eta).fit(COUNTS).topic_prior_, eta)


@pytest.mark.parametrize("inference", ["svi", "cavi", "collapsed"])
@pytest.mark.parametrize("seed", range(3))
def test_the_halves_of_the_vocabulary_are_found(inference, seed):
    """Two topics that share hardly a word: one of 120 trial starts missed them; false failures of a
    case about 1%."""
    found = lda(inference=inference, random_state=seed).fit(TOKENS)
    tops = sorted(sorted(words) for words in found.topics(6))
    assert tops == [WORDS[:6].tolist(), WORDS[6:].tolist()]
    theta = found.transform(COUNTS)
    assert theta.shape == (D, 2)
    assert_allclose(theta.sum(1), 1.0, rtol=1e-12)
    first = int(found.components_[:, 0].argmax())
    share = COUNTS[:, :6].sum(1) / 20
    assert np.corrcoef(theta[:, first], share)[0, 1] > 0.98


@pytest.mark.parametrize("rule", ["mean field", "collapsed"])
def test_transform_rests(rule):
    """E[theta] is where the rule comes to rest, to the six digits of float32."""
    inference = "svi" if rule == "mean field" else "collapsed"
    found = lda(3, inference=inference).fit(COUNTS)
    weights = oracle.weights(found.components_.T, rule)
    gamma = oracle.local(
        weights, open_corpus(COUNTS).held, found.document_prior_,
        rule=rule, iterations=3000, tolerance=1e-10,
    ).gamma  # fmt: skip
    assert_allclose(found.transform(COUNTS), gamma / gamma.sum(1, keepdims=True), atol=1e-3)


def test_fit_transform_and_perplexity(fitted):
    assert_array_equal(lda().fit_transform(TOKENS), fitted.transform(TOKENS))
    assert fitted.perplexity(TOKENS) == pytest.approx(np.exp(-fitted.score(TOKENS)), rel=1e-14)
    assert 6 < fitted.perplexity(counts(1)) < V


def test_quality_and_export(fitted):
    found = fitted.quality(TOKENS)
    assert len(found.coherence) == 2
    assert fitted.pyldavis(TOKENS)["topic_term_dists"].shape == (2, V)


def test_the_result_is_a_fit(fitted):
    result = fitted.result_
    assert result is fitted.result_
    shares = fitted.components_ / fitted.components_.sum(1, keepdims=True)
    assert_allclose(result.mean("beta"), shares, rtol=1e-10)
    assert sum(result.elbo_terms.values()) == pytest.approx(result.elbo, rel=1e-12)
    assert fitted.reason_ in str(result.plan)


@pytest.mark.parametrize("inference", ["svi", "cavi", "collapsed"])
def test_a_seed_fixes_everything(inference):
    first, again, other = (
        lda(3, inference=inference, random_state=seed).fit(COUNTS) for seed in (3, 3, 4)
    )
    assert_array_equal(first.components_, again.components_)
    assert_array_equal(first.transform(COUNTS), again.transform(COUNTS))
    assert first.score(COUNTS) == again.score(COUNTS)
    assert np.abs(first.components_ - other.components_).max() > 0.1


@pytest.mark.parametrize("inference", ["svi", "cavi"])
def test_the_number_of_threads_changes_nothing(inference):
    found = [lda(3, inference=inference, n_jobs=n).fit(COUNTS).components_ for n in (1, 2, 3)]
    assert_array_equal(found[0], found[1])
    assert_array_equal(found[0], found[2])


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["svi", "cavi"])
def test_engines_agree(inference, monkeypatch):
    """From the same topics: collapsed steps take the words of a document in turn in one engine and
    together in the other, so the starts that they lead to differ."""

    def start(engine, reading, _, setting):
        return random_topics(engine, reading.corpus.vocabulary, setting)

    monkeypatch.setattr(one_run, "first_topics", start)
    model = lda(3, inference=inference, max_passes=4, batch_size=40)
    found = []
    for devices in (None, 1):
        with lb.computing(precision="float64", devices=devices):
            topics = model.fit(COUNTS).components_
            found.append((topics, model.transform(COUNTS), model.score(COUNTS)))
            assert model.result_.method.endswith("(native)" if devices is None else "(xla)")
    native, other = found
    assert_allclose(other[0], native[0], rtol=1e-6)
    assert_allclose(other[1], native[1], atol=1e-5)
    assert other[2] == pytest.approx(native[2], rel=1e-6)


def test_priors_are_learned():
    found = lda(document_prior="learn", topic_prior="learn", max_passes=40).fit(
        np.concatenate([counts(n) for n in range(4)])
    )
    kept = "not kept" not in found.result_.stop_reason
    assert kept == (found.topic_prior_ != 0.01) == (found.document_prior_ != 2.5).all()
    assert kept


# --------------------------------------------------------------------------------------------------
# In parts


def test_a_part_is_a_step():
    """(1 - step) lambda + step (eta + N/B statistics), steps counted over the parts."""
    model = lda(3, inference="svi", batch_size=30, delay=2.0)
    documents = open_corpus(COUNTS).held
    engine, start = NativeEngine("float64"), None
    for low in (0, 60):
        with lb.computing(precision="float64"):
            model.partial_fit(COUNTS[low : low + 60], total_documents=500)
        if start is None:
            setting = model._run.setting
            start = engine.fetch(random_topics(engine, V, setting))
    lam, alpha = start, model.document_prior_
    for number in range(4):
        part = documents.between(30 * number, 30 * number + 30)
        statistics = oracle.local(oracle.weights(lam, "mean field"), part, alpha).statistics
        lam = oracle.blend(lam, statistics, [0.01], (number + 2.0) ** -0.7, 500 / 30)
    assert_allclose(model.components_.T, lam, rtol=1e-8)
    assert model._run.documents == 120
    assert_array_equal(model.result_.history.rows, [60, 120])
    assert model.result_.stop_reason == "stopped: 120 documents were given, in parts"


@pytest.mark.parametrize("inference", ["svi", "collapsed"])
@pytest.mark.parametrize("seed", range(3))
def test_parts_come_to_what_a_fit_comes_to(inference, seed):
    """Held-out scores within 0.05 nats per token; those of flat topics are 0.3 lower."""
    settings = {"inference": inference, "batch_size": 20, "random_state": seed}
    whole = lda(**settings).fit(COUNTS)
    parts = lda(**settings)
    for _ in range(6):
        for low in range(0, D, 40):
            parts.partial_fit(COUNTS[low : low + 40], total_documents=D)
    new = counts(9)
    assert parts.score(new) == pytest.approx(whole.score(new), abs=0.05)
    assert whole.score(new) > -np.log(V) + 0.2


def test_parts_of_one_size_need_no_batch_size():
    model = lda()
    for low in range(0, D, 40):
        model.partial_fit(COUNTS[low : low + 40], total_documents=D)
    assert model._run.steps == 3
    assert model.inference_ == "collapsed"


# --------------------------------------------------------------------------------------------------
# scikit-learn


def test_a_clone_is_as_new(fitted):
    other = clone(fitted)
    assert other.get_params() == fitted.get_params()
    assert not hasattr(other, "components_")
    assert_array_equal(other.fit(TOKENS).components_, fitted.components_)


def test_repr_is_short(fitted):
    assert repr(fitted) == (
        "LatentDirichletAllocation(n_components=2, inference=Inference(max_passes=12), n_jobs=1)"
    )
    assert len(fitted.get_params()) == len(vars(Inference())) == 7
    long = lda(vocabulary=[f"word{n}" for n in range(9999)], topic_prior=np.ones(9999))
    assert len(repr(long)) < 250


@pytest.mark.parametrize("used", [False, True])
def test_pickles(fitted, used):
    """Also after the fit behind it was looked at, which holds functions."""
    if used:
        assert fitted.result_ is not None
    again = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(again.transform(TOKENS), fitted.transform(TOKENS))
    assert again.score(TOKENS) == fitted.score(TOKENS)
    assert again.topics(3) == fitted.topics(3)
    assert again.result_.elbo == fitted.result_.elbo
    assert_array_equal(again.partial_fit(TOKENS).words_, WORDS)


def test_settings_changed_after_a_fit_leave_it_usable():
    model = lda(3).fit(COUNTS)
    theta = model.transform(COUNTS)
    model.set_params(n_components=5)
    assert_array_equal(model.transform(COUNTS), theta)
    assert len(model.get_feature_names_out()) == 3


def test_the_end_of_a_pipeline():
    texts = [" ".join(tokens) for tokens in TOKENS]
    pipe = make_pipeline(CountVectorizer(), lda())
    theta = pipe.fit_transform(texts)
    assert theta.shape == (D, 2)
    assert_array_equal(pipe.transform(texts), theta)
    assert pipe.score(texts) == pipe[-1].score(pipe[0].transform(texts))
    assert pipe.get_feature_names_out().tolist() == ["topic0", "topic1"]


def test_the_number_of_topics_by_cross_validation():
    """One topic foretells no better than the frequencies of words; two were planted."""
    search = GridSearchCV(lda(), {"n_components": [1, 2]}, cv=3).fit(COUNTS)
    assert search.best_params_ == {"n_components": 2}
    one, two = search.cv_results_["mean_test_score"]
    assert two - one > 0.2


def test_tags():
    tags = get_tags(lda())
    assert tags.input_tags.sparse
    assert tags.input_tags.positive_only
    assert tags.transformer_tags is not None


class Counted(LatentDirichletAllocation):
    """Tells scikit-learn's checks to give whole numbers, which is all that counts may be."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        return tags


def test_the_checks_of_scikit_learn():
    """All of them. The checks' documents may be empty or few, of which there are warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Counted(2, inference=Inference(max_passes=3), n_jobs=1)
        results = check_estimator(model, on_fail=None, on_skip=None)
    failed = {r["check_name"]: str(r["exception"]) for r in results if r["status"] == "failed"}
    assert failed == {}
    assert sum(r["status"] == "passed" for r in results) > 40

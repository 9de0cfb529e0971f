"""Latent Dirichlet allocation as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Final, Self

import numpy as np

from lowerbound.compute.computing import current
from lowerbound.errors import ArgumentError, ConvergenceWarning, NotFittedError
from lowerbound.estimators.base import Estimator
from lowerbound.estimators.lda_settings import (
    Inference,
    check_count,
    check_prior,
    check_settings,
    check_topics,
    engine_precision,
    learns,
)
from lowerbound.result.fitted import Fit
from lowerbound.topics.choice import (
    choose_batch,
    choose_engine,
    choose_inference,
)
from lowerbound.topics.corpus import Corpus, open_corpus
from lowerbound.topics.documents import joined
from lowerbound.topics.fitted_topics import word_names
from lowerbound.topics.inference import random_topics, take_step
from lowerbound.topics.inference_steps import Engine
from lowerbound.topics.lda_program import make_fit
from lowerbound.topics.looks.completion import hold_out
from lowerbound.topics.looks.export import pyldavis
from lowerbound.topics.looks.quality import Quality, quality, top_words
from lowerbound.topics.one_run import rule_of, run
from lowerbound.topics.outcome import Run, advanced, unbegun
from lowerbound.topics.priors import Priors
from lowerbound.topics.settings import Kind, Setting

PASSES: Final = {"svi": 20, "cavi": 200, "collapsed": 100}
TOLERANCE: Final = {"svi": 1e-3, "cavi": 1e-5, "collapsed": 1e-3}
DELAY: Final = {"svi": 8.0, "cavi": 8.0, "collapsed": 1.0}  # mean field has a start worth keeping
FORGETTING: Final = {"svi": 0.7, "cavi": 0.7, "collapsed": 0.6}
DOCUMENTS: Final = 8192  # transformed at a time
TIGHT: Final = 1e-6  # of the proportions that are given out; learning needs no such care
HELD_OUT: Final = 2000  # documents, at most


@dataclass(eq=False, repr=False)
class LatentDirichletAllocation(Estimator):
    """Topics of a corpus (paper section 4.3): beta_k ~ Dir(eta), theta_d ~ Dir(alpha), words.

    inference: "svi", "cavi", "collapsed", or "auto", which says in `reason_` what it chose and why;
    or an `Inference`, which holds these kinds with their steps and when to stop. document_prior,
    topic_prior: a number, a vector, or "learn"; without a document_prior, 5 / n_components.
    vocabulary: the words of the columns or ids, or the words to count in token lists. n_jobs: the
    threads of the compiled kernel; all cores by default. Precision and devices are said around a
    fit, as elsewhere: `with lb.computing(precision="float64"):`.

    >>> corpus = [["gene", "dna", "cell"], ["star", "orbit", "planet"]] * 50
    >>> lda = LatentDirichletAllocation(2, random_state=1).fit(corpus)
    >>> sorted(sorted(words) for words in lda.topics(3))
    [['cell', 'dna', 'gene'], ['orbit', 'planet', 'star']]
    """

    n_components: int = 10
    _: KW_ONLY
    inference: str | Inference = "auto"
    document_prior: Any = None
    topic_prior: Any = 0.01
    vocabulary: Any = None
    n_jobs: int | None = None
    random_state: int = 0

    # -- learning ---------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any = None, *, progress: bool | None = None, checkpoint: Any = None
    ) -> Self:
        """Learn topics from a corpus; what a corpus may be is told by `open_corpus`.

        checkpoint: a file that holds where the fit stands after every pass; a fit that finds it
        goes on from there, and removes it at its end.
        """
        check_settings(self)
        asked = Inference.of(self.inference)
        corpus = open_corpus(X, self.vocabulary)
        check_topics(self.n_components, corpus)
        kind, keeps, why = choose_inference(asked.kind, corpus, self.n_components)
        engine = self._engine(kind)
        setting = self._setting(kind, corpus, engine, keeps, why)
        # Coordinate ascent stops by its ELBO; it needs a judge only where priors are learned.
        judged = kind != "cavi" or setting.learn_document or setting.learn_topic
        found = run(
            engine,
            corpus,
            self._priors(corpus.vocabulary),
            setting,
            validation=(asked.validation_fraction if judged else 0.0, HELD_OUT),
            progress=progress,
            checkpoint=checkpoint,
        )
        if not found.converged and asked.max_passes is None:
            remedy = "Give more with Inference(max_passes=...), or loosen tolerance."
            if kind == "collapsed" and not np.isfinite(found.held_out):
                remedy = "Hold documents out to stop by (validation_fraction), or set max_passes."
            warnings.warn(ConvergenceWarning(f"{setting.passes} passes", remedy), stacklevel=2)
        return self._keep(found, corpus, engine)

    def partial_fit(self, X: Any, y: Any = None, *, total_documents: int = 1_000_000) -> Self:
        """Take one step for each batch of X, as a part of a corpus of `total_documents`.

        Parts may come in any number and size; call again with the next one.
        """
        check_settings(self)
        check_count("total_documents", total_documents)
        asked = Inference.of(self.inference)
        begun: Run | None = getattr(self, "_run", None)
        corpus = open_corpus(X, self.vocabulary) if begun is None else self._open(X)
        if begun is None:
            begun, engine = self._begin(corpus)
        else:
            engine = self._engine(begun.setting.inference)
        size = asked.batch_size or choose_batch(begun.setting.inference, corpus.count, engine)
        topics, steps, seen = engine.place(begun.topics), begun.steps, begun.documents
        count = corpus.count or 1
        # After a fit the corpus is what was fitted and what is given now.
        total = begun.corpus_size + count if begun.whole else max(total_documents, count)
        for batch in corpus.batches(size):
            step = (steps + begun.setting.delay) ** -begun.setting.forgetting
            rule = rule_of(begun.setting)
            ready = engine.pack(batch)
            topics, _ = take_step(
                engine, topics, ready, len(batch), begun.priors, rule, total, step
            )
            steps, seen = steps + 1, seen + len(batch)
        now = advanced(begun, engine, corpus, topics, steps, seen, total)
        return self._keep(now, corpus, engine)

    def _begin(self, corpus: Corpus) -> tuple[Run, Engine]:
        """Nothing learned yet."""
        asked = Inference.of(self.inference)
        if asked.kind == "cavi":
            raise ArgumentError(
                'partial_fit learns from batches, and inference="cavi" sweeps over all documents.\n'
                'Expected inference="svi", "collapsed" or "auto".'
            )
        check_topics(self.n_components, corpus)
        chosen, _, _ = choose_inference(asked.kind, corpus, self.n_components)
        kind: Kind = "svi" if chosen == "cavi" else chosen
        why = f"Documents come in parts: {kind} on batches of them."
        engine = self._engine(kind)
        setting = self._setting(kind, corpus, engine, False, why)
        setting = replace(setting, delay=asked.delay or 1.0)  # topics are random, nothing to keep
        first = engine.fetch(random_topics(engine, corpus.vocabulary, setting))
        return unbegun(first, self._priors(corpus.vocabulary), setting), engine

    def _setting(
        self, kind: Kind, corpus: Corpus, engine: Engine, keeps: bool, why: str
    ) -> Setting:
        asked = Inference.of(self.inference)
        return Setting(
            topics=self.n_components,
            inference=kind,
            batch_size=asked.batch_size or choose_batch(kind, corpus.count, engine),
            passes=asked.max_passes or PASSES[kind],
            tolerance=TOLERANCE[kind] if asked.tolerance is None else asked.tolerance,
            delay=asked.delay or DELAY[kind],
            forgetting=asked.forgetting or FORGETTING[kind],
            seed=self.random_state,
            learn_document=learns(self.document_prior),
            learn_topic=learns(self.topic_prior),
            sweeps=keeps,
            why=why,
        )

    def _engine(self, kind: Kind) -> Engine:
        where = current()
        precision = where.precision or ("float64" if kind == "cavi" else "float32")
        jobs = None if self.n_jobs == -1 else self.n_jobs
        return choose_engine(precision, jobs, where.devices)

    def _priors(self, vocabulary: int) -> Priors:
        K = self.n_components
        alpha = 5.0 / K if self.document_prior is None else self.document_prior
        eta = 0.01 if learns(self.topic_prior) else self.topic_prior
        alpha = 5.0 / K if learns(alpha) else alpha
        return Priors(
            check_prior("document_prior", alpha, K, "topics"),
            check_prior("topic_prior", eta, vocabulary, "words", one=True),
        )

    def _keep(self, found: Run, corpus: Corpus, engine: Engine) -> Self:
        self._run = found
        self._how = (engine.name, engine_precision(engine))
        self._result: Fit | None = None
        self.components_ = np.ascontiguousarray(found.topics.T)
        shares = self.components_.sum(axis=1)
        self.topic_weights_ = shares / shares.sum()
        self.words_ = corpus.words
        self.n_features_in_ = corpus.vocabulary
        vars(self).pop("feature_names_in_", None)
        if corpus.words is not None:
            self.feature_names_in_ = np.asarray(corpus.words, dtype=object)
        self.document_prior_ = found.priors.document
        eta = found.priors.topic
        self.topic_prior_ = eta if len(eta) > 1 else float(eta[0])
        self.inference_ = found.setting.inference
        self.reason_ = found.setting.why
        self.snapshots_ = found.snapshots
        self.n_iter_ = int(np.ceil(found.passes))
        return self

    # -- using ------------------------------------------------------------------------------------

    @property
    def result_(self) -> Fit:
        """The `Fit` of the model as a NumPyro program, with the plan and the history of the run."""
        found = self._fitted("result_")
        if self._result is None:
            self._result = make_fit(found, *self._how)
        return self._result

    def transform(self, X: Any) -> np.ndarray:
        """E[theta_d] of each document (D, K); documents without words have the prior's mean."""
        found = self._fitted("transform")
        corpus, engine = self._open(X), self._engine(found.setting.inference)
        rule = rule_of(found.setting)
        weights = engine.weights(engine.place(found.topics), rule)
        parts = [np.zeros((0, len(self.components_)))]
        for batch in corpus.batches(DOCUMENTS):
            solved = engine.local(
                weights, engine.pack(batch), self.document_prior_,
                rule=rule, iterations=1000, tolerance=TIGHT,
            )  # fmt: skip
            gamma = engine.fetch(solved.gamma)
            parts.append(gamma / gamma.sum(axis=1, keepdims=True))
        return np.concatenate(parts)

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, then the proportions of the same documents."""
        return self.fit(X).transform(X)

    def score(self, X: Any, y: Any = None) -> float:
        """Document completion, nats per token: half of each document foretells the other half.

        See lowerbound.topics.looks.completion for the definition. Higher is better; give documents
        that were not learned from.
        """
        found = self._fitted("score")
        corpus, engine = self._open(X), self._engine(found.setting.inference)
        topics, total, tokens = engine.place(found.topics), 0.0, 0.0
        for batch in corpus.batches(DOCUMENTS):
            judge = hold_out(engine, batch, self.random_state)
            if judge.foretold.tokens:
                total += judge.score(topics, self.document_prior_) * judge.foretold.tokens
                tokens += judge.foretold.tokens
        if not tokens:
            raise ArgumentError(
                "score got no document of two or more known words.\n"
                "Expected documents that can be split into halves."
            )
        return total / tokens

    def perplexity(self, X: Any, y: Any = None) -> float:
        """exp(-score(X)): among how many equally likely words the next one is."""
        return float(np.exp(-self.score(X)))

    def topics(self, n_words: int = 10) -> list[list[str]]:
        """The most probable words of each topic."""
        self._fitted("topics")
        names = word_names(self)
        return [[str(names[w]) for w in row] for row in top_words(self.components_, n_words)]

    def quality(self, X: Any) -> Quality:
        """Coherence (NPMI), diversity, duplicate and dead topics, judged on documents X."""
        self._fitted("quality")
        corpus = self._open(X)
        documents = corpus.held or joined(list(corpus.batches(DOCUMENTS)))
        return quality(
            self.components_, self.topic_weights_, self.topic_prior_, documents, word_names(self)
        )

    def pyldavis(self, X: Any) -> dict[str, Any]:
        """The arguments of pyLDAvis.prepare: `pyLDAvis.prepare(**lda.pyldavis(X))`."""
        return pyldavis(self, X)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the columns of `transform`."""
        count = self._fitted("get_feature_names_out").setting.topics
        return np.asarray([f"topic{k}" for k in range(count)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.positive_only = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """The `Fit` is made anew where it is wanted; it holds functions that cannot be stored."""
        return {name: None if name == "_result" else v for name, v in vars(self).items()}

    def _fitted(self, wanted: str) -> Run:
        found: Run | None = getattr(self, "_run", None)
        if found is None:
            raise NotFittedError(type(self).__name__, wanted)
        return found

    def _open(self, X: Any) -> Corpus:
        return open_corpus(X, features=self.n_features_in_, names=self.words_)

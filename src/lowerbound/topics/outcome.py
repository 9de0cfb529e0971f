"""What came of a run, and the ELBO of the topics that it ended with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from scipy.special import digamma

from lowerbound.result.posterior import History
from lowerbound.run.loop import Course
from lowerbound.topics.corpus import Corpus
from lowerbound.topics.inference import Reading, topics_divergence
from lowerbound.topics.inference_steps import Engine
from lowerbound.topics.looks.quality import top_words
from lowerbound.topics.priors import Priors, dirichlet_divergence
from lowerbound.topics.settings import Setting
from lowerbound.topics.snapshots import WORDS, Snapshots, no_snapshots
from lowerbound.topics.standing import Progress

PART: Final = 2000  # documents of a part of a corpus, from which its ELBO is found
SAMPLED: Final = 20_000  # documents from which the ELBO of a run is found, where it is not known


@dataclass(frozen=True, eq=False)
class Run:
    """What came of a run."""

    topics: np.ndarray  # lambda (V, K) float64
    priors: Priors
    setting: Setting
    history: History
    snapshots: Snapshots
    passes: float
    steps: int
    documents: int  # worked through, repetitions counted
    corpus_size: int  # distinct documents learned from
    converged: bool
    reason: str
    elbo: float
    elbo_error: float
    terms: dict[str, float] = field(repr=False)
    held_out: float  # the last score, nats per token; NaN without validation
    whole: bool = True  # False: the documents came in parts, and more may come


def finish(engine: Engine, reading: Reading, setting: Setting, course: Course[Progress]) -> Run:
    """The record of the run, with the ELBO of its topics."""
    progress, now = course.state, course.state.now
    assert now is not None
    look, priors, topics = now.look, now.priors, engine.fetch(now.look.topics)
    # Of a stream that did not say so, the length is known after a pass.
    size = reading.count or round(look.documents / max(look.passes, 1.0))
    reading = replace(reading, count=size)
    terms, error = documents_terms(engine, reading, priors, look.topics)
    terms = {"beta": -topics_divergence(topics, priors.topic), **terms}
    return Run(
        topics=topics,
        priors=priors,
        setting=setting,
        history=progress.trail.history(course.trace),
        snapshots=progress.trail.snapshots,
        passes=look.passes,
        steps=look.steps,
        documents=look.documents,
        corpus_size=size,
        converged=course.stop.converged,
        reason=course.stop.text,
        elbo=sum(terms.values()),
        elbo_error=error,
        terms=terms,
        held_out=now.score,
    )


def unbegun(topics: np.ndarray, priors: Priors, setting: Setting) -> Run:
    """A run that has learned nothing yet, for documents that come in parts."""
    nothing, nan = History(np.zeros(0), np.zeros(0)), float("nan")
    shots = no_snapshots(setting.topics, min(WORDS, len(topics)))
    return Run(
        topics, priors, setting, nothing, shots, 0.0, 0, 0, 0, False, "nothing was learned yet",
        nan, nan, {}, nan, whole=False,
    )  # fmt: skip


def advanced(
    run: Run, engine: Engine, corpus: Corpus, topics: Any, steps: int, seen: int, total: int
) -> Run:
    """A run after one more part of its documents; the ELBO is estimated from that part."""
    part = Reading(corpus, None if corpus.held is None else np.arange(len(corpus.held)), 0, total)
    terms, error = documents_terms(engine, part, run.priors, topics, PART)
    lambdas = engine.fetch(topics)
    terms = {"beta": -topics_divergence(lambdas, run.priors.topic), **terms}
    elbo, shares = sum(terms.values()), lambdas.sum(axis=0)
    history = History(
        np.append(run.history.elbo, elbo),
        np.append(run.history.seconds, np.nan),
        run.history.held_out,
        np.append(run.history.rows, seen).astype(int),
    )
    words = top_words(lambdas.T, run.snapshots.words.shape[2])
    return replace(
        run,
        topics=lambdas,
        history=history,
        snapshots=run.snapshots.with_one(seen, shares / shares.sum(), words),
        passes=seen / total,
        steps=steps,
        documents=seen,
        corpus_size=total,
        reason=f"{seen:,} documents were given, in parts",
        elbo=elbo,
        elbo_error=error,
        terms=terms,
    )


def documents_terms(
    engine: Engine, reading: Reading, priors: Priors, topics: Any, most: int = SAMPLED
) -> tuple[dict[str, float], float]:
    """The documents' part of the ELBO by site, with the best q(theta) and q(z), and its error.

    Exact up to `most` documents; beyond, from as many, in batches whose spread gives the standard
    error.
    """
    weights = engine.weights(topics, "mean field")
    lambdas = engine.fetch(topics)
    logs = digamma(lambdas) - digamma(lambdas.sum(axis=0))
    parts, sizes = [], []
    if reading.kept is not None and len(reading.kept) > most:
        # From all parts of the corpus, which may be in an order of its own.
        places = np.linspace(0, len(reading.kept) - 1, most).astype(int)
        reading = replace(reading, kept=reading.kept[places])
    for part in reading.chunks(max(1, most // 20)):
        found = engine.local(weights, engine.pack(part), priors.document)
        words = float((engine.fetch(found.statistics) * logs).sum())
        theta = -dirichlet_divergence(engine.fetch(found.gamma), priors.document)
        parts.append((theta, float(found.bound) - theta - words, words))
        sizes.append(len(part))
        if sum(sizes) >= most:
            break
    total, seen = reading.count or sum(sizes), sum(sizes)
    sums = np.sum(parts, axis=0) * total / max(seen, 1)
    terms = dict(zip(("theta", "z", "word"), sums.tolist(), strict=True))
    if seen >= total or len(parts) < 2:
        return terms, 0.0
    means = np.sum(parts, axis=1) / np.asarray(sizes)
    spread = np.std(means, ddof=1) / np.sqrt(len(means)) * np.sqrt(1 - seen / total)
    return terms, float(total * spread)

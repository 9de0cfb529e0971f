"""One run of an inference: looks at it, learns priors late, and stops it for a stated reason."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Final

import jax
import numpy as np
from scipy.special import digamma, gammaln

from lowerbound.fit.bar import Bar
from lowerbound.fit.posterior import History
from lowerbound.topics.completion import hold_out
from lowerbound.topics.corpus import Corpus
from lowerbound.topics.documents import Documents, joined
from lowerbound.topics.engine import Engine, Rule
from lowerbound.topics.inference import (
    Inference,
    Look,
    Reading,
    collapsed,
    coordinate_ascent,
    first_topics,
    stochastic,
    topics_divergence,
)
from lowerbound.topics.priors import Priors
from lowerbound.topics.quality import top_words
from lowerbound.topics.settings import Setting
from lowerbound.topics.snapshots import WORDS, Snapshots, no_snapshots

PATIENCE: Final = 3  # looks without a gain
PRIOR_LOOKS: Final = 2  # at least, with learned priors
PART: Final = 2000  # of them, from which it is found after each part of a corpus
SAMPLED: Final = 20_000  # documents from which the ELBO of a stochastic run is found


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


def rule_of(setting: Setting) -> Rule:
    """The rule by which documents are solved."""
    return "collapsed" if setting.inference == "collapsed" else "mean field"


def split_corpus(
    corpus: Corpus, share: float, most: int, seed: int
) -> tuple[Reading, Documents | None]:
    """The documents to learn from, and those to judge by."""
    if corpus.held is not None:
        total = len(corpus.held)
        wanted = min(most, int(share * total))
        order = np.random.default_rng((seed, 1)).permutation(total)
        kept = np.sort(order[wanted:])
        judged = corpus.held.take(np.sort(order[:wanted])) if wanted else None
        return Reading(corpus, kept, 0, total - wanted), judged
    count = corpus.count
    wanted = most if count is None else min(most, int(share * count))
    if not share or not wanted:
        return Reading(corpus, None, 0, count), None
    parts, found, read = [], 0, 0
    for batch in corpus.batches(wanted):
        if found < wanted:
            parts.append(batch.between(0, min(len(batch), wanted - found)))
            found += len(parts[-1])
        read += len(batch)
        # A stream of unknown length is read on until it is long enough for so many.
        if found == wanted and (count is not None or share * read >= wanted):
            break
    else:
        count = read
    wanted = min(found, int(share * read)) if corpus.count is None else found
    judged = joined(parts).between(0, wanted) if wanted else None
    return Reading(corpus, None, wanted, None if count is None else count - wanted), judged


def start(
    engine: Engine, reading: Reading, priors: Priors, setting: Setting, topics: Any
) -> Inference:
    """The inference that a setting names."""
    if setting.inference == "cavi":
        return coordinate_ascent(engine, reading, priors, setting, topics)
    if setting.inference == "svi":
        return stochastic(engine, reading, priors, setting, topics, "mean field", setting.passes)
    return collapsed(engine, reading, priors, setting, topics)


@dataclass(eq=False)
class Watch:
    """Decides from looks when a run has settled, and when priors may be learned."""

    setting: Setting
    scores: list[float] = field(default_factory=list)  # since priors last changed their regime
    judged: bool = True  # by documents held out; else by the ELBO

    def settled(self) -> str | None:
        """Why nothing more is to be gained; None while there is."""
        tolerance = self.setting.tolerance
        if self.setting.inference == "cavi" and not self.judged:
            if len(self.scores) > 1:
                gain = self.scores[-1] - self.scores[-2]
                if gain <= tolerance * abs(self.scores[-1]):
                    return f"the ELBO gained less than {tolerance:g} of its size in a sweep"
            return None
        if len(self.scores) <= PATIENCE:
            return None
        gain = max(self.scores[-PATIENCE:]) - max(self.scores[:-PATIENCE])
        what, unit, size = "held-out score", "nats per token", 1.0
        if not self.judged:
            what, unit, size = "ELBO of batches", "of its size", abs(self.scores[-1])
        if gain < tolerance * size:
            return f"the {what} gained less than {tolerance:g} {unit} in {PATIENCE} looks"
        return None


def run(
    engine: Engine,
    corpus: Corpus,
    priors: Priors,
    setting: Setting,
    *,
    validation: tuple[float, int] = (0.05, 2000),
    progress: bool | None = None,
) -> Run:
    """Fit topics to a corpus."""
    began = time.perf_counter()
    reading, judged = split_corpus(corpus, *validation, setting.seed)
    judge = hold_out(engine, judged, setting.seed) if judged is not None else None
    first = first_topics(engine, corpus.vocabulary, setting)
    inference = start(engine, reading, priors, setting, first)
    learns = setting.learn_document or setting.learn_topic
    watch = Watch(setting, judged=judge is not None and setting.inference != "cavi")
    rule, trail = rule_of(setting), Trail(setting.topics, corpus.vocabulary)
    before: tuple[Look, Priors, float] | None = None
    reason, converged = f"all {setting.passes} passes were made", False
    doubles = jax.enable_x64(True)  # what an engine on a device returns is in float64
    with doubles, Bar(progress, setting.passes, f"{setting.inference} topics", "pass") as bar:
        look, score = next(inference), float("nan")
        while True:
            score = judge.score(look.topics, priors.document) if judge else float("nan")
            trail.add(look, score, time.perf_counter() - began, engine)
            seen = score if watch.judged else look.elbo
            watch.scores += [seen] if np.isfinite(seen) else []
            bar.update(int(look.passes), progress_text(look, score))
            why = watch.settled()
            late = look.passes >= 0.6 * setting.passes
            if learns and before is None and (why or late):
                before, watch = (look, priors, score), replace(watch, scores=[])
            elif why and (before is None or len(watch.scores) > PRIOR_LOOKS):
                reason, converged = why, True
                break
            if before is not None:
                priors = priors.learned(
                    rule, look.gamma, engine.fetch(look.topics),
                    document=setting.learn_document, topic=setting.learn_topic,
                )  # fmt: skip
            try:
                look = inference.send(priors)
            except StopIteration:
                score = judge.score(look.topics, priors.document) if judge else score
                break
    inference.close()
    if before is not None and judge is not None and score < before[2]:
        look, priors, score = before
        reason += "; learned priors scored worse on the documents held out, and were not kept"
    return finish(engine, reading, priors, setting, look, trail, score, reason, converged)


def progress_text(look: Look, score: float) -> str:
    """What the bar shows."""
    if np.isfinite(score):
        return f"held out {score:.4f} nats/token"
    return f"ELBO {look.elbo:.6g}" if np.isfinite(look.elbo) else ""


@dataclass(eq=False)
class Trail:
    """What is kept of the looks."""

    topics: int
    vocabulary: int
    elbo: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    held_out: list[float] = field(default_factory=list)
    documents: list[int] = field(default_factory=list)
    snapshots: Snapshots | None = None

    def add(self, look: Look, score: float, seconds: float, engine: Engine) -> None:
        """Keep a look."""
        self.elbo.append(look.elbo)
        self.seconds.append(seconds)
        self.held_out.append(score)
        self.documents.append(look.documents)
        words = min(WORDS, self.vocabulary)
        topics = engine.fetch(look.topics)
        if self.snapshots is None:
            self.snapshots = no_snapshots(self.topics, words)
        shares = topics.sum(axis=0)
        self.snapshots = self.snapshots.with_one(
            look.documents, shares / shares.sum(), top_words(topics.T, words), score
        )

    def history(self) -> History:
        """As the fit keeps it."""
        scores = np.asarray(self.held_out)
        held_out = scores if np.isfinite(scores).any() else np.zeros(0)
        return History(
            np.asarray(self.elbo), np.asarray(self.seconds), held_out, np.asarray(self.documents)
        )


def finish(
    engine: Engine,
    reading: Reading,
    priors: Priors,
    setting: Setting,
    look: Look,
    trail: Trail,
    score: float,
    reason: str,
    converged: bool,
) -> Run:
    """The record of the run, with the ELBO of its topics."""
    topics = engine.fetch(look.topics)
    # Of a stream that did not say so, the length is known after a pass.
    size = reading.count or round(look.documents / max(look.passes, 1.0))
    reading = replace(reading, count=size)
    terms, error = documents_terms(engine, reading, priors, look.topics)
    terms = {"beta": -topics_divergence(topics, priors.topic), **terms}
    assert trail.snapshots is not None
    return Run(
        topics=topics,
        priors=priors,
        setting=setting,
        history=trail.history(),
        snapshots=trail.snapshots,
        passes=look.passes,
        steps=look.steps,
        documents=look.documents,
        corpus_size=size,
        converged=converged,
        reason=reason,
        elbo=sum(terms.values()),
        elbo_error=error,
        terms=terms,
        held_out=score,
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
        theta = -proportions_divergence(engine.fetch(found.gamma), priors.document)
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


def proportions_divergence(gamma: np.ndarray, prior: np.ndarray) -> float:
    """sum_d KL(q(theta_d) || p(theta_d)) in nats."""
    totals = gamma.sum(axis=1)
    logs = digamma(gamma) - digamma(totals)[:, None]
    own = gammaln(totals).sum() - gammaln(gamma).sum()
    given = len(gamma) * (gammaln(prior.sum()) - gammaln(prior).sum())
    return float(own - given + ((gamma - prior) * logs).sum())

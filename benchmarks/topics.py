"""Topics of real text: speed of mean field, and quality for time of the best inference.

Every topic model is judged by one function (`topics_corpora.completion`) on the same held-out
halves with the same prior, and timed by wall clock and by CPU-seconds of the process. Settings were
chosen on validation documents; the held-out rows decide nothing.

    python -m benchmarks.topics [--parts mean-field best large synthetic] [--limit 150]

Peers that are not installed are left out, and the run says so: `pip install '.[bench]'`.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator

import numpy as np

from benchmarks import topics_peers as peers
from benchmarks.timing import verdict
from benchmarks.topics_corpora import Corpus, read, synthetic
from lowerbound.errors import ConvergenceWarning
from lowerbound.estimators import Inference, LatentDirichletAllocation
from lowerbound.topics.choice import choose_batch, choose_engine
from lowerbound.topics.corpus import open_corpus
from lowerbound.topics.documents import Documents
from lowerbound.topics.inference import Beginning, first_topics
from lowerbound.topics.looks.quality import coherence
from lowerbound.topics.one_run import split_corpus, start
from lowerbound.topics.priors import Priors
from lowerbound.topics.settings import Setting

BATCH = 4096
PASSES = 2
TARGET, CONVERGED = -6.92, -6.89
PARTS = ("mean-field", "synthetic", "best", "large")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.topics", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--limit", type=float, default=150.0, help="seconds for tomotopy")
    alone = sys.argv[0].endswith("topics.py")  # not one of several that are run together
    options = parser.parse_args(sys.argv[1:] if alone else [])
    medium = read("medium_debian_desc") if {"mean-field", "best"} & set(options.parts) else None
    if "mean-field" in options.parts and medium is not None:
        for topics in (50, 100):
            mean_field(medium, topics, with_gensim=topics == 100)
    if "synthetic" in options.parts:
        mean_field(synthetic(200_000, 8000, 50, 60), 50)
    if "best" in options.parts and medium is not None:
        best(medium, 100, options.limit)
    if "large" in options.parts and (corpus := read("large_gitlog_450k")) is not None:
        large(corpus, 100)


# --------------------------------------------------------------------------------------------------
# Mean field


def mean_field(corpus: Corpus, topics: int, with_gensim: bool = False) -> None:
    """Documents per CPU-second of stochastic variational inference, and what they are worth."""
    D, alpha, eta = corpus.train.shape[0], 0.1, 0.01
    print(f"\n{corpus.name}, K = {topics}: mean field, {PASSES} passes, batches of {BATCH}")
    lda = LatentDirichletAllocation(
        topics, document_prior=alpha, topic_prior=eta,
        inference=Inference(
            "svi", batch_size=BATCH, max_passes=PASSES, validation_fraction=0.0
        ),
    )  # fmt: skip
    wall, cpu = clock()
    lda.fit(corpus.train)
    wall, cpu = clock(wall, cpu)
    ours, own = PASSES * D / cpu, corpus.judged(lda.components_)
    row("lowerbound", wall, cpu, ours, own)
    found, wall, cpu = peers.scikit_learn(corpus.train, topics, PASSES, BATCH, alpha, eta)
    theirs, other = PASSES * D / cpu, corpus.judged(found)
    row("scikit-learn", wall, cpu, theirs, other)
    if with_gensim:
        third = peers.gensim(corpus.train, topics, PASSES, BATCH, alpha, eta)
        if third is not None:
            row("gensim", third[1], third[2], PASSES * D / third[2], corpus.judged(third[0]))
    print(f"  documents per CPU-second, lowerbound / scikit-learn: {ours / theirs:.1f}; "
          f"{verdict(ours / theirs, 10, at_most=False)}")  # fmt: skip
    print(f"  held out, lowerbound - scikit-learn: {own - other:+.4f}; "
          f"{verdict(own - other, 0, at_most=False)}")  # fmt: skip


def row(name: str, wall: float, cpu: float, rate: float, score: float) -> None:
    print(f"  {name:<14}{wall:8.2f} s{cpu:8.2f} CPU-s{rate:12,.0f} documents/CPU-s{score:10.4f}",
          flush=True)  # fmt: skip


def clock(wall: float = 0.0, cpu: float = 0.0) -> tuple[float, float]:
    """Seconds and CPU-seconds since those given."""
    return time.perf_counter() - wall, time.process_time() - cpu


# --------------------------------------------------------------------------------------------------
# Collapsed inference against Gibbs sampling


def trajectory(
    corpus: Corpus, topics: int, passes: int
) -> Iterator[tuple[np.ndarray, float, float, float]]:
    """Topics, passes, seconds and CPU-seconds of collapsed inference with its defaults."""
    wall, cpu = clock()
    engine = choose_engine("float32", None, None)
    opened = open_corpus(corpus.train)
    setting = Setting(
        topics, "collapsed", choose_batch("collapsed", opened.count, engine), passes, 1e-3, 1.0,
        0.6, 0, False, False, True, "a benchmark",
    )  # fmt: skip
    reading, _ = split_corpus(opened, 0.05, 2000, 0)
    priors = Priors(np.full(topics, 5 / topics), np.array([0.01]))
    first = first_topics(engine, reading, priors, setting)
    inference = start(Beginning(engine, reading, priors, setting, first))
    look, spent = next(inference), clock(wall, cpu)
    while True:
        yield engine.fetch(look.topics).T, look.passes, *spent
        wall, cpu = clock()
        try:
            look = inference.send(priors)
        except StopIteration:
            return
        now = clock(wall, cpu)
        spent = spent[0] + now[0], spent[1] + now[1]


def best(corpus: Corpus, topics: int, limit: float) -> None:
    """Seconds to a held-out score, ours and tomotopy's, and what the estimator ends at."""
    print(f"\n{corpus.name}, K = {topics}: seconds to {TARGET} held out")
    reached = None
    for found, passes, wall, cpu in trajectory(corpus, topics, 60):
        score = corpus.judged(found)
        print(f"  lowerbound {passes:5.1f} passes{wall:8.2f} s{cpu:8.2f} CPU-s{score:10.4f}",
              flush=True)  # fmt: skip
        if reached is None and score >= TARGET:
            reached = wall, cpu
    theirs = None
    for number, (found, wall, cpu) in enumerate(peers.tomotopy(corpus.train, topics, 2, 10)):
        score = corpus.judged(found)
        print(f"  tomotopy {10 * (number + 1):5d} sweeps{wall:8.2f} s{cpu:8.2f} CPU-s{score:10.4f}",
              flush=True)  # fmt: skip
        if score >= TARGET:
            theirs = wall, cpu
        if theirs or wall > limit:
            break
    if reached is None:
        print(f"  lowerbound did not reach {TARGET}: NOT MET")
    elif theirs is not None:
        for name, a, b in zip(("seconds", "CPU-seconds"), reached, theirs, strict=True):
            print(f"  {name} to {TARGET}, lowerbound / tomotopy: {a:.2f} / {b:.2f} = {a / b:.3f}; "
                  f"{verdict(a / b, 1 / 3)}")  # fmt: skip
    else:
        print(f"  tomotopy did not reach {TARGET} in {limit:g} s; lowerbound in {reached[0]:.2f} s")
    whole_fit(corpus, topics)


def whole_fit(corpus: Corpus, topics: int) -> None:
    """The estimator as a user calls it, to its own end."""
    wall, cpu = clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        lda = LatentDirichletAllocation(topics).fit(corpus.train)
    wall, cpu = clock(wall, cpu)
    score = corpus.judged(lda.components_)
    counts = corpus.train.tocsr()
    documents = Documents(
        counts.indptr.astype(np.int64), counts.indices.astype(np.int32),
        counts.data.astype(np.float32), counts.shape[1],
    )  # fmt: skip
    npmi = float(coherence(lda.components_, documents).mean())
    print(f"  {lda!r}.fit: {wall:.1f} s, {cpu:.1f} CPU-s, {lda.n_iter_} passes; {lda._run.reason}")
    print(f"  held out {score:.4f}; {verdict(score, CONVERGED, at_most=False)}")
    print(f"  NPMI {npmi:.3f}; {verdict(npmi, 0.15, at_most=False)}", flush=True)


def large(corpus: Corpus, topics: int) -> None:
    """One pass over many short documents, and tomotopy given the same time."""
    print(f"\n{corpus.name}, K = {topics}: one pass")
    wall, cpu = clock()
    lda = LatentDirichletAllocation(topics, inference=Inference("collapsed", max_passes=1))
    lda.fit(corpus.train)
    wall, cpu = clock(wall, cpu)
    own = corpus.judged(lda.components_)
    print(f"  lowerbound {wall:8.2f} s{cpu:8.2f} CPU-s{own:10.4f}; {verdict(cpu, 10)} CPU-s",
          flush=True)  # fmt: skip
    other, spent = float("nan"), 0.0
    for found, spent, _ in peers.tomotopy(corpus.train, topics, 2, 1):
        if spent >= wall:
            other = corpus.judged(found)
            break
    if np.isfinite(other):
        print(f"  tomotopy   {spent:8.2f} s{other:18.4f}")
        print(f"  held out, lowerbound - tomotopy at that time: {own - other:+.4f}; "
              f"{verdict(own - other, 0, at_most=False)}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

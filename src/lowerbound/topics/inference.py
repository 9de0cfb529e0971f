"""The three inferences, each a sequence of looks at its topics.

Mean field is the paper's: coordinate ascent (alg:cavi_lda) and natural gradients on batches
(alg:svi). Collapsed inference integrates theta and beta out (Teh, Newman and Welling 2007; CVB0,
Asuncion et al. 2009): first on batches (Foulds et al. 2013), then, where memory allows, in sweeps
that keep phi of every entry. An inference is a generator: it yields a `Look` and is sent the priors
to go on with.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from lowerbound.source.read_ahead import make_in_order, read_ahead
from lowerbound.topics.corpus import Corpus
from lowerbound.topics.documents import Documents, joined
from lowerbound.topics.inference_steps import Engine, Local, Rule
from lowerbound.topics.priors import Priors, dirichlet_divergence
from lowerbound.topics.settings import Setting

CHUNK: Final = 16384  # documents of a sweep that are worked on together
COLLAPSED: Final = (20, 1e-2)  # iterations and tolerance inside a document, on batches
LOOKS: Final = 4  # a pass of batches, where a pass is long
LONG: Final = 100_000  # documents
SHAPED: Final = 1e-4  # of the ELBO, a gain in a sweep below which topics have their shape
STREAM_LOOK: Final = 64  # batches between looks, where the length of a pass is not known
PACKERS: Final = 4  # threads that make batches ready for a device
SWEEPS: Final = 5  # between looks
WARM: Final = 3  # passes of batches before sweeps
START: Final = 8192  # documents from which mean field takes its start
START_BATCH: Final = 512
START_PASSES: Final = 2


@dataclass(frozen=True, eq=False)
class Look:
    """Where an inference stands."""

    topics: Any  # lambda, as the engine keeps it
    documents: int  # worked through so far
    passes: float
    elbo: (
        float  # nats, all documents: exact in CAVI, from the last batches in SVI; NaN if collapsed
    )
    gamma: np.ndarray  # (D', K) of the documents last worked on, to learn the prior from
    steps: int
    whole: bool = True  # at the end of a pass, from where a run can go on


Inference = Generator[Look, Priors, None]


# --------------------------------------------------------------------------------------------------
# What is read


@dataclass(frozen=True, eq=False)
class Reading:
    """The documents that are learned from: all but those held out."""

    corpus: Corpus
    kept: np.ndarray | None  # numbers of the documents to learn from, in memory
    skipped: int  # documents at the head of a stream that are held out
    count: int | None

    def batches(self, size: int, number: int, seed: int) -> Iterator[Documents]:
        """The batches of one pass: in an order of its own in memory, as they come in a stream."""
        if self.corpus.held is not None:
            for chosen in self.drawn(size, number, seed):
                yield self.corpus.held.take(chosen)
            return
        left = self.skipped
        for batch in self.corpus.batches(size):
            part = batch.between(min(left, len(batch)), len(batch))
            left -= len(batch) - len(part)
            if len(part):
                yield part

    def drawn(self, size: int, number: int, seed: int) -> list[np.ndarray]:
        """The numbers of the documents of each batch of a pass, for a corpus in memory."""
        assert self.kept is not None
        order = np.random.default_rng((seed, number)).permutation(self.kept)
        # Batches of equal size: the last of a pass would otherwise weigh too much.
        return np.array_split(order, max(1, round(len(order) / size)))

    def sample(self, size: int, seed: int) -> Documents:
        """Some documents: drawn in memory, the first ones of a stream."""
        if self.corpus.held is not None and self.kept is not None:
            order = np.random.default_rng((seed, 3)).permutation(len(self.kept))
            return self.corpus.held.take(self.kept[order[:size]])
        parts, found = [], 0
        for batch in self.batches(min(size, 1024), 0, seed):
            parts.append(batch)
            found += len(batch)
            if found >= size:
                break
        return joined(parts)

    def chunks(self, size: int) -> Iterator[Documents]:
        """All documents, in the same order every time."""
        if self.corpus.held is None or self.kept is None:
            yield from self.batches(size, 0, 0)
            return
        for low in range(0, len(self.kept), size):
            yield self.corpus.held.take(self.kept[low : low + size])


def packed(
    engine: Engine, reading: Reading, setting: Setting, number: int
) -> Generator[tuple[Any, int]]:
    """The batches of a pass and their sizes, made ready by threads while the engine works."""
    held, size, seed = reading.corpus.held, setting.batch_size, setting.seed
    if held is not None:

        def task(chosen: np.ndarray) -> Callable[[], tuple[Any, int]]:
            return lambda: (engine.pack(held.take(chosen)), len(chosen))

        tasks = map(task, reading.drawn(size, number, seed))
        # The compiled kernel has the cores itself; a device waits for what the cores make ready.
        return make_in_order(tasks, 1 if engine.name == "native" else PACKERS)

    def make() -> Iterator[tuple[Any, int]]:
        for batch in reading.batches(size, number, seed):
            yield engine.pack(batch), len(batch)

    return read_ahead(make)


# --------------------------------------------------------------------------------------------------
# Mean field


def random_topics(engine: Engine, vocabulary: int, setting: Setting) -> Any:
    """Random topics near the flat one: lambda_wk ~ Gamma(100, 1/100)."""
    rng = np.random.default_rng((setting.seed, 2))
    return engine.place(rng.gamma(100.0, 0.01, (vocabulary, setting.topics)))


def first_topics(engine: Engine, reading: Reading, priors: Priors, setting: Setting) -> Any:
    """Topics to start from; mean field starts where collapsed steps on some documents lead.

    Mean field holds on to the topics it meets first, and from random ones ends about a tenth of a
    nat per token lower.
    """
    topics = random_topics(engine, reading.corpus.vocabulary, setting)
    if setting.inference == "collapsed":  # its own first pass does the same
        return topics
    sample = reading.sample(START, setting.seed)
    total = reading.count or len(sample)
    size = max(1, min(START_BATCH, len(sample) // 8))
    engine = engine.alone()
    for number in range(START_PASSES * max(1, len(sample) // size)):
        low = number * size % max(1, len(sample) - size + 1)
        part = sample.between(low, min(low + size, len(sample)))
        step = (number + 1.0) ** -0.6
        batch = engine.pack(part)
        topics, _ = take_step(engine, topics, batch, len(part), priors, "collapsed", total, step)
    return topics


def topics_divergence(topics: np.ndarray, prior: np.ndarray) -> float:
    """KL(q(beta) || p(beta)) in nats, lambda (V, K)."""
    return dirichlet_divergence(topics.T, np.broadcast_to(prior, len(topics)))


class Beginning(NamedTuple):
    """What an inference starts from: topics, or the look after which it goes on."""

    engine: Engine
    reading: Reading
    priors: Priors
    setting: Setting
    topics: Any
    begun: Look | None = None


def coordinate_ascent(at: Beginning) -> Inference:
    """alg:cavi_lda: all gamma and phi given the topics, then all topics given phi.

    The ELBO of a look is that of gamma, phi and the topics they were found with. Gamma starts flat
    while topics take shape, since one that starts from its last value keeps to topics that have
    moved away; later, and where a flat start would lower the ELBO, it starts from its last value,
    with which no step can lower it. From `begun` the sweep of that look is made once more.
    """
    engine, reading, priors, setting, topics, begun = at
    batches, documents = [], 0
    for chunk in reading.chunks(CHUNK):
        batches.append(engine.pack(chunk))
        documents += len(chunk)
    gammas: list[Any] = [None] * len(batches)
    last, flat, first = -np.inf, True, 1
    if begun is not None:
        topics, flat, first = begun.topics, False, begun.steps
        gammas = np.split(begun.gamma, range(CHUNK, len(begun.gamma), CHUNK))
    for sweep in range(first, setting.passes + 1):
        divergence = topics_divergence(engine.fetch(topics), priors.topic)
        starts = [None] * len(batches) if flat else gammas
        found, sums, bound = solve_all(engine, topics, batches, priors, starts)
        if flat and bound - divergence < last:
            found, sums, bound = solve_all(engine, topics, batches, priors, gammas)
        gammas, elbo = found, bound - divergence
        flat = flat and elbo - last > SHAPED * abs(elbo)
        gamma = np.concatenate([engine.fetch(gamma) for gamma in gammas])
        priors = yield Look(topics, sweep * documents, float(sweep), elbo, gamma, sweep)
        topics, last = engine.blend(topics, sums, priors.topic, 1.0, 1.0), elbo


def solve_all(
    engine: Engine, topics: Any, batches: Sequence[Any], priors: Priors, starts: Sequence[Any]
) -> tuple[list[Any], Any, float]:
    """Gamma of each batch, the statistics of all, and their bound."""
    weights = engine.weights(topics, "mean field")
    gammas, sums, bound = [], None, 0.0
    for batch, start in zip(batches, starts, strict=True):
        found = engine.local(weights, batch, priors.document, start)
        gammas.append(found.gamma)
        bound += float(found.bound)
        sums = found.statistics if sums is None else sums + found.statistics
    return gammas, sums, bound


def take_step(
    engine: Engine,
    topics: Any,
    batch: Any,
    size: int,
    priors: Priors,
    rule: Rule,
    total: int,
    step: float,
) -> tuple[Any, Local]:
    """(1 - step) lambda + step (eta + N/B statistics), from one packed batch (alg:svi)."""
    weights = engine.weights(topics, rule)
    if rule == "collapsed":
        iterations, tolerance = COLLAPSED
        found = engine.local(
            weights, batch, priors.document, rule=rule, iterations=iterations, tolerance=tolerance
        )
    else:
        found = engine.local(weights, batch, priors.document, rule=rule)
    return engine.blend(topics, found.statistics, priors.topic, step, total / size), found


def stochastic(at: Beginning, rule: Rule, passes: int) -> Inference:
    """alg:svi: natural-gradient steps on batches of documents, in turn; first of all, `begun`."""
    engine, reading, priors, setting, topics, begun = at
    steps, seen, total, first = 0, 0, reading.count, 0
    if begun is not None:
        topics, steps, seen, first = begun.topics, begun.steps, begun.documents, int(begun.passes)
        total = total or round(seen / first)
        priors = yield begun
    for number in range(first, passes):
        every = looks_every(total, setting.batch_size)
        done, bounds, found = 0, [], None
        with closing(packed(engine, reading, setting, number)) as batches:
            for batch, size in batches:
                if found is not None and len(bounds) >= every:
                    made = number + (done / total if total else 0.0)
                    now = look(engine, topics, priors, seen, made, bounds, total, found, steps)
                    priors = yield replace(now, whole=False)
                    bounds = []
                # While the length of a stream is not known, what was seen of it stands for it.
                known = total or seen + size
                step = (steps + setting.delay) ** -setting.forgetting
                topics, found = take_step(engine, topics, batch, size, priors, rule, known, step)
                bounds.append((found.bound, size))
                steps, seen, done = steps + 1, seen + size, done + size
        total = total or done
        if found is not None:
            made = float(number + 1)
            priors = yield look(engine, topics, priors, seen, made, bounds, total, found, steps)


def looks_every(total: int | None, size: int) -> int:
    """Batches between looks: a few looks in a long pass, one in a short one."""
    if total is None:
        return STREAM_LOOK
    return max(1, round(total / size / (LOOKS if total > LONG else 1)))


def look(
    engine: Engine,
    topics: Any,
    priors: Priors,
    seen: int,
    passes: float,
    bounds: Sequence[tuple[Any, int]],
    total: int | None,
    found: Local,
    steps: int,
) -> Look:
    """A look after some batches, given their bounds and sizes.

    Bounds are zero unless the rule is mean field. Of a stream whose length is not known yet, there
    is no ELBO of all documents.
    """
    elbo, mean = float("nan"), float(np.mean([float(bound) / size for bound, size in bounds]))
    if mean and total:
        elbo = mean * total - topics_divergence(engine.fetch(topics), priors.topic)
    return Look(topics, seen, passes, elbo, engine.fetch(found.gamma), steps)


# --------------------------------------------------------------------------------------------------
# Collapsed


def collapsed(at: Beginning) -> Inference:
    """CVB0: passes of batches, then sweeps over all entries with phi in memory.

    Sweeps that go on from `begun` find phi anew from its topics.
    """
    engine, reading, priors, setting, _, _ = at
    warm = min(WARM, setting.passes) if setting.sweeps else setting.passes
    running = stochastic(at, "collapsed", warm)
    last = next(running)
    while True:
        priors = yield last
        try:
            last = running.send(priors)
        except StopIteration:
            break
    left = setting.passes - int(last.passes)
    if not setting.sweeps or not left:
        return
    documents = joined(list(reading.chunks(1 << 20)))
    weights = engine.weights(last.topics, "collapsed")
    assigned = engine.assign(documents, weights, priors.document)
    for sweep in range(1, left + 1):
        assigned = engine.reassign(assigned, priors.document, priors.topic)
        if sweep % SWEEPS == 0 or sweep == left:
            counts = engine.word_counts(assigned)
            lambdas = counts + np.broadcast_to(priors.topic, len(counts))[:, None]
            priors = yield Look(
                topics=engine.place(lambdas),
                documents=last.documents + sweep * len(documents),
                passes=last.passes + sweep,
                elbo=float("nan"),
                gamma=engine.document_counts(assigned) + priors.document,
                steps=last.steps + sweep,
            )

"""Stochastic steps of latent Dirichlet allocation on one device: documents a second.

The corpus is drawn from the model itself, on the device, and then lies in the host's memory as
sparse counts. Every figure includes packing, done by threads that read ahead, and the copies to the
device. The stream replays the corpus: batches of a billion documents would cost the same.

    python -m benchmarks.topics_gpu [--documents 1800000] [--topics 100] [--seconds 20]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.estimators import LatentDirichletAllocation
from lowerbound.topics.documents import Documents, joined
from lowerbound.topics.xla import XlaEngine
from lowerbound.topics.xla.rules import Weights, strengths
from lowerbound.topics.xla.sums import product

END_TO_END = 30.0  # seconds
TARGET = 2e6  # documents a second, in a stream
FIXED = 15  # iterations of the plain loop
READERS = 4


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.topics_gpu", description=__doc__)
    parser.add_argument("--documents", type=int, default=1_800_000)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the stream, at most")
    parser.add_argument("--billion", action="store_true", help="end the stream at 10^9 documents")
    parser.add_argument("--tolerances", type=float, nargs="+", default=[1e-3, 1e-2])
    options = parser.parse_args()
    began = time.perf_counter()
    parts = corpus(options.documents, options.vocabulary, options.topics, options.batch)
    entries = sum(len(part.words) for part in parts)
    print(
        f"{jax.devices()[0].device_kind}: {options.documents:,} documents of "
        f"{entries / options.documents:.1f} distinct words, V = {options.vocabulary:,}, "
        f"K = {options.topics}, drawn in {time.perf_counter() - began:.1f} s",
        flush=True,
    )
    compile_all(options.topics, parts)
    for _ in range(2):
        epoch("plain loop", parts, random_topics(options), plain_local(), options)
    whole_fit(parts, options)
    for tolerance in options.tolerances:
        topics = random_topics(options)
        for number in range(options.epochs):
            name = f"engine, tolerance {tolerance:g}, epoch {number + 1}"
            topics = epoch(name, parts, topics, engine_local(tolerance), options)
        stream(parts, topics, tolerance, options)


def corpus(documents: int, vocabulary: int, topics: int, batch: int) -> list[Documents]:
    """Documents of about 110 words, theta ~ Dirichlet(0.1), beta ~ Dirichlet(0.05), in batches."""
    rng = np.random.default_rng(0)
    beta = rng.dirichlet(np.full(vocabulary, 0.05), size=topics)
    ends = np.cumsum(beta, axis=1)
    table = (ends / ends[:, -1:] + np.arange(topics)[:, None]).ravel()
    parts = []
    with jax.enable_x64(True):
        placed = jnp.asarray(table)
        for number, first in enumerate(range(0, documents, batch)):
            key = jax.random.fold_in(jax.random.key(1), number)
            words, counts = _draw(key, placed, batch, topics, vocabulary)
            part = _sparse(np.asarray(words), np.asarray(counts), vocabulary)
            parts.append(part.between(0, min(batch, documents - first)))
    return parts


@partial(jax.jit, static_argnames=("documents", "topics", "vocabulary"))
def _draw(key: Any, table: Any, documents: int, topics: int, vocabulary: int) -> Any:
    """Words of documents in increasing order; the count at the first place of each word."""
    keys = jax.random.split(key, 4)
    places = 160
    length = jnp.minimum(jax.random.poisson(keys[0], 105.0, (documents, 1)), places)
    gamma = jax.random.gamma(keys[1], 0.1, (documents, topics), jnp.float32) + 1e-30
    ends = jnp.cumsum(gamma / gamma.sum(1, keepdims=True), axis=1)
    u = jax.random.uniform(keys[2], (documents, places), jnp.float32)
    topic = (u[:, :, None] > ends[:, None, :-1]).sum(-1)
    at = topic + jax.random.uniform(keys[3], (documents, places), jnp.float64)
    words = jnp.searchsorted(table, at).clip(max=len(table) - 1) % vocabulary
    words = jnp.sort(jnp.where(jnp.arange(places) < length, words, vocabulary).astype(jnp.int32), 1)
    new = jnp.concatenate([jnp.ones((documents, 1), bool), words[:, 1:] != words[:, :-1]], 1)
    # The next new word, from the right: its distance is the count.
    at = jnp.where(new, jnp.arange(places), places)
    following = jnp.flip(jax.lax.cummin(jnp.flip(at, 1), axis=1), 1)
    following = jnp.concatenate([following[:, 1:], jnp.full((documents, 1), places)], 1)
    counts = jnp.where(new & (words < vocabulary), following - jnp.arange(places), 0)
    return words, counts.astype(jnp.float32)


def _sparse(words: np.ndarray, counts: np.ndarray, vocabulary: int) -> Documents:
    present = counts > 0
    starts = np.concatenate([[0], np.cumsum(present.sum(1))])
    return Documents(starts.astype(np.int64), words[present], counts[present], vocabulary)


def random_topics(options: argparse.Namespace) -> np.ndarray:
    rng = np.random.default_rng(2)
    return rng.gamma(100.0, 0.01, size=(options.vocabulary, options.topics))


def alpha_of(topics: int) -> np.ndarray:
    return np.full(topics, 0.1)


Step = Callable[[XlaEngine, Weights, Any], tuple[Any, Any, Any]]


def engine_local(tolerance: float) -> Step:
    """The engine's local step: statistics, bound and inner iterations."""

    def local(engine: XlaEngine, weights: Weights, batch: Any) -> tuple[Any, Any, Any]:
        alpha = alpha_of(weights.rows.shape[1])
        found = engine.local(weights, batch, alpha, tolerance=tolerance)
        return found.statistics, found.bound, found.iterations

    return local


def plain_local() -> Step:
    """A fixed number of iterations on the gathered weights of 8192 documents at a time."""

    def local(engine: XlaEngine, weights: Weights, batch: Any) -> tuple[Any, Any, Any]:
        total = jnp.zeros(weights.rows.shape, jnp.float32)
        for table in batch.tables:
            total = total + _plain(weights.rows, table.words, table.counts)
        return total, 0.0, float(FIXED)

    return local


@jax.jit
def _plain(rows: Any, words: Any, counts: Any) -> Any:
    alpha = jnp.full(rows.shape[1], 0.1, jnp.float32)
    parts = max(1, len(words) // 8192)

    def one(total: Any, block: Any) -> Any:
        words, counts = block
        tile = rows[words]

        def again(_: int, gamma: Any) -> Any:
            t = strengths(gamma, "mean field")
            ratio = counts / jnp.einsum("rlk,rk->rl", tile, t)
            return alpha + t * jnp.einsum("rlk,rl->rk", tile, ratio)

        start = alpha + counts.sum(1, keepdims=True) / rows.shape[1]
        t = strengths(jax.lax.fori_loop(0, FIXED, again, start), "mean field")
        ratio = counts / jnp.einsum("rlk,rk->rl", tile, t)
        # The engine's sums: a scatter of all phi takes longer than the iterations.
        return total + rows * product(words, ratio, t, len(rows), jax.default_backend()), None

    blocks = [a.reshape(parts, -1, a.shape[1]) for a in (words, counts)]
    return jax.lax.scan(one, jnp.zeros_like(rows), tuple(blocks))[0]


def packed_ahead(engine: XlaEngine, parts: Iterable[Documents]) -> Iterator[tuple[Documents, Any]]:
    """Batches, packed by threads that read ahead."""
    with ThreadPoolExecutor(READERS) as readers:
        waiting: deque[Any] = deque()
        for part in parts:
            waiting.append((part, readers.submit(engine.pack, part)))
            if len(waiting) > READERS:
                part, future = waiting.popleft()
                yield part, future.result()
        for part, future in waiting:
            yield part, future.result()


def compile_all(topics: int, parts: list[Documents]) -> None:
    """One step of each kind on each size of batch, so that no figure includes a compiler."""
    engine = XlaEngine()
    sizes = {len(part): part for part in reversed(parts)}
    began = time.perf_counter()
    for part in (*sizes.values(), *parts[:3]):
        placed = engine.place(np.random.default_rng(0).gamma(1.0, size=(part.vocabulary, topics)))
        for local in (engine_local(1e-3), plain_local()):
            one_step(engine, placed, engine.pack(part), local, 0.5, 1.0)
    print(f"compiled in {time.perf_counter() - began:.1f} s", flush=True)


def one_step(
    engine: XlaEngine, topics: Any, batch: Any, local: Step, step: float, scale: float
) -> tuple[Any, Any, Any]:
    weights = engine.weights(topics, "mean field")
    statistics, bound, iterations = local(engine, weights, batch)
    return engine.blend(topics, statistics, np.full(1, 0.01), step, scale), bound, iterations


def epoch(
    name: str, parts: list[Documents], start: Any, local: Step, options: argparse.Namespace
) -> Any:
    """One pass of stochastic steps over the corpus."""
    engine = XlaEngine()
    topics = engine.place(start)
    jax.block_until_ready(topics)
    began = time.perf_counter()
    bounds, used = [], []
    for number, (part, batch) in enumerate(packed_ahead(engine, parts)):
        step, scale = (1 + number) ** -0.7, options.documents / len(part)
        topics, bound, iterations = one_step(engine, topics, batch, local, step, scale)
        bounds.append(bound)
        used.append(iterations)
    jax.block_until_ready(topics)
    seconds = time.perf_counter() - began
    tokens = sum(part.tokens for part in parts[-3:])
    print(
        f"{name}: {seconds:.2f} s, {options.documents / seconds:,.0f} documents/s, "
        f"{np.mean([float(u) for u in used]):.1f} inner iterations, "
        f"{sum(float(b) for b in bounds[-3:]) / tokens:.3f} nats/token in the last three batches",
        flush=True,
    )
    return topics


def whole_fit(parts: list[Documents], options: argparse.Namespace) -> None:
    """The estimator, from the corpus in the host's memory to topics that have settled."""
    documents = joined(parts)
    # Programs are compiled anew for the first fit of a process: that is part of its time.
    for name in ("first fit", "second fit"):
        began = time.perf_counter()
        lda = LatentDirichletAllocation(options.topics, inference="svi", document_prior=0.1).fit(
            documents, progress=False
        )
        seconds = time.perf_counter() - began
        met = "met" if seconds < END_TO_END else "NOT MET"
        fit = lda.result_
        print(
            f"estimator, {name}: {seconds:.1f} s end to end (target < {END_TO_END:g}: {met}), "
            f"{lda.n_iter_} passes; {fit.stop_reason}; held out "
            f"{fit.history.held_out[-1]:.4f} nats/token; seconds of looks "
            f"{np.round(fit.history.seconds, 1).tolist()}, scores "
            f"{np.round(fit.history.held_out, 4).tolist()}",
            flush=True,
        )


def stream(
    parts: list[Documents], topics: Any, tolerance: float, options: argparse.Namespace
) -> None:
    """Steps on batches that keep coming, for a stated time; the topics go on from a fit."""
    engine, local = XlaEngine(), engine_local(tolerance)
    full = [part for part in parts if len(part) == options.batch]
    count, used = 0, []
    began = time.perf_counter()
    until = began + options.seconds

    most = -(-(10**9) // options.batch) if options.billion else 10**9

    def coming() -> Iterator[Documents]:
        wanted = itertools.islice(itertools.cycle(full), most)
        return itertools.takewhile(lambda _: time.perf_counter() < until, wanted)

    for number, (part, batch) in enumerate(packed_ahead(engine, coming())):
        step, scale = (100 + number) ** -0.7, 1e9 / len(part)
        topics, _, iterations = one_step(engine, topics, batch, local, step, scale)
        used.append(iterations)
        count += len(part)
        if number % 4 == 3:
            jax.block_until_ready(iterations)  # no more batches wait on the device than these
    jax.block_until_ready(topics)
    seconds = time.perf_counter() - began
    rate = count / seconds
    print(
        f"stream replayed from host memory, tolerance {tolerance:g}: {count:,} documents in "
        f"{seconds:.1f} s, {rate:,.0f} documents/s (target {TARGET:,.0f}: "
        f"{'met' if rate >= TARGET else 'NOT MET'}), {np.mean([float(u) for u in used]):.1f} inner "
        f"iterations; 10^9 documents would take {1e9 / rate:,.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()

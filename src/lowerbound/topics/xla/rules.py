"""The local step of a table of documents: phi and gamma in turn until each document stands still.

The weights of a word may be scaled freely, as phi is normalised over topics, and so may t(gamma)
of a document. Both are kept with their largest element at 1 and none below a floor: exp psi of the
small parameters of sparse topics is below the smallest float.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp

from lowerbound.topics.inference_steps import Rule
from lowerbound.topics.xla.branchless import digamma, log_gamma

FLOORS: Final = {"float32": 1e-30, "float64": 1e-280}  # times a count, its inverse is finite
TILE_BYTES: Final = {"cpu": 1 << 24, "gpu": 1 << 28}  # of the gathered weights of a block of rows


class Weights(NamedTuple):
    """B[w, k] = rows[w, k] exp(logs[w]), each row with its largest element at 1."""

    rows: Any  # (V, K) in the precision of the local step
    logs: Any  # (V,) float64


class Task(NamedTuple):
    """A table of documents, where their gamma starts, and when they stand still."""

    words: Any  # (R, L)
    counts: Any  # (R, L)
    gamma: Any  # (R, K)
    prior: Any  # (K,), alpha
    iterations: Any  # at most
    tolerance: Any  # of the mean change of gamma


class Solved(NamedTuple):
    """The documents of a table at their final gamma.

    n_w phi[w, k] = ratio[w] t[w, k] rows[w, k]; in rules that leave no token out, t is the same for
    all words of a document.
    """

    gamma: Any  # (R, K)
    ratio: Any  # (R, L): n_w / sum_k t rows
    t: Any  # (R, K), or (R, L, K)
    iterations: Any  # (R,) int32


def scaled(topics: jax.Array, rule: Rule, precision: str) -> Weights:
    """The weights of lambda (V, K), computed in float64."""
    if rule == "mean field":
        return from_logs(digamma(topics) - digamma(topics.sum(0)), precision)
    return from_logs(jnp.log(topics) - jnp.log(topics.sum(0)), precision)


def from_logs(logs: jax.Array, precision: str) -> Weights:
    """Weights from log B (V, K)."""
    top = logs.max(1)
    rows = jnp.maximum(jnp.exp(logs - top[:, None]), FLOORS[precision])
    return Weights(rows.astype(precision), top)


def strengths(gamma: jax.Array, rule: Rule) -> jax.Array:
    """t(gamma) (..., K), scaled: its largest element is 1."""
    floor = FLOORS[str(gamma.dtype)]
    if rule == "mean field":
        logs = digamma(gamma)
        return jnp.maximum(jnp.exp(logs - logs.max(-1, keepdims=True)), floor)
    return jnp.maximum(gamma / gamma.max(-1, keepdims=True), floor)


def started(counts: jax.Array, prior: jax.Array) -> jax.Array:
    """gamma_k = alpha_k + n_d / K of the rows of a table."""
    return prior + counts.sum(1, keepdims=True) / prior.shape[0]


def solve(rows: jax.Array, task: Task, *, rule: Rule, platform: str) -> Solved:
    """Iterate the rule, in blocks of rows whose gathered weights fit into memory."""
    count, length = task.words.shape
    most = TILE_BYTES.get(platform, TILE_BYTES["gpu"])
    block = max(1, most // (length * task.prior.shape[0] * rows.dtype.itemsize))
    step = _collapsed if rule == "collapsed" else partial(_shared, rule=rule)

    def one(block: tuple[jax.Array, ...]) -> Solved:
        words, counts, gamma = block
        return step(rows[words], task._replace(words=words, counts=counts, gamma=gamma))

    parts = -(-count // block)
    while count % parts:  # parts of equal sizes: no row is made up
        parts += 1
    if parts == 1:
        return one(task[:3])
    blocks = jax.tree.map(lambda a: a.reshape(parts, count // parts, *a.shape[1:]), task[:3])
    joined: Solved = jax.tree.map(
        lambda a: a.reshape(count, *a.shape[2:]), jax.lax.map(one, blocks)
    )
    return joined


def _shared(tile: jax.Array, task: Task, rule: Rule) -> Solved:
    """Rules in which all words of a document see the same t."""
    exact: Any = {"precision": jax.lax.Precision.HIGHEST}

    def ratio_of(t: jax.Array) -> jax.Array:
        ratio: jax.Array = task.counts / jnp.einsum("rlk,rk->rl", tile, t, **exact)
        return ratio

    def step(gamma: jax.Array, extra: None) -> tuple[jax.Array, None]:
        t = strengths(gamma, rule)
        return task.prior + t * jnp.einsum("rlk,rl->rk", tile, ratio_of(t), **exact), None

    gamma, _, used = _until_still(step, None, task)
    t = strengths(gamma, rule)
    return Solved(gamma, ratio_of(t), t, used)


def _collapsed(tile: jax.Array, task: Task) -> Solved:
    """CVB0: t = gamma - phi of the word's own token, which is 0 before the first phi."""

    def without_own(gamma: jax.Array, phi: jax.Array) -> jax.Array:
        floor = FLOORS[str(gamma.dtype)]
        return jnp.maximum((gamma[:, None] - phi) / gamma.max(-1)[:, None, None], floor)

    def step(gamma: jax.Array, phi: jax.Array) -> tuple[jax.Array, jax.Array]:
        values = without_own(gamma, phi) * tile
        phi = values / values.sum(-1, keepdims=True)
        return task.prior + (task.counts[..., None] * phi).sum(1), phi

    gamma, phi, used = _until_still(step, jnp.zeros_like(tile), task)
    t = without_own(gamma, phi)
    return Solved(gamma, task.counts / (t * tile).sum(-1), t, used)


def _until_still(
    step: Callable[[jax.Array, Any], tuple[jax.Array, Any]], extra: Any, task: Task
) -> tuple[jax.Array, Any, jax.Array]:
    """Repeat a step; a document that changes by less than the tolerance keeps what it has."""

    def unfinished(state: tuple[Any, ...]) -> Any:
        done, moving = state[0], state[3]
        return (done < task.iterations) & moving.any()

    def again(state: tuple[Any, ...]) -> tuple[Any, ...]:
        done, gamma, extra, moving, used = state
        new, extra_new = step(gamma, extra)
        kept = jax.tree.map(
            lambda a, b: jnp.where(moving.reshape(-1, *(1,) * (a.ndim - 1)), a, b),
            (new, extra_new),
            (gamma, extra),
        )
        still = jnp.abs(new - gamma).mean(-1) < task.tolerance
        return done + 1, *kept, moving & ~still, used + moving.astype(jnp.int32)

    count = len(task.gamma)
    moving, used = jnp.ones(count, bool), jnp.zeros(count, jnp.int32)
    state = (jnp.zeros((), jnp.int32), task.gamma, extra, moving, used)
    _, gamma, extra, _, used = jax.lax.while_loop(unfinished, again, state)
    return gamma, extra, used


def document_bounds(
    solved: Solved, words: jax.Array, counts: jax.Array, logs: jax.Array, prior: jax.Array
) -> jax.Array:
    """sum_w n log sum_k t B - KL(q(theta) || p(theta)) of each row in mean field, (R,)."""
    gamma = solved.gamma
    psi, total = digamma(gamma), gamma.sum(-1)
    expected = psi - digamma(total)[:, None]  # E_q[log theta]
    inside = counts > 0
    norm = jnp.where(inside, counts, 1) / jnp.where(inside, solved.ratio, 1)
    per_word = jnp.log(norm) + logs[words].astype(gamma.dtype) + expected.max(-1)[:, None]
    likelihood = (counts * per_word).sum(-1)
    kl = log_gamma(total) - log_gamma(prior.sum())
    kl = kl - (log_gamma(gamma) - log_gamma(prior)).sum(-1)
    nats: jax.Array = likelihood - kl - ((gamma - prior) * expected).sum(-1)
    return nats

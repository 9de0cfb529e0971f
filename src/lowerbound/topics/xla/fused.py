"""The local step as one GPU kernel: a document's weights stay in registers until it stands still.

Each document stops on its own, and the weights of its words are read from memory once, where a
compiled loop over a table reads them in every iteration, and iterates until the last document of
the table has converged. Long documents read them again in each iteration, from the cache.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp

from lowerbound.topics.inference_steps import Rule
from lowerbound.topics.xla.branchless import digamma
from lowerbound.topics.xla.rules import FLOORS, Solved, Task

REGISTERS: Final = 1 << 15  # elements of a document's weights that are kept at a time
NARROW: Final = 128  # topics, up to which weights are kept
MOST_TOPICS: Final = 1 << 12


def usable(platform: str, topics: int) -> bool:
    """Whether the kernel runs on such devices, and registers hold so many topics."""
    return platform in ("gpu", "cuda") and topics <= MOST_TOPICS and _compiles()


@cache
def _compiles() -> bool:
    """Try it on one document: not every GPU and every JAX has a compiler for it."""
    with jax.enable_x64(True):
        ones = jnp.ones((1, 8), jnp.float32)
        limits = jnp.asarray(1, jnp.int32), jnp.asarray(0.0, jnp.float32)
        words = jnp.zeros((1, 8), jnp.int32)
        try:
            task = Task(words, ones, ones, ones[0], *limits)
            solve(ones, task, rule="mean").gamma.block_until_ready()
        except Exception:  # compilers of different versions raise different errors
            return False
    return True


def _kernel(
    words: Any,
    counts: Any,
    rows: Any,
    prior: Any,
    start: Any,
    iterations: Any,
    tolerance: Any,
    gamma_out: Any,
    ratio_out: Any,
    t_out: Any,
    used_out: Any,
    *,
    rule: Rule,
    topics: int,
    length: int,
    block: int,
    held: bool,
) -> None:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    width = prior.shape[0]
    k = jnp.arange(width)
    real = k < topics
    alpha = prior[:]

    def part(i: Any) -> tuple[Any, Any]:
        """Some words' counts and weights."""
        places = pl.ds(i * block, block)
        n, w = counts[0, places], words[0, places]
        return n, triton.load(rows.at[w[:, None], k[None, :]])

    parts = length // block
    kept = [part(i) for i in range(parts)] if held else []

    def strengths(gamma: Any) -> Any:
        floor = FLOORS["float32"]
        if rule == "mean field":
            logs = jnp.where(real, digamma(gamma), -jnp.inf)
            t = jnp.exp(logs - jnp.max(logs))
        else:
            t = gamma / jnp.max(gamma)
        return jnp.where(real, jnp.maximum(t, floor), 0.0)

    def summed(t: Any) -> Any:
        def add(sums: Any, n: Any, tile: Any) -> Any:
            ratio = n / jnp.sum(tile * t[None, :], axis=1)
            return sums + jnp.sum(tile * ratio[:, None], axis=0)

        sums = jnp.zeros(width, jnp.float32)
        if held:
            for n, tile in kept:
                sums = add(sums, n, tile)
            return sums
        return jax.lax.fori_loop(0, parts, lambda i, sums: add(sums, *part(i)), sums)

    def unfinished(state: Any) -> Any:
        done, _, change = state
        return (done < iterations[0]) & (change >= tolerance[0])

    def again(state: Any) -> Any:
        done, gamma, _ = state
        t = strengths(gamma)
        new = alpha + t * summed(t)
        return done + 1, new, jnp.sum(jnp.abs(new - gamma)) / topics

    first = (jnp.int32(0), start[0, :], jnp.float32(jnp.inf))
    done, gamma, _ = jax.lax.while_loop(unfinished, again, first)
    t = strengths(gamma)
    gamma_out[0, :] = gamma
    t_out[0, :] = t
    used_out[0] = done

    def ratio(i: Any, n: Any, tile: Any) -> None:
        ratio_out[0, pl.ds(i * block, block)] = n / jnp.sum(tile * t[None, :], axis=1)

    if held:
        for i, (n, tile) in enumerate(kept):
            ratio(i, n, tile)
    else:
        jax.lax.fori_loop(0, parts, lambda i, _: ratio(i, *part(i)), None)


def solve(rows: jax.Array, task: Task, *, rule: Rule, interpret: bool = False) -> Solved:
    """`rules.solve` in float32, for the rules in which all words see the same t."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    count, length = task.words.shape
    topics = task.prior.shape[0]
    width = max(16, 1 << (topics - 1).bit_length())  # the compiler's arrays are powers of two
    rows, gamma = (jnp.pad(a, ((0, 0), (0, width - topics))) for a in (rows, task.gamma))
    prior = jnp.pad(task.prior, (0, width - topics))
    held, block, warps = _layout(length, width)
    kernel = partial(_kernel, rule=rule, topics=topics, length=length, block=block, held=held)
    whole = [pl.BlockSpec(a.shape, lambda i, n=a.ndim: (0,) * n) for a in (rows, prior)]
    one = pl.BlockSpec((1,), lambda i: (0,))

    def row(size: int) -> Any:
        return pl.BlockSpec((1, size), lambda i: (i, 0))

    def result(*shape: int, dtype: Any = jnp.float32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]

    with jax.enable_x64(False):  # the kernel's constants are float32
        gamma, ratio, t, used = pl.pallas_call(
            kernel,
            grid=(count,),
            in_specs=[row(length), row(length), *whole, row(width), one, one],
            out_specs=[row(width), row(length), row(width), pl.BlockSpec((1,), lambda i: (i,))],
            out_shape=[
                result(count, width),
                result(count, length),
                result(count, width),
                result(count, dtype=jnp.int32),
            ],
            compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1),
            interpret=interpret,
        )(
            task.words,
            task.counts,
            rows,
            prior,
            gamma,
            task.iterations.astype(jnp.int32)[None],
            task.tolerance.astype(jnp.float32)[None],
        )
    return Solved(gamma[:, :topics], ratio, t[:, :topics], used)


class _Layout(NamedTuple):
    """How a program of the kernel goes about its document."""

    held: bool  # whether the weights of all words stay in registers
    block: int  # words at a time
    warps: int


def _layout(length: int, width: int) -> _Layout:
    """The fastest measured on an H200: few warps, with at most some 128 weights to a thread.

    With many topics a single warp that reads the weights of a few words at a time does best.
    """
    divides = length & -length
    if width > NARROW:
        return _Layout(False, min(divides, max(1, 2048 // width)), 1)
    block = min(divides, 16384 // width)
    held = length * width <= REGISTERS
    warps = min(8, max(1, (length if held else block) * width // 4096))
    return _Layout(held, block, 1 << (warps.bit_length() - 1))

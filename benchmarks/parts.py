"""What it costs that batches of linear algebra are cut into parts (lowerbound.compiled.unsplit).

The ratio of the seconds of the safe program to those of the plain one, in the same run, for a
Cholesky factor and a triangular solve; one operation at a time, so that the plain
program cannot hang. Above one, the cut costs: the plain kernel uses every thread of the pool.

    python -m benchmarks.parts
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.compiled import jit
from lowerbound.compiled.unsplit import kernels_divide

BATCHES, DIMS, ROUNDS = (64, 1_000, 4_000), (2, 5, 10, 26, 60, 120), 7


def factor(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.linalg.cholesky(a)


def solve(a: jax.Array, b: jax.Array) -> jax.Array:
    return jax.lax.linalg.triangular_solve(a, b, left_side=True, lower=True)


def seconds(function: Callable[..., Any], *args: Any) -> float:
    jax.block_until_ready(function(*args))
    found = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        jax.block_until_ready(function(*args))
        found.append(time.perf_counter() - began)
    return min(found)


def main() -> None:
    print(f"The kernels of this jaxlib divide batches: {kernels_divide()}")
    print(f"{'batch':>6s} {'d':>4s} {'factor':>8s} {'solve':>8s}   safe / plain seconds")
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        for batch in BATCHES:
            for d in DIMS:
                if batch * d * d > 2e7:
                    continue
                a = jnp.broadcast_to(d * jnp.eye(d) + 0.1, (batch, d, d)) + 0
                b = jnp.asarray(rng.normal(size=(batch, d, 1)))
                ratios = [
                    seconds(jit(f), a, b) / seconds(jax.jit(f), a, b) for f in (factor, solve)
                ]
                print(f"{batch:6d} {d:4d} {ratios[0]:8.2f} {ratios[1]:8.2f}", flush=True)


if __name__ == "__main__":
    main()

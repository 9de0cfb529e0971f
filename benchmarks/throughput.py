"""Rows per second of stochastic inference on one device: a diagonal mixture, D = 16, K = 32.

    python -m benchmarks.throughput [--rows 100000000] [--batch 262144] [--passes 1]

Rows are in the host's memory in single precision, drawn without replacement and copied to the
device batch by batch. One step multiplies rows by components twice for the responsibilities and
twice for the statistics: 8 D K operations a row, compared with products of the same shapes and with
large square ones in the same run.
"""

from __future__ import annotations

import argparse
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import lowerbound.names as lb
from benchmarks.large_mixture import D, K, mixture


def rows(n: int, seed: int = 0) -> np.ndarray:
    """A million different rows, and as many noisy copies of them as it takes."""
    rng = np.random.default_rng(seed)
    centres = (1.2 * rng.normal(size=(K, D))).astype(np.float32)
    base = min(n, 1_000_000)
    z = rng.integers(K, size=base)
    x = np.empty((n, D), np.float32)
    noise = rng.standard_normal((base, D), np.float32)
    for start in range(0, n, base):
        part = x[start : start + base]
        part[:] = (centres[z] + np.roll(noise, start // base, axis=0))[: len(part)]
    return x


def roof(shape: tuple[int, int, int]) -> float:
    """GFLOP/s of a float32 product (m, k) x (k, n) on the default device."""
    m, k, n = shape
    a, b = jnp.ones((m, k), jnp.float32), jnp.ones((k, n), jnp.float32)
    product = jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest"))
    product(a, b).block_until_ready()
    best = np.inf
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(10):
            out = product(a, b)
        out.block_until_ready()
        best = min(best, (time.perf_counter() - began) / 10)
    return 2e-9 * m * k * n / best


def main(arguments: list[str] | None = None) -> None:
    """Time whole passes, after a short fit that compiles everything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--precision", default="float32")
    options = parser.parse_args(arguments or [])
    device = jax.devices()[0]
    print(f"{device.device_kind}; n = {options.rows:,}, batch {options.batch:,}")
    began = time.perf_counter()
    x = rows(options.rows)
    print(f"rows made in {time.perf_counter() - began:.1f} s, {x.nbytes / 1e9:.1f} GB on the host")
    settings = {"batch_size": options.batch, "monitor": None}
    began = time.perf_counter()
    with lb.computing(precision=options.precision):
        lb.fit(mixture, x, method=lb.SVI(steps=10, **settings))
    print(f"first fit of 10 steps, with compilation: {time.perf_counter() - began:.1f} s")
    steps = max(1, options.passes * len(x) // options.batch)
    began = time.perf_counter()
    with lb.computing(precision=options.precision):
        fit = lb.fit(mixture, x, method=lb.SVI(steps=steps, **settings))
    whole = time.perf_counter() - began
    seconds, seen = fit.history.seconds[-1], fit.history.rows[-1]
    rate = seen / seconds
    flops = 8e-9 * D * K * rate
    print(f"{seen:,} rows in {seconds:.2f} s of steps: {rate / 1e6:.2f} million rows/s, "
          f"{flops:.0f} GFLOP/s in the four products")  # fmt: skip
    print(f"end to end, with start and the pass for the exact ELBO: {whole:.2f} s")
    thin, square = roof((options.batch, D, K)), roof((4096, 4096, 4096))
    print(f"float32 product of the same shape ({options.batch:,} x {D}) x ({D} x {K}): "
          f"{thin:.0f} GFLOP/s, the steps reach {flops / thin:.2f} of it")  # fmt: skip
    print(f"float32 product of 4096^3: {square:.0f} GFLOP/s, the steps reach {flops / square:.4f}")


if __name__ == "__main__":
    main(sys.argv[1:])

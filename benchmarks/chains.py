"""Linear-Gaussian chains: 50,000 steps smoothed, and unknown parameters beside NUTS.

python -m benchmarks.chains [--steps 50000] [--short 1000] [--no-nuts] [--only PART]

Parts: smoothing, parameters, ways (one series with unknown scales, written in several ways, and a
level with a season).
Smoothing is compared with one banded solve of SciPy, which gives the means alone. NUTS samples the
posterior of the parameters with the states integrated out by a Kalman filter: the same posterior in
three dimensions, the best case for it. Seconds are the processor's, in one process: what equal
programs share is compiled once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.infer import MCMC, NUTS
from scipy.linalg import solveh_banded

import lowerbound.names as lb
from benchmarks.timing import verdict

WALK, NOISE, COEFFICIENT = 0.3, 1.0, 0.9


def known(y: Any) -> None:
    """A level of known variances."""

    def step(z: Any, y: Any) -> tuple[Any, None]:
        z = numpyro.sample("z", dist.Normal(z, WALK))
        numpyro.sample("y", dist.Normal(z, NOISE), obs=y)
        return z, None

    scan(step, 0.0, y)


def parameters() -> tuple[Any, Any, Any]:
    """The coefficient of an autoregression and two scales."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    q = numpyro.sample("q", dist.HalfNormal(1.0))
    return a, q, numpyro.sample("r", dist.HalfNormal(1.0))


def unknown(y: Any) -> None:
    """An autoregression with noise, of unknown parameters."""
    a, q, r = parameters()

    def step(z: Any, y: Any) -> tuple[Any, None]:
        z = numpyro.sample("z", dist.Normal(a * z, q))
        numpyro.sample("y", dist.Normal(z, r), obs=y)
        return z, None

    scan(step, 0.0, y)


def filtered(y: Any) -> None:
    """The same with the states integrated out."""
    a, q, r = parameters()

    def step(state: Any, y: Any) -> tuple[Any, Any]:
        mean, variance = state
        mean, variance = a * mean, a**2 * variance + q**2
        total = variance + r**2
        log_p = dist.Normal(mean, jnp.sqrt(total)).log_prob(y)
        gain = variance / total
        return (mean + gain * (y - mean), (1 - gain) * variance), log_p

    _, log_p = jax.lax.scan(step, (jnp.zeros(()), jnp.zeros(())), y)
    numpyro.factor("y", log_p.sum())


def simulated(steps: int, coefficient: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    z, found = 0.0, np.empty(steps)
    for t in range(steps):
        z = coefficient * z + WALK * rng.normal()
        found[t] = z + NOISE * rng.normal()
    return found


def worked(function: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = function()
    return time.process_time() - began, found


def banded(y: np.ndarray) -> np.ndarray:
    """The means of the levels, by one banded solve."""
    bands = np.zeros((2, len(y)))
    bands[0, 1:] = -1 / WALK**2
    bands[1] = 2 / WALK**2 + 1 / NOISE**2
    bands[1, -1] -= 1 / WALK**2
    found: np.ndarray = solveh_banded(bands, y / NOISE**2)
    return found


def smoothing(steps: int) -> None:
    y = simulated(steps, 1.0)

    def fitted() -> lb.Fit:
        return lb.fit(known, y, progress=False)

    cold, fit = worked(fitted)
    warm = min(worked(fitted)[0] for _ in range(3))
    peer, mean = worked(lambda: banded(y))
    print(f"smoothing {steps:,} steps: {cold:.2f} s cold, {warm:.3f} s warm; {fit.plan.method}")
    print(f"  seconds warm, {verdict(warm, 0.3)}")
    print(f"  a banded solve of the means alone {peer:.4f} s: {warm / peer:.0f} times it")
    off = float(abs(fit.mean("z") - mean).max())
    print(f"  means off by {off:.1e}, {verdict(off, 1e-6)}")


def beside_nuts(steps: int, run_nuts: bool) -> None:
    y = simulated(steps, COEFFICIENT)
    cold, fit = worked(lambda: lb.fit(unknown, y, progress=False))
    print(f"unknown parameters, {steps:,} steps: {cold:.2f} s cold, {verdict(cold, 5.0)}")
    print(f"  {fit.verdict}")
    if not run_nuts:
        return
    with jax.enable_x64(True):
        sampler = MCMC(
            NUTS(filtered), num_warmup=500, num_samples=4000, num_chains=1, progress_bar=False
        )
        took, _ = worked(lambda: sampler.run(jax.random.key(0), jnp.asarray(y)))
        draws = {name: np.asarray(value) for name, value in sampler.get_samples().items()}
    worst = [0.0, 0.0]
    for name, own in draws.items():
        shift = abs(float(fit.mean(name)) - own.mean()) / own.std()
        ratio = abs(float(fit.sd(name)) / own.std() - 1)
        worst = [max(worst[0], shift), max(worst[1], ratio)]
        print(f"  {name}: means {shift:.3f} sds apart, sds {100 * ratio:.1f}% apart")
    print(f"  NUTS {took:.1f} s, {took / cold:.1f} times the fit; its own error is about 0.03 sds")
    print(f"  means, {verdict(worst[0], 0.05)}; sds, {verdict(worst[1], 0.05)}")


def two_scales() -> tuple[Any, Any]:
    return numpyro.sample("q", dist.HalfNormal(1.0)), numpyro.sample("r", dist.HalfNormal(1.0))


def levels(y: Any) -> None:
    """A random walk with noise, by its levels."""
    q, r = two_scales()

    def step(z: Any, y: Any) -> tuple[Any, None]:
        z = numpyro.sample("z", dist.Normal(z, q))
        numpyro.sample("y", dist.Normal(z, r), obs=y)
        return z, None

    scan(step, 0.0, y)


def summed(y: Any) -> None:
    """The same by standard increments and their sums."""
    q, r = two_scales()
    e = numpyro.sample("e", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
    numpyro.sample("y", dist.Normal(jnp.cumsum(q * e), r), obs=y)


def added(y: Any) -> None:
    """The same by increments that a loop adds up."""
    q, r = two_scales()

    def step(z: Any, y: Any) -> tuple[Any, None]:
        z = z + q * numpyro.sample("e", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z, r), obs=y)
        return z, None

    scan(step, 0.0, y)


def seasonal(y: Any) -> None:
    """A level and a season of four, all scales unknown."""
    q, r = two_scales()
    turn = numpyro.sample("turn", dist.HalfNormal(1.0))
    first = numpyro.sample("first", dist.Normal(0.0, 2.0).expand([3]).to_event(1))

    def step(state: Any, y: Any) -> tuple[Any, None]:
        z, season = state
        z = numpyro.sample("z", dist.Normal(z, q))
        now = numpyro.sample("season", dist.Normal(-season.sum(), turn))
        numpyro.sample("y", dist.Normal(z + now, r), obs=y)
        return (z, jnp.concatenate([now[None], season[:-1]])), None

    scan(step, (0.0, first), y)


def ways(steps: int) -> None:
    y = simulated(steps, 1.0)
    first: lb.Fit | None = None
    for program in (levels, summed, added):
        cold, fit = worked(lambda program=program: lb.fit(program, y, progress=False))
        first = fit if first is None else first
        off = [abs(float(fit.mean(n) - first.mean(n))) / float(first.sd(n)) for n in ("q", "r")]
        ratio = [abs(float(fit.sd(n) / first.sd(n)) - 1) for n in ("q", "r")]
        print(f"{program.__name__}, {steps:,} steps: {cold:.2f} s cold, {verdict(cold, 5.0)}")
        print(f"  means within {max(off):.3f} sds of the first, sds within {100 * max(ratio):.1f}%")
    y = y + np.array([1.0, -0.5, -1.5, 1.0])[np.arange(steps) % 4]
    cold, fit = worked(lambda: lb.fit(seasonal, y, progress=False))
    print(f"level and season, {steps:,} steps: {cold:.2f} s cold, {verdict(cold, 5.0)}")
    print(f"  {fit.verdict}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--short", type=int, default=1_000)
    parser.add_argument("--no-nuts", action="store_true")
    parser.add_argument("--only", choices=("smoothing", "parameters", "ways"))
    options = parser.parse_args()
    if options.only in (None, "smoothing"):
        smoothing(options.steps)
    if options.only in (None, "parameters"):
        beside_nuts(options.short, not options.no_nuts)
    if options.only in (None, "ways"):
        ways(options.short)


if __name__ == "__main__":
    main()

"""ARD regression (Appendix A), D = 100: after the data are contracted, a sweep is free of n."""

from __future__ import annotations

import time

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound.names as lb
from benchmarks.timing import alternate, ratio, verdict

D = 100
SMALL, LARGE = 10_000, 1_000_000
SWEEPS, SKIPPED = 328, 72  # the loop's chunks grow to 64 sweeps; the first ones are left out


def model(x, y=None, a0=1.0, b0=1.0, c0=1.0, d0=1.0):
    """Linear regression with one relevance per coefficient, q(beta, tau) q(alpha)."""
    n, d = x.shape
    alpha = numpyro.sample("alpha", dist.Gamma(c0, d0).expand([d]).to_event(1))
    tau = numpyro.sample("tau", dist.Gamma(a0, b0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 1 / jnp.sqrt(tau * alpha)).to_event(1))
    with numpyro.plate("data", n):
        numpyro.sample("y", dist.Normal(x @ beta, 1 / jnp.sqrt(tau)), obs=y)


def simulate(n: int) -> tuple[np.ndarray, np.ndarray]:
    """A design of shape (n, 100), drawn in float32 chunks to spare memory, and its response."""
    random = np.random.default_rng(n)
    x = np.empty((n, D))
    for rows in np.array_split(np.arange(n), max(1, n // 50_000)):
        x[rows[0] : rows[-1] + 1] = random.standard_normal((len(rows), D), np.float32)
    beta = np.where(np.arange(D) < 10, 1.0, 0.0)
    return x, x @ beta + random.standard_normal(n)


def main() -> None:
    method = lb.CAVI(tolerance=0.0, max_sweeps=SWEEPS)
    whole: dict[int, list[float]] = {SMALL: [], LARGE: []}
    swept: dict[int, list[float]] = {SMALL: [], LARGE: []}
    data = {n: simulate(n) for n in (SMALL, LARGE)}

    def sweep(n: int) -> float:
        start = time.perf_counter()
        seconds = lb.fit(model, *data[n], method=method).history.seconds
        whole[n].append(time.perf_counter() - start)
        swept[n].append(float(seconds[-1]))
        return float(seconds[-1] - seconds[SKIPPED - 1]) / (SWEEPS - SKIPPED)

    for n in (SMALL, LARGE):
        sweep(n)
    seconds = alternate({"small": lambda: sweep(SMALL), "large": lambda: sweep(LARGE)}, 5)
    for n, name in ((SMALL, "small"), (LARGE, "large")):
        rest = np.median(np.array(whole[n][1:]) - np.array(swept[n][1:]))
        print(
            f"n = {n:9,d}: {1e3 * np.median(seconds[name]):7.3f} ms per sweep; once per fit "
            f"{rest:6.2f} s (checks, contraction of the data, start)"
        )
    growth = ratio(seconds["large"], seconds["small"])
    print(f"sweep at n = 10^6 / sweep at n = 10^4: {growth:.2f}   {verdict(growth, 1.2)}")

"""Which start is the better default for mixtures: k-means++, rows of the data, or random."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound.names as lb
from benchmarks import images, restarts
from lowerbound.data import paper_mixture

STARTS = ("k-means++", "rows", "random")
SEEDS = 10
TOLERANCE, MAX_SWEEPS = 1e-8, 500


class Task(NamedTuple):
    """A mixture model and its data."""

    name: str
    model: Callable[..., None]
    x: np.ndarray
    K: int


def poisson_mixture(x, K):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K, dim=-2), numpyro.plate("columns", x.shape[1], dim=-1):
        rate = numpyro.sample("rate", dist.Gamma(1.0, 0.1))
    with numpyro.plate("data", len(x)):
        z = numpyro.sample("z", dist.Categorical(pi))
        numpyro.sample("x", dist.Poisson(rate[z]).to_event(1), obs=x)


def bernoulli_mixture(x, K):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K, dim=-2), numpyro.plate("columns", x.shape[1], dim=-1):
        p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    with numpyro.plate("data", len(x)):
        z = numpyro.sample("z", dist.Categorical(pi))
        numpyro.sample("x", dist.Bernoulli(p[z]).to_event(1), obs=x)


def tasks() -> Iterator[Task]:
    """Three data sets of each of four kinds, so that no kind outweighs another."""
    for seed in range(3):
        x = paper_mixture(seed=seed)["x"]
        yield Task(f"paper's simulation {seed}", restarts.model, x, 5)
    histograms, _ = images.load(rows=3000)
    for seed in range(3):
        x = histograms[1000 * seed : 1000 * (seed + 1)]
        yield Task(f"image histograms {seed}", images.model, x[:, np.ptp(x, axis=0) > 0], 10)
    for seed in range(3):
        random = np.random.default_rng(seed)
        z = random.integers(6, size=1000)
        rates = random.gamma(2.0, 4.0, size=(6, 8))
        yield Task(f"Poisson mixture {seed}", poisson_mixture, random.poisson(rates[z]), 6)
    for seed in range(3):
        random = np.random.default_rng(seed)
        z = random.integers(6, size=1000)
        chances = random.beta(0.5, 0.5, size=(6, 20))
        x = (random.uniform(size=(1000, 20)) < chances[z]).astype(int)
        yield Task(f"Bernoulli mixture {seed}", bernoulli_mixture, x, 6)


def main() -> None:
    print(f"{SEEDS} seeds each; gap = best known ELBO less the final one, nats per row;")
    print("relative = gap over the mean gap of all runs on the same data")
    print(
        f"{'data':22s} {'start':10s} {'gap':>9s} {'worst':>9s} {'relative':>9s} {'sweeps':>7s} "
        f"{'seconds':>8s}"
    )
    relative: dict[str, list[float]] = {how: [] for how in STARTS}
    for task in tasks():
        runs = {how: np.zeros((SEEDS, 3)) for how in STARTS}  # ELBO, sweeps, seconds
        for how in STARTS:
            fit_once(task, how, 0)  # compiles
        for seed in range(SEEDS):
            for how in STARTS:
                start = time.perf_counter()
                fit = fit_once(task, how, seed)
                took = time.perf_counter() - start
                runs[how][seed] = fit.elbo, len(fit.history.elbo), took
        best = max(values[:, 0].max() for values in runs.values())
        gaps = {how: (best - runs[how][:, 0]) / len(task.x) for how in STARTS}
        scale = max(float(np.mean(list(gaps.values()))), 1e-12)
        for how, gap in gaps.items():
            relative[how].append(gap.mean() / scale)
            _, sweeps, seconds = np.median(runs[how], axis=0)
            print(
                f"{task.name:22s} {how:10s} {gap.mean():9.4f} {gap.max():9.4f} "
                f"{relative[how][-1]:9.2f} {sweeps:7.0f} {seconds:8.2f}",
                flush=True,
            )
    conclude({how: np.array(values) for how, values in relative.items()})


def conclude(relative: dict[str, np.ndarray]) -> None:
    """The start with the least relative gap, and how sure that is over the data sets."""
    first, second, *_ = order = sorted(STARTS, key=lambda how: float(relative[how].mean()))
    for how in order:
        best = sum(relative[how] <= np.min([relative[other] for other in STARTS], axis=0))
        print(f"{how:10s} mean relative gap {relative[how].mean():.2f}, least on {best} data sets")
    difference = relative[second] - relative[first]
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    sure = "the better default" if difference.mean() > 2 * error else "not decided by these data"
    print(f"{first!r} before {second!r} by {difference.mean():.2f} +- {error:.2f}: {sure}")


def fit_once(task: Task, how: str, seed: int) -> lb.Fit:
    method = lb.CAVI(init=how, tolerance=TOLERANCE, max_sweeps=MAX_SWEEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lb.fit(task.model, task.x, K=task.K, method=method, seed=seed)

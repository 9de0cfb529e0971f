"""Which start is the better default for mixtures: k-means++, rows of the data, or random factors."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound as lb
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
    for seed in range(4):
        x = paper_mixture(seed=seed)["x"]
        yield Task(f"paper's simulation, seed {seed}", restarts.model, x, 5)
    x, _ = images.load(rows=1000)
    yield Task("image histograms, 1000 rows", images.model, x[:, x.std(axis=0) > 0], 10)
    random = np.random.default_rng(0)
    z = random.integers(6, size=1000)
    rates = random.gamma(2.0, 4.0, size=(6, 8))
    yield Task("Poisson mixture", poisson_mixture, random.poisson(rates[z]), 6)
    chances = random.beta(0.5, 0.5, size=(6, 20))
    x = (random.uniform(size=(1000, 20)) < chances[z]).astype(int)
    yield Task("Bernoulli mixture", bernoulli_mixture, x, 6)


def main() -> None:
    print(f"{SEEDS} seeds each; gap = best known ELBO less the final one, nats per row")
    print(f"{'data':30s} {'start':10s} {'mean gap':>9s} {'worst':>9s} {'sweeps':>7s} {'seconds':>8s}")
    gaps: dict[str, list[float]] = {how: [] for how in STARTS}
    wins: dict[str, int] = dict.fromkeys(STARTS, 0)
    for task in tasks():
        elbo = {how: np.zeros(SEEDS) for how in STARTS}
        sweeps = {how: np.zeros(SEEDS) for how in STARTS}
        seconds = {how: np.zeros(SEEDS) for how in STARTS}
        for how in STARTS:
            fit_once(task, how, 0)  # compiles
        for seed in range(SEEDS):
            for how in STARTS:
                start = time.perf_counter()
                fit = fit_once(task, how, seed)
                seconds[how][seed] = time.perf_counter() - start
                elbo[how][seed] = fit.elbo
                sweeps[how][seed] = len(fit.history.elbo)
        best = max(values.max() for values in elbo.values())
        means = {how: (best - elbo[how]).mean() / len(task.x) for how in STARTS}
        wins[min(means, key=means.__getitem__)] += 1
        for how in STARTS:
            gap = (best - elbo[how]) / len(task.x)
            gaps[how].append(gap.mean())
            print(
                f"{task.name:30s} {how:10s} {gap.mean():9.4f} {gap.max():9.4f} "
                f"{np.median(sweeps[how]):7.0f} {np.median(seconds[how]):8.2f}",
                flush=True,
            )
    order = sorted(STARTS, key=lambda how: float(np.mean(gaps[how])))
    for how in order:
        print(f"{how:10s} mean gap {np.mean(gaps[how]):.4f} nats per row, best on {wins[how]} data sets")
    print(f"the better default: {order[0]!r}")


def fit_once(task: Task, how: str, seed: int) -> lb.Fit:
    method = lb.CAVI(init=how, tolerance=TOLERANCE, max_sweeps=MAX_SWEEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lb.fit(task.model, task.x, K=task.K, method=method, seed=seed)

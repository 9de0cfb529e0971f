"""Scales and what they scale: effects, states of a series, functions, volatilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import expit, gammaln, logsumexp

from benchmarks.known_posteriors.case import Case, Truth, mixed, named, on_mesh, weighed


def cases() -> dict[str, Case]:
    """All of them, by name."""
    return _series() | _volatile() | _functions() | _effects() | _bounded() | _many()


def _series() -> dict[str, Case]:
    """A level that walks, seen with noise: two scales, by the covariance of what is seen."""
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def walk(y: Any) -> None:
        step = numpyro.sample("step", dist.HalfNormal(1.0))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        level = numpyro.sample("level", dist.GaussianRandomWalk(step, len(y)))
        numpyro.sample("y", dist.Normal(level, noise).to_event(1), obs=y)

    rng = np.random.default_rng(21)
    y = np.cumsum(0.4 * rng.normal(size=12)) + 0.5 * rng.normal(size=12)
    lags = np.minimum.outer(np.arange(12), np.arange(12)) + 1.0
    values, vectors = np.linalg.eigh(lags)
    squares = (vectors.T @ y) ** 2

    def height(step: np.ndarray, noise: np.ndarray) -> np.ndarray:
        log_p = -0.5 * step**2 - 0.5 * noise**2
        for value, square in zip(values, squares, strict=True):
            variance = step**2 * value + noise**2
            log_p = log_p - 0.5 * np.log(variance) - 0.5 * square / variance
        return log_p

    axes = {k: (np.arange(1000) + 0.5) / 250 for k in ("step", "noise")}
    return named("a walk with noise", walk, on_mesh(height, **axes), {"y": y}, {
        "auto": "auto", "Gaussian": lb.Gaussian(),
        "diagonal": lb.Gaussian(rank="diagonal"), "Laplace": lb.Laplace(),
    })  # fmt: skip


def _volatile() -> dict[str, Case]:
    """Log volatilities that walk: forwards and backwards on a grid, given the scale on another."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def volatile(y: Any) -> None:
        s = numpyro.sample("s", dist.HalfNormal(1.0))
        h = numpyro.sample("h", dist.GaussianRandomWalk(s, len(y)))
        numpyro.sample("y", dist.Normal(0.0, jnp.exp(0.5 * h)).to_event(1), obs=y)

    y = np.array([0.3, -0.8, 0.2, 0.5, -2.9, 3.5, -4.1, 1.2, 0.4, -0.3, 0.6, 0.1])
    grid, scales = np.linspace(-14, 14, 561), (np.arange(60) + 0.5) / 15
    seen = -0.5 * grid - 0.5 * y[:, None] ** 2 * np.exp(-grid)
    away = (grid[:, None] - grid) ** 2
    log_p, means, variances = [], [], []
    for s in scales:
        move = np.exp(-0.5 * away / s**2) / s
        first = -0.5 * grid**2 / s**2 - math.log(s)
        forward, total = [], 0.0
        weights = np.exp(first + seen[0])
        for t in range(len(y)):
            if t:
                weights = (weights @ move) * np.exp(seen[t])
            total += math.log(weights.sum())
            weights = weights / weights.sum()
            forward.append(weights)
        backward = np.ones_like(grid)
        both = []
        for t in reversed(range(len(y))):
            one = forward[t] * backward
            both.append(one / one.sum())
            backward = move @ (np.exp(seen[t]) * backward)
            backward = backward / backward.max()
        shares = np.stack(both[::-1])
        mean = shares @ grid
        log_p.append(total - 0.5 * s**2)
        means.append(mean)
        variances.append(shares @ grid**2 - mean**2)
    truth = mixed(
        np.array(log_p),
        {"s": (scales, 0 * scales), "h": (np.stack(means), np.stack(variances))},
    )
    return named("volatilities", volatile, truth, {"y": y}, {
        "auto": "auto", "Gaussian": lb.Gaussian(), "diagonal": lb.Gaussian(rank="diagonal"),
        "integrated": lb.Integrated(),
    })  # fmt: skip


def _functions() -> dict[str, Case]:
    """A Gaussian process whose length and noise are to be found."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    x = np.linspace(0, 4, 10)
    rng = np.random.default_rng(22)
    y = np.sin(1.5 * x) + 0.4 * rng.normal(size=10)
    squares = (x[:, None] - x) ** 2

    def process(squares: Any, y: Any) -> None:
        length = numpyro.sample("length", dist.LogNormal(0.0, 1.0))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        covariance = jnp.exp(-0.5 * squares / length**2) + noise**2 * jnp.eye(len(y))
        numpyro.sample("y", dist.MultivariateNormal(0.0, covariance), obs=y)

    u, noise = (
        g.ravel() for g in np.meshgrid(np.linspace(-4, 4, 321), (np.arange(320) + 0.5) / 80)
    )
    log_p = np.empty(len(u))
    for part in np.array_split(np.arange(len(u)), 40):
        matrix = np.exp(-0.5 * squares / np.exp(2 * u[part])[:, None, None])
        matrix = matrix + (noise[part] ** 2 + 1e-10)[:, None, None] * np.eye(10)
        values, vectors = np.linalg.eigh(matrix)
        values = np.maximum(values, 1e-12)
        parts = (np.swapaxes(vectors, 1, 2) @ y) ** 2 / values
        log_p[part] = -0.5 * (parts + np.log(values)).sum(axis=1)
    log_p = log_p - 0.5 * u**2 - 0.5 * noise**2
    truth = weighed(log_p, {"length": np.exp(u), "noise": noise})
    return named("a Gaussian process", process, truth, {"squares": squares, "y": y}, {
        "auto": "auto", "Gaussian": lb.Gaussian(), "Laplace": lb.Laplace(),
        "diagonal": lb.Gaussian(rank="diagonal"),
    })  # fmt: skip


def _effects() -> dict[str, Case]:
    """Effects of groups on counts, summed out of each group by quadrature."""
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    y, m = np.array([1, 5, 3, 8, 0, 4]), np.array([10, 9, 10, 10, 8, 10])

    def seeds(y: Any, m: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
        s = numpyro.sample("s", dist.HalfNormal(2.0))
        with numpyro.plate("groups", len(y)):
            z = numpyro.sample("z", dist.Normal(mu, s))
            numpyro.sample("y", dist.Binomial(m, logits=z), obs=y)

    def height(mu: np.ndarray, s: np.ndarray) -> np.ndarray:
        log_p = -mu * mu / 8 - s * s / 8
        p = np.clip(expit(mu[:, None] + s[:, None] * nodes), 1e-15, 1 - 1e-15)
        for one, of in zip(y, m, strict=True):
            inner = one * np.log(p) + (of - one) * np.log1p(-p)
            log_p = log_p + logsumexp(inner, b=weights, axis=1)
        return log_p

    axes = {"mu": np.linspace(-7, 6, 261), "s": (np.arange(320) + 0.5) / 40}
    truth = on_mesh(height, **axes)
    data = {"y": y, "m": m}
    found = named("effects on proportions", seeds, truth, data, {
        "auto": "auto", "integrated": lb.Integrated(),
        "augmented": lb.Augmented({"y": "polya-gamma"}, lb.CAVI()),
        "centred": lb.Gaussian(noncentred=()), "diagonal": lb.Gaussian(rank="diagonal"),
        "Laplace": lb.Laplace(), "a grid": lb.Given(["s"], lb.Gaussian()),
    })  # fmt: skip

    def counts(y: Any) -> None:
        shape = numpyro.sample("shape", dist.Gamma(1.0, 0.5))
        rate = numpyro.sample("rate", dist.Gamma(1.0, 0.5))
        with numpyro.plate("rows", len(y)):
            r = numpyro.sample("r", dist.Gamma(shape, rate))
            numpyro.sample("y", dist.Poisson(r), obs=y)

    y = np.array([0, 3, 1, 0, 7, 2, 0, 1])

    def summed(shape: np.ndarray, rate: np.ndarray) -> np.ndarray:
        log_p = -0.5 * shape - 0.5 * rate
        for one in y:
            log_p = log_p + gammaln(shape + one) - gammaln(shape) + shape * np.log(rate)
            log_p = log_p - (shape + one) * np.log1p(rate)
        return log_p

    points = (np.arange(900) + 0.5) / 45
    shape, rate = (g.ravel() for g in np.meshgrid(points, points))
    mean = (shape[:, None] + y) / (1 + rate[:, None])
    own = {"shape": (shape, 0 * shape), "rate": (rate, 0 * rate)}
    truth = mixed(summed(shape, rate), own | {"r": (mean, mean / (1 + rate[:, None]))})
    found |= named("rates of rows", counts, truth, {"y": y}, {
        "auto": "auto", "CAVI": lb.CAVI(), "Gaussian": lb.Gaussian(),
        "diagonal": lb.Gaussian(rank="diagonal"),
        "batches": lb.SVI(batch_size=4, steps=300),
    })  # fmt: skip
    return found


def _bounded() -> dict[str, Case]:
    """Coefficients of classes that can be told apart: bounds of a sigmoid."""
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    x = np.array([-2.0, -1.2, -0.7, 0.6, 1.1, 1.9])
    y = np.array([0, 0, 0, 1, 1, 1])

    def logistic(x: Any, y: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 3.0))
        b = numpyro.sample("b", dist.Normal(0.0, 5.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Bernoulli(logits=a + b * x), obs=y)

    def height(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        log_p = -a * a / 18 - b * b / 50
        for one, label in zip(x, y, strict=True):
            log_p = log_p - np.logaddexp(0, np.where(label, -1, 1) * (a + b * one))
        return log_p

    axes = {"a": np.linspace(-16, 16, 641), "b": np.linspace(-12, 30, 841)}
    return named("classes apart", logistic, on_mesh(height, **axes), {"x": x, "y": y}, {
        "auto": "auto", "Gaussian": lb.Gaussian(), "Laplace": lb.Laplace(),
        "augmented": lb.Augmented({"y": "polya-gamma"}, lb.CAVI()),
        "diagonal": lb.Gaussian(rank="diagonal"),
    })  # fmt: skip


def _many() -> dict[str, Case]:
    """Many rows, far from zero, in single precision."""
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    rng = np.random.default_rng(23)
    n = 100_000
    x = 300.0 + rng.normal(size=n)

    def level(x: Any) -> None:
        m = numpyro.sample("m", dist.Normal(0.0, 1000.0))
        s = numpyro.sample("s", dist.HalfNormal(10.0))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("x", dist.Normal(m, s), obs=x)

    centre, spread = float(x.mean()), float(x.std())
    axes = {
        "m": centre + np.linspace(-0.02, 0.02, 401),
        "s": spread + np.linspace(-0.02, 0.02, 401),
    }
    truth: Truth = on_mesh(
        lambda m, s: -n * np.log(s) - 0.5 * n * (spread**2 + (centre - m) ** 2) / s**2, **axes
    )
    methods = {
        "auto": "auto", "Gaussian": lb.Gaussian(), "batches": lb.SVI(batch_size=500, steps=1000),
        "few batches": lb.SVI(batch_size=50, steps=5),
    }  # fmt: skip
    found = named("many rows", level, truth, {"x": x}, methods)
    single = {"x": x.astype(np.float32)}
    for name in ("auto", "Gaussian"):
        found[f"many rows, single: {name}"] = Case(level, truth, methods[name], single, "float32")
    return found

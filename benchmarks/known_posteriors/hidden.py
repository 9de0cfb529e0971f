"""Discrete sites: chains of states, change points, outliers, rows with a class and an effect."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import gammaln

from benchmarks.known_posteriors.case import (
    Case,
    Truth,
    mixed,
    named,
    normal_means,
    states,
)


def cases() -> dict[str, Case]:
    """All of them, by name."""
    return _chain() | _change() | _rows() | _outliers() | _wholly() | _regions()


def _chain() -> dict[str, Case]:
    """A hidden Markov chain of two states, by a sum over all its paths."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    moves = np.array([[0.8, 0.2], [0.3, 0.7]])

    def chain(y: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(np.array([-1.0, 1.0]), 1.0).to_event(1))
        state = numpyro.sample("z0", dist.Categorical(jnp.array([0.5, 0.5])))
        numpyro.sample("y0", dist.Normal(mu[state], 1.0), obs=y[0])
        for t in range(1, len(y)):
            state = numpyro.sample(f"z{t}", dist.Categorical(jnp.asarray(moves)[state]))
            numpyro.sample(f"y{t}", dist.Normal(mu[state], 1.0), obs=y[t])

    found: dict[str, Case] = {}
    rng = np.random.default_rng(11)
    for name, y in (
        ("clear", np.array([-2.2, -1.6, -2.5, 2.1, 1.4, 2.6, -1.9, -2.4])),
        ("vague", 0.7 * rng.normal(size=8)),
    ):
        z = states(8, 2)
        log_p, mean, variance = normal_means(y, z, 2, 1.0, ([-1.0, 1.0], 1.0))
        log_p = log_p + np.log(moves)[z[:, :-1], z[:, 1:]].sum(axis=1)
        truth = mixed(log_p, {"mu": (mean, variance)})
        found |= named(f"a {name} chain", chain, truth, {"y": y}, {
            "auto": "auto", "CAVI": lb.CAVI(), "Gaussian": lb.Gaussian(),
        })  # fmt: skip
    return found


def _change() -> dict[str, Case]:
    """The day on which a rate changes."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def change(y: Any) -> None:
        days = len(y)
        early = numpyro.sample("early", dist.Gamma(1.0, 0.5))
        late = numpyro.sample("late", dist.Gamma(1.0, 0.5))
        day = numpyro.sample("day", dist.Categorical(jnp.ones(days) / days))
        rate = jnp.where(jnp.arange(days) < day, early, late)
        numpyro.sample("y", dist.Poisson(rate).to_event(1), obs=y)

    found: dict[str, Case] = {}
    for name, y in (
        ("clear", np.array([5, 7, 4, 6, 5, 8, 1, 0, 1, 2, 0, 1])),
        ("vague", np.array([2, 3, 1, 4, 2, 1, 2, 0, 2, 1, 1, 3])),
    ):
        before = np.concatenate([[0], np.cumsum(y)[:-1]])
        days = np.arange(12)
        shape = np.stack([1.0 + before, 1.0 + y.sum() - before], 1)
        rate = np.stack([0.5 + days, 0.5 + 12.0 - days], 1)
        log_p = (gammaln(shape) - shape * np.log(rate)).sum(axis=1)
        mean, variance = shape / rate, shape / rate**2
        truth = mixed(
            log_p,
            {"early": (mean[:, 0], variance[:, 0]), "late": (mean[:, 1], variance[:, 1])},
        )
        found |= named(f"a {name} change", change, truth, {"y": y}, {
            "auto": "auto", "CAVI": lb.CAVI(), "Gaussian": lb.Gaussian(),
        })  # fmt: skip
    return found


def _rows() -> dict[str, Case]:
    """Rows with a class and a number of their own."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def classes(y: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
        with numpyro.plate("rows", len(y)):
            c = numpyro.sample("c", dist.Bernoulli(0.4))
            a = numpyro.sample("a", dist.Normal(mu[c], 1.0))
            numpyro.sample("y", dist.Normal(a, 0.5), obs=y)

    rng = np.random.default_rng(12)
    y = np.concatenate([rng.normal(-1.0, 1.1, 6), rng.normal(1.5, 1.1, 6)])
    z = states(12, 2)
    log_p, mean, variance = normal_means(y, z, 2, math.sqrt(1.25), ([-2.0, 2.0], 1.0))
    log_p = log_p + z.sum(axis=1) * math.log(0.4) + (1 - z).sum(axis=1) * math.log(0.6)
    truth = mixed(log_p, {"mu": (mean, variance)})
    return named("a class and an effect", classes, truth, {"y": y}, {
        "auto": "auto", "CAVI": lb.CAVI(), "batches": lb.SVI(batch_size=4, steps=300),
        "few batches": lb.SVI(batch_size=4, steps=2),
    })  # fmt: skip


def _outliers() -> dict[str, Case]:
    """Rows that may be outliers."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def outliers(x: Any, y: Any) -> None:
        b = numpyro.sample("b", dist.Normal(0.0, 3.0))
        with numpyro.plate("rows", len(y)):
            out = numpyro.sample("out", dist.Bernoulli(0.2))
            numpyro.sample("y", dist.Normal(b * x, jnp.where(out == 1, 5.0, 0.5)), obs=y)

    x = np.linspace(0.2, 2, 10)
    y = np.where(np.arange(10) % 2 == 0, 1.5, -0.5) * x + 0.1 * np.sin(7 * x)
    z = states(10, 2)
    noise = np.where(z == 1, 5.0, 0.5)
    precision = 1 / 9 + (x**2 / noise**2).sum(axis=1)
    mean = (x * y / noise**2).sum(axis=1) / precision
    log_p = -np.log(noise).sum(axis=1) - 0.5 * (y**2 / noise**2).sum(axis=1)
    log_p = log_p + 0.5 * precision * mean**2 - 0.5 * np.log(precision)
    log_p = log_p + z.sum(axis=1) * math.log(0.2 / 0.8)
    truth = mixed(log_p, {"b": (mean, 1 / precision)})
    return named("two lines, one of outliers", outliers, truth, {"x": x, "y": y}, {
        "auto": "auto", "CAVI": lb.CAVI(), "ten restarts": lb.CAVI(restarts=10),
        "Gaussian": lb.Gaussian(starts=1),
    })  # fmt: skip


def _wholly() -> dict[str, Case]:
    """Nothing but discrete sites."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def alarm(call: Any) -> None:
        rain = numpyro.sample("rain", dist.Bernoulli(0.2))
        thief = numpyro.sample("thief", dist.Bernoulli(0.1))
        p = jnp.where(rain + thief == 2, 0.99, jnp.where(rain + thief == 1, 0.9, 0.05))
        rings = numpyro.sample("rings", dist.Bernoulli(p))
        numpyro.sample("call", dist.Bernoulli(jnp.where(rings == 1, 0.7, 0.1)), obs=call)

    z = states(3, 2)
    both = z[:, 0] + z[:, 1]
    ring = np.array([0.05, 0.9, 0.99])[both]
    p = np.where(z[:, 0] == 1, 0.2, 0.8) * np.where(z[:, 1] == 1, 0.1, 0.9)
    p = p * np.where(z[:, 2] == 1, ring, 1 - ring) * np.where(z[:, 2] == 1, 0.7, 0.1)
    p /= p.sum()
    truth: Truth = {}
    for i, name in enumerate(("rain", "thief", "rings")):
        mean = float(p @ z[:, i])
        truth[name] = (mean, math.sqrt(mean * (1 - mean)))
    return named("an alarm", alarm, truth, {"call": np.array(1)}, {
        "auto": "auto", "enumerated": lb.Enumeration(), "CAVI": lb.CAVI(),
        "score": lb.ScoreFunctions(),
    })  # fmt: skip


def _regions() -> dict[str, Case]:
    """An effect that is there or not: a spike at zero, and a slab."""
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def slab(y: Any) -> None:
        there = numpyro.sample("there", dist.Bernoulli(0.5))
        b = numpyro.sample("b", dist.Normal(0.0, 2.0))
        numpyro.sample("y", dist.Normal(there * b, 1.0).expand([len(y)]).to_event(1), obs=y)

    y = np.array([0.9, 0.2, 1.1, 0.4, 0.6])
    total = 5 / 1.0
    precision = 0.25 + total
    mean = y.sum() / precision
    log_p = np.array([0.0, 0.5 * precision * mean**2 - 0.5 * math.log(precision / 0.25)])
    truth = mixed(log_p, {"b": (np.array([0.0, mean]), np.array([4.0, 1 / precision]))})
    return named("a spike and a slab", slab, truth, {"y": y}, {
        "auto": "auto", "CAVI": lb.CAVI(), "Gaussian": lb.Gaussian(),
    })  # fmt: skip

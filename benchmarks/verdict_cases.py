"""Fits that are wrong on purpose, and beside them some that are right: programs whose posterior is
known in closed form or by a sum over a fine grid, each with a method.

A case is a program, its data, a method, and mean and sd of some sites.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.known_posteriors import curves, hidden, levels, summits
from benchmarks.known_posteriors.case import Case, Truth, on_grid


def cases() -> dict[str, Case]:
    """All of them, by name."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    found: dict[str, Case] = {}
    rng = np.random.default_rng(0)

    # Mean field on correlated Gaussians
    def pair(rho: float) -> Callable[[], None]:
        root = np.linalg.cholesky(np.array([[1.0, rho], [rho, 1.0]]))

        def model() -> None:
            a = numpyro.sample("a", dist.Normal(0.0, 1.0))
            numpyro.sample("b", dist.Normal(rho * a, float(root[1, 1])))

        return model

    both: Truth = {"a": (0.0, 1.0), "b": (0.0, 1.0)}
    apart = lb.CAVI(blocks=[["a"], ["b"]])
    for rho in (0.3, 0.9, 0.99):
        found[f"mean field at {rho}"] = Case(pair(rho), both, apart)
        found[f"diagonal at {rho}"] = Case(pair(rho), both, lb.Gaussian(rank="diagonal"))
    found["full at 0.99"] = Case(pair(0.99), both, lb.Gaussian())

    def collinear(x: Any, y: Any) -> None:
        b = numpyro.sample("b", dist.Normal(0.0, 10.0).expand([x.shape[1]]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ b, 1.0), obs=y)

    x = rng.normal(size=(50, 4))
    x[:, 3] = x[:, 0] + 0.05 * rng.normal(size=50)
    y = x @ np.array([1.0, -1.0, 0.5, 0.0]) + rng.normal(size=50)
    covariance = np.linalg.inv(x.T @ x + 0.01 * np.eye(4))
    truth: Truth = {"b": (covariance @ x.T @ y, np.sqrt(np.diag(covariance)))}
    data = {"x": x, "y": y}
    found["collinear: diagonal"] = Case(collinear, truth, lb.Gaussian(rank="diagonal"), data)
    found["collinear: rank 1"] = Case(collinear, truth, lb.Gaussian(rank=1), data)
    found["collinear: exact"] = Case(collinear, truth, "auto", data)

    # Shapes that no Gaussian has
    def funnel() -> None:
        v = numpyro.sample("v", dist.Normal(0.0, 3.0))
        numpyro.sample("x", dist.Normal(0.0, jnp.exp(v / 2)).expand([9]).to_event(1))

    for name, method in (
        ("centred", lb.Gaussian(noncentred=())),
        ("auto", "auto"),
        ("diagonal", lb.Gaussian(rank="diagonal", noncentred=())),
    ):
        found[f"funnel: {name}"] = Case(funnel, {"v": (0.0, 3.0)}, method)

    def two_modes() -> None:
        law = dist.MixtureSameFamily(
            dist.Categorical(probs=jnp.array([0.6, 0.4])), dist.Normal(jnp.array([-3.0, 3.0]), 0.7)
        )
        numpyro.sample("z", law)

    mean = 0.6 * -3 + 0.4 * 3
    sd = math.sqrt(0.49 + 9 - mean**2)
    found["two modes"] = Case(two_modes, {"z": (mean, sd)}, lb.Gaussian())

    def near_modes() -> None:
        law = dist.MixtureSameFamily(
            dist.Categorical(probs=jnp.array([0.5, 0.5])), dist.Normal(jnp.array([-1.5, 1.5]), 0.8)
        )
        numpyro.sample("z", law)

    near = math.sqrt(0.64 + 2.25)
    found["two near modes"] = Case(near_modes, {"z": (0.0, near)}, lb.Laplace())

    for freedom in (2.5, 3.0, 6.0):

        def heavy(freedom: float = freedom) -> None:
            numpyro.sample("z", dist.StudentT(freedom, 0.0, 1.0).expand([3]).to_event(1))

        sds = np.full(3, math.sqrt(freedom / (freedom - 2)))
        found[f"Student {freedom:g}"] = Case(heavy, {"z": (np.zeros(3), sds)}, lb.Gaussian())
        found[f"Student {freedom:g}: Laplace"] = Case(
            heavy, {"z": (np.zeros(3), sds)}, lb.Laplace()
        )

    def banana() -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("b", dist.Normal(a**2, 0.2))

    sd_b = math.sqrt(0.04 + 2.0)
    for name, method in (("full", lb.Gaussian()), ("Laplace", lb.Laplace())):
        truth = {"a": (0.0, 1.0), "b": (1.0, sd_b)}
        found[f"banana: {name}"] = Case(banana, truth, method)

    # Skew and boundaries
    for count in (0, 2, 30):

        def rate(y: Any) -> None:
            r = numpyro.sample("r", dist.Gamma(0.5, 0.01))
            numpyro.sample("y", dist.Poisson(r), obs=y)

        shape = 0.5 + count
        truth = {"r": (shape / 1.01, math.sqrt(shape) / 1.01)}
        data = {"y": np.array([float(count)])}
        found[f"rate of {count}: Laplace"] = Case(rate, truth, lb.Laplace(), data)
        found[f"rate of {count}: Gaussian"] = Case(rate, truth, lb.Gaussian(), data)

    def edge(y: Any) -> None:
        p = numpyro.sample("p", dist.Uniform(0.0, 1.0))
        numpyro.sample("y", dist.Normal(p, 0.3).expand([len(y)]).to_event(1), obs=y)

    y = 1.25 + 0.1 * rng.normal(size=8)
    centre = float(y.mean())
    truth = {"p": on_grid(lambda p: -0.5 * 8 * (centre - p) ** 2 / 0.09, 0.0, 1.0)}
    found["at its bound: Gaussian"] = Case(edge, truth, lb.Gaussian(), {"y": y})
    found["at its bound: auto"] = Case(edge, truth, "auto", {"y": y})

    def cells(n: Any) -> None:
        p = numpyro.sample("p", dist.Dirichlet(np.full(len(n), 0.1)))
        numpyro.sample("n", dist.Multinomial(int(np.sum(n)), p), obs=n)

    n = np.array([12, 5, 0, 0, 1])
    alpha = 0.1 + n
    total = alpha.sum()
    truth = {"p": (alpha / total, np.sqrt(alpha * (total - alpha) / total**2 / (total + 1)))}
    found["sparse cells: Gaussian"] = Case(cells, truth, lb.Gaussian(), {"n": n})
    found["sparse cells: exact"] = Case(cells, truth, "auto", {"n": n})

    # Stopped, or stuck
    def ridge(y: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 10.0))
        b = numpyro.sample("b", dist.Normal(0.0, 10.0))
        numpyro.sample("y", dist.Normal(a + 1.01 * b, 1.0).expand([len(y)]).to_event(1), obs=y)

    y = 5.0 + rng.normal(size=40)
    design = np.array([[1.0, 1.01]] * 40)
    covariance = np.linalg.inv(design.T @ design + 0.01 * np.eye(2))
    m = covariance @ design.T @ y
    s = np.sqrt(np.diag(covariance))
    truth = {"a": (m[0], s[0]), "b": (m[1], s[1])}
    early = lb.CAVI(blocks=[["a"], ["b"]], max_sweeps=2)
    found["stopped early"] = Case(ridge, truth, early, {"y": y})
    found["not stopped"] = Case(ridge, truth, "auto", {"y": y})

    def clusters(x: Any) -> None:
        w = numpyro.sample("w", dist.Beta(1.0, 1.0))
        low = numpyro.sample("low", dist.Normal(-1.0, 5.0))
        gap = numpyro.sample("gap", dist.LogNormal(0.0, 1.5))
        law = dist.MixtureSameFamily(
            dist.Categorical(probs=jnp.stack([1 - w, w])),
            dist.Normal(jnp.stack([low, low + gap]), 0.5),
        )
        with numpyro.plate("rows", len(x)):
            numpyro.sample("x", law, obs=x)

    x = np.concatenate([rng.normal(-2, 0.5, 30), rng.normal(2, 0.5, 20)])
    assigned = {"w": (21 / 52, math.sqrt(21 * 31 / 52**2 / 53))}
    found["clusters"] = Case(clusters, assigned, lb.Gaussian(), {"x": x})
    stuck = lb.Laplace(init={"w": 0.02, "low": 0.0, "gap": 30.0})
    found["clusters: from afar"] = Case(clusters, assigned, stuck, {"x": x})
    found |= _scales(rng) | _batches(rng)
    return found


def untuned() -> dict[str, Case]:
    """Cases that no constant of the verdict was set on."""
    return summits.cases() | curves.cases() | hidden.cases() | levels.cases()


def _scales(rng: np.random.Generator) -> dict[str, Case]:
    """A scale of effects that are hardly known: mean field takes it for known, a mode for zero."""
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def effects(y: Any) -> None:
        s = numpyro.sample("s", dist.HalfNormal(2.0))
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Normal(0.0, s))
            numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    found = {}
    for spread in (0.3, 2.0):
        y = spread * rng.normal(size=12) + rng.normal(size=12)

        def log_density(s: np.ndarray, y: np.ndarray = y) -> np.ndarray:
            variance = 1.0 + s**2
            return -0.125 * s**2 - 6.0 * np.log(variance) - 0.5 * (y @ y) / variance

        truth = {"s": on_grid(log_density, 0.0, 12.0)}
        data = {"y": y}
        for name, method in (
            ("mean field", lb.CAVI()),
            ("diagonal", lb.Gaussian(rank="diagonal", noncentred=())),
            ("auto", "auto"),
        ):
            found[f"effects of {spread:g}: {name}"] = Case(effects, truth, method, data)
    return found


def _batches(rng: np.random.Generator) -> dict[str, Case]:
    """Rows in batches: few steps, many, and the wrong scale; and components in a wrong place."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def level(x: Any) -> None:
        m = numpyro.sample("m", dist.Normal(0.0, 10.0))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("x", dist.Normal(m, 1.0), obs=x)

    x = 2.0 + rng.normal(size=4000)
    precision = 4000 + 0.01
    truth: Truth = {"m": (x.sum() / precision, precision**-0.5)}
    data = {"x": x}
    found = {
        "batches: few steps": Case(level, truth, lb.SVI(batch_size=20, steps=8), data),
        "batches: many steps": Case(level, truth, lb.Memoized(visits=200), data),
        "wrong batch scale": Case(level, truth, 400, data),
        "half of the rows": Case(level, truth, 2000, data),
        "all rows": Case(level, truth, 4000, data),
    }

    def three(x: Any) -> None:
        w = numpyro.sample("w", dist.Dirichlet(jnp.ones(3)))
        with numpyro.plate("components", 3):
            mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        with numpyro.plate("rows", len(x)):
            c = numpyro.sample("c", dist.Categorical(w))
            numpyro.sample("x", dist.Normal(mu[c], 1.0), obs=x)

    places = np.array([-20.0, -12.0, 20.0])
    x = np.concatenate([rng.normal(place, 1.0, 30) for place in places])
    held = 30.0 + 0.01
    truth = {"mu": (x.reshape(3, 30).sum(axis=1) / held, np.full(3, held**-0.5))}
    for name, start in (("wrong", [-16.0, 19.0, 21.0]), ("right", list(places))):
        method = lb.CAVI(restarts=1, init={"mu": np.array(start)})
        found[f"components in a {name} place"] = Case(three, truth, method, {"x": x})
    return found

"""Public calls with batched linear algebra, one program for every rung: what `hang` repeats."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound.names as lb


@dataclass(frozen=True)
class Case:
    """A program, its arguments, and the method that fits it."""

    model: Callable[..., None]
    arguments: Mapping[str, Any]
    method: Any = "auto"
    few: tuple[str, ...] = ()  # arguments that prediction gets some rows of
    rows: int = field(default=20, kw_only=True)


def _rng() -> np.random.Generator:
    return np.random.default_rng(20)


def regression(X: np.ndarray, y: Any = None) -> None:
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


def conjugate_regression(X: np.ndarray, y: Any = None) -> None:
    tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
    scale = 1 / jnp.sqrt(tau)
    beta = numpyro.sample("beta", dist.Normal(0.0, scale).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ beta, scale), obs=y)


def mixed(X: np.ndarray, group: np.ndarray, groups: int, y: Any = None) -> None:
    """Effects of groups under an unknown scale, and noise of an unknown one: a grid of two."""
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("groups", groups):
        effect = numpyro.sample("effect", dist.Normal(0.0, tau))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ beta + effect[group], sigma), obs=y)


def logistic(X: np.ndarray, y: Any = None) -> None:
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, tau).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ beta), obs=y)


def wishart_mixture(X: np.ndarray, K: int) -> None:
    d = X.shape[1]
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K):
        precision = numpyro.sample("precision", dist.Wishart(d + 2.0, jnp.eye(d)))
        mu = numpyro.sample("mu", dist.MultivariateNormal(jnp.zeros(d), 10 * jnp.eye(d)))
    with numpyro.plate("rows", X.shape[0]):
        c = numpyro.sample("c", dist.Categorical(weights))
        numpyro.sample("x", dist.MultivariateNormal(mu[c], precision_matrix=precision[c]), obs=X)


def correlated_groups(X: np.ndarray, group: np.ndarray, groups: int, y: Any = None) -> None:
    """A user's MultivariateNormal with an unknown covariance, once for every group."""
    d = X.shape[1]
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([d]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(d, 2.0))
    root = scale[:, None] * factor
    with numpyro.plate("groups", groups):
        beta = numpyro.sample("beta", dist.MultivariateNormal(jnp.zeros(d), scale_tril=root))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal((X * beta[group]).sum(-1), sigma), obs=y)


def vectors(X: np.ndarray, x: Any = None) -> None:
    """Data with a MultivariateNormal of their own covariance each: batched by rows and draws."""
    n, d = X.shape
    length = numpyro.sample("length", dist.LogNormal(0.0, 0.5))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([d]).to_event(1))
    distance = (X[:, :, None] - X[:, None, :]) ** 2
    covariance = jnp.exp(-distance / (2 * length**2)) + (0.1 + noise**2) * jnp.eye(d)
    with numpyro.plate("rows", n):
        numpyro.sample("x", dist.MultivariateNormal(mu, covariance), obs=x)


def many_scales(X: np.ndarray, y: Any = None) -> None:
    """A scale for every coefficient: chains of NUTS, with the coefficients integrated out."""
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    own = numpyro.sample("own", dist.HalfCauchy(1.0).expand([X.shape[1]]).to_event(1))
    beta = numpyro.sample("beta", dist.Normal(0.0, tau * own).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


def states(y: Any) -> None:
    """A latent autoregression of two numbers: chains over its matrix, states along a band."""
    A = numpyro.sample("A", dist.Normal(0.0, 0.5).expand([2, 2]).to_event(2))
    q = numpyro.sample("q", dist.HalfNormal(1.0).expand([2]).to_event(1))
    r = numpyro.sample("r", dist.HalfNormal(1.0))
    z = numpyro.sample("z", dist.Normal(0.0, 5.0).expand([len(y), 2]).to_event(2).mask(False))
    numpyro.factor("first", dist.Normal(0.0, 1.0).log_prob(z[0]).sum())
    numpyro.factor("steps", dist.Normal(z[:-1] @ A.T, q).log_prob(z[1:]).sum())
    numpyro.sample("y", dist.Normal(z, r).to_event(2), obs=y)


def _regression(n: int, d: int) -> dict[str, np.ndarray]:
    rng = _rng()
    X = rng.normal(size=(n, d))
    return {"X": X, "y": X @ rng.normal(size=d) + rng.normal(size=n)}


def _grouped(n: int, d: int, groups: int) -> dict[str, Any]:
    data = _regression(n, d)
    return {**data, "group": np.arange(n) % groups, "groups": groups}


def cases() -> dict[str, Case]:
    """A case for every rung of the ladder, by name."""
    wide = _regression(100, 40)
    binary = {"X": wide["X"][:, :12], "y": (wide["y"] > 0).astype(float)}
    points = _rng().normal(size=(300, 6)) + 4 * (np.arange(300) % 3)[:, None]
    groups = _grouped(120, 4, 30)
    times = np.sort(_rng().uniform(0, 5, size=(8, 20)), axis=1)
    gp = {"X": times, "x": np.sin(times) + 0.3 * _rng().normal(size=times.shape)}
    return {
        "exact": Case(conjugate_regression, wide, few=("X",)),
        "grid": Case(regression, wide, few=("X",)),
        "grid of two": Case(mixed, groups, few=("X", "group")),
        "sweeps": Case(wishart_mixture, {"X": points, "K": 4}, lb.CAVI(restarts=6), few=("X",)),
        "minibatches": Case(
            wishart_mixture, {"X": points, "K": 4}, lb.SVI(batch_size=64, steps=60), few=("X",)
        ),
        "augmented": Case(logistic, binary, few=("X",)),
        "integrated": Case(mixed, groups, lb.Integrated(), few=("X", "group")),
        "integrated logistic": Case(logistic, binary, lb.Integrated(), few=("X",)),
        "vectors of groups": Case(correlated_groups, _grouped(150, 4, 15), few=("X", "group")),
        "many scales": Case(many_scales, {"X": wide["X"][:, :14], "y": wide["y"]}, few=("X",)),
        "states": Case(states, {"y": _rng().normal(size=(60, 2)).cumsum(axis=0) / 3}),
        "Gaussian": Case(vectors, gp, lb.Gaussian()),
        "automatic": Case(vectors, gp),
    }


def fitted(case: Case, seed: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some steps are meant to be too few
        return lb.fit(case.model, **case.arguments, method=case.method, seed=seed, progress=False)


def judged(fit: Any, seed: int) -> None:
    """What compares a fit with the posterior, and brings it nearer."""
    with contextlib.suppress(lb.errors.LowerboundError):
        lb.check(fit)  # linear response is a part of it
    with contextlib.suppress(lb.errors.LowerboundError):
        lb.correct(fit, "psis").sample(1_000, seed=seed)


def calls(case: Case, fit: Any, seed: int) -> None:
    """Everything else that a fit can be asked, once."""
    sites = list(fit.sample(4_000, seed=seed))
    fit.summary()
    for site in sites:
        with contextlib.suppress(
            lb.errors.LowerboundError
        ):  # not all have a density in closed form
            fit.mean(site), fit.sd(site), fit.posterior[site]
    few = {
        name: value[: case.rows] if name in case.few else value
        for name, value in case.arguments.items()
    }
    with contextlib.suppress(lb.errors.LowerboundError):
        fit.log_predictive(**few)
    if "X" in few:
        free = {name: value for name, value in few.items() if name not in ("y", "x")}
        with contextlib.suppress(lb.errors.LowerboundError):
            fit.predictive(**free, seed=seed)
    fit.to_arviz()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.lb"
        fit.save(path)
        lb.load(path, case.model).sample(1_000, seed=seed)

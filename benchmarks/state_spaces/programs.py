"""Programs: each with its data, and without states where a Kalman filter takes them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from benchmarks.state_spaces.kalman import StateSpace, marginal


@dataclass(frozen=True)
class Program:
    """A program with its data. filtered: the same without its states; None where NUTS has all.

    mirrored: sites whose signs the data do not tell.
    """

    model: Callable[..., None]
    data: tuple[Any, ...]
    filtered: Callable[..., None] | None = None
    mirrored: tuple[str, ...] = ()


def half(name: str, scale: float = 1.0, size: int = 0) -> Any:
    law = dist.HalfNormal(scale)
    return numpyro.sample(name, law.expand([size]).to_event(1) if size else law)


def entries(name: str, *shape: int, scale: float = 0.5) -> Any:
    return numpyro.sample(name, dist.Normal(0.0, scale).expand(shape).to_event(len(shape)))


def simulated(space: StateSpace, steps: int, seed: int) -> np.ndarray:
    """Data of a state space."""
    rng = np.random.default_rng(seed)
    A, Q, C, R, m, P = (np.asarray(part, float) for part in space)
    z, found = rng.multivariate_normal(m, P), []
    for t in range(steps):
        z = A @ z + rng.multivariate_normal(np.zeros(len(m)), Q)
        loadings = C[t] if C.ndim == 3 else C
        found.append(loadings @ z + np.sqrt(R) * rng.normal(size=len(R)))
    return np.array(found)


# ---------------------------------------------------------------------------- a latent VAR(1), scan


def var_parameters(d: int) -> tuple[Any, Any, Any]:
    return entries("A", d, d), half("q", 1.0, d), half("r")


def var_scan(y: Any) -> None:
    """A vector autoregression with noise, a vector a step."""
    d = y.shape[1]
    A, q, r = var_parameters(d)

    def step(z: Any, y: Any) -> tuple[Any, None]:
        z = numpyro.sample("z", dist.Normal(A @ z, q).to_event(1))
        numpyro.sample("y", dist.Normal(z, r).to_event(1), obs=y)
        return z, None

    scan(step, jnp.zeros(d), y)


def var_filtered(y: Any) -> None:
    d = y.shape[1]
    A, q, r = var_parameters(d)
    still = jnp.zeros(d), jnp.zeros((d, d))
    marginal(StateSpace(A, jnp.diag(q**2), jnp.eye(d), r**2 * jnp.ones(d), *still), y)


def var_data(A: np.ndarray, steps: int, seed: int) -> np.ndarray:
    d = len(A)
    still = np.zeros(d), np.zeros((d, d))
    return simulated(
        StateSpace(A, 0.5 * np.eye(d), np.eye(d), 0.3 * np.ones(d), *still), steps, seed
    )


# --------------------------------------------------------------- the same with LKJ innovations


def lkj_parameters(d: int) -> tuple[Any, Any, Any]:
    A = entries("A", d, d)
    tau = half("tau", 1.0, d)
    L = numpyro.sample("L", dist.LKJCholesky(d, concentration=2.0))
    return A, tau[:, None] * L, half("r", 0.5)


def var_lkj(y: Any) -> None:
    """The same with correlated innovations."""
    d = y.shape[1]
    A, root, r = lkj_parameters(d)

    def step(z: Any, y: Any) -> tuple[Any, None]:
        z = numpyro.sample("z", dist.MultivariateNormal(A @ z, scale_tril=root))
        numpyro.sample("y", dist.Normal(z, r).to_event(1), obs=y)
        return z, None

    scan(step, jnp.zeros(d), y)


def lkj_filtered(y: Any) -> None:
    d = y.shape[1]
    A, root, r = lkj_parameters(d)
    still = jnp.zeros(d), jnp.zeros((d, d))
    marginal(StateSpace(A, root @ root.T, jnp.eye(d), r**2 * jnp.ones(d), *still), y)


# --------------------------------------------------------- one factor of several series, by a loop


def factor_parameters(n: int) -> tuple[Any, Any, Any]:
    C = numpyro.sample("loadings", dist.Normal(0.0, 1.0).expand([n]).to_event(1))
    return C, numpyro.sample("rho", dist.Uniform(-1.0, 1.0)), half("noise", 1.0, n)


def factor_loop(y: Any) -> None:
    """A dynamic factor of unit innovations, a site a step; the data do not tell its sign."""
    C, rho, noise = factor_parameters(y.shape[1])
    f = 0.0
    for t in range(len(y)):
        f = numpyro.sample(f"f_{t}", dist.Normal(rho * f, 1.0))
        numpyro.sample(f"y_{t}", dist.Normal(C * f, noise).to_event(1), obs=y[t])


def factor_filtered(y: Any) -> None:
    C, rho, noise = factor_parameters(y.shape[1])
    one = jnp.ones((1, 1))
    space = StateSpace(rho * one, one, C[:, None], noise**2, jnp.zeros(1), 0.0 * one)
    marginal(space, y)


# ------------------------------------------------------------------- two factors of six series


def factors_parameters(n: int, k: int) -> tuple[Any, Any, Any]:
    free = entries("free", n * k - k * (k + 1) // 2, scale=1.0)
    diagonal = half("diagonal", 1.0, k)
    below = np.tril_indices(n, -1, k)
    C = jnp.zeros((n, k)).at[np.arange(k), np.arange(k)].set(diagonal).at[below].set(free)
    rho = numpyro.sample("rho", dist.Normal(0.5, 0.3).expand([k]).to_event(1))
    return C, rho, half("noise", 1.0, n)


def two_factors(y: Any) -> None:
    """Loadings below a positive diagonal, which tells factors and their signs apart."""
    C, rho, noise = factors_parameters(y.shape[1], 2)

    def step(f: Any, y: Any) -> tuple[Any, None]:
        f = numpyro.sample("f", dist.Normal(rho * f, 1.0).to_event(1))
        numpyro.sample("y", dist.Normal(C @ f, noise).to_event(1), obs=y)
        return f, None

    scan(step, jnp.zeros(2), y)


def two_factors_filtered(y: Any) -> None:
    C, rho, noise = factors_parameters(y.shape[1], 2)
    still = jnp.zeros(2), jnp.zeros((2, 2))
    marginal(StateSpace(jnp.diag(rho), jnp.eye(2), C, noise**2, *still), y)


# ------------------------------------------------------------- a regression whose coefficients walk


def walking_parameters(k: int) -> tuple[Any, Any]:
    return half("drift", 0.5, k), half("noise")


def walking(X: Any, y: Any) -> None:
    """Coefficients that walk, each with a scale of its own."""
    k = X.shape[1]
    drift, noise = walking_parameters(k)
    first = numpyro.sample("first", dist.Normal(0.0, 2.0).expand([k]).to_event(1))

    def step(b: Any, now: Any) -> tuple[Any, None]:
        x, y = now
        b = numpyro.sample("b", dist.Normal(b, drift).to_event(1))
        numpyro.sample("y", dist.Normal(x @ b, noise), obs=y)
        return b, None

    scan(step, first, (X, y))


def walking_filtered(X: Any, y: Any) -> None:
    k = X.shape[1]
    drift, noise = walking_parameters(k)
    start = jnp.zeros(k), 4.0 * jnp.eye(k)
    space = StateSpace(
        jnp.eye(k), jnp.diag(drift**2), jnp.asarray(X)[:, None], noise**2 * jnp.ones(1), *start
    )
    marginal(space, jnp.asarray(y)[:, None])


# ---------------------------------------------------------------------- a latent AR(2), by slices


def ar2_parameters() -> tuple[Any, Any, Any]:
    phi = numpyro.sample("phi", dist.Normal(0.0, 0.7).expand([2]).to_event(1))
    return phi, half("q"), half("r")


def ar2_slices(y: Any) -> None:
    """An autoregression of order two with noise, by slices of one site."""
    phi, q, r = ar2_parameters()
    z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real, (), (len(y),)))
    numpyro.factor("start", dist.Normal(0.0, 2.0).log_prob(z[:2]).sum())
    moved = phi[0] * z[1:-1] + phi[1] * z[:-2]
    numpyro.factor("moves", dist.Normal(moved, q).log_prob(z[2:]).sum())
    numpyro.sample("y", dist.Normal(z, r).to_event(1), obs=y)


def ar2_filtered(y: Any) -> None:
    phi, q, r = ar2_parameters()
    y = jnp.asarray(y)
    total = jnp.sqrt(4.0 + r**2)
    numpyro.factor("first", dist.Normal(0.0, total).log_prob(y[:2]).sum())
    share = 4.0 / (4.0 + r**2)
    m, P = share * y[1::-1], share * r**2 * jnp.eye(2)  # of z[1], z[0]
    A = jnp.stack([phi, jnp.array([1.0, 0.0])])
    Q = jnp.zeros((2, 2)).at[0, 0].set(q**2)
    space = StateSpace(A, Q, jnp.array([[1.0, 0.0]]), r**2 * jnp.ones(1), m, P)
    marginal(space, y[2:, None])


# ------------------------------------------------------------------------ structural, seven scales


def structural(y: Any, season: int) -> None:
    """Level, slope, season, cycle of a week and two regressions that walk: seven scales."""
    s = {n: half(n, 0.5) for n in ("level", "slope", "season", "week", "first", "second", "noise")}
    rng = np.random.default_rng(7)
    x = rng.normal(size=(2, len(y)))
    steps = len(y)

    def walk(name: str, scale: Any) -> Any:
        return numpyro.sample(name, dist.GaussianRandomWalk(scale, num_steps=steps))

    slope = walk("slopes", 0.05 * s["slope"])
    drift = numpyro.sample("levels", dist.Normal(0.0, 1.0).expand([steps]).to_event(1))
    level = jnp.cumsum(s["level"] * drift + slope)
    place = 2 * np.pi * np.arange(steps) / season
    wave = walk("waves", 0.2 * s["season"]) * np.cos(place)
    week = walk("weeks", 0.2 * s["week"]) * np.cos(2 * np.pi * np.arange(steps) / 7.0)
    driven = walk("b0", s["first"]) * x[0] + walk("b1", s["second"]) * x[1]
    numpyro.sample("y", dist.Normal(level + wave + week + driven, s["noise"]), obs=y)


def structural_data(steps: int) -> tuple[np.ndarray, int]:
    rng = np.random.default_rng(3)
    x = np.random.default_rng(7).normal(size=(2, steps))
    time = np.arange(steps)
    level = np.cumsum(0.2 * rng.normal(size=steps) + 0.01)
    driven = np.cumsum(0.05 * rng.normal(size=(2, steps)), axis=1) + 1.0
    y = level + np.cos(2 * np.pi * time / 365) + 0.5 * np.cos(2 * np.pi * time / 7)
    return y + (driven * x).sum(axis=0) + 0.5 * rng.normal(size=steps), 365


# --------------------------------------------------------------------------- stochastic volatility


def volatility(y: Any) -> None:
    """A log variance that moves around a mean."""
    mu = numpyro.sample("mu", dist.Normal(-1.0, 2.0))
    phi = numpyro.sample("phi", dist.Uniform(-1.0, 1.0))
    sigma = half("sigma")
    start = numpyro.sample("h0", dist.Normal(mu, sigma / jnp.sqrt(1.0 - phi**2)))

    def step(h: Any, y: Any) -> tuple[Any, None]:
        h = numpyro.sample("h", dist.Normal(mu + phi * (h - mu), sigma))
        numpyro.sample("y", dist.Normal(0.0, jnp.exp(0.5 * h)), obs=y)
        return h, None

    scan(step, start, y)


def volatility_data(steps: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    h, found = 0.0, []
    for _ in range(steps):
        h = -1.0 + 0.95 * (h + 1.0) + 0.25 * rng.normal()
        found.append(np.exp(0.5 * h) * rng.normal())
    return np.array(found)


# -------------------------------------------------- local level and regression, Student-t errors


def robust(X: Any, y: Any) -> None:
    """A level that walks, a regression, and errors with heavy tails."""
    b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([X.shape[1]]).to_event(1))
    walk, noise = half("walk", 0.5), half("noise")
    nu = numpyro.sample("nu", dist.Gamma(2.0, 0.1))
    level = numpyro.sample("level", dist.GaussianRandomWalk(walk, num_steps=len(y)))
    numpyro.sample("y", dist.StudentT(nu, level + X @ b, noise).to_event(1), obs=y)


def robust_data(steps: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    X = rng.normal(size=(steps, 2))
    level = np.cumsum(0.15 * rng.normal(size=steps))
    return X, level + X @ [1.0, -0.5] + 0.4 * rng.standard_t(4.0, size=steps)


# ---------------------------------------------------------------------------- level, slope, season


def seasonal_parameters() -> tuple[Any, ...]:
    return tuple(half(name) for name in ("q", "u", "turn", "r"))


def seasonal(y: Any) -> None:
    """A level with a slope and a season of four, all scales unknown."""
    q, u, turn, r = seasonal_parameters()
    first = numpyro.sample("first", dist.Normal(0.0, 2.0).expand([3]).to_event(1))

    def step(state: Any, y: Any) -> tuple[Any, None]:
        z, slope, season = state
        z = numpyro.sample("z", dist.Normal(z + slope, q))
        slope = numpyro.sample("slope", dist.Normal(slope, u))
        now = numpyro.sample("season", dist.Normal(-season.sum(), turn))
        numpyro.sample("y", dist.Normal(z + now, r), obs=y)
        return (z, slope, jnp.concatenate([now[None], season[:-1]])), None

    scan(step, (0.0, 0.0, first), y)


def seasonal_filtered(y: Any) -> None:
    q, u, turn, r = seasonal_parameters()
    A = jnp.array(
        [[1, 1, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, -1, -1, -1], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]],
        float,
    )
    Q = jnp.diag(jnp.stack([q**2, u**2, turn**2, 0.0, 0.0]))
    C = jnp.array([[1.0, 0.0, 1.0, 0.0, 0.0]])
    P = jnp.diag(jnp.array([0.0, 0.0, 4.0, 4.0, 4.0]))
    space = StateSpace(A, Q, C, r**2 * jnp.ones(1), jnp.zeros(5), P)
    marginal(space, jnp.asarray(y)[:, None])


def seasonal_data(steps: int) -> np.ndarray:
    rng = np.random.default_rng(8)
    slope = np.cumsum(0.02 * rng.normal(size=steps))
    level = np.cumsum(slope + 0.3 * rng.normal(size=steps))
    return level + np.resize([1.0, -0.5, -1.5, 1.0], steps) + rng.normal(size=steps)


# --------------------------------- a level and a cycle; kept aside while constants were set


def cycle_parameters() -> tuple[Any, ...]:
    rho = numpyro.sample("rho", dist.Beta(5.0, 1.0))
    turn = numpyro.sample("turn", dist.Uniform(0.1, 1.5))
    return rho, turn, half("s"), half("q"), half("r")


def cycle(y: Any) -> None:
    """A level that walks, and a cycle of unknown length and damping."""
    rho, turn, s, q, r = cycle_parameters()
    cos, sin = rho * jnp.cos(turn), rho * jnp.sin(turn)

    def step(state: Any, y: Any) -> tuple[Any, None]:
        z, a, b = state
        z = numpyro.sample("z", dist.Normal(z, q))
        a, b = (
            numpyro.sample("a", dist.Normal(cos * a + sin * b, s)),
            numpyro.sample("b", dist.Normal(cos * b - sin * a, s)),
        )
        numpyro.sample("y", dist.Normal(z + a, r), obs=y)
        return (z, a, b), None

    scan(step, (0.0, 0.0, 0.0), y)


def cycle_filtered(y: Any) -> None:
    rho, turn, s, q, r = cycle_parameters()
    cos, sin = rho * jnp.cos(turn), rho * jnp.sin(turn)
    A = jnp.eye(3).at[1, 1].set(cos).at[2, 2].set(cos)
    A = A.at[1, 2].set(sin).at[2, 1].set(-sin)
    Q = jnp.diag(jnp.stack([q**2, s**2, s**2]))
    C = jnp.array([[1.0, 1.0, 0.0]])
    space = StateSpace(A, Q, C, r**2 * jnp.ones(1), jnp.zeros(3), jnp.zeros((3, 3)))
    marginal(space, jnp.asarray(y)[:, None])


# --------------------------------- one factor and series of their own memory; kept aside too


def common_parameters(n: int) -> tuple[Any, ...]:
    first = half("first")
    others = entries("others", n - 1, scale=1.0)
    C = jnp.concatenate([first[None], others])
    phi = numpyro.sample("phi", dist.Uniform(-1.0, 1.0))
    rho = numpyro.sample("rho", dist.Normal(0.0, 0.5).expand([n]).to_event(1))
    return C, phi, rho, half("s", 1.0, n)


def common(y: Any) -> None:
    """A common factor and autoregressive parts of each series, measured with little noise."""
    n = y.shape[1]
    C, phi, rho, s = common_parameters(n)

    def step(state: Any, y: Any) -> tuple[Any, None]:
        f, u = state
        f = numpyro.sample("f", dist.Normal(phi * f, 1.0))
        u = numpyro.sample("u", dist.Normal(rho * u, s).to_event(1))
        numpyro.sample("y", dist.Normal(C * f + u, 0.2).to_event(1), obs=y)
        return (f, u), None

    scan(step, (0.0, jnp.zeros(n)), y)


def common_filtered(y: Any) -> None:
    n = y.shape[1]
    C, phi, rho, s = common_parameters(n)
    A = jnp.diag(jnp.concatenate([phi[None], rho]))
    Q = jnp.diag(jnp.concatenate([jnp.ones(1), s**2]))
    loadings = jnp.concatenate([C[:, None], jnp.eye(n)], axis=1)
    still = jnp.zeros(n + 1), jnp.zeros((n + 1, n + 1))
    marginal(StateSpace(A, Q, loadings, 0.04 * jnp.ones(n), *still), y)


# --------------------------------------------------------------------------------------- the table


def _turning(d: int) -> np.ndarray:
    A = 0.5 * np.eye(d) + 0.25 * np.eye(d, k=1) - 0.2 * np.eye(d, k=-1)
    return np.asarray(A)


def _factor_data(C: np.ndarray, rho: np.ndarray, steps: int, seed: int) -> np.ndarray:
    k = len(rho)
    noise = 0.25 * np.ones(len(C))
    space = StateSpace(np.diag(rho), np.eye(k), C, noise, np.zeros(k), np.zeros((k, k)))
    return simulated(space, steps, seed)


def _walking_data(steps: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    X = np.column_stack([np.ones(steps), rng.normal(size=(steps, 2))])
    b = np.cumsum(np.array([0.2, 0.05, 0.01]) * rng.normal(size=(steps, 3)), axis=0)
    b = b + np.array([1.0, 0.5, -1.0])
    return X, (b * X).sum(axis=1) + 0.5 * rng.normal(size=steps)


def _ar2_data(steps: int) -> np.ndarray:
    A = np.array([[1.2, -0.5], [1.0, 0.0]])
    Q, C = np.diag([0.3, 0.0]), np.array([[1.0, 0.0]])
    space = StateSpace(A, Q, C, 0.2 * np.ones(1), np.zeros(2), np.eye(2))
    return simulated(space, steps, 2)[:, 0]


def _cycle_data(steps: int) -> np.ndarray:
    cos, sin = 0.95 * np.cos(0.5), 0.95 * np.sin(0.5)
    A = np.array([[1.0, 0.0, 0.0], [0.0, cos, sin], [0.0, -sin, cos]])
    Q, C = np.diag([0.02, 0.1, 0.1]), np.array([[1.0, 1.0, 0.0]])
    space = StateSpace(A, Q, C, 0.1 * np.ones(1), np.zeros(3), np.zeros((3, 3)))
    return simulated(space, steps, 9)[:, 0]


def _common_data(steps: int) -> np.ndarray:
    C = np.concatenate([np.array([[1.0], [0.7], [-0.8]]), np.eye(3)], axis=1)
    A, Q = np.diag([0.8, 0.5, 0.2, -0.3]), np.diag([1.0, 0.3, 0.3, 0.5])
    return simulated(StateSpace(A, Q, C, 0.04 * np.ones(3), np.zeros(4), np.eye(4)), steps, 10)


LOADINGS = np.array([[1.0, 0.0], [0.4, 0.8], [-0.6, 0.5], [0.7, -0.4], [0.2, 0.9], [0.9, 0.3]])


def programs() -> dict[str, Program]:
    """All of them, with their data."""
    one = _factor_data(np.array([[1.0], [-0.6], [0.8], [0.5]]), np.array([0.8]), 60, 1)
    two = _factor_data(LOADINGS, np.array([0.8, 0.4]), 150, 2)
    return {
        "var2": Program(var_scan, (var_data(_turning(2), 200, 0),), var_filtered),
        "var5": Program(var_scan, (var_data(_turning(5), 150, 0),), var_filtered),
        "lkj": Program(var_lkj, (var_data(_turning(3), 200, 1),), lkj_filtered),
        "factor": Program(factor_loop, (one,), factor_filtered, ("loadings",)),
        "two factors": Program(two_factors, (two,), two_factors_filtered),
        "walking": Program(walking, _walking_data(300), walking_filtered),
        "ar2": Program(ar2_slices, (_ar2_data(300),), ar2_filtered),
        "structural": Program(structural, structural_data(1095)),
        "volatility": Program(volatility, (volatility_data(500),)),
        "robust": Program(robust, robust_data(300)),
        "seasonal": Program(seasonal, (seasonal_data(1000),), seasonal_filtered),
        "cycle": Program(cycle, (_cycle_data(200),), cycle_filtered),
        "common": Program(common, (_common_data(120),), common_filtered),
    }

"""Shapes that a Gaussian lacks: funnels, bananas, tails, bounds, ridges."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import betaln, gammaln, log_ndtr

from benchmarks.known_posteriors.case import (
    Case,
    Truth,
    log_normal,
    mixed,
    named,
    on_grid,
    on_mesh,
    weighed,
)


def cases() -> dict[str, Case]:
    """All of them, by name."""
    return _bent() | _tails() | _bounds() | _cut() | _sparse() | _ridges()


def _bent() -> dict[str, Case]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def funnel(y: Any) -> None:
        v = numpyro.sample("v", dist.Normal(0.0, 2.0))
        with numpyro.plate("rows", len(y)):
            x = numpyro.sample("x", dist.Normal(0.0, jnp.exp(v)))
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    y = np.array([0.4, -1.1, 0.7])

    def height(v: np.ndarray) -> np.ndarray:
        variance = 1 + np.exp(2 * v)
        found: np.ndarray = -v * v / 8 - 1.5 * np.log(variance) - 0.5 * (y @ y) / variance
        return found

    v = np.linspace(-20, 20, 40_001)
    share = 1 / (1 + np.exp(-2 * v))  # of y, that is x given v
    truth = mixed(height(v), {"v": (v, 0 * v), "x": (share[:, None] * y, share[:, None] + 0 * y)})
    found = named("a funnel with data", funnel, truth, {"y": y}, {
        "auto": "auto", "centred": lb.Gaussian(noncentred=()), "Gaussian": lb.Gaussian(),
        "diagonal": lb.Gaussian(rank="diagonal", noncentred=()),
        "Laplace": lb.Laplace(noncentred=()), "score": lb.ScoreMatching(),
    })  # fmt: skip

    def banana(y: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 2.0))
        b = numpyro.sample("b", dist.Normal(0.0, 2.0))
        numpyro.sample("y", dist.Normal(b + 0.5 * a**2, 0.4), obs=y)

    axes = {"a": np.linspace(-12, 12, 1201), "b": np.linspace(-12, 12, 1201)}
    truth = on_mesh(
        lambda a, b: -(a * a + b * b) / 8 - 0.5 * ((1.0 - b - 0.5 * a**2) / 0.4) ** 2, **axes
    )
    found |= named("a banana", banana, truth, {"y": np.array(1.0)}, {
        "auto": "auto", "Gaussian": lb.Gaussian(), "score": lb.ScoreMatching(),
        "diagonal": lb.Gaussian(rank="diagonal"), "stochastic": lb.StochasticGaussian(),
    })  # fmt: skip

    def decay(t: Any, y: Any) -> None:
        k = numpyro.sample("k", dist.LogNormal(-1.0, 1.0))
        start = numpyro.sample("start", dist.LogNormal(1.0, 1.0))
        level, levels = start, []
        for _ in range(20):  # Euler's steps
            level = level - 0.1 * k * level * level
            levels.append(level)
        numpyro.sample("y", dist.Normal(jnp.stack(levels)[t], 0.3).to_event(1), obs=y)

    t = np.array([4, 9, 14, 19])
    y = np.array([1.6, 1.1, 0.9, 0.3])

    def course(log_k: np.ndarray, log_start: np.ndarray) -> np.ndarray:
        k, level = np.exp(log_k), np.exp(log_start)
        found: np.ndarray = -0.5 * (log_k + 1) ** 2 - 0.5 * (log_start - 1) ** 2
        for step in range(20):
            level = level - 0.1 * k * level * level
            for one in y[t == step]:
                found = found - 0.5 * (level - one) ** 2 / 0.09
        return found

    a, b = (g.ravel() for g in np.meshgrid(np.linspace(-6, 3, 451), np.linspace(-2, 3, 451)))
    with np.errstate(all="ignore"):
        log_p = course(a, b)
    truth = weighed(
        np.where(np.isfinite(log_p), log_p, -np.inf), {"k": np.exp(a), "start": np.exp(b)}
    )
    found |= named("a differential equation", decay, truth, {"t": t, "y": y}, {
        "auto": "auto", "Gaussian": lb.Gaussian(),
    })  # fmt: skip
    return found


def _tails() -> dict[str, Case]:
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    y = np.array([0.3, -0.9, 1.4, 0.2, 7.5, -0.4, 0.8, 1.1])

    def robust(y: Any) -> None:
        m = numpyro.sample("m", dist.Normal(0.0, 5.0))
        s = numpyro.sample("s", dist.HalfNormal(2.0))
        nu = numpyro.sample("nu", dist.Gamma(2.0, 0.1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.StudentT(nu, m, s), obs=y)

    m, s, nu = (
        g.ravel()
        for g in np.meshgrid(
            np.linspace(-6, 6, 121), np.linspace(-3, 2, 101), np.linspace(-3.5, 5.5, 121)
        )
    )
    log_p = -m * m / 50 - np.exp(2 * s) / 8 + s + 2 * nu - 0.1 * np.exp(nu)
    n = np.exp(nu)
    constant = gammaln((n + 1) / 2) - gammaln(n / 2) - 0.5 * nu - s
    for one in y:
        log_p = log_p + constant - (n + 1) / 2 * np.log1p(((one - m) / np.exp(s)) ** 2 / n)
    truth = weighed(log_p, {"m": m, "s": np.exp(s), "nu": n})
    found = named("Student errors", robust, truth, {"y": y}, {
        "auto": "auto", "Gaussian": lb.Gaussian(), "Laplace": lb.Laplace(),
    })  # fmt: skip

    def improper(y: Any) -> None:
        m = numpyro.sample("m", dist.ImproperUniform(dist.constraints.real, (), ()))
        s = numpyro.sample("s", dist.ImproperUniform(dist.constraints.positive, (), ()))
        numpyro.sample("y", dist.Normal(m, s).expand([len(y)]).to_event(1), obs=y)

    y = np.array([1.0, 2.5, 0.2, 1.7, 3.1, 2.2])
    # p(s) ~ s^-(n-1) exp(-S / 2 s^2); s^-2 is Gamma((n - 2) / 2, S / 2), m given s normal
    shape, rate = 2.0, 0.5 * float(((y - y.mean()) ** 2).sum())
    square = rate / (shape - 1)
    first = rate**0.5 * np.exp(gammaln(shape - 0.5) - gammaln(shape))
    truth = {
        "m": (y.mean(), np.sqrt(square / 6)),
        "s": (first, np.sqrt(square - first**2)),
    }
    found |= named("flat priors", improper, truth, {"y": y}, {
        "auto": "auto", "Gaussian": lb.Gaussian(), "diagonal": lb.Gaussian(rank="diagonal"),
    })  # fmt: skip

    def shoe(y: Any) -> None:
        with numpyro.plate("rows", len(y)):
            local = numpyro.sample("local", dist.HalfCauchy(1.0))
            b = numpyro.sample("b", dist.Normal(0.0, local))
            numpyro.sample("y", dist.Normal(b, 1.0), obs=y)

    y = np.array([0.1, -0.7, 1.9, 3.2, 6.0])
    u = np.linspace(-16, 16, 40_001)  # log of the local scale
    means, sds = [], []
    for one in y:
        variance = np.exp(2 * u)
        log_w = u - np.log1p(variance) - 0.5 * np.log1p(variance) - 0.5 * one**2 / (1 + variance)
        w = np.exp(log_w - log_w.max())
        w /= w.sum()
        share = variance / (1 + variance)
        mean = w @ (share * one)
        means.append(mean)
        sds.append(np.sqrt(w @ (share + (share * one - mean) ** 2)))
    truth = {"b": (np.array(means), np.array(sds))}
    found |= named("a horseshoe", shoe, truth, {"y": y}, {
        "auto": "auto", "CAVI": lb.CAVI(), "diagonal": lb.Gaussian(rank="diagonal"),
        "Gaussian": lb.Gaussian(), "Laplace": lb.Laplace(),
    })  # fmt: skip
    return found


def _bounds() -> dict[str, Case]:
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def positive(y: Any) -> None:
        m = numpyro.sample("m", dist.HalfNormal(1.0))
        numpyro.sample("y", dist.Normal(m, 1.0).expand([len(y)]).to_event(1), obs=y)

    y = np.array([-1.2, -0.4, -0.9, 0.3])
    truth: Truth = {"m": on_grid(lambda m: -0.5 * m * m - 2 * (m - y.mean()) ** 2, 0, 8)}
    found = named("at zero", positive, truth, {"y": y}, {
        "auto": "auto", "CAVI": lb.CAVI(), "Gaussian": lb.Gaussian(), "Laplace": lb.Laplace(),
    })  # fmt: skip

    def inflated(y: Any) -> None:
        p = numpyro.sample("p", dist.Beta(1.0, 1.0))
        r = numpyro.sample("r", dist.Gamma(1.0, 0.5))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.ZeroInflatedPoisson(p, r), obs=y)

    y = np.array([0, 0, 1, 0, 2, 0, 0, 1])
    axes = {"p": (np.arange(800) + 0.5) / 800, "r": (np.arange(1500) + 0.5) / 100}
    some = y[y > 0]
    truth = on_mesh(
        lambda p, r: (
            -0.5 * r
            + 5 * np.log(p + (1 - p) * np.exp(-r))
            + len(some) * (np.log1p(-p) - r)
            + some.sum() * np.log(r)
        ),
        **axes,
    )
    found |= named("zeros of two kinds", inflated, truth, {"y": y}, {
        "auto": "auto", "Gaussian": lb.Gaussian(), "diagonal": lb.Gaussian(rank="diagonal"),
        "Laplace": lb.Laplace(),
    })  # fmt: skip
    return found


def _cut() -> dict[str, Case]:
    """Data that are censored or truncated."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    def survival(t: Any, seen: Any) -> None:
        k = numpyro.sample("k", dist.Gamma(2.0, 1.0))
        scale = numpyro.sample("scale", dist.Gamma(2.0, 0.1))
        z = t / scale
        log_p = seen * (jnp.log(k / scale) + (k - 1) * jnp.log(z)) - z**k
        numpyro.factor("times", log_p.sum())

    t = np.array([3.0, 8.0, 10.0, 10.0, 10.0, 6.5, 10.0, 10.0])
    seen = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0])

    def height(k: np.ndarray, scale: np.ndarray) -> np.ndarray:
        log_p = np.log(k) - k + np.log(scale) - 0.1 * scale
        for one, whole in zip(t, seen, strict=True):
            z = one / scale
            log_p = log_p + whole * (np.log(k / scale) + (k - 1) * np.log(z)) - z**k
        return log_p

    axes = {"k": np.linspace(0.005, 8, 800), "scale": np.linspace(0.1, 160, 1200)}
    found = named("censored times", survival, on_mesh(height, **axes), {"t": t, "seen": seen}, {
        "auto": "auto", "Gaussian": lb.Gaussian(), "Laplace": lb.Laplace(),
        "diagonal": lb.Gaussian(rank="diagonal"),
    })  # fmt: skip

    def truncated(y: Any) -> None:
        m = numpyro.sample("m", dist.Normal(0.0, 5.0))
        s = numpyro.sample("s", dist.HalfNormal(3.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.TruncatedNormal(m, s, low=0.0), obs=y)

    y = np.array([0.2, 0.9, 0.4, 1.6, 0.1, 0.6, 2.4, 0.3])

    def inside(m: np.ndarray, s: np.ndarray) -> np.ndarray:
        log_p: np.ndarray = -m * m / 50 - s * s / 18 - 8 * log_ndtr(m / s)
        for one in y:
            log_p = log_p + log_normal(one, m, s)
        return log_p

    axes = {"m": np.linspace(-26, 8, 900), "s": np.linspace(0.02, 14, 900)}
    found |= named("truncated at zero", truncated, on_mesh(inside, **axes), {"y": y}, {
        "auto": "auto", "Gaussian": lb.Gaussian(), "Laplace": lb.Laplace(),
    })  # fmt: skip
    return found


def _sparse() -> dict[str, Case]:
    """Cells with few counts."""
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    n = np.array([9, 0, 3, 0, 0, 1, 0, 0, 0, 2])

    def cells(n: Any) -> None:
        a = numpyro.sample("a", dist.Gamma(1.0, 1.0))
        p = numpyro.sample("p", dist.Dirichlet(a * np.ones(len(n))))
        numpyro.sample("n", dist.Multinomial(int(np.sum(n)), p), obs=n)

    a = np.linspace(1e-4, 15, 60_001)
    log_p = -a + gammaln(10 * a) - gammaln(10 * a + n.sum())
    log_p = log_p + sum(gammaln(a + one) - gammaln(a) for one in n)
    alpha = a[:, None] + n
    share = alpha / alpha.sum(axis=1, keepdims=True)
    variance = share * (1 - share) / (alpha.sum(axis=1, keepdims=True) + 1)
    truth = mixed(log_p, {"a": (a, 0 * a), "p": (share, variance)})
    found = named("cells of a latent concentration", cells, truth, {"n": n}, {
        "auto": "auto", "CAVI": lb.CAVI(), "Gaussian": lb.Gaussian(),
        "diagonal": lb.Gaussian(rank="diagonal"),
    })  # fmt: skip

    def rats(y: Any, m: Any) -> None:
        mean = numpyro.sample("mean", dist.Uniform(0.0, 1.0))
        size = numpyro.sample("size", dist.LogNormal(2.0, 1.5))
        with numpyro.plate("groups", len(y)):
            p = numpyro.sample("p", dist.Beta(mean * size, (1 - mean) * size))
            numpyro.sample("y", dist.Binomial(m, p), obs=y)

    y, m = np.array([0, 1, 4, 2, 0]), np.array([10, 12, 11, 9, 10])
    mean, u = (
        g.ravel() for g in np.meshgrid((np.arange(400) + 0.5) / 400, np.linspace(-6, 12, 721))
    )
    size = np.exp(u)
    log_p = -0.5 * ((u - 2) / 1.5) ** 2
    alpha_, beta_ = mean * size, (1 - mean) * size
    rows = []
    for one, of in zip(y, m, strict=True):
        log_p = log_p + betaln(alpha_ + one, beta_ + of - one) - betaln(alpha_, beta_)
        a_, b_ = alpha_ + one, beta_ + of - one
        rows.append((a_ / (a_ + b_), a_ * b_ / (a_ + b_) ** 2 / (a_ + b_ + 1)))
    centre, wide = (np.stack([row[i] for row in rows], 1) for i in (0, 1))
    truth = mixed(log_p, {"mean": (mean, 0 * mean), "size": (size, 0 * u), "p": (centre, wide)})
    found |= named("rates of groups", rats, truth, {"y": y, "m": m}, {
        "auto": "auto", "Gaussian": lb.Gaussian(), "diagonal": lb.Gaussian(rank="diagonal"),
    })  # fmt: skip
    return found


def _ridges() -> dict[str, Case]:
    """Regressors that are nearly one."""
    import numpyro
    import numpyro.distributions as dist

    import lowerbound.names as lb

    rng = np.random.default_rng(5)

    def line(x: Any, y: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 5.0))
        b = numpyro.sample("b", dist.Normal(0.0, 5.0))
        c = numpyro.sample("c", dist.Normal(0.0, 5.0))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal(a + b * x[:, 0] + c * x[:, 1], 1.0), obs=y)

    x = np.empty((200, 2))
    x[:, 0] = 20 + rng.normal(size=200)
    x[:, 1] = x[:, 0] + 0.1 * rng.normal(size=200)
    y = 1.0 + x @ np.array([0.5, -0.2]) + rng.normal(size=200)
    design = np.column_stack([np.ones(200), x])
    covariance = np.linalg.inv(design.T @ design + np.eye(3) / 25)
    mean, sd = covariance @ design.T @ y, np.sqrt(np.diag(covariance))
    truth: Truth = {k: (mean[i], sd[i]) for i, k in enumerate("abc")}
    apart = [["a"], ["b"], ["c"]]
    return named("regressors nearly alike", line, truth, {"x": x, "y": y}, {
        "auto": "auto", "apart": lb.CAVI(blocks=apart), "diagonal": lb.Gaussian(rank="diagonal"),
        "ten sweeps": lb.CAVI(blocks=apart, max_sweeps=10), "rank 1": lb.Gaussian(rank=1),
        "batches": lb.SVI(batch_size=50, steps=300),
        "apart, batches": lb.SVI(batch_size=50, steps=300, details=lb.Details(blocks=apart)),
        "a tenth of the rows": 20,
    })  # fmt: skip

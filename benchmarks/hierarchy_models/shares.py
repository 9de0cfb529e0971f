"""Groups that are conjugate given hyperparameters, and not Gaussian: shares, rates, frequencies."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program


def touches(rng: np.random.Generator) -> Data:
    return {"n": np.full(28, 10), "y": rng.binomial(10, rng.beta(13.0, 17.0, 28))}


def shares_one_level(n, y=None):
    omega = numpyro.sample("omega", dist.Beta(1, 1))
    kappa = numpyro.sample("kappa_minus_two", dist.Gamma(1.1, 0.1))
    with numpyro.plate("subjects", len(n)):
        theta = numpyro.sample("theta", dist.Beta(omega * kappa + 1, (1 - omega) * kappa + 1))
        numpyro.sample("y", dist.Binomial(n, theta), obs=y)


def batters(rng: np.random.Generator) -> Data:
    c = np.sort(rng.integers(0, 9, 400))
    omega, kappa = rng.beta(30.0, 90.0, 9), rng.gamma(4.0, 30.0, 9)
    n = rng.integers(1, 300, 400)
    theta = rng.beta(omega[c] * kappa[c] + 1, (1 - omega[c]) * kappa[c] + 1)
    return {"c": c, "n": n, "y": rng.binomial(n, theta)}


def shares_two_levels(c, n, y=None):
    omega0 = numpyro.sample("omega0", dist.Beta(1, 1))
    kappa0 = numpyro.sample("kappa0", dist.Gamma(1, 0.1))
    with numpyro.plate("positions", 9):
        a0, b0 = omega0 * kappa0 + 1, (1 - omega0) * kappa0 + 1
        omega = numpyro.sample("omega", dist.Beta(a0, b0))
        kappa = numpyro.sample("kappa", dist.Gamma(1, 0.05))
    with numpyro.plate("players", len(n)):
        a, b = omega[c] * kappa[c] + 1, (1 - omega[c]) * kappa[c] + 1
        theta = numpyro.sample("theta", dist.Beta(a, b))
        numpyro.sample("y", dist.Binomial(n, theta), obs=y)


def failures(rng: np.random.Generator) -> Data:
    t = np.array([94.3, 15.7, 62.9, 126.0, 5.24, 31.4, 1.05, 1.05, 2.1, 10.5])
    return {"t": t, "y": rng.poisson(rng.gamma(0.7, 1.0, 10) * t)}


def rates_one_level(t, y=None):
    # BUGS volume 1: rates of a common shape and scale
    alpha = numpyro.sample("alpha", dist.Exponential(1))
    beta = numpyro.sample("beta", dist.Gamma(0.1, 1))
    with numpyro.plate("pumps", len(t)):
        rate = numpyro.sample("rate", dist.Gamma(alpha, beta))
        numpyro.sample("y", dist.Poisson(rate * t), obs=y)


def admissions(rng: np.random.Generator) -> Data:
    h, t = np.repeat(np.arange(6), 15), rng.uniform(1, 8, 90)
    return {"h": h, "t": t, "y": rng.poisson(rng.gamma(2.0, 1.0, 90) * t)}


def rates_of_hospitals(h, t, y=None):
    with numpyro.plate("hospitals", 6):
        shape = numpyro.sample("shape", dist.Exponential(0.5))
        scale = numpyro.sample("scale", dist.Gamma(2, 1))
    with numpyro.plate("wards", len(t)):
        rate = numpyro.sample("rate", dist.Gamma(shape[h], scale[h]))
        numpyro.sample("y", dist.Poisson(rate * t), obs=y)


def ballots(rng: np.random.Generator) -> Data:
    total = rng.integers(20, 60, 20)
    y = [rng.multinomial(m, rng.dirichlet([2.0, 5.0, 1.0, 3.0])) for m in total]
    return {"total": total, "y": np.stack(y)}


def frequencies(total, y=None):
    with numpyro.plate("parties", 4):
        alpha = numpyro.sample("alpha", dist.Gamma(2, 0.5))
    with numpyro.plate("towns", len(total)):
        p = numpyro.sample("p", dist.Dirichlet(alpha))
        numpyro.sample("y", dist.Multinomial(total, p), obs=y)


def claims(rng: np.random.Generator) -> Data:
    g, x = rng.integers(0, 12, 150), rng.normal(size=150)
    eta = 1 + rng.normal(0, 0.5, 12)[g] + 0.4 * x
    return {"g": g, "x": x, "y": rng.poisson(rng.gamma(3.0, 1 / 3.0, 150) * np.exp(eta))}


def rates_around_effects(g, x, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    b = numpyro.sample("b", dist.Normal(0, 1))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    phi = numpyro.sample("phi", dist.Gamma(2, 0.5))
    with numpyro.plate("groups", 12):
        a = numpyro.sample("a", dist.Normal(0, tau))
    with numpyro.plate("rows", len(x)):
        mean = jnp.exp(mu + a[g] + b * x)
        rate = numpyro.sample("rate", dist.Gamma(phi, phi / mean))
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def measurements(rng: np.random.Generator) -> Data:
    x = rng.normal(size=80)
    return {"x": x, "y": 1 + 2 * x + 0.5 * rng.standard_t(4, 80)}


def weights_of_rows(x, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 3))
    b = numpyro.sample("b", dist.Normal(0, 3))
    s = numpyro.sample("s", dist.HalfNormal(2))
    nu = numpyro.sample("nu", dist.Gamma(2, 0.1))
    with numpyro.plate("rows", len(x)):
        w = numpyro.sample("w", dist.Gamma(nu / 2, nu / 2))
        numpyro.sample("y", dist.Normal(mu + b * x, s / jnp.sqrt(w)), obs=y)


PROGRAMS = {
    "shares_one_level": Program(shares_one_level, touches),
    "shares_two_levels": Program(shares_two_levels, batters),
    "rates_one_level": Program(rates_one_level, failures),
    "rates_of_hospitals": Program(rates_of_hospitals, admissions),
    "frequencies": Program(frequencies, ballots),
    "rates_around_effects": Program(rates_around_effects, claims),
    "weights_of_rows": Program(weights_of_rows, measurements),
}

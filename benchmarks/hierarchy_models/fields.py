"""Fields, smooths and shrinkage: given precisions, basis functions, local scales."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program


def _lattice(side: int) -> np.ndarray:
    number = np.arange(side * side).reshape(side, side)
    adjacency = np.zeros((side * side, side * side))
    for one, other in ((number[:, :-1], number[:, 1:]), (number[:-1], number[1:])):
        adjacency[one.ravel(), other.ravel()] = adjacency[other.ravel(), one.ravel()] = 1.0
    return adjacency


def lips(rng: np.random.Generator) -> Data:
    adjacency = _lattice(6)
    precision = np.diag(adjacency.sum(1)) - 0.95 * adjacency
    phi = np.linalg.cholesky(np.linalg.inv(precision)) @ rng.normal(size=36) * 0.8
    expected, x = rng.uniform(3, 30, 36), rng.normal(size=36)
    y = rng.poisson(expected * np.exp(0.2 + 0.3 * x + phi))
    return {"adjacency": adjacency, "expected": expected, "x": x, "y": y}


def conditional_autoregression(adjacency, expected, x, y=None):
    # Proper CAR with its precision written out, and a given strength of association
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.Gamma(2, 2))
    precision = tau * (jnp.diag(adjacency.sum(1)) - 0.9 * adjacency)
    phi = numpyro.sample("phi", dist.MultivariateNormal(jnp.zeros(36), precision_matrix=precision))
    rate = expected * jnp.exp(beta[0] + beta[1] * x + phi)
    numpyro.sample("y", dist.Poisson(rate), obs=y)


def edges(rng: np.random.Generator) -> Data:
    adjacency = _lattice(5)
    first, second = np.nonzero(np.triu(adjacency))
    values, vectors = np.linalg.eigh(np.diag(adjacency.sum(1)) - adjacency)
    field = vectors[:, 1:] @ (rng.normal(size=24) / np.sqrt(values[1:]))
    n = rng.integers(8, 30, 25)
    p = 1 / (1 + np.exp(-(-0.3 + field + rng.normal(0, 0.2, 25))))
    return {"first": first, "second": second, "n": n, "y": rng.binomial(n, p)}


def mixed_field(first, second, n, y=None):
    # BYM2: a share rho of the variance is the field's, the rest is each area's own
    a = numpyro.sample("a", dist.Normal(0, 2))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    rho = numpyro.sample("rho", dist.Beta(0.5, 0.5))
    theta = numpyro.sample("theta", dist.Normal(0, 1).expand([25]).to_event(1))
    phi = numpyro.sample("phi", dist.Normal(0, 10).expand([25]).to_event(1))
    numpyro.factor("field", -0.5 * ((phi[first] - phi[second]) ** 2).sum())
    numpyro.factor("sum", dist.Normal(0, 0.025).log_prob(phi.sum()))
    convolved = jnp.sqrt(1 - rho) * theta + jnp.sqrt(rho / 0.5) * phi
    numpyro.sample("y", dist.Binomial(n, logits=a + sigma * convolved), obs=y)


def tides(rng: np.random.Generator) -> Data:
    x, site = np.tile(np.linspace(-1, 1, 30), 3), np.repeat(np.arange(3), 30)
    y = np.sin(4 * x) + 0.4 * x + rng.normal(0, 0.7, 3)[site] + rng.normal(0, 0.3, 90)
    return {"x": x, "site": site, "y": y}


def hilbert_space(x, site, y=None):
    # A Gaussian process by 15 sines on [-1.5, 1.5], squared exponential, and site effects
    wide, m = 1.5, 15
    frequency = jnp.arange(1, m + 1) * jnp.pi / (2 * wide)
    basis = jnp.sin(frequency * (x[:, None] + wide)) / jnp.sqrt(wide)
    length = numpyro.sample("length", dist.InverseGamma(5, 2))
    alpha = numpyro.sample("alpha", dist.HalfNormal(1.5))
    spectrum = alpha * (2 * jnp.pi) ** 0.25 * jnp.sqrt(length)
    spectrum = spectrum * jnp.exp(-0.25 * (length * frequency) ** 2)
    with numpyro.plate("basis", m):
        beta = numpyro.sample("beta", dist.Normal(0, 1))
    f = numpyro.deterministic("f", basis @ (spectrum * beta))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("sites", 3):
        u = numpyro.sample("u", dist.Normal(0, tau))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(f + u[site], sigma), obs=y)


def admissions(rng: np.random.Generator) -> Data:
    day, ward = (np.ravel(a) for a in np.mgrid[:60, :4])
    knots = np.linspace(0, 59, 12)
    basis = np.maximum(1 - abs(day[:, None] - knots) / (59 / 11), 0.0)
    rate = np.exp(1.2 + 0.5 * np.sin(day / 8) + rng.normal(0, 0.4, 4)[ward])
    return {"basis": basis, "ward": ward, "y": rng.poisson(rate)}


def poisson_smooth(basis, ward, y=None):
    # P-spline: first differences of the coefficients have a scale; improper otherwise
    smooth = numpyro.sample("smooth", dist.HalfNormal(1))
    coefficients = numpyro.sample(
        "coefficients", dist.ImproperUniform(dist.constraints.real_vector, (), (12,))
    )
    numpyro.factor("bends", dist.Normal(0, smooth).log_prob(jnp.diff(coefficients)).sum())
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    u = numpyro.sample("u", dist.Normal(0, tau).expand([4]))
    numpyro.sample("y", dist.Poisson(jnp.exp(basis @ coefficients + u[ward])), obs=y)


def genes(rng: np.random.Generator) -> Data:
    x, beta = rng.normal(size=(100, 25)), np.zeros(25)
    beta[[2, 7, 11, 20]] = [2.0, -1.2, 0.7, 0.4]
    return {"x": x, "y": 1.0 + x @ beta + rng.normal(0, 1.0, 100)}


def finnish_horseshoe(x, y=None):
    # Piironen and Vehtari: local half-Cauchys, a slab
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    tau = numpyro.sample("tau", dist.HalfCauchy(0.02))
    slab = numpyro.sample("slab", dist.InverseGamma(2, 8))
    alpha = numpyro.sample("alpha", dist.Normal(0, 2))
    with numpyro.plate("columns", 25):
        local = numpyro.sample("local", dist.HalfCauchy(1))
        z = numpyro.sample("z", dist.Normal(0, 1))
    shrunk = jnp.sqrt(slab * local**2 / (slab + (tau * sigma) ** 2 * local**2))
    beta = numpyro.deterministic("beta", z * tau * sigma * shrunk)
    numpyro.sample("y", dist.Normal(alpha + x @ beta, sigma), obs=y)


def student_shrinkage(x, y=None):
    # Coefficients with a Student prior of one scale, as a robust ridge
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    tau = numpyro.sample("tau", dist.HalfCauchy(1))
    alpha = numpyro.sample("alpha", dist.Normal(0, 2))
    beta = numpyro.sample("beta", dist.StudentT(3, 0, tau).expand([25]).to_event(1))
    numpyro.sample("y", dist.Normal(alpha + x @ beta, sigma), obs=y)


PROGRAMS = {
    "conditional_autoregression": Program(conditional_autoregression, lips),
    "mixed_field": Program(mixed_field, edges),
    "hilbert_space": Program(hilbert_space, tides),
    "poisson_smooth": Program(poisson_smooth, admissions),
    "finnish_horseshoe": Program(finnish_horseshoe, genes),
    "student_shrinkage": Program(student_shrinkage, genes),
}

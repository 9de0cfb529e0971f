"""Coordinate ascent with quadrature: generalised linear models and free-form scales."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, optimize, stats

import lowerbound as lb
from lowerbound.errors import NotConjugateError

RNG = np.random.default_rng(3)
X = RNG.normal(size=(25, 2))
PREDICTOR = X @ np.array([1.0, -0.7])
REAL = PREDICTOR + RNG.standard_t(3, size=25)
COUNTS = RNG.poisson(np.exp(PREDICTOR))
LABELS = 1 * (RNG.uniform(size=25) < 1 / (1 + np.exp(-PREDICTOR)))
GRADES = np.digitize(PREDICTOR + RNG.logistic(size=25), [-1.0, 1.0])
CUTS = jnp.array([-1.0, 1.0])
SCALE = 1.5  # of the prior


@dataclass(frozen=True)
class Glm:
    """A likelihood of a linear predictor, the data, and its log density by hand."""

    likelihood: Callable[[Any], Any]
    y: np.ndarray
    log_density: Callable[[np.ndarray, np.ndarray], np.ndarray]


def grade_density(a: np.ndarray, y: np.ndarray) -> np.ndarray:
    edges = np.array([-np.inf, -1.0, 1.0, np.inf])
    high, low = (stats.logistic.cdf(edges[y + k] - a) for k in (1, 0))
    return np.log(high - low)


GLMS = {
    "logistic": Glm(
        lambda a: dist.Bernoulli(logits=a), LABELS, lambda a, y: y * a - np.logaddexp(0.0, a)),
    "logistic by probabilities": Glm(
        lambda a: dist.Bernoulli(probs=jax.nn.sigmoid(a)), LABELS,
        lambda a, y: y * a - np.logaddexp(0.0, a)),
    "probit": Glm(
        lambda a: dist.Bernoulli(probs=jax.scipy.stats.norm.cdf(a)), LABELS,
        lambda a, y: stats.norm.logcdf((2 * y - 1) * a)),
    "Poisson": Glm(
        lambda a: dist.Poisson(jnp.exp(a)), COUNTS,
        lambda a, y: stats.poisson.logpmf(y, np.exp(a))),
    "negative binomial": Glm(
        lambda a: dist.NegativeBinomial2(jnp.exp(a), 3.0), COUNTS,
        lambda a, y: stats.nbinom.logpmf(y, 3.0, 3.0 / (3.0 + np.exp(a)))),
    "ordinal": Glm(lambda a: dist.OrderedLogistic(a, CUTS), GRADES, grade_density),
    "Student errors": Glm(
        lambda a: dist.StudentT(4.0, a, 0.8), REAL,
        lambda a, y: stats.t.logpdf(y, 4.0, a, 0.8)),
    "log scale": Glm(
        lambda a: dist.Normal(0.0, jnp.exp(0.5 * a)), REAL,
        lambda a, y: stats.norm.logpdf(y, 0.0, np.exp(0.5 * a))),
}  # fmt: skip


def model_of(glm: Glm) -> Callable[..., None]:
    def model(x: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, SCALE).expand([x.shape[1]]).to_event(1))
        numpyro.sample("y", glm.likelihood(x @ w), obs=y)

    return model


@cache
def fitted(name: str) -> Any:
    glm = GLMS[name]
    return lb.fit(model_of(glm), X, glm.y, method=lb.CAVI(tolerance=1e-12))


def best_gaussian(glm: Glm) -> tuple[float, np.ndarray, np.ndarray]:
    """The ELBO, mean and covariance of the KL-optimal Gaussian, found by brute force."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()

    def split(parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        root = np.array([[np.exp(parameters[2]), 0.0], [parameters[3], np.exp(parameters[4])]])
        return parameters[:2], root

    def loss(parameters: np.ndarray) -> float:
        mean, root = split(parameters)
        sd = np.sqrt(((X @ root) ** 2).sum(axis=1))
        a = (X @ mean)[:, None] + sd[:, None] * nodes
        with np.errstate(all="ignore"):
            likelihood = (glm.log_density(a, glm.y[:, None]) @ weights).sum()
        if not np.isfinite(likelihood):  # a trial step too far out
            return 1e6
        prior = -0.5 * (mean @ mean + (root**2).sum()) / SCALE**2
        prior -= np.log(2.0 * np.pi * SCALE**2)
        entropy = np.log(2.0 * np.pi * np.e) + parameters[2] + parameters[4]
        return -float(likelihood + prior + entropy)

    start = np.array([0.0, 0.0, -1.0, 0.0, -1.0])
    found = optimize.minimize(loss, start, method="BFGS", options={"gtol": 1e-7})
    mean, root = split(found.x)
    return -float(found.fun), mean, root @ root.T


@pytest.mark.parametrize("name", GLMS)
def test_the_optimum_is_the_best_gaussian(name: str) -> None:
    fit = fitted(name)
    elbo, mean, covariance = best_gaussian(GLMS[name])
    assert fit.elbo == pytest.approx(elbo, abs=1e-5)
    np.testing.assert_allclose(fit.mean("w"), mean, atol=1e-3)
    np.testing.assert_allclose(fit.sd("w"), np.sqrt(np.diag(covariance)), atol=1e-3)


@pytest.mark.parametrize("name", GLMS)
def test_the_bound_never_falls_and_splits_by_site(name: str) -> None:
    fit = fitted(name)
    assert np.diff(fit.history.elbo).min() >= -1e-10 * abs(fit.elbo)
    assert sum(fit.elbo_terms.values()) == pytest.approx(fit.elbo, rel=1e-9)


@pytest.mark.parametrize("name", ["logistic", "Poisson", "log scale"])
@pytest.mark.parametrize("scale", [1e3, 1e-3])
def test_unscaled_regressors_give_finite_fits(name: str, scale: float) -> None:
    glm = GLMS[name]
    x = X * np.array([scale, 1.0])
    fit = lb.fit(model_of(glm), x, glm.y, method=lb.CAVI())
    assert np.isfinite(fit.elbo)
    assert np.diff(fit.history.elbo).min(initial=0.0) >= -1e-10 * abs(fit.elbo)
    assert np.isfinite(fit.mean("w")).all()


def test_a_flat_prior_needs_no_scale() -> None:
    def model(x: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.ImproperUniform(dist.constraints.real_vector, (), (2,)))
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)

    plain = lb.fit(model, X, LABELS, method=lb.CAVI(tolerance=1e-12))
    scaled = lb.fit(model, X * [1e3, 1e-3], LABELS, method=lb.CAVI(tolerance=1e-12))
    np.testing.assert_allclose(scaled.mean("w") * [1e3, 1e-3], plain.mean("w"), rtol=1e-4)


def test_the_plan_names_the_update() -> None:
    plan = lb.explain(model_of(GLMS["Poisson"]), X, COUNTS, method=lb.CAVI())
    assert [row.update for row in plan.rows] == ["natural gradient (quadrature)"]


# --------------------------------------------------------------------------------------------------
# Free-form factors

Y = np.array([0.4, -1.3, 2.2, 0.1, -0.7])

SCALES: dict[str, tuple[Callable[[], Any], Callable[[float], float], tuple[float, float]]] = {
    "HalfNormal": (lambda: dist.HalfNormal(1.0), lambda s: stats.halfnorm.pdf(s), (0.0, np.inf)),
    "HalfCauchy": (
        lambda: dist.HalfCauchy(2.0),
        lambda s: stats.halfcauchy.pdf(s, 0, 2),
        (0.0, np.inf),
    ),
    "Exponential": (lambda: dist.Exponential(1.0), lambda s: np.exp(-s), (0.0, np.inf)),
    "LogNormal": (
        lambda: dist.LogNormal(0.0, 1.0),
        lambda s: stats.lognorm.pdf(s, 1.0),
        (0.0, np.inf),
    ),
    "Uniform": (lambda: dist.Uniform(0.2, 5.0), lambda s: 1.0 / 4.8, (0.2, 5.0)),
    "Gamma": (lambda: dist.Gamma(2.0, 1.0), lambda s: stats.gamma.pdf(s, 2.0), (0.0, np.inf)),
}


@pytest.mark.parametrize("name", SCALES)
def test_with_one_latent_the_bound_is_the_evidence(name: str) -> None:
    prior, density, (low, high) = SCALES[name]

    def model(y: Any) -> None:
        s = numpyro.sample("s", prior())
        numpyro.sample("y", dist.Normal(0.0, s), obs=y)

    def joint(s: float) -> float:
        return float(density(s) * stats.norm.pdf(Y, 0.0, s).prod()) if s > 0 else 0.0

    pieces = [low, 0.5, 1.0, 2.0, 4.0, high]
    pairs = list(itertools.pairwise(pieces))
    evidence = sum(integrate.quad(joint, a, b, epsabs=0, epsrel=1e-12)[0] for a, b in pairs)
    first = sum(
        integrate.quad(lambda s: s * joint(s), a, b, epsabs=0, epsrel=1e-12)[0] for a, b in pairs
    )
    fit = lb.fit(model, Y, method=lb.CAVI())
    assert fit.elbo == pytest.approx(np.log(evidence), abs=1e-7)
    assert float(fit.mean("s")) == pytest.approx(first / evidence, rel=1e-6)


def hierarchy(y: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(2.0))
    with numpyro.plate("groups", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def test_a_hierarchy_with_a_half_cauchy_scale() -> None:
    """The bound never falls, and stays below the evidence."""
    fit = lb.fit(hierarchy, Y, method=lb.CAVI())
    assert np.diff(fit.history.elbo).min() >= -1e-10 * abs(fit.elbo)

    def evidence_given(tau: float) -> float:
        covariance = (1.0 + tau**2) * np.eye(len(Y)) + 9.0
        return float(stats.multivariate_normal.pdf(Y, np.zeros(len(Y)), covariance))

    evidence = integrate.quad(
        lambda t: stats.halfcauchy.pdf(t, 0, 2) * evidence_given(t), 0.0, np.inf
    )[0]
    assert np.log(evidence) - 2.0 < fit.elbo < np.log(evidence)


def test_batches_of_functions_are_refused() -> None:
    def model(x: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Poisson(jnp.exp(x @ w)), obs=y)

    with pytest.raises(NotConjugateError) as error:
        lb.fit(model, X, LABELS, method=lb.SVI(batch_size=5, steps=2))
    (residual,) = error.value.residuals
    assert residual.latents == ("w",)
    assert residual.operation == "exp(w)"
    assert residual.reason == (
        "every row brings a function of its own, so that batches of rows do not add up"
    )


def test_a_flat_direction_is_named():
    """Only the sum of two coefficients with flat priors is determined: an error, not a wide q."""
    y = np.tile([0, 1], 10)

    def model(y):
        flat = dist.ImproperUniform(dist.constraints.real_vector, (), (2,))
        a = numpyro.sample("a", flat)
        numpyro.sample("y", dist.Bernoulli(logits=a[0] + a[1]).expand([20]), obs=y)

    with pytest.raises(lb.errors.ArgumentError, match="The optimal factor of 'a' is improper"):
        lb.fit(model, y)


@pytest.mark.parametrize("name", ["logistic", "ordinal"])
def test_single_precision_finds_the_same_gaussian(name: str) -> None:
    double = fitted(name)
    with lb.computing(precision="float32"):
        single = lb.fit(model_of(GLMS[name]), X, GLMS[name].y, method=lb.CAVI())
    assert single.converged
    assert single.elbo == pytest.approx(double.elbo, abs=1e-3)
    np.testing.assert_allclose(single.mean("w"), double.mean("w"), atol=1e-2 * double.sd("w").min())

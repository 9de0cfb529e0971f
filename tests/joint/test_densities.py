"""Every density template equals NumPyro's `log_prob`, with parameters fixed and latent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from lowerbound.joint.templates.conjugate import CONJUGATE
from lowerbound.joint.terms.value import Poison, Value
from tests.joint.derived import Densities, check_densities, evaluate_densities
from tests.joint.evaluate import Input, count, discrete, matrix, positive, real, simplex, unit

PRIORS: dict[str, Callable[[tuple[int, ...]], Any]] = {
    "real": lambda shape: dist.Normal(0.0, 1.0).expand(shape),
    "positive": lambda shape: dist.Gamma(2.0, 1.0).expand(shape),
    "unit": lambda shape: dist.Beta(2.0, 2.0).expand(shape),
    "simplex": lambda shape: dist.Dirichlet(jnp.ones(shape[-1])).expand(shape[:-1]),
    "matrix": lambda shape: dist.Wishart(4.0, jnp.eye(shape[-1])).expand(shape[:-2]),
    "discrete": lambda shape: dist.Categorical(jnp.ones(3) / 3.0).expand(shape),
    "count": lambda shape: dist.Poisson(2.0).expand(shape),
}


@dataclass(frozen=True)
class Row:
    """A distribution, its parameters, which of them may be latent, and a value."""

    template: str
    build: Callable[..., Any]
    parameters: dict[str, Input]
    value: Input
    latent: tuple[str, ...] = ()
    latent_value: bool = True  # whether the value may be a latent site


POSITIVE = Input((), "positive")
ROWS: dict[str, Row] = {
    "Normal": Row("Normal", dist.Normal, {"loc": real(), "scale": positive()}, real(3),
                  ("loc", "scale")),
    "Normal batch": Row("Normal", dist.Normal, {"loc": real(4, 1), "scale": positive(3)},
                        real(4, 3), ("loc", "scale")),
    "Normal of precision": Row(
        "Normal", lambda loc, tau: dist.Normal(loc, 1.0 / jnp.sqrt(tau)),
        {"loc": real(3), "tau": positive(3)}, real(3), ("loc", "tau")),
    "Normal of variance": Row(
        "Normal", lambda loc, v: dist.Normal(loc, jnp.sqrt(v)).expand([4, 3]).to_event(1),
        {"loc": real(3), "v": positive()}, real(4, 3), ("loc", "v")),
    "LogNormal": Row("LogNormal", dist.LogNormal, {"loc": real(), "scale": positive()},
                     positive(3), ("loc", "scale")),
    "HalfNormal": Row("HalfNormal", dist.HalfNormal, {"scale": positive()}, positive(3),
                      ("scale",)),
    "MultivariateNormal precision": Row(
        "MultivariateNormal", lambda loc, m: dist.MultivariateNormal(loc, precision_matrix=m),
        {"loc": real(3), "m": matrix(3, 3)}, real(4, 3), ("loc", "m")),
    "MultivariateNormal covariance": Row(
        "MultivariateNormal", lambda loc, m: dist.MultivariateNormal(loc, covariance_matrix=m),
        {"loc": real(2, 3), "m": matrix(2, 3, 3)}, real(2, 3), ("loc", "m")),
    "MultivariateNormal root": Row(
        "MultivariateNormal",
        lambda loc, m: dist.MultivariateNormal(loc, scale_tril=jnp.linalg.cholesky(m)),
        {"loc": real(3), "m": matrix(3, 3)}, real(4, 3), ("loc",)),
    "MultivariateNormal diagonal": Row(
        "MultivariateNormal",
        lambda loc, v: dist.MultivariateNormal(loc, covariance_matrix=jnp.diag(v)),
        {"loc": real(3), "v": positive(3)}, real(4, 3), ("loc", "v")),
    "MultivariateNormal scaled": Row(
        "MultivariateNormal",
        lambda loc, t: dist.MultivariateNormal(
            loc, precision_matrix=t * jnp.array([[2.0, 0.5], [0.5, 1.0]])),
        {"loc": real(2), "t": positive()}, real(4, 2), ("loc", "t")),
    "MultivariateNormal of size one": Row(
        "MultivariateNormal", lambda loc, m: dist.MultivariateNormal(loc, precision_matrix=m),
        {"loc": real(1), "m": matrix(1, 1)}, real(4, 1), ("loc", "m")),
    "MultivariateNormal of an inverse": Row(
        "MultivariateNormal",
        lambda loc, v: dist.MultivariateNormal(loc, precision_matrix=jnp.eye(3) / v),
        {"loc": real(3), "v": positive()}, real(3), ("loc", "v")),
    "Gamma": Row("Gamma", dist.Gamma, {"concentration": positive(), "rate": positive(3)},
                 positive(3), ("rate",)),
    "Gamma scalar": Row("Gamma", dist.Gamma, {"concentration": positive(2, 1), "rate": positive()},
                        positive(2, 3), ("rate",)),
    "Chi2": Row("Chi2", dist.Chi2, {"df": positive(3)}, positive(3)),
    "InverseGamma": Row("InverseGamma", dist.InverseGamma,
                        {"concentration": positive(), "rate": positive(3)}, positive(3), ("rate",)),
    "Exponential": Row("Exponential", dist.Exponential, {"rate": positive(2)}, positive(4, 2),
                       ("rate",)),
    "Beta": Row("Beta", lambda a, b: dist.Beta(a, b), {"a": positive(3), "b": positive()}, unit(3)),
    "Dirichlet": Row("Dirichlet", lambda a: dist.Dirichlet(a), {"a": positive(3)}, simplex(4, 3)),
    "Dirichlet batch": Row("Dirichlet", lambda a: dist.Dirichlet(a), {"a": positive(2, 3)},
                           simplex(2, 3)),
    "Wishart": Row("Wishart", lambda m: dist.Wishart(5.0, rate_matrix=m), {"m": matrix(2, 2)},
                   matrix(2, 2), ("m",)),
    "Wishart scale": Row("Wishart", lambda m: dist.Wishart(5.0, scale_matrix=m),
                         {"m": matrix(2, 2)}, matrix(3, 2, 2)),
    "Wishart of size one": Row("Wishart", lambda m: dist.Wishart(5.0, rate_matrix=m),
                               {"m": matrix(1, 1)}, matrix(1, 1), ("m",)),
    "BernoulliProbs": Row("BernoulliProbs", lambda p: dist.Bernoulli(probs=p), {"p": unit(3)},
                          discrete(4, 3, K=2), ("p",)),
    "BernoulliLogits": Row("BernoulliLogits", lambda a: dist.Bernoulli(logits=a), {"a": real(3)},
                           discrete(3, K=2)),
    "BinomialProbs": Row("BinomialProbs", lambda p: dist.Binomial(5, probs=p), {"p": unit(3)},
                         discrete(3, K=6), ("p",)),
    "BinomialLogits": Row("BinomialLogits", lambda a: dist.Binomial(5, logits=a), {"a": real(3)},
                          discrete(3, K=6)),
    "CategoricalProbs": Row("CategoricalProbs", lambda p: dist.Categorical(probs=p),
                            {"p": simplex(3)}, discrete(4), ("p",)),
    "CategoricalProbs batch": Row("CategoricalProbs", lambda p: dist.Categorical(probs=p),
                                  {"p": simplex(4, 3)}, discrete(2, 4), ("p",)),
    "CategoricalLogits": Row("CategoricalLogits", lambda a: dist.Categorical(logits=a),
                             {"a": real(4, 3)}, discrete(4)),
    "CategoricalLogits of log": Row(
        "CategoricalLogits", lambda p: dist.Categorical(logits=jnp.log(p)), {"p": simplex(3)},
        discrete(4), ("p",)),
    "MultinomialProbs": Row(
        "MultinomialProbs", lambda p: dist.Multinomial(6, probs=p), {"p": simplex(3)},
        Input((4, 3), "multinomial"), ("p",), latent_value=False),
    "MultinomialLogits": Row(
        "MultinomialLogits", lambda a: dist.Multinomial(6, logits=a), {"a": real(3)},
        Input((4, 3), "multinomial"), latent_value=False),
    "Poisson": Row("Poisson", dist.Poisson, {"rate": positive(3)}, count(4, 3), ("rate",)),
    "Poisson product": Row("Poisson", lambda a, b: dist.Poisson(a * b[:, None]),
                           {"a": positive(3), "b": positive(4)}, count(4, 3), ("a", "b")),
    "GeometricProbs": Row("GeometricProbs", lambda p: dist.Geometric(probs=p), {"p": unit(3)},
                          count(3), ("p",)),
    "Uniform": Row("Uniform", lambda a: dist.Uniform(-1.0, a), {"a": positive(3)},
                   Input((3,), "between"), latent_value=False),
}  # fmt: skip


def draw(value: Input, rng: np.random.Generator) -> np.ndarray:
    if value.domain == "multinomial":
        return rng.multinomial(6, np.ones(value.shape[-1]) / value.shape[-1], value.shape[:-1])
    if value.domain == "between":
        return rng.uniform(-1.0, 0.0, value.shape)
    point = value.draw(rng)
    return point.astype(int) if value.domain in ("discrete", "count") else point


def model_of(
    row: Row, fixed: dict[str, np.ndarray], latent: tuple[str, ...], wrap: Callable[..., Any]
) -> Callable[..., None]:
    def model(y: Any = None, x: Any = None) -> None:
        parameters = {
            name: numpyro.sample(name, PRIORS[row.parameters[name].domain](i.shape))
            if name in latent
            else jnp.asarray(fixed[name])
            for name, i in row.parameters.items()
        }
        numpyro.sample("x", wrap(row.build(**parameters)), obs=x)
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mean, 1.0).expand(y.shape), obs=y)

    return model


def expanded(row: Row) -> Callable[[Any], Any]:
    def wrap(distribution: Any) -> Any:
        rank = len(row.value.shape) - len(distribution.event_shape)
        return distribution.expand(row.value.shape[:rank])

    return wrap


Y = np.array([0.3, -0.2])


@cache
def templates() -> dict[str, tuple[Densities, Densities]]:
    """Every row with fixed parameters and an observation, and with all that may be latent so."""
    cases = {}
    for name, row in ROWS.items():
        rng = np.random.default_rng(len(name))
        fixed = {n: i.draw(rng) for n, i in row.parameters.items()}
        x, wrap = draw(row.value, rng), expanded(row)
        observed = () if row.latent_value else (x,)
        cases[name] = (
            Densities(model_of(row, fixed, (), wrap), Y, x),
            Densities(model_of(row, fixed, row.latent, wrap), Y, *observed),
        )
    evaluate_densities([case for pair in cases.values() for case in pair])
    return cases


@pytest.mark.parametrize("name", ROWS)
def test_templates_equal_numpyro(name: str) -> None:
    fixed, latent = templates()[name]
    assert isinstance(fixed.check()["x"], Value)
    expressible = isinstance(latent.check()["x"], Value)
    assert expressible or ROWS[name].template in ("BinomialProbs", "BinomialLogits")


@pytest.mark.parametrize(
    "name", ["Normal batch", "CategoricalProbs batch", "Poisson", "Wishart scale"]
)
def test_wrappers_equal_numpyro(name: str) -> None:
    row = ROWS[name]
    rng = np.random.default_rng(0)
    fixed = {n: i.draw(rng) for n, i in row.parameters.items()}
    x = draw(row.value, rng)
    inner = expanded(row)
    batch = inner(row.build(**fixed)).batch_shape
    mask = jnp.asarray(rng.uniform(size=batch) < 0.6)
    wrappers = [
        (lambda d: inner(d).to_event(1), x),
        (lambda d: inner(d).mask(mask), x),
        (lambda d: inner(d).mask(False), x),
        (lambda d: inner(d).mask(mask).to_event(len(batch)), x),
        (lambda d: inner(d).expand((2, *batch)), np.stack([x, x])),
    ]
    cases = [Densities(model_of(row, fixed, row.latent, w), Y, value) for w, value in wrappers]
    evaluate_densities(cases)
    for case in cases:
        case.check()


def test_every_template_is_in_the_table() -> None:
    listed = {row.template for row in ROWS.values()}
    assert set(CONJUGATE) - listed == {"Unit", "ImproperUniform", "InverseWishart"}


def test_factor_and_improper_priors() -> None:
    def model(y: Any) -> None:
        a = numpyro.sample("a", dist.ImproperUniform(dist.constraints.real, (), (3,)))
        t = numpyro.sample("t", dist.ImproperUniform(dist.constraints.positive, (2,), ()))
        numpyro.factor("f", -0.5 * t[0] * (a**2).sum() + jnp.log(t[1]))
        numpyro.factor("g", (y - a) * t[:, None])
        numpyro.sample("y", dist.Normal(a, 1.0), obs=y)

    densities = check_densities(model, np.array([0.1, 0.2, -0.3]))
    assert all(isinstance(value, Value) for value in densities.values())


def test_scale_and_plates_and_masks() -> None:
    def model(y: Any, keep: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        with (
            numpyro.plate("columns", 3),
            numpyro.plate("rows", 4),
            numpyro.handlers.scale(scale=2.5),
            numpyro.handlers.mask(mask=keep),
        ):
            b = numpyro.sample("b", dist.Normal(a, 1.0))
            numpyro.sample("y", dist.Normal(b, 2.0), obs=y)

    rng = np.random.default_rng(0)
    check_densities(model, rng.normal(size=(4, 3)), rng.uniform(size=(4, 3)) < 0.5)


def test_boundary_probabilities() -> None:
    def model(y: Any, w: Any, n: Any) -> None:
        t = numpyro.sample("t", dist.Gamma(1.0, 1.0))
        p = numpyro.sample("p", dist.Beta(1.0, 1.0))
        numpyro.sample("y", dist.Normal(t, 1.0), obs=y)
        numpyro.sample("w", dist.Bernoulli(jnp.array([0.0, 1.0, p])), obs=w)
        numpyro.sample("v", dist.Bernoulli(jnp.array([0.0, 1.0, 0.5])), obs=w)
        numpyro.sample("n", dist.Poisson(jnp.array([0.0, 1.0, 2.0]) * 1.0), obs=n)

    densities = check_densities(model, Y, np.array([0, 1, 1]), np.array([0, 2, 3]))
    assert isinstance(densities["v"], Value)


@pytest.mark.parametrize(
    ("distribution", "value"),
    [
        (lambda a: dist.Laplace(0.0, 1.0), np.array([0.3, -1.0])),
        (lambda a: dist.Cauchy(0.0, 2.0), np.array([0.3, -1.0])),
        (lambda a: dist.StudentT(4.0, 0.0, 1.0), np.array([0.3, -1.0])),
        (lambda a: dist.Weibull(1.0, 2.0), np.array([0.3, 1.0])),
        (lambda a: dist.Pareto(0.1, 2.0), np.array([0.3, 1.0])),
    ],
)
def test_unlisted_distributions_of_constants(distribution: Any, value: np.ndarray) -> None:
    def model(y: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("y", distribution(a), obs=y)
        numpyro.sample("w", dist.Normal(a, 1.0), obs=y)

    assert isinstance(check_densities(model, value)["y"], Value)


@pytest.mark.parametrize(
    ("distribution", "exact"),
    [
        (lambda a, t: dist.Weibull(t, 1.0), True),
        (lambda a, t: dist.Pareto(0.01, t), True),
        (lambda a, t: dist.Gompertz(t, 1.0), True),
        (lambda a, t: dist.AsymmetricLaplace(a, 1.0, 2.0), True),
        (lambda a, t: dist.Laplace(a, t), False),
        (lambda a, t: dist.StudentT(4.0, a, t), False),
        (lambda a, t: dist.MixtureSameFamily(
            dist.Categorical(jnp.ones(2) / 2), dist.Normal(jnp.stack([a, -a]), 1.0)), False),
    ],
)  # fmt: skip
def test_unlisted_distributions_of_latents(distribution: Any, exact: bool) -> None:
    def model(y: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        t = numpyro.sample("t", dist.Gamma(1.0, 1.0))
        numpyro.sample("y", distribution(a, t), obs=y)

    outcome = check_densities(model, np.array([0.3, 1.1]))["y"]
    assert isinstance(outcome, Value if exact else Poison), outcome

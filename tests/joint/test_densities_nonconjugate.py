"""Templates of densities without conjugate priors equal NumPyro's `log_prob`."""

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

from lowerbound.joint.templates.nonconjugate import NONCONJUGATE
from lowerbound.joint.terms.value import Value
from tests.joint.derived import Densities, evaluate_densities

REAL = np.array([0.3, -1.2, 2.0, 0.1])
ABOVE = np.array([0.3, 1.2, 2.0, 0.7])
COUNTS = np.array([0, 3, 1, 5])


@dataclass(frozen=True)
class Row:
    """A distribution of a real `a`, a positive `t` and a number `p` in the unit interval."""

    build: Callable[[Any, Any, Any], Any]
    value: np.ndarray


ROWS: dict[str, Row] = {
    "Cauchy of location": Row(lambda a, t, p: dist.Cauchy(a, 2.0), REAL),
    "Cauchy of scale": Row(lambda a, t, p: dist.Cauchy(0.5, t), REAL),
    "HalfCauchy": Row(lambda a, t, p: dist.HalfCauchy(t), ABOVE),
    "StudentT of location": Row(lambda a, t, p: dist.StudentT(4.0, a, 1.5), REAL),
    "StudentT of scale": Row(lambda a, t, p: dist.StudentT(4.0, 0.5, t), REAL),
    "StudentT of degrees": Row(lambda a, t, p: dist.StudentT(t, 0.5, 1.5), REAL),
    "Laplace of location": Row(lambda a, t, p: dist.Laplace(a, 1.5), REAL),
    "Laplace of scale": Row(lambda a, t, p: dist.Laplace(0.2, t), REAL),
    "SoftLaplace": Row(lambda a, t, p: dist.SoftLaplace(a, 1.5), REAL),
    "Logistic": Row(lambda a, t, p: dist.Logistic(a, 1.5), REAL),
    "Gumbel": Row(lambda a, t, p: dist.Gumbel(a, 1.5), REAL),
    "VonMises": Row(lambda a, t, p: dist.VonMises(a, 1.5), REAL),
    "Weibull of scale": Row(lambda a, t, p: dist.Weibull(t, 1.7), ABOVE),
    "Weibull of log scale": Row(lambda a, t, p: dist.Weibull(jnp.exp(a), 1.7), ABOVE),
    "Weibull of shape": Row(lambda a, t, p: dist.Weibull(1.3, t), ABOVE),
    "Pareto": Row(lambda a, t, p: dist.Pareto(0.01, t), ABOVE),
    "LogUniform": Row(lambda a, t, p: dist.LogUniform(0.01, 9.0), ABOVE),
    "Levy": Row(lambda a, t, p: dist.Levy(0.1, t), ABOVE),
    "BetaProportion": Row(lambda a, t, p: dist.BetaProportion(0.3, t), np.array([0.3, 0.9])),
    "GammaPoisson": Row(lambda a, t, p: dist.GammaPoisson(t, 0.7), COUNTS),
    "NegativeBinomial2 of log mean": Row(
        lambda a, t, p: dist.NegativeBinomial2(jnp.exp(a), 3.0), COUNTS),
    "NegativeBinomial2 of concentration": Row(
        lambda a, t, p: dist.NegativeBinomial2(2.0, t), COUNTS),
    "NegativeBinomialProbs": Row(lambda a, t, p: dist.NegativeBinomialProbs(t, p), COUNTS),
    "NegativeBinomialLogits": Row(lambda a, t, p: dist.NegativeBinomialLogits(3.0, a), COUNTS),
    "GeometricLogits": Row(lambda a, t, p: dist.GeometricLogits(a), COUNTS),
    "BetaBinomial": Row(lambda a, t, p: dist.BetaBinomial(t, 1.0, 3), np.array([0, 3, 1, 2])),
    "OrderedLogistic": Row(
        lambda a, t, p: dist.OrderedLogistic(a, jnp.array([-1.0, 0.2, 2.0])),
        np.array([0, 1, 2, 3])),
    "TruncatedNormal below, of location": Row(
        lambda a, t, p: dist.TruncatedNormal(a, 1.3, low=0.1), ABOVE),
    "TruncatedNormal above, of location": Row(
        lambda a, t, p: dist.TruncatedNormal(a, 1.3, high=4.0), REAL),
    "TruncatedNormal of scale": Row(lambda a, t, p: dist.TruncatedNormal(0.5, t, low=0.1), ABOVE),
    "TruncatedNormal on both sides": Row(
        lambda a, t, p: dist.TruncatedNormal(0.5, 1.3, low=0.1, high=4.0), ABOVE),
    "half Student": Row(
        lambda a, t, p: dist.LeftTruncatedDistribution(dist.StudentT(3.0, 0.0, 2.0), low=0.0),
        ABOVE),
    "TruncatedCauchy": Row(lambda a, t, p: dist.TruncatedCauchy(0.3, 2.0, low=0.1, high=3), ABOVE),
    # Links of generalised linear models, whose own densities are conjugate templates.
    "Bernoulli logits": Row(lambda a, t, p: dist.Bernoulli(logits=a), np.array([0, 1, 1, 0])),
    "Binomial logits": Row(lambda a, t, p: dist.Binomial(6, logits=a), COUNTS),
    "Poisson log rate": Row(lambda a, t, p: dist.Poisson(jnp.exp(a)), COUNTS),
    "Gamma log rate": Row(lambda a, t, p: dist.Gamma(2.0, jnp.exp(-a)), ABOVE),
    "Gamma shape": Row(lambda a, t, p: dist.Gamma(t, 1.3), ABOVE),
    "Beta shape": Row(lambda a, t, p: dist.Beta(t, 12.0), np.array([0.3, 0.9])),
    "Exponential log rate": Row(lambda a, t, p: dist.Exponential(jnp.exp(a)), ABOVE),
    "LogNormal": Row(lambda a, t, p: dist.LogNormal(a, jnp.exp(0.3)), ABOVE),
    "Normal log scale": Row(lambda a, t, p: dist.Normal(0.0, jnp.exp(0.5 * a)), REAL),
    "Dirichlet concentration": Row(
        lambda a, t, p: dist.Dirichlet(t * jnp.array([1.0, 2.0])), np.array([[0.3, 0.7]])),
}  # fmt: skip


@cache
def densities() -> dict[str, Densities]:
    """Every row once with the parameters latent, all under one compilation."""
    cases = {}
    for name, row in ROWS.items():

        def model(y: Any, build: Callable[..., Any] = row.build) -> None:
            a = numpyro.sample("a", dist.Normal(0.0, 1.0))
            t = numpyro.sample("t", dist.Gamma(2.0, 1.0))
            p = numpyro.sample("p", dist.Beta(2.0, 2.0))
            numpyro.sample("y", build(a, t, p), obs=y)

        cases[name] = Densities(model, row.value)
    evaluate_densities(list(cases.values()))
    return cases


@pytest.mark.parametrize("name", ROWS)
def test_templates_equal_numpyro(name: str) -> None:
    assert isinstance(densities()[name].check()["y"], Value)


def test_every_template_is_in_the_table() -> None:
    used = set()
    for case in densities().values():
        used.add(case.program.static["y"]["kind"])
    assert set(NONCONJUGATE) <= used

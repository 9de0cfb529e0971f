"""Logistic regression has no exact coordinate update: the error says where and why."""

import inspect

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from tests.models.case import Arguments


def model(x, y):
    n, D = x.shape
    beta = numpyro.sample("beta", dist.Normal(jnp.zeros(D), 2.0).to_event(1))
    with numpyro.plate("data", n):
        numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(20, 2))
    return (x, rng.binomial(1, 1 / (1 + np.exp(-x[:, 0])))), {}


def where() -> str:
    """File and line of the observed site, as the messages print it."""
    lines, first = inspect.getsourcelines(model)
    offset = next(k for k, line in enumerate(lines) if 'numpyro.sample("y"' in line)
    return f"test_logistic_regression.py:{first + offset}"


def test_cavi_says_which_site_which_operation_which_line():
    (x, y), _ = arguments(0)
    with pytest.raises(lb.errors.NotConjugateError) as error:
        lb.fit(model, x, y, method="cavi")
    message = str(error.value)
    assert message.startswith(
        "CAVI needs log p to be affine in the statistics of every latent site.\n"
        "  Site 'beta' enters site 'y' through softplus("
    )
    assert f"({where()})\n  statistics of MultivariateNormal: " in message
    assert "left over: softplus(" in message


def test_explain_says_the_same():
    (x, y), _ = arguments(0)
    plan = str(lb.explain(model, x, y))
    assert "beta" in plan
    assert "softplus(" in plan
    assert where() in plan

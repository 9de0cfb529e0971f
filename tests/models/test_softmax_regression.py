"""Softmax regression has no exact coordinate update: the error says where and why."""

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
    beta = numpyro.sample("beta", dist.Normal(jnp.zeros((D, 3)), 2.0).to_event(2))
    with numpyro.plate("data", n):
        numpyro.sample("y", dist.Categorical(logits=x @ beta), obs=y)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(20, 2)), rng.integers(3, size=20)), {}


def where() -> str:
    """File and line of the observed site, as the messages print it."""
    lines, first = inspect.getsourcelines(model)
    offset = next(k for k, line in enumerate(lines) if 'numpyro.sample("y"' in line)
    return f"test_softmax_regression.py:{first + offset}"


def test_cavi_says_which_site_which_operation_which_line():
    (x, y), _ = arguments(0)
    with pytest.raises(lb.errors.NotConjugateError) as error:
        lb.fit(model, x, y, method="cavi")
    message = str(error.value)
    assert message.startswith(
        "CAVI needs log p to be affine in the statistics of every latent site.\n"
        "  Site 'beta' enters site 'y' through logsumexp("
    )
    assert f"({where()})\n  statistics of MultivariateNormal: " in message
    assert "left over: logsumexp(" in message


def test_explain_says_the_same():
    (x, y), _ = arguments(0)
    plan = str(lb.explain(model, x, y, method="cavi"))
    assert "beta" in plan
    assert "logsumexp(" in plan
    assert where() in plan

"""What is not conjugate is said in words: the operation, the sites, the line of the program."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import lax

from lowerbound.errors import Residual
from lowerbound.joint import multi_affine
from lowerbound.model import trace_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 2))
Y = RNG.normal(size=6)
LABELS = np.array([0, 1, 1, 0, 1, 0])


def weights(D: int = 2) -> Any:
    return numpyro.sample("w", dist.Normal(0.0, 1.0).expand([D]).to_event(1))


def softmax_regression(x: Any, y: Any) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
    numpyro.sample("y", dist.Categorical(logits=x @ w), obs=y)  # here


def softplus_of_a_product(x: Any, y: Any) -> None:
    w = weights()
    v = numpyro.sample("v", dist.Gamma(1.0, 1.0))
    scale = jax.nn.softplus(v * (x @ w))  # here
    numpyro.sample("y", dist.Normal(0.0, scale), obs=y)


def log_of_a_real(x: Any, y: Any) -> None:
    w = weights()
    scale = jnp.log(w)  # here
    numpyro.sample("y", dist.Normal(scale[0], 1.0), obs=y)


def student_with_scale(x: Any, y: Any) -> None:
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    s = numpyro.sample("s", dist.Gamma(1.0, 1.0))
    numpyro.sample("y", dist.StudentT(4.0, m, s), obs=y)  # here


def neural_network(x: Any, y: Any) -> None:
    w = weights()
    v = numpyro.sample("v", dist.Normal(0.0, 1.0))
    hidden = jnp.tanh(x @ w)
    mean = jnp.exp(v * hidden)  # here
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def marginal_mixture(x: Any, y: Any) -> None:
    m = numpyro.sample("m", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    parts = dist.Normal(m, 1.0)
    mixing = dist.Categorical(jnp.ones(2) / 2)
    numpyro.sample("y", dist.MixtureSameFamily(mixing, parts), obs=y)  # here


def loop(x: Any, y: Any) -> None:
    w = weights()
    _, level = lax.scan(lambda c, e: (0.5 * c + e, c), w[0], x @ w)  # here
    numpyro.sample("y", dist.Normal(level, 1.0), obs=y)


def cubic(x: Any, y: Any) -> None:
    w = weights()
    numpyro.sample("y", dist.Normal((x @ w) ** 3, 1.0), obs=y)  # here


def sum_of_rates(x: Any, y: Any) -> None:
    a = numpyro.sample("a", dist.Gamma(1.0, 1.0))
    b = numpyro.sample("b", dist.Gamma(1.0, 1.0))
    numpyro.sample("y", dist.Poisson(a + b).expand([6]), obs=y)  # here


def observed_product(x: Any, y: Any) -> None:
    m = numpyro.sample("m", dist.Normal(0.0, 1.0).expand([6]).to_event(1))
    numpyro.sample("y", dist.Delta(2.0 * m).to_event(1), obs=y)  # here


@dataclass(frozen=True)
class Expected:
    model: Callable[..., Any]
    y: np.ndarray
    latents: tuple[str, ...]
    operation: str | None


COUNTS = np.array([0, 2, 1, 3, 0, 1])
TABLE = [
    Expected(softmax_regression, np.array([0, 1, 2, 0, 1, 2]), ("w",), "logsumexp(w)"),
    Expected(softplus_of_a_product, Y, ("w", "v"), "softplus(w, v)"),
    Expected(log_of_a_real, Y, ("w",), "log(w)"),
    Expected(student_with_scale, Y, ("m", "s"), "log(1 + u^2 / df)(m, s)"),
    Expected(neural_network, Y, ("w", "v"), "exp(w, v)"),
    Expected(marginal_mixture, Y, ("m",), None),  # an operation inside NumPyro's log_prob
    Expected(loop, Y, ("w",), "scan(w)"),
    Expected(cubic, Y, ("w",), "w * w * w"),
    Expected(sum_of_rates, COUNTS, ("a", "b"), "log(a, b)"),
    Expected(observed_product, Y, ("m",), "an observed Delta"),
]


def residual_of(expected: Expected) -> Residual:
    joint = multi_affine(trace_model(expected.model, (X, expected.y), {}))
    assert joint.structure.residuals
    assert joint.summands == ()
    return joint.structure.residuals[0]


@pytest.mark.parametrize("expected", TABLE, ids=lambda e: e.model.__name__)
def test_residuals_name_operation_sites_and_line(expected: Expected) -> None:
    residual = residual_of(expected)
    assert residual.site == "y"
    assert residual.latents == expected.latents
    assert expected.operation in (None, residual.operation)
    assert residual.reason
    lines, start = inspect.getsourcelines(expected.model)
    marked = start + next(i for i, line in enumerate(lines) if "# here" in line)
    assert residual.where == f"test_residuals.py:{marked}"


def test_the_line_is_that_of_this_call() -> None:
    """Jitted library functions are traced once; the second call has its own line."""

    def first(x: Any, y: Any) -> None:
        w = weights()
        numpyro.sample("y", dist.Normal(jax.nn.softplus((x @ w) ** 2), 1.0), obs=y)

    def second(x: Any, y: Any) -> None:
        w = weights()
        numpyro.sample("y", dist.Normal(jax.nn.softplus((x @ w) ** 2), 1.0), obs=y)

    for model in (first, second):
        residual = residual_of(Expected(model, Y, ("w",), "softplus(w)"))
        line = inspect.getsourcelines(model)[1] + 2
        assert residual.where == f"test_residuals.py:{line}"


def test_one_bad_site_leaves_the_others_named() -> None:
    def model(x: Any, y: Any) -> None:
        w = weights()
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Gamma(1.0, 1.0))
        numpyro.sample("y", dist.Bernoulli(logits=(x @ w) ** 2), obs=y)
        numpyro.sample("v", dist.Normal(a, 1.0 / jnp.sqrt(b)), obs=x[:, 0])

    joint = multi_affine(trace_model(model, (X, LABELS), {}))
    assert {r.latents for r in joint.structure.residuals} == {("w",)}


def test_a_product_of_too_many_terms_is_not_multiplied_out() -> None:
    def logistic_map(y: Any) -> None:
        rate = numpyro.sample("rate", dist.Gamma(2.0, 2.0))
        level = numpyro.sample("level", dist.Beta(2.0, 2.0))
        for _ in range(20):  # a polynomial whose degree doubles with every step
            level = level - 0.1 * rate * level * level
        numpyro.sample("y", dist.Normal(level, 1.0), obs=y)

    joint = multi_affine(trace_model(logistic_map, (np.array(0.3),), {}))
    assert any("terms" in residual.reason for residual in joint.structure.residuals)

"""Moments of predictors B x of a Gaussian x: B m and the diagonal of B V B'."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from lowerbound.compiled import equations
from lowerbound.joint import inputs_of, multi_affine
from lowerbound.joint.energy import moments
from lowerbound.joint.energy.integrals import Integral
from lowerbound.model import trace_model

ROWS = 7
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(ROWS, 2)), RNG.integers(2, size=ROWS)
FIRST, SECOND = RNG.integers(3, size=ROWS), RNG.integers(4, size=ROWS)


def normal(name: str, *shape: int) -> Any:
    return numpyro.sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))


def crossed(x: Any, y: Any, first: Any, second: Any) -> None:
    """An intercept, a slope, two crossed effects, and a slope by group."""
    b, u, v, w = normal("b", 2), normal("u", 3), normal("v", 4, 1), normal("w", 3)
    a = b[0] + b[1] * x[:, 0] + u[first] + v[second, 0] + w[first] * x[:, 1]
    numpyro.sample("y", dist.Bernoulli(logits=a).to_event(1), obs=y)


def design_of_crossed() -> np.ndarray:
    intercept = np.column_stack([np.ones(ROWS), X[:, 0]])
    u, v = np.eye(3)[FIRST], np.eye(4)[SECOND]
    return np.hstack([intercept, u, v, u * X[:, 1:]])


def dense(x: Any, y: Any, first: Any, second: Any) -> None:
    """Effects beside a product of a matrix, which is no single entry."""
    b, u, v = normal("b", 2), normal("u", 3), normal("v", 4)
    numpyro.sample("y", dist.Bernoulli(logits=x @ b + u[first] + v[second]).to_event(1), obs=y)


def design_of_dense() -> np.ndarray:
    return np.hstack([X, np.eye(3)[FIRST], np.eye(4)[SECOND]])


@cache
def derived(model: Any) -> tuple[Any, Any, Integral]:
    with jax.enable_x64(True):
        traced = trace_model(model, (X, Y, FIRST, SECOND))
        joint = multi_affine(traced)
        arrays = joint.compress(inputs_of(traced))
    (integral,) = {r.integral for s in joint.summands for r in s.reads if r.integral is not None}
    return joint, arrays, integral


def gaussian(size: int, seed: int) -> tuple[np.ndarray, np.ndarray, Any]:
    rng = np.random.default_rng(seed)
    mean, root = rng.normal(size=size), rng.normal(size=(size, size))
    covariance = root @ root.T
    second = covariance + np.outer(mean, mean)
    return mean, covariance, ({"x": jnp.asarray(mean), "xx": jnp.asarray(second)},)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", ["crossed", "dense"])
def test_moments_are_those_of_the_linear_map(model: str, seed: int) -> None:
    _, arrays, integral = derived(globals()[model])
    design = globals()[f"design_of_{model}"]()
    with jax.enable_x64(True):
        mean, covariance, statistics = gaussian(design.shape[1], seed)
        first, variance = integral.moments(arrays, statistics)
    np.testing.assert_allclose(first, design @ mean, rtol=1e-12)
    expected = np.einsum("ni,ij,nj->n", design, covariance, design)
    np.testing.assert_allclose(variance, expected, rtol=1e-11)


def test_single_entries_are_read_together() -> None:
    _, _, integral = derived(crossed)
    assert (len(integral.first), len(integral.second), len(integral.entries)) == (1, 0, 1)
    _, _, integral = derived(dense)  # what meets the matrix product stays as it is
    assert (len(integral.first), len(integral.second), len(integral.entries)) == (2, 5, 1)


def test_where_products_are_too_many_each_is_read_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moments, "MOST_PRODUCTS", 0)
    _, arrays, integral = derived.__wrapped__(crossed)  # not the one of the tests above
    assert (len(integral.first), len(integral.second), integral.entries) == (5, 15, ())
    design = design_of_crossed()
    with jax.enable_x64(True):
        _, covariance, statistics = gaussian(design.shape[1], 0)
        _, variance = integral.moments(arrays, statistics)
    expected = np.einsum("ni,ij,nj->n", design, covariance, design)
    np.testing.assert_allclose(variance, expected, rtol=1e-11)


def vectors(x: Any, y: Any, first: Any, second: Any) -> None:
    """An intercept and a slope of every row: one vector of two for each."""
    with numpyro.plate("rows", ROWS):
        a, b = (numpyro.sample(name, dist.Normal(0.0, 1.0)) for name in "ab")
        numpyro.sample("y", dist.Bernoulli(logits=a + b * x[:, 0]), obs=y)


def test_copies_of_a_vector_are_told_apart() -> None:
    joint, arrays, integral = derived(vectors)
    (block,) = joint.blocks
    assert (block.batch_shape, block.static["dim"], len(integral.entries)) == ((ROWS,), 2, 1)
    rng = np.random.default_rng(0)
    mean, root = rng.normal(size=(ROWS, 2)), rng.normal(size=(ROWS, 2, 2))
    covariance = root @ root.swapaxes(1, 2)
    with jax.enable_x64(True):
        second = covariance + mean[:, :, None] * mean[:, None, :]
        statistics = ({"x": jnp.asarray(mean), "xx": jnp.asarray(second)},)
        first, variance = integral.moments(arrays, statistics)
    design = np.column_stack([np.ones(ROWS), X[:, 0]])
    np.testing.assert_allclose(first, (design * mean).sum(1), rtol=1e-11)
    expected = np.einsum("ni,nij,nj->n", design, covariance, design)
    np.testing.assert_allclose(variance, expected, rtol=1e-11)


def test_operations_inside_others_are_counted() -> None:
    def function(x: Any) -> Any:
        return jax.lax.while_loop(lambda a: a < 3.0, lambda a: jax.jit(jnp.sin)(a) + 1.0, x)

    jaxpr = jax.make_jaxpr(function)(0.0).jaxpr
    assert equations(jaxpr) == 5  # the loop, <, the call, sin, +

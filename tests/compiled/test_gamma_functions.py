"""log Gamma and digamma of many numbers: those of SciPy, for whatever numbers there are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import digamma, gammaln
from scipy import special

from lowerbound.compiled import jit
from lowerbound.compiled.gamma_functions import MANY, is_large_gamma

POSITIVE = np.concatenate([np.geomspace(1e-250, 1e250, MANY), np.linspace(0.01, 30.0, MANY)])
FUNCTIONS = {"log gamma": (gammaln, special.gammaln), "digamma": (digamma, special.digamma)}


def operations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from operations(inner)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_positive_numbers_have_all_digits(name):
    function, expected = FUNCTIONS[name]
    with jax.enable_x64(True):
        found = np.asarray(jit(function)(POSITIVE))
    np.testing.assert_allclose(found, expected(POSITIVE), rtol=2e-14, atol=2e-14)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("odd", [-2.5, -1e-9, 0.0, np.inf, np.nan])
def test_other_numbers_are_as_before(name, odd):
    function, _ = FUNCTIONS[name]
    x = np.linspace(0.5, 20.0, MANY)
    x[7] = odd
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jit(function)(x), jax.jit(function)(x))


def test_slopes_are_those_of_the_function():
    with jax.enable_x64(True):
        slopes = jit(jax.grad(lambda x: jnp.sum(gammaln(x) ** 2)))(POSITIVE[MANY:])
    x = POSITIVE[MANY:]
    expected = 2.0 * special.gammaln(x) * special.digamma(x)
    np.testing.assert_allclose(slopes, expected, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize(
    ("count", "dtype", "large"),
    [(MANY, float, True), (MANY - 1, float, False), (MANY, np.float32, False)],
)
def test_only_many_doubles_are_worth_more_operations(count, dtype, large):
    with jax.enable_x64(True):
        closed = jax.make_jaxpr(gammaln)(np.ones(count, dtype))
    assert any(map(is_large_gamma, operations(closed.jaxpr))) == large

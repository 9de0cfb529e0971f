"""I_x(a, b) by its shapes: derivatives where JAX has none."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import lowerbound as lb
from lowerbound.compiled import differentiable, traced
from lowerbound.compiled.incomplete_beta import NAME, incomplete_beta

SHAPES = np.array([0.01, 0.5, 3.0, 40.0, 600.0])


@pytest.mark.parametrize("x", [0.003, 0.4, 0.97])
def test_derivatives_where_the_function_is_a_power(x):
    """I_x(a, 1) = x^a and I_x(1, b) = 1 - (1 - x)^b."""
    with jax.enable_x64(True):
        every = jax.vmap(jax.grad(incomplete_beta, (0, 1, 2)), (0, None, None))
        by_a, _, by_x = every(jnp.asarray(SHAPES), jnp.asarray(1.0), jnp.asarray(x))
        every = jax.vmap(jax.grad(incomplete_beta, 1), (None, 0, None))
        by_b = every(jnp.asarray(1.0), jnp.asarray(SHAPES), jnp.asarray(x))
    power, other = x**SHAPES, (1 - x) ** SHAPES
    np.testing.assert_allclose(by_a, power * np.log(x), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(by_b, -other * np.log1p(-x), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(by_x, SHAPES * power / x, rtol=1e-7, atol=1e-12)


def test_second_derivatives():
    with jax.enable_x64(True):
        second = jax.grad(jax.grad(incomplete_beta))(*map(jnp.asarray, (2.0, 1.0, 0.4)))
    assert second == pytest.approx(0.4**2 * np.log(0.4) ** 2, rel=1e-4)


def test_a_program_is_rewritten_wherever_it_stands_in_it():
    def inside(a):
        return jax.lax.cond(a > 0, lambda: jax.scipy.special.betainc(a, 0.5, 0.3), lambda: a)

    with jax.enable_x64(True):
        closed = traced(inside)(jnp.asarray(2.0))
        assert NAME in str(closed)
        found = jax.grad(lambda a: jax.core.eval_jaxpr(*_parts(differentiable(closed)), a)[0])(2.0)
        assert found == pytest.approx(jax.grad(incomplete_beta)(2.0, 0.5, 0.3))
        plain = traced(jnp.sin)(1.0)
        assert differentiable(plain) is plain


def _parts(closed):
    return closed.jaxpr, closed.consts


def censored(y, ceiling):
    """Student-t outcomes, those above a ceiling known as such, of unknown degrees of freedom."""
    nu = numpyro.sample("nu", dist.Gamma(2.0, 0.2))
    law = dist.StudentT(nu, 0.0, 1.0)
    numpyro.sample("seen", law, obs=y[y < ceiling])
    numpyro.factor("above", (y >= ceiling).sum() * jnp.log1p(-law.cdf(ceiling)))


def test_degrees_of_freedom_in_a_distribution_function_have_a_gaussian():
    y = stats.t(4.0).rvs(300, random_state=1)
    grid = lb.fit(censored, y, 0.5, progress=False)
    gaussian = lb.fit(censored, y, 0.5, method=lb.Gaussian(), progress=False)
    assert abs(gaussian.mean("nu") - grid.mean("nu")) < 0.1 * grid.sd("nu")
    assert gaussian.sd("nu") == pytest.approx(grid.sd("nu"), rel=0.15)

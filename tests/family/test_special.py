"""Inverse digamma maps against SciPy, over the whole range of each floating type."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from lowerbound.compiled import quickly
from lowerbound.family.numerics.special import (
    dirichlet_concentration,
    gamma_shape,
    interior,
    inverse_digamma,
    log_minus_digamma,
    multivariate_digamma,
    multivariate_gammaln,
)

compiled_concentration = quickly(dirichlet_concentration)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-14), ("float32", 1e-6)])
def test_inverse_digamma_inverts_digamma(dtype: str, tolerance: float) -> None:
    y = np.concatenate([-(10.0 ** np.arange(-3, 30)), 10.0 ** np.arange(-3, 1.5, 0.5)])
    a = inverse_digamma(jnp.asarray(y, dtype))
    assert a.dtype == dtype
    np.testing.assert_allclose(
        scipy.special.digamma(np.asarray(a, float)), y, rtol=tolerance, atol=tolerance
    )


def test_log_minus_digamma_has_no_cancellation() -> None:
    a = 10.0 ** np.arange(-12, 13)
    got = np.asarray(log_minus_digamma(jnp.asarray(a)))
    small = a < 1000
    np.testing.assert_allclose(
        got[small], np.log(a[small]) - scipy.special.digamma(a[small]), rtol=1e-12
    )
    # 1/(2a) < log a - digamma(a) < 1/(2a) + 1/(12 a^2)
    big = a[~small]
    np.testing.assert_allclose(got[~small], 1 / (2 * big) + 1 / (12 * big**2), rtol=1e-10)


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_gamma_shape_inverts_the_gap(dim: int) -> None:
    a = (dim - 1) / 2 + jnp.asarray(10.0 ** np.arange(-7, 4))
    each = a[:, None] - jnp.arange(dim) / 2
    gap = jnp.sum(log_minus_digamma(each) + jnp.log(a[:, None] / each), axis=-1)
    np.testing.assert_allclose(gamma_shape(gap, dim), a, rtol=1e-9)


def test_multivariate_gamma_functions() -> None:
    a = np.array([2.0, 3.5, 40.0])
    np.testing.assert_allclose(
        multivariate_gammaln(jnp.asarray(a), 4), [scipy.special.multigammaln(v, 4) for v in a]
    )
    expected = sum(scipy.special.digamma(a - i / 2) for i in range(4))
    np.testing.assert_allclose(multivariate_digamma(jnp.asarray(a), 4), expected)


@given(st.lists(st.floats(-6, 4), min_size=4, max_size=4))
def test_dirichlet_concentration_recovers_any_mixture_of_sizes(exponents: list[float]) -> None:
    a = 10.0 ** np.array(exponents)
    mean_log = scipy.special.digamma(a) - scipy.special.digamma(a.sum())
    back = np.asarray(compiled_concentration(jnp.asarray(mean_log)))
    again = scipy.special.digamma(back) - scipy.special.digamma(back.sum())
    np.testing.assert_allclose(again, mean_log, rtol=1e-8, atol=1e-10)


def test_interior_reads_zero_as_below_rounding() -> None:
    got = interior(jnp.asarray([0.0, 1e-9, 2.0]))
    assert 0 < float(got[0]) < np.finfo(float).eps
    np.testing.assert_array_equal(got[1:], [1e-9, 2.0])

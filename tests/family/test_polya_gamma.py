"""Weights on squares against quadrature and series; points that maximise a parabola."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from lowerbound.compiled import quickly
from lowerbound.family.factors.polya_gamma import InverseGaussian, Point, PolyaGamma
from lowerbound.rewrite.augmentations import weights

TILTS = np.array([0.0, 1e-6, 1e-3, 0.19, 0.21, 1.0, 7.0, 80.0, 1e4])


def natural(tilts, total):
    return {
        "weight": jnp.asarray(-(tilts**2) / 2),
        "total": jnp.full(np.shape(tilts), total, float),
    }


def partial_sums(c, n, terms=400_000):
    """Mean and variance of PG(n, c) from its sum of gammas; the tail of the sum by an integral."""
    k = np.arange(terms) + 0.5
    d = 1 / (2 * np.pi**2 * (k**2 + (c / (2 * np.pi)) ** 2))
    b = c / (2 * np.pi)
    rest = (1 / terms if b == 0 else np.arctan(b / terms) / b) / (2 * np.pi**2)
    return n * (d.sum() + rest), n * np.sum(d**2)


@pytest.mark.parametrize("n", [1.0, 3.5])
def test_moments_are_those_of_the_sum_of_gammas(n):
    family = PolyaGamma(TILTS.shape)
    mean = family.mean(natural(TILTS, n))["weight"]
    law = family.marginals(natural(TILTS, n))["z"]
    expected = np.array([partial_sums(c, n) for c in TILTS])
    np.testing.assert_allclose(mean, expected[:, 0], rtol=1e-9)
    np.testing.assert_allclose(law.mean, expected[:, 0], rtol=1e-9)
    near = TILTS < 1e3  # beyond, the tail of the sum of squares matters
    np.testing.assert_allclose(law.variance[near], expected[near, 1], rtol=1e-9)


def test_the_mean_is_the_gradient_of_the_log_normalizer():
    family = PolyaGamma(TILTS.shape)
    start = natural(TILTS, 2.0)

    def total(weight):
        return family.log_normalizer({**start, "weight": weight}).sum()

    gradient = quickly(jax.grad(total))(start["weight"])
    np.testing.assert_allclose(gradient, family.mean(start)["weight"], rtol=1e-9)
    with np.errstate(over="ignore"):
        x = TILTS / 2
        expected = -2 * (np.logaddexp(x, -x) - np.log(2))
    np.testing.assert_allclose(family.log_normalizer(start), expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_series_and_closed_forms_meet(dtype):
    """Where the power series takes over, value and slope are continuous to rounding."""
    u = jnp.asarray([0.01 * (1 - 1e-5), 0.01 * (1 + 1e-5)], dtype)
    eps = float(np.finfo(dtype).eps)
    value, slope = weights.tanh_root(u)
    # tanh(x)/x = 1 - u/3 + ..., slope -1/3 + 4u/15 - ...: the steps themselves are 2e-7 / 3.
    assert abs(float(value[0] - value[1])) < 7e-8 + 4 * eps
    assert abs(float(slope[0] - slope[1])) < 6e-8 + 4e3 * eps
    assert abs(float(jnp.diff(weights.log_cosh_root(u))[0])) < 1.1e-7 + 4 * eps


def test_natural_parameters_come_back_from_means():
    family = PolyaGamma(TILTS.shape)
    for n in (1.0, 4.0):
        start = natural(TILTS, n)
        back = quickly(family.natural_given)(family.mean(start), jnp.asarray(n))
        # Near no tilt the mean n/4 has only rounding to tell the tilt by.
        np.testing.assert_allclose(back["weight"], start["weight"], rtol=1e-8, atol=1e-14)
    one = natural(TILTS, 1.0)
    again = family.natural(family.mean(one))
    np.testing.assert_allclose(again["weight"], one["weight"], rtol=1e-8, atol=1e-14)
    np.testing.assert_array_equal(again["total"], 1.0)


def test_entropy_and_divergence_are_relative_to_no_tilt():
    family = PolyaGamma(TILTS.shape)
    q, p = natural(TILTS, 2.0), natural(np.zeros_like(TILTS), 2.0)
    entropy = family.entropy(q, family.mean(q))
    np.testing.assert_allclose(entropy, -family.kl(q, p), rtol=1e-9, atol=1e-12)
    assert np.all(family.kl(q, p) >= -1e-15)
    law = family.marginals(q)["z"]
    point = jnp.full(TILTS.shape, 0.3)
    np.testing.assert_allclose(
        law.log_prob(point), 0.3 * q["weight"] - family.log_normalizer(q), rtol=1e-12
    )


DRAWS = 5_000
drawn = quickly(lambda start, key: PolyaGamma((3, 5)).sample(start, key, (DRAWS,))["z"])


@pytest.mark.parametrize("seed", [0, 1])
def test_draws_have_the_moments_of_the_law(seed):
    """60 z-scores against 4.5: false failure below 5e-4 for each seed, with fixed seeds."""
    tilts, n = np.array([0.0, 0.5, 4.0, 40.0, 1000.0]), np.array([[1.0], [6.0], [0.7]])
    family = PolyaGamma((3, 5))
    start = {
        "weight": jnp.broadcast_to(-(tilts**2) / 2, (3, 5)),
        "total": jnp.broadcast_to(n, (3, 5)),
    }
    z = np.asarray(drawn(start, jax.random.key(seed)))
    law = family.marginals(start)["z"]
    centred = z - np.asarray(law.mean)
    error = np.sqrt(np.asarray(law.variance) / DRAWS)
    assert np.all(np.abs(centred.mean(0)) < 4.5 * error)
    squares = centred**2
    assert np.all(np.abs(squares.mean(0) - law.variance) < 4.5 * squares.std(0) / np.sqrt(DRAWS))
    # The Laplace transform E exp(-s w) = exp(A(natural - s) - A(natural)) sees the whole law.
    s = 1 / np.asarray(law.mean)
    seen = np.exp(-s * z)
    shifted = {**start, "weight": start["weight"] - s}
    expected = np.exp(family.log_normalizer(shifted) - family.log_normalizer(start))
    assert np.all(np.abs(seen.mean(0) - expected) < 4.5 * seen.std(0) / np.sqrt(DRAWS))


def test_no_count_means_no_weight():
    family = PolyaGamma((2,))
    start = {"weight": jnp.asarray([-1.0, 0.0]), "total": jnp.zeros(2)}
    np.testing.assert_array_equal(family.mean(start)["weight"], 0.0)
    sample = quickly(lambda start, key: family.sample(start, key, (3,))["z"])
    assert np.all(np.asarray(sample(start, jax.random.key(0))) < 1e-300)
    assert np.all(family.in_domain(start))


def test_domains():
    weight = jnp.asarray([0.0, -1.0, 1.0, jnp.nan, -jnp.inf])
    found = PolyaGamma((5,)).in_domain({"weight": weight, "total": jnp.ones(5)})
    np.testing.assert_array_equal(found, [True, True, False, False, False])
    found = InverseGaussian((5,)).in_domain({"weight": weight})
    np.testing.assert_array_equal(found, [False, True, False, False, False])
    found = Point((5,)).in_domain({"x": jnp.ones(5), "x2": weight})
    np.testing.assert_array_equal(found, [False, True, False, False, False])


def test_inverse_gaussian_matches_scipy():
    tilt = np.array([0.01, 1.0, 30.0])
    family = InverseGaussian((3,))
    start = {"weight": jnp.asarray(-(tilt**2) / 2)}
    law = scipy.stats.invgauss(1 / tilt)  # mean 1/c, shape 1
    mean = family.mean(start)
    np.testing.assert_allclose(mean["weight"], law.mean(), rtol=1e-12)
    np.testing.assert_allclose(family.marginals(start)["z"].variance, law.var(), rtol=1e-10)
    np.testing.assert_allclose(family.natural(mean)["weight"], start["weight"], rtol=1e-12)
    # The density is the Lévy density times the relative one.
    point = np.array([0.3, 2.0, 0.05])
    levy = scipy.stats.levy.logpdf(1 / point) - 2 * np.log(point)
    inverse = scipy.stats.invgamma(0.5, scale=0.5).logpdf(point)
    assert not np.allclose(levy, inverse)  # w itself is Lévy, not 1/w
    found = family.marginals(start)["z"].log_prob(jnp.asarray(point))
    np.testing.assert_allclose(found + inverse, law.logpdf(point), rtol=1e-9)
    gradient = jax.grad(lambda w: family.log_normalizer({"weight": w}).sum())(start["weight"])
    np.testing.assert_allclose(gradient, mean["weight"], rtol=1e-12)
    np.testing.assert_allclose(
        family.entropy(start, mean),
        family.log_normalizer(start) - family.inner(start, mean),
        rtol=1e-9,
    )


levy = quickly(lambda tilt, key: weights.LevyWeight(tilt).sample(key, (20_000,)))


@pytest.mark.parametrize("tilt", [0.0, 0.01, 1.0, 30.0])
def test_draws_of_the_tilted_levy_law(tilt):
    """Kolmogorov-Smirnov at 20000 draws with fixed seeds; false failure 1e-4 each."""
    z = np.asarray(levy(jnp.asarray(tilt), jax.random.key(3)))
    law = scipy.stats.invgamma(0.5, scale=0.5) if tilt == 0 else scipy.stats.invgauss(1 / tilt)
    assert scipy.stats.kstest(z, law.cdf).pvalue > 1e-4


def test_a_point_maximises_its_parabola():
    family = Point((2,))
    start = {"x": jnp.asarray([3.0, -1.0]), "x2": jnp.asarray([-0.5, -2.0])}
    mean = family.mean(start)
    np.testing.assert_allclose(mean["x"], [3.0, -0.25])
    gradient = jax.grad(lambda n: family.log_normalizer(n).sum())(start)
    for name in ("x", "x2"):
        np.testing.assert_allclose(gradient[name], mean[name])
    np.testing.assert_allclose(family.log_normalizer(start), family.inner(start, mean))
    np.testing.assert_array_equal(family.entropy(start, mean), 0.0)
    back = family.mean(family.natural(mean))
    np.testing.assert_allclose(back["x"], mean["x"])
    draws = family.sample(start, jax.random.key(0), (4,))["z"]
    np.testing.assert_array_equal(draws, np.broadcast_to(mean["x"], (4, 2)))
    law = family.marginals(start)["z"]
    np.testing.assert_array_equal(law.mean, mean["x"])
    np.testing.assert_array_equal(law.variance, 0.0)

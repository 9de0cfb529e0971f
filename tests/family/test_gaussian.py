"""Gaussian factors in closed form, far from zero, and far in the tails."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from lowerbound.compiled import quickly
from lowerbound.family import MultivariateNormal, Normal, TruncatedNormal

BOUNDS = [
    (0.0, np.inf),
    (-np.inf, 0.0),
    (-np.inf, np.inf),
    (-1.0, 1.0),
    (0.0, 1e-3),
    (0.0, 1e-9),
    (5.0, 6.0),
    (-6.0, -5.0),
    (0.0, 0.9),
    (-0.3, 0.8),
    (-100.0, 50.0),
]
PLACES = [
    (m, s, low, high)
    for m in (0.0, 3.0, -40.0, 40.0, 1e4)
    for s in (1.0, 0.1)
    for low, high in BOUNDS
]


def test_normal_matches_scipy() -> None:
    natural = {"x": jnp.asarray([3.0]), "x2": jnp.asarray([-2.0])}
    reference = scipy.stats.norm(3 / 4, 1 / 2)
    family = Normal((1,))
    mean = family.mean(natural)
    np.testing.assert_allclose(mean["x"], reference.mean())
    np.testing.assert_allclose(mean["x2"], reference.var() + reference.mean() ** 2)
    np.testing.assert_allclose(family.entropy(natural, mean), reference.entropy())


def test_entropy_does_not_cancel_far_from_zero() -> None:
    """A - <natural, mean> would lose every digit of float32 here."""
    natural = {"x": jnp.float32([1e6]), "x2": jnp.float32([-0.5])}
    family = Normal((1,))
    np.testing.assert_allclose(
        family.entropy(natural, family.mean(natural)), scipy.stats.norm.entropy(), rtol=1e-6
    )
    vector = MultivariateNormal((), 2)
    wide = {"x": jnp.float32([1e6, -1e6]), "xx": -jnp.eye(2, dtype=jnp.float32) / 2}
    np.testing.assert_allclose(
        vector.entropy(wide, vector.mean(wide)), 2 * scipy.stats.norm.entropy(), rtol=1e-6
    )


def test_multivariate_normal_matches_scipy_and_ignores_the_antisymmetric_part() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 6))
    precision, m = root @ root.T, rng.normal(size=3)
    covariance = np.linalg.inv(precision)
    skew = np.array([[0, 1, 2], [-1, 0, 3], [-2, -3, 0.0]])
    natural = {"x": jnp.asarray(precision @ m), "xx": jnp.asarray(-precision / 2 + skew)}
    family = MultivariateNormal((), 3)
    mean = family.mean(natural)
    np.testing.assert_allclose(mean["x"], m, rtol=1e-10)
    np.testing.assert_allclose(mean["xx"], covariance + np.outer(m, m), rtol=1e-10)
    reference = scipy.stats.multivariate_normal(m, covariance)
    np.testing.assert_allclose(family.entropy(natural, mean), reference.entropy())
    x = rng.normal(size=3)
    got = family.inner(natural, family.statistics({"x": jnp.asarray(x)}))
    np.testing.assert_allclose(got - family.log_normalizer(natural), reference.logpdf(x))


def test_ill_conditioned_precision_stays_finite() -> None:
    precision = jnp.diag(jnp.asarray([1e-12, 1.0, 1e12]))
    natural = {"x": jnp.ones(3), "xx": -precision / 2}
    family = MultivariateNormal((), 3)
    np.testing.assert_allclose(family.mean(natural)["x"], [1e12, 1.0, 1e-12])
    assert bool(family.in_domain(natural))
    assert not bool(family.in_domain({"x": jnp.ones(3), "xx": precision}))


def exact_moments(m: float, s: float, low: float, high: float) -> dict[str, Any]:
    """Composite Gauss-Legendre in extended precision about the point nearest the mode."""
    center = np.longdouble(min(max(m, low), high))
    slope = (center - m) / s
    reach = 45 / max(1, abs(slope))
    edges = np.linspace(max((low - center) / s, -reach), min((high - center) / s, reach), 201)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half, middle = np.diff(edges)[:, None] / 2, ((edges[1:] + edges[:-1]) / 2)[:, None]
    t = middle + half * nodes
    mass = half * weights * np.exp(-slope * t - t * t / 2)
    total = mass.sum()
    first = (mass * t).sum() / total
    variance = (mass * (t - first) ** 2).sum() / total
    log_integral = np.log(total * s)
    entropy = log_integral + slope * first + (variance + first**2) / 2
    at_center = center * m / s**2 - center**2 / s**2 / 2
    return {
        "x": center + s * first,
        "variance": s * s * variance,
        "entropy": entropy,
        "A": at_center + log_integral,
    }


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 2e-3)])
def test_truncated_normal_is_exact_in_the_tails(dtype: str, tolerance: float) -> None:
    m, s, lower, upper = (jnp.asarray(column, dtype) for column in np.array(PLACES).T)
    natural = {"x": m / s**2, "x2": -0.5 / s**2, "lower": lower, "upper": upper}
    family = TruncatedNormal(m.shape)

    @quickly
    def evaluate(natural: dict[str, jax.Array]) -> dict[str, Any]:
        mean = family.mean(natural)
        law = family.marginals(natural)["x"]
        statistics = {key: natural[key] for key in family.statistic_names}
        return {
            "mean": mean,
            "A": family.log_normalizer(natural),
            "entropy": family.entropy(natural, mean),
            "variance": law.variance,
            "x": law.mean,
            "draws": family.sample(natural, jax.random.key(0), (200,))["x"],
            "gradient": jax.grad(lambda t: jnp.sum(family.log_normalizer({**natural, **t})))(
                statistics
            ),
            "second": jax.grad(lambda t: jnp.sum(family.mean({**natural, **t})["x"]))(statistics),
        }

    result = evaluate(natural)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(result))
    for inside in (result["mean"]["x"], result["draws"]):
        assert np.all((inside > lower) & (inside < upper))
    precise = {key: np.asarray(value, float) for key, value in natural.items()}
    for i in range(len(PLACES)):
        scale = 1 / np.sqrt(-2 * precise["x2"][i])
        location = precise["x"][i] * scale**2
        expected = exact_moments(location, scale, precise["lower"][i], precise["upper"][i])
        place = str(PLACES[i])
        spread = float(np.sqrt(expected["variance"]))
        slack = tolerance * spread + np.finfo(dtype).eps * abs(float(expected["x"])) * 2
        assert abs(float(result["mean"]["x"][i]) - float(expected["x"])) <= slack, place
        for key in ("variance", "entropy", "A"):
            np.testing.assert_allclose(
                float(result[key][i]),
                float(expected[key]),
                rtol=tolerance,
                atol=tolerance,
                err_msg=f"{key} {place}",
            )


def test_truncated_normal_draws_follow_the_distribution() -> None:
    """Kolmogorov-Smirnov at 1e-6 for six intervals and three seeds: false failures below 2e-5."""
    bounds = np.array(
        [(0, np.inf), (-np.inf, -3), (2, 2.2), (-0.4, 0.5), (-2, 1), (-np.inf, np.inf)], float
    )
    family = TruncatedNormal((6,))
    natural = {
        "x": jnp.zeros(6),
        "x2": jnp.full(6, -0.5),
        "lower": jnp.asarray(bounds[:, 0]),
        "upper": jnp.asarray(bounds[:, 1]),
    }
    sample = quickly(lambda key: family.sample(natural, key, (3000,))["x"])
    for seed in range(3):
        draws = np.asarray(sample(jax.random.key(seed)))
        for column, (low, high) in zip(draws.T, bounds, strict=True):
            reference = scipy.stats.truncnorm(low, high)
            assert scipy.stats.kstest(column, reference.cdf).pvalue > 1e-6


def test_truncated_normal_has_no_inverse_mean_map() -> None:
    with pytest.raises(NotImplementedError, match="expects the bounds besides the mean"):
        TruncatedNormal(()).natural({"x": jnp.ones(()), "x2": jnp.ones(())})


def test_domains() -> None:
    one = jnp.ones(3)
    proper = jnp.asarray([-0.5, 0.0, 0.5])
    np.testing.assert_array_equal(
        Normal((3,)).in_domain({"x": one, "x2": proper}), [True, False, False]
    )
    bounds = {"lower": jnp.asarray([0.0, 0.0, 2.0]), "upper": jnp.asarray([1.0, 1.0, 1.0])}
    natural = {"x": one, "x2": jnp.asarray([-0.5, 0.5, -0.5]), **bounds}
    np.testing.assert_array_equal(TruncatedNormal((3,)).in_domain(natural), [True, False, False])

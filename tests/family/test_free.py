"""Free-form factors against closed forms, numerical integration and their own laws."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
from jax import Array

from lowerbound.compiled import quickly
from lowerbound.errors import ArgumentError
from lowerbound.family import Free
from lowerbound.joint.terms.expression import Tree, Z

PROBABILITIES = np.array([0.001, 0.1, 0.5, 0.9, 0.999])


def number(x: float) -> Tree:
    return ("number", float(x))


LOG: Tree = ("log", Z)
LOG1M: Tree = ("log", ("add", number(1), ("mul", number(-1), Z)))
INVERSE: Tree = ("power", Z, number(-1))
SQUARE: Tree = ("power", Z, number(2))
TAIL: Tree = ("log1p", SQUARE)


def free(*trees: Tree, batch: tuple[int, ...] = (), **bounds: float) -> Free:
    return Free(batch, trees, ((),) * len(trees), ((),) * len(trees), **bounds)


def evaluated(family: Free, *etas: Any) -> dict[str, np.ndarray]:
    """Everything that a closed form knows, in one compiled function."""
    natural = {f"s{s}": jnp.asarray(eta, float) for s, eta in enumerate(etas)}

    def every(natural: Mapping[str, Array]) -> dict[str, Array]:
        mean = family.mean(natural)
        return {
            "A": family.log_normalizer(natural),
            **mean,
            "entropy": family.entropy(natural, mean),
            "quantile": family.quantile(natural, PROBABILITIES[:, None]),
            "proper": family.in_domain(natural),
        }

    result: dict[str, np.ndarray] = jax.tree.map(np.asarray, quickly(every)(natural))
    assert np.all(result["proper"])
    assert all(np.all(np.isfinite(value)) for value in result.values())
    return result


def close(actual: Any, expected: Any, scale: Any = 0.0) -> None:
    """Relative 1e-8; `scale` is the size of the terms that a small result is a difference of."""
    error = np.abs(np.asarray(actual) - expected)
    assert np.max(error / (np.abs(expected) + scale)) < 1e-8


# --------------------------------------------------------------------------------------------------
# Closed forms


def test_gamma_over_ten_orders_of_magnitude() -> None:
    a, b = (g.ravel() for g in np.meshgrid(10.0 ** np.arange(-3, 8), [1e-5, 1.0, 1e5]))
    got = evaluated(free(LOG, Z, batch=a.shape, lower=0.0), a - 1, -b)
    close(got["A"], scipy.special.gammaln(a) - a * np.log(b), 1)
    close(got["s0"], scipy.special.digamma(a) - np.log(b), 1)
    close(got["s1"], a / b)
    law = scipy.stats.gamma(a, scale=1 / b)
    close(got["entropy"], law.entropy(), 1)
    quantile = law.ppf(PROBABILITIES[:, None])
    normal = quantile > 1e-290  # smaller ones are rounded to the least positive number
    close(got["quantile"][normal], quantile[normal])
    assert np.all(got["quantile"] > 0)


def test_normal_of_every_width_and_far_from_zero() -> None:
    m, s = (g.ravel() for g in np.meshgrid([0.0, 1.0, -300.0, 1e5], 10.0 ** np.arange(-5, 6)))
    m, s = m[np.abs(m) <= 1e4 * s], s[np.abs(m) <= 1e4 * s]
    got = evaluated(free(Z, SQUARE, batch=m.shape), m / s**2, -1 / (2 * s**2))
    close(got["A"], m**2 / (2 * s**2) + np.log(2 * np.pi * s**2) / 2, 1)
    close(got["s0"], m, s)
    close(got["s1"], m**2 + s**2)
    # Natural parameters of size (m/s)^2 know the log density to that many roundings.
    rounding = 1 + 1e-8 * (m / s) ** 2
    close(got["entropy"], np.log(2 * np.pi * np.e * s**2) / 2, rounding)
    close(got["quantile"], scipy.stats.norm(m, s).ppf(PROBABILITIES[:, None]), s)


def test_beta_with_wide_plateaus() -> None:
    a = np.array([0.01, 0.01, 1.0, 0.01, 1e4, 3.0, 1e-3, 0.5])
    b = np.array([0.01, 1.0, 1.0, 1e4, 1e4, 1e6, 1e-3, 0.5])
    got = evaluated(free(LOG, LOG1M, batch=a.shape, lower=0.0, upper=1.0), a - 1, b - 1)
    close(got["A"], scipy.special.betaln(a, b), 1)
    digamma = scipy.special.digamma
    close(got["s0"], digamma(a) - digamma(a + b))
    close(got["s1"], digamma(b) - digamma(a + b))
    total = scipy.special.betaln(a, b) - (a - 1) * (digamma(a) - digamma(a + b))
    total = total - (b - 1) * (digamma(b) - digamma(a + b))
    close(got["entropy"], total, 1 + a + b)
    ordinary = (a >= 0.5) & (b >= 0.5)
    quantile = scipy.stats.beta(a[ordinary], b[ordinary]).ppf(PROBABILITIES[:, None])
    close(got["quantile"][:, ordinary], quantile)


def test_generalised_inverse_gaussian() -> None:
    p = np.array([-10, -1, 0, 0.5, 3, 40, 0, 0, -2.5, 2.0])
    chi = np.array([1e-6, 1, 1, 1e6, 1e6, 1, 1e-10, 1e-8, 3.0, 1e-12])
    psi = np.array([1e3, 1, 1, 1e6, 1, 1, 1e-10, 1.0, 1e-9, 4.0])
    family = free(LOG, Z, INVERSE, batch=p.shape, lower=0.0)
    got = evaluated(family, p - 1, -psi / 2, -chi / 2)
    w = np.sqrt(chi * psi)

    def bessel(order: np.ndarray) -> np.ndarray:
        log: np.ndarray = np.log(scipy.special.kve(order, w)) - w
        return log

    close(got["A"], np.log(2) + bessel(p) + p / 2 * np.log(chi / psi), 1)
    close(got["s1"], np.sqrt(chi / psi) * np.exp(bessel(p + 1) - bessel(p)))
    close(got["s2"], np.sqrt(psi / chi) * np.exp(bessel(p - 1) - bessel(p)))


def test_inverse_gamma() -> None:
    a = 10.0 ** np.arange(-2, 7)
    got = evaluated(free(LOG, INVERSE, batch=a.shape, lower=0.0), -a - 1, np.full(a.shape, -3.0))
    close(got["A"], scipy.special.gammaln(a) - a * np.log(3), 1)
    close(got["s1"], a / 3)
    close(got["entropy"], scipy.stats.invgamma(a, scale=3).entropy(), 1)


def test_power_law_tails_against_scipy() -> None:
    """A half-Cauchy scale with the likelihood of five residuals, and a Student t on the line."""
    got = evaluated(
        free(TAIL, LOG, ("power", Z, number(-2)), lower=0.0, batch=(1,)), [-1], [-5], [-4]
    )

    def density(z: float) -> float:
        return float(np.exp(-np.log1p(z * z) - 5 * np.log(z) - 4 / z**2))

    total = scipy.integrate.quad(density, 0, np.inf, epsabs=0, epsrel=1e-12)[0]
    inverse = scipy.integrate.quad(lambda z: density(z) / z**2, 0, np.inf, epsabs=0, epsrel=1e-12)[
        0
    ]
    close(got["A"], np.log(total), 1)
    close(got["s2"], inverse / total)
    got = evaluated(free(("log1p", ("mul", number(1 / 3), SQUARE)), batch=(1,)), [-2.0])
    close(got["entropy"], scipy.stats.t(3).entropy())
    close(got["quantile"][:, 0], scipy.stats.t(3).ppf(PROBABILITIES), 1)


# --------------------------------------------------------------------------------------------------
# Constant arrays: the degrees of freedom of a Student t


HALF: Tree = ("mul", number(0.5), Z)
UP: Tree = ("log Gamma", ("add", HALF, number(0.5)))
FIT: Tree = ("mul", ("add", HALF, number(0.5)), ("log1p", ("mul", ("array", 0), INVERSE)))
DEGREES = Free(
    (2,),
    (UP, ("log Gamma", HALF), LOG, Z, FIT),
    ((), (), (), (), (7,)),
    ((), (), (), (), ((1, 0),)),
    lower=0.0,
)


def degrees(dtype: str = "float64") -> dict[str, Array]:
    """n = 7 standardised squares for each of two elements, and a Gamma(2, 0.1) prior."""
    squares = np.random.default_rng(0).standard_t(4, size=(7, 2)) ** 2
    natural = {
        "s0": np.full(2, 7.0),
        "s1": np.full(2, -7.0),
        "s2": np.full(2, 1 - 3.5),
        "s3": np.full(2, -0.1),
        "s4": np.full((2, 7), -1.0),
        "s4a0": squares,
    }
    return {key: jnp.asarray(value, dtype) for key, value in natural.items()}


def test_trailing_axes_against_scipy() -> None:
    natural = degrees()
    squares = np.asarray(natural["s4a0"])
    mean, log_normalizer = quickly(lambda n: (DEGREES.mean(n), DEGREES.log_normalizer(n)))(natural)
    for element in range(2):

        def density(v: float, x: np.ndarray = squares[:, element]) -> float:
            lg = scipy.special.gammaln
            g = 7 * (lg((v + 1) / 2) - lg(v / 2)) - 2.5 * np.log(v) - 0.1 * v
            return float(np.exp(g - (v + 1) / 2 * np.sum(np.log1p(x / v))))

        total = scipy.integrate.quad(density, 0, np.inf, epsabs=0, epsrel=1e-12, limit=200)[0]
        third = scipy.integrate.quad(
            lambda v, d=density, x=squares[2, element]: d(v) * (v + 1) / 2 * np.log1p(x / v),
            *(0, np.inf),
            epsabs=0,
            epsrel=1e-12,
            limit=200,
        )[0]
        close(log_normalizer[element], np.log(total), 1)
        close(mean["s4"][element, 2], third / total)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-4)])
def test_gradient_of_log_normalizer_is_the_mean(dtype: str, tolerance: float) -> None:
    natural = degrees(dtype)

    @quickly
    def both(natural: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        def total(eta: dict[str, Array]) -> Array:
            return jnp.sum(DEGREES.log_normalizer({**natural, **eta}))

        eta = {name: natural[name] for name in DEGREES.statistic_names}
        return jax.grad(total)(eta), DEGREES.mean(natural)

    gradient, mean = both(natural)
    for name, shape in DEGREES.statistic_shapes().items():
        assert gradient[name].shape == mean[name].shape == shape
        assert mean[name].dtype == dtype
        np.testing.assert_allclose(gradient[name], mean[name], rtol=tolerance, atol=tolerance)


def test_statistics_place_the_arrays() -> None:
    natural = degrees()
    z = jnp.asarray([2.0, 3.0])
    got = DEGREES.statistics({"z": z, **natural})["s4"]
    expected = (z + 1)[:, None] / 2 * np.log1p(natural["s4a0"].T / z[:, None])
    np.testing.assert_allclose(got, expected)
    assert DEGREES.extra_names == ("s4a0",)
    assert DEGREES.extra_shapes() == {"s4a0": (7, 2)}


def test_constant_arrays_are_asked_for() -> None:
    for call in (lambda: DEGREES.default(), lambda: DEGREES.natural({})):
        with pytest.raises(ArgumentError) as caught:
            call()
        assert str(caught.value) == (
            "Free expects the constant arrays s4a0 of its statistics; missing: s4a0. "
            "Give them beside the other parameters."
        )


# --------------------------------------------------------------------------------------------------
# Members


def test_natural_inverts_mean() -> None:
    family = free(LOG, Z, batch=(5,), lower=0.0)
    natural = {
        "s0": jnp.asarray([-0.9, -0.5, 1.0, 300.0, 1e5]),
        "s1": jnp.asarray([-1e-3, -2.0, -1.0, -1e4, -1.0]),
    }
    mean, back = quickly(lambda n: (family.mean(n), family.natural(family.mean(n))))(natural)
    for name in mean:
        np.testing.assert_allclose(back[name], natural[name], rtol=1e-6)


def test_natural_says_where_no_member_has_the_mean() -> None:
    mean = {"s0": jnp.asarray([1.0, 2.0]), "s1": jnp.asarray([3.0, 3.9])}  # E z^2 < (E z)^2
    natural = quickly(free(Z, SQUARE, batch=(2,)).natural)(mean)
    np.testing.assert_allclose([natural["s0"][0], natural["s1"][0]], [0.5, -0.25], rtol=1e-8)
    assert np.isnan(natural["s0"][1])


def test_natural_with_dependent_statistics_has_the_mean() -> None:
    family = free(Z, ("mul", number(2), Z), SQUARE)
    natural = {"s0": jnp.asarray(1.0), "s1": jnp.asarray(-2.0), "s2": jnp.asarray(-0.7)}

    @quickly
    def there_and_back(natural: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        mean = family.mean(natural)
        return mean, family.mean(family.natural(mean))

    mean, again = there_and_back(natural)
    for name in mean:
        np.testing.assert_allclose(again[name], mean[name], rtol=1e-7)


def test_natural_refuses_many_statistics() -> None:
    family = Free((), (Z,), ((300,),), ((),))
    with pytest.raises(ArgumentError) as caught:
        family.natural({"s0": jnp.zeros(300)})
    assert str(caught.value) == (
        "Free.natural expects at most 256 numbers of statistics per element; found 300. "
        "Keep the natural parameters instead of recovering them."
    )


@pytest.mark.parametrize(
    "family",
    [
        free(TAIL, lower=0.0),
        free(LOG, ("power", LOG, number(2)), lower=0.0),
        free(("log Gamma", Z), Z, LOG, lower=0.0),
        free(Z, SQUARE, ("power", Z, number(4))),
        free(("exp", Z), Z),
        free(("log1p", ("power", ("add", Z, number(-1000)), number(2)))),
        free(LOG, lower=1.0, upper=5.0),
    ],
    ids=lambda family: f"{len(family.trees)} statistics on {family.lower:g} to {family.upper:g}",
)
def test_default_is_proper(family: Free) -> None:
    default = quickly(family.default)()
    assert tuple(default) == family.statistic_names
    assert bool(quickly(family.in_domain)(default))


def test_improper_densities_are_not_in_the_domain() -> None:
    family = free(LOG, Z, SQUARE, batch=(8,), lower=0.0)
    log = jnp.asarray([0.0, -1.0, -2.0, 0.0, 0.0, 0.0, jnp.nan, -0.9])
    power = jnp.asarray([-1.0, -1.0, -1.0, 0.0, 1.0, -1.0, -1.0, 0.0])
    square = jnp.asarray([0.0, 0.0, 0.0, 0.0, -1.0, 1e-9, -1.0, -1e-9])
    natural = {"s0": log, "s1": power, "s2": square}
    proper, mean = quickly(lambda n: (family.in_domain(n), family.mean(n)))(natural)
    np.testing.assert_array_equal(proper, [True, *[False] * 3, True, False, False, True])
    assert all(np.all(np.isfinite(np.asarray(m)[proper])) for m in mean.values())


def test_rounding_of_large_terms_is_not_taken_for_mass() -> None:
    """log Gamma(z + 1/2) - log Gamma(z) is noise for z > 1e16, where a Cauchy tail still lives."""
    shifted: Tree = ("log Gamma", ("add", Z, number(0.5)))
    family = free(shifted, ("log Gamma", Z), LOG, TAIL, lower=0.0, batch=(1,))
    got = evaluated(family, [1000.0], [-1000.0], [-500.0], [-1.0])

    u = np.linspace(-8, 45, 530_001)
    z = np.exp(u)
    small = scipy.special.gammaln(np.minimum(z, 100) + 0.5) - scipy.special.gammaln(z)
    ratio = np.where(z < 100, small - u / 2, -1 / (8 * z) + 1 / (192 * z**3))
    total = np.sum(np.exp(1000 * ratio - np.log1p(z * z) + u)) * (u[1] - u[0])
    np.testing.assert_allclose(got["A"], np.log(total), rtol=1e-7)


def test_two_modes_are_kept() -> None:
    family = free(("power", ("add", SQUARE, number(-9)), number(2)), Z, batch=(2,))
    got = evaluated(family, [-5.0, -5.0], [0.0, 0.5])
    for k, tilt in enumerate((0.0, 0.5)):
        grid = np.linspace(-5, 5, 2_000_001)
        mass = np.exp(-5 * (grid**2 - 9) ** 2 + tilt * grid)
        close(got["A"][k], np.log(mass.sum() * (grid[1] - grid[0])), 1)
        close(got["s1"][k], np.sum(mass * grid) / mass.sum(), 1)


# --------------------------------------------------------------------------------------------------
# Draws and the NumPyro distribution


def test_draws_follow_the_distribution_function() -> None:
    """Kolmogorov-Smirnov at 1e5 draws, p > 1e-4 for each of twelve: rate of false failure 1e-3."""
    a = np.array([1e-2, 0.3, 4.0, 1e6])
    family = free(LOG, Z, batch=a.shape, lower=0.0)
    natural = {"s0": jnp.asarray(a - 1), "s1": jnp.full(a.shape, -2.0)}
    sample = quickly(lambda n, key: family.sample(n, key, (100_000,))["z"])
    for seed in (0, 1, 2):
        draws = np.asarray(sample(natural, jax.random.key(seed)))
        for k, law in enumerate(scipy.stats.gamma(shape, scale=0.5) for shape in a):
            assert scipy.stats.kstest(draws[:, k], law.cdf).pvalue > 1e-4


def test_entropy_agrees_with_draws() -> None:
    """Within four standard errors of 1e4 draws, three seeds, two elements: 4e-4 false failures."""
    natural = degrees()

    @quickly
    def both(key: Array) -> tuple[Array, Array]:
        law = DEGREES.marginals(natural)["z"]
        entropy = DEGREES.entropy(natural, DEGREES.mean(natural))
        return entropy, -law.log_prob(law.sample(key, (10_000,)))

    for seed in (0, 1, 2):
        entropy, surprise = both(jax.random.key(seed))
        error = np.std(surprise, axis=0) / 100
        assert np.all(np.abs(np.mean(surprise, axis=0) - entropy) < 4 * error)


def test_marginal_is_a_numpyro_distribution() -> None:
    a = jnp.asarray([0.5, 3.0])
    family = free(LOG, Z, batch=(2,), lower=0.0)
    law = quickly(lambda n: family.marginals(n)["z"])({"s0": a - 1, "s1": jnp.full(2, -2.0)})
    reference = scipy.stats.gamma(np.asarray(a), scale=0.5)
    assert law.batch_shape == (2,)
    assert law.event_shape == ()
    z = np.array([[0.01, 0.2], [1.0, 5.0], [3.0, -1.0]])
    np.testing.assert_allclose(law.log_prob(z), reference.logpdf(z), rtol=1e-9)
    np.testing.assert_allclose(law.cdf(z), reference.cdf(z), atol=1e-7)
    np.testing.assert_allclose(law.icdf(0.3), reference.ppf(0.3), rtol=1e-8)
    np.testing.assert_allclose(law.mean, reference.mean(), rtol=1e-9)
    np.testing.assert_allclose(law.variance, reference.var(), rtol=1e-9)
    np.testing.assert_array_equal(law.support(z), z > 0)
    again = jax.tree.map(lambda leaf: leaf, law)
    np.testing.assert_array_equal(again.log_prob(z), law.log_prob(z))


def test_infinite_moments_are_infinite() -> None:
    family = free(TAIL, batch=(3,), lower=0.0)

    @quickly
    def moments(natural: dict[str, Array]) -> tuple[Array, Array]:
        law = family.marginals(natural)["z"]
        return law.mean, law.variance

    mean, variance = moments({"s0": jnp.asarray([-0.9, -1.4, -2.0])})
    np.testing.assert_array_equal(np.isinf(mean), [True, False, False])
    np.testing.assert_array_equal(np.isinf(variance), [True, True, False])
    np.testing.assert_allclose(variance[2], 1 - (2 / np.pi) ** 2, rtol=1e-8)


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ({"lower": 2.0}, "GreaterThan"),
        ({"upper": 3.0}, "LessThan"),
        ({"lower": 1.0, "upper": 5.0}, "OpenInterval"),
        ({}, "Real"),
    ],
)
def test_supports_and_draws_inside_them(bounds: dict[str, float], text: str) -> None:
    smooth: Tree = ("power", ("add", number(1), SQUARE), number(0.5))
    family = free(smooth, Z, **bounds)
    law = quickly(lambda n: family.marginals(n)["z"])(
        {"s0": jnp.asarray(-2.0), "s1": jnp.asarray(0.5)}
    )
    assert text.lower() in type(law.support).__name__.lower()
    draws = law.sample(jax.random.key(0), (1000,))
    assert np.all(law.support(draws))
    np.testing.assert_allclose(law.cdf(law.icdf(0.25)), 0.25, atol=1e-6)
    z = np.linspace(max(-40.0, family.lower), min(40.0, family.upper), 1_000_001)[1:-1]
    density = np.exp(-2 * np.sqrt(1 + z * z) + 0.5 * z)
    total = (np.sum(density) + (density[0] + density[-1]) / 2) * (z[1] - z[0])
    np.testing.assert_allclose(law.log_normalizer, np.log(total), rtol=1e-8)

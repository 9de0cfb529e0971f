"""Gamma and Wishart factors in closed form and at the ends of their range."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from lowerbound.compiled import quickly
from lowerbound.family import Gamma, Wishart
from lowerbound.family.numerics.distributions import InverseWishart, PowerGamma


@pytest.mark.parametrize(
    ("dtype", "smallest", "power"),
    [("float64", -8, 1.0), ("float64", -8, -2.0), ("float32", -6, -1.0)],
)
def test_gamma_is_finite_over_twenty_orders_of_magnitude(
    dtype: str, smallest: int, power: float
) -> None:
    a = 10.0 ** np.arange(smallest, 13)
    family = Gamma(a.shape, power)
    natural = {"log": jnp.asarray(power * a - 1, dtype), "power": jnp.full(a.shape, -3.0, dtype)}

    @quickly
    def evaluate(natural: dict[str, jax.Array]) -> list[jax.Array]:
        mean = family.mean(natural)
        entropy, kl = family.entropy(natural, mean), family.kl(natural, natural)
        back = family.natural(mean)
        return [mean["log"], mean["power"], entropy, kl, back["log"], back["power"]]

    leaves = evaluate(natural)
    draws = quickly(family.sample)(natural, jax.random.key(0))["z"]
    assert all(np.all(np.isfinite(leaf)) for leaf in [*leaves, draws])
    assert np.all(draws > 0)
    shape = (np.asarray(natural["log"], float) + 1) / power
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(
        leaves[0], (scipy.special.digamma(shape) - np.log(3)) / power, rtol=tolerance, atol=1e-6
    )


def test_zero_shape_is_improper_yet_finite() -> None:
    family = Gamma(())
    natural = {"log": jnp.float32(-1.0), "power": jnp.float32(-1.0)}
    assert not bool(family.in_domain(natural))
    assert all(np.isfinite(value) for value in family.mean(natural).values())


def test_gamma_entropy_matches_scipy() -> None:
    for power, reference in (
        (1.0, scipy.stats.gamma(3, scale=1 / 2)),
        (-1.0, scipy.stats.invgamma(3, scale=2)),
    ):
        family = Gamma((), power)
        natural = {"log": jnp.asarray(power * 3 - 1), "power": jnp.asarray(-2.0)}
        got = family.entropy(natural, family.mean(natural))
        np.testing.assert_allclose(got, reference.entropy())


def test_power_gamma_is_chi_for_power_two_and_survives_a_pytree_round_trip() -> None:
    law = PowerGamma(jnp.asarray(5 / 2), jnp.asarray(1 / 2), 2.0)
    reference = scipy.stats.chi(5)
    np.testing.assert_allclose(law.mean, reference.mean())
    np.testing.assert_allclose(law.variance, reference.var())
    np.testing.assert_allclose(law.log_prob(1.3), reference.logpdf(1.3))
    heavy = PowerGamma(jnp.asarray(0.75), jnp.asarray(1.0), -2.0)
    assert np.isfinite(heavy.mean)
    assert np.isinf(heavy.variance)
    again = jax.tree.map(lambda leaf: leaf, law)
    np.testing.assert_allclose(again.mean, reference.mean())


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_wishart_matches_scipy(dim: int) -> None:
    rng = np.random.default_rng(dim)
    root = rng.normal(size=(dim, dim + 2))
    rate, dof = root @ root.T, dim + 2.5
    reference = scipy.stats.wishart(dof, np.linalg.inv(rate))
    family = Wishart((), dim)
    natural = {"matrix": jnp.asarray(-rate / 2), "logdet": jnp.asarray((dof - dim - 1) / 2)}
    mean = family.mean(natural)
    np.testing.assert_allclose(mean["matrix"], np.atleast_2d(reference.mean()), rtol=1e-10)
    np.testing.assert_allclose(family.entropy(natural, mean), reference.entropy())
    inverse = Wishart((), dim, inverse=True)
    natural = {"matrix": jnp.asarray(-rate / 2), "logdet": jnp.asarray(-(dof + dim + 1) / 2)}
    point = np.linalg.inv(np.atleast_2d(reference.mean()))
    got = inverse.inner(natural, inverse.statistics({"z": jnp.asarray(point)}))
    expected = scipy.stats.invwishart(dof, rate).logpdf(point)
    np.testing.assert_allclose(got - inverse.log_normalizer(natural), expected)


def test_inverse_wishart_variance_matches_scipy() -> None:
    psi = np.array([[2.0, 0.5], [0.5, 1.0]])
    law = InverseWishart(jnp.asarray(9.0), scale_matrix=jnp.asarray(psi))
    np.testing.assert_allclose(law.variance, scipy.stats.invwishart(9, psi).var())
    heavy = InverseWishart(jnp.asarray(4.0), scale_matrix=jnp.asarray(psi))
    assert np.all(np.isinf(heavy.variance))


def test_domains() -> None:
    natural = {"log": jnp.asarray([0.0, -1.0, 0.0]), "power": jnp.asarray([-1.0, -1.0, 0.0])}
    np.testing.assert_array_equal(Gamma((3,)).in_domain(natural), [True, False, False])
    mirrored = Gamma((3,), -1.0).in_domain({**natural, "log": -2 - natural["log"]})
    np.testing.assert_array_equal(mirrored, [True, False, False])
    eye = jnp.eye(2)
    matrices = jnp.stack([-eye, -eye, eye, jnp.asarray([[-1.0, 2.0], [2.0, -1.0]])])
    logdet = jnp.asarray([-0.9, -1.0, 1.0, 1.0])
    got = Wishart((4,), 2).in_domain({"matrix": matrices, "logdet": logdet})
    np.testing.assert_array_equal(got, [True, False, False, False])

"""Beta and Dirichlet factors in closed form and at tiny or huge concentrations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from lowerbound.compiled import quickly
from lowerbound.family import Beta, Dirichlet


def test_dirichlet_and_beta_match_scipy() -> None:
    a = np.array([0.3, 2.0, 5.0])
    family = Dirichlet((), 3)
    natural = {"log": jnp.asarray(a - 1)}
    reference = scipy.stats.dirichlet(a)
    np.testing.assert_allclose(
        family.entropy(natural, family.mean(natural)), reference.entropy(), rtol=1e-12
    )
    point = np.array([0.2, 0.5, 0.3])
    got = family.inner(natural, family.statistics({"z": jnp.asarray(point)}))
    np.testing.assert_allclose(got - family.log_normalizer(natural), reference.logpdf(point))
    beta = Beta(())
    natural = {"log": jnp.asarray(-0.7), "log1m": jnp.asarray(1.0)}
    np.testing.assert_allclose(
        beta.entropy(natural, beta.mean(natural)), scipy.stats.beta(0.3, 2).entropy()
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_extreme_concentrations_stay_finite(dtype: str) -> None:
    a = np.array([[1e-6] * 3, [1e-6, 1e3, 1.0], [1e8] * 3, [1e-3, 1e-3, 1e6], [0.5] * 3])
    family = Dirichlet((5,), 3)
    natural = {"log": jnp.asarray(a - 1, dtype)}

    @quickly
    def evaluate(natural: dict[str, jax.Array]) -> list[jax.Array]:
        mean = family.mean(natural)
        z = family.sample(natural, jax.random.key(0))
        statistics = family.statistics(z)["log"]
        entropy, kl = family.entropy(natural, mean), family.kl(natural, natural)
        return [mean["log"], statistics, entropy, kl, family.natural(mean)["log"]]

    leaves = evaluate(natural)
    assert all(np.all(np.isfinite(leaf)) for leaf in leaves)
    assert all(leaf.dtype == dtype for leaf in leaves)


def test_beta_draws_stay_inside_the_unit_interval() -> None:
    family = Beta(())
    natural = {"log": jnp.asarray(-1 + 1e-6), "log1m": jnp.asarray(-1 + 1e-6)}
    sample = quickly(lambda natural, key: family.statistics(family.sample(natural, key, (200,))))
    statistics = sample(natural, jax.random.key(0))
    assert all(np.all(np.isfinite(value)) for value in statistics.values())


def test_zero_concentration_is_improper() -> None:
    haldane = {"log": jnp.asarray(-1.0), "log1m": jnp.asarray(-1.0)}
    assert not bool(Beta(()).in_domain(haldane))
    natural = {"log": jnp.asarray([[0.0, -0.5], [0.0, -1.0], [0.0, jnp.nan]])}
    np.testing.assert_array_equal(Dirichlet((3,), 2).in_domain(natural), [True, False, False])

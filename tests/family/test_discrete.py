"""Categories and counts: every support point summed, and logits without bound."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

import lowerbound as lb
from lowerbound.compiled import quickly
from lowerbound.family import Categorical, Geometric, Multinomial, Poisson
from lowerbound.joint import multi_affine
from lowerbound.model import trace_model

EXTREME = np.array(
    [
        [1e30, 1e30, -1e30],
        [0.0, -np.inf, -np.inf],
        [-1e30, -1e30, -np.inf],
        [1e4, 0.0, -1e4],
        [3.0, 3.0, 3.0],
    ]
)
EXTREME_ENTROPY = [math.log(2), 0.0, math.log(2), 0.0, math.log(3)]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_categorical_takes_logits_of_any_size(dtype: str) -> None:
    family = Categorical((5,), 3)

    @quickly
    def evaluate(logits: jax.Array) -> list[Any]:
        natural, uniform = {"indicator": logits}, {"indicator": jnp.zeros_like(logits)}
        draws = family.sample(natural, jax.random.key(0), (50,))["z"]
        entropy = family.entropy(natural, family.mean(natural))
        gradient = jax.grad(
            lambda logits: jnp.sum(
                family.entropy({"indicator": logits}, family.mean({"indicator": logits}))
            )
        )(logits)
        divergences = family.kl(natural, natural), family.kl(natural, uniform)
        return [entropy, *divergences, gradient, family.in_domain(natural), draws]

    entropy, to_itself, to_uniform, gradient, proper, draws = evaluate(jnp.asarray(EXTREME, dtype))
    np.testing.assert_allclose(entropy, EXTREME_ENTROPY, atol=1e-6)
    np.testing.assert_allclose(to_itself, 0, atol=1e-6)
    np.testing.assert_allclose(to_uniform, math.log(3) - np.array(EXTREME_ENTROPY), atol=1e-6)
    assert np.all(np.isfinite(gradient))
    assert np.all(proper)
    assert np.all(draws[:, 1] == 0)
    law = family.marginals({"indicator": jnp.asarray(EXTREME[1:2], dtype)})["z"]
    np.testing.assert_array_equal(law.log_prob(jnp.asarray([0])), [0.0])


def test_categorical_divergence_is_infinite_off_the_support() -> None:
    family = Categorical((), 2)
    wide, narrow = {"indicator": jnp.zeros(2)}, {"indicator": jnp.asarray([0.0, -jnp.inf])}
    assert np.isposinf(family.kl(wide, narrow))
    np.testing.assert_allclose(family.kl(narrow, wide), math.log(2))


def test_categorical_domain() -> None:
    logits = jnp.asarray([[0.0, -jnp.inf], [-jnp.inf, -jnp.inf], [jnp.nan, 0.0], [jnp.inf, 0.0]])
    got = Categorical((4,), 2).in_domain({"indicator": logits})
    np.testing.assert_array_equal(got, [True, False, False, False])


def test_multinomial_sums_to_one_over_its_support() -> None:
    family = Multinomial((), 3)
    natural = {"count": jnp.asarray([0.3, -1.0, 0.5]), "total": jnp.asarray(4.0)}
    points = [x for x in itertools.product(range(5), repeat=3) if sum(x) == 4]
    log_mass = jax.vmap(lambda t: family.inner(natural, {"count": t}))(
        jnp.asarray(points, float)
    ) - family.log_normalizer(natural)
    log_h = [-sum(math.lgamma(k + 1) for k in x) for x in points]
    mass = np.exp(np.asarray(log_mass) + np.array(log_h))
    np.testing.assert_allclose(mass.sum(), 1)
    mean = family.mean(natural)
    np.testing.assert_allclose(mean["count"], mass @ np.array(points))
    np.testing.assert_allclose(family.entropy(natural, mean), -(mass @ np.asarray(log_mass)))


def test_multinomial_with_an_empty_category_and_an_empty_total() -> None:
    family = Multinomial((2,), 2)
    natural = {
        "count": jnp.asarray([[0.0, -jnp.inf], [0.0, 1.0]]),
        "total": jnp.asarray([3.0, 0.0]),
    }

    @quickly
    def evaluate(natural: dict[str, jax.Array]) -> list[Any]:
        mean = family.mean(natural)
        entropy, kl = family.entropy(natural, mean), family.kl(natural, natural)
        draws = family.sample(natural, jax.random.key(0), (10,))["x"]
        return [mean["count"], entropy, kl, family.natural(mean), draws]

    mean, entropy, kl, back, draws = evaluate(natural)
    np.testing.assert_array_equal(mean, [[3.0, 0.0], [0.0, 0.0]])
    assert np.all(np.isfinite(entropy))
    np.testing.assert_array_equal(kl, 0)
    np.testing.assert_array_equal(back["total"], [3.0, 0.0])
    assert not np.any(np.isnan(back["count"]))
    np.testing.assert_array_equal(draws.sum(axis=-1), np.broadcast_to([3, 0], (10, 2)))
    law = family.marginals(natural)["x"]
    np.testing.assert_array_equal(law.sample(jax.random.key(0)).sum(axis=-1), [3, 0])


def test_poisson_matches_scipy_and_allows_rate_zero() -> None:
    family = Poisson((2,))
    natural = {"count": jnp.asarray([math.log(2.5), -jnp.inf])}
    mean = family.mean(natural)
    np.testing.assert_allclose(mean["count"], [2.5, 0.0])
    x = np.arange(60)
    log_h = np.array([-math.lgamma(k + 1) for k in x])
    log_mass = scipy.stats.poisson(2.5).logpmf(x)
    expected = -(np.exp(log_mass) @ (log_mass - log_h))
    np.testing.assert_allclose(family.entropy(natural, mean), [expected, 0.0], atol=1e-12)
    np.testing.assert_array_equal(family.kl(natural, natural), 0)
    np.testing.assert_array_equal(
        family.in_domain({"count": jnp.asarray([jnp.inf, jnp.nan])}), [False, False]
    )


def test_geometric_matches_scipy_at_both_ends() -> None:
    family = Geometric((3,))
    ratio = np.array([1e-6, 0.3, 1 - 1e-6])
    natural = {"count": jnp.log(ratio)}
    mean = family.mean(natural)
    law = scipy.stats.geom(1 - ratio, loc=-1)
    np.testing.assert_allclose(mean["count"], law.mean(), rtol=1e-9)
    np.testing.assert_allclose(family.natural(mean)["count"], natural["count"], rtol=1e-9)
    np.testing.assert_allclose(family.entropy(natural, mean), law.entropy(), rtol=1e-9)
    np.testing.assert_array_equal(
        family.in_domain({"count": jnp.asarray([-1.0, 0.0, jnp.nan])}), [True, False, False]
    )


def counts_to_the_first(y):
    """Trials until the first success, thinned at each of them; y of the rows are seen."""
    with numpyro.plate("rows", len(y)):
        n = numpyro.sample("n", dist.Geometric(0.3))
        numpyro.factor("y", y * n * math.log(0.8))


def test_a_latent_geometric_count_is_exact() -> None:
    y = np.array([1.0, 0.0, 2.0])
    fit = lb.fit(counts_to_the_first, y, method=lb.CAVI())
    ratio = 0.7 * 0.8**y
    np.testing.assert_allclose(fit.elbo, np.log(0.3 / (1 - ratio)).sum(), rtol=1e-12)
    np.testing.assert_allclose(fit.mean("n"), ratio / (1 - ratio), rtol=1e-12)
    assert "Geometric" in str(fit.plan)


@pytest.mark.parametrize(
    ("law", "family"), [(dist.Geometric(0.5), "Geometric"), (dist.Poisson(2.0), "Poisson")]
)
def test_the_factorial_decides_which_family_a_count_has(law, family) -> None:
    def program(y):
        numpyro.factor("y", -y * numpyro.sample("n", law))

    (row,) = lb.explain(program, np.array(0.5), method=lb.CAVI()).rows
    assert row.family == family


@pytest.mark.parametrize("law", [dist.Geometric(0.5), dist.Poisson(2.0)])
def test_a_square_of_a_count_is_what_does_not_fit(law) -> None:
    def program(y):
        numpyro.factor("y", -y * numpyro.sample("n", law) ** 2)

    (residual,) = multi_affine(trace_model(program, (np.array(0.5),))).structure.residuals
    assert (residual.left_over, residual.reason) == ("n^2", "no factor has this statistic")
    assert (residual.family, residual.statistics) == ("Poisson", "n")

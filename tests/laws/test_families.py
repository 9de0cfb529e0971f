"""Law 2: grad A = E t, natural -> mean -> natural is the identity, draws and densities agree.

The exact laws run on random parameters in float64 and float32. The Monte Carlo laws compare means
of `DRAWS` draws for three fixed seeds with five standard errors, a false-failure rate of 6e-7 for
one comparison and below 2e-3 for a new choice of all the seeds (fewer than 3000 comparisons).
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import Array

from lowerbound.compiled import quickly
from lowerbound.family import (
    FAMILIES,
    Categorical,
    ExponentialFamily,
    MarkovChain,
    Multinomial,
    TruncatedNormal,
)
from lowerbound.family.factors.polya_gamma import InverseGaussian, Point, PolyaGamma
from tests.family.table import CASES, Case, as_arrays

DRAWS = 4000
SEEDS = (0, 1, 2)
TOLERANCE = {"float64": 1e-9, "float32": 3e-4}

every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_type = pytest.mark.parametrize("dtype", ["float64", "float32"])


def close(actual: Any, expected: Any, tolerance: float) -> None:
    np.testing.assert_allclose(
        np.asarray(actual), np.asarray(expected), rtol=tolerance, atol=tolerance
    )


@cache
def exact(family: ExponentialFamily) -> Any:
    """Everything the exact laws compare, in one compiled function."""

    def evaluate(q: Mapping[str, Array], p: Mapping[str, Array]) -> dict[str, Any]:
        def total(statistics: Mapping[str, Array]) -> Array:
            return jnp.sum(family.log_normalizer({**q, **statistics}))

        mean = family.mean(q)
        result: dict[str, Any] = {
            "gradient": jax.grad(total)({key: q[key] for key in family.statistic_names}),
            "mean": mean,
            "entropy": family.entropy(q, mean),
            "duality": family.log_normalizer(q) - family.inner(q, mean),
            "kl": family.kl(q, p),
            "kl_to_itself": family.kl(q, q),
            "in_domain": family.in_domain(q),
        }
        if not isinstance(family, TruncatedNormal):
            result["natural"] = family.natural(mean)
        return result

    return quickly(evaluate)


def identified(family: ExponentialFamily, natural: Mapping[str, Array]) -> dict[str, Array]:
    """Natural parameters less what the density does not depend on."""
    if isinstance(family, Categorical | Multinomial):
        key = family.statistic_names[0]
        return {key: jax.nn.log_softmax(natural[key], axis=-1)}
    if isinstance(family, MarkovChain):
        return dict(zip(family.statistic_names, family.conditionals(natural), strict=True))
    return {key: natural[key] for key in family.statistic_names}


@every_case
@every_type
@given(seed=st.integers(0, 2**32 - 1))
def test_exact_laws(case: Case, dtype: str, seed: int) -> None:
    family, tolerance = case.family, TOLERANCE[dtype]
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        q = as_arrays(case.natural(case.draw(rng)), dtype)
        p = as_arrays(case.natural(case.draw(rng)), dtype)
        p.update({key: q[key] for key in family.extra_names})
        result = exact(family)(q, p)
        shapes = family.statistic_shapes()
        assert tuple(shapes) == family.statistic_names
        for key, shape in shapes.items():
            assert result["mean"][key].shape == shape == q[key].shape
            assert result["mean"][key].dtype == dtype
            close(result["gradient"][key], result["mean"][key], tolerance)
        for key in ("entropy", "kl", "in_domain"):
            assert result[key].shape == family.batch_shape
        assert result["entropy"].dtype == result["kl"].dtype == dtype
        close(result["entropy"], result["duality"], 10 * tolerance)
        assert np.all(result["in_domain"])
        assert np.all(result["kl"] > -tolerance)
        close(result["kl_to_itself"], 0, tolerance)
        if "natural" in result:
            back, start = identified(family, result["natural"]), identified(family, q)
            for key in back:
                close(back[key], start[key], 10 * tolerance)


@cache
def compared(case: Case) -> Any:
    """Everything the Monte Carlo laws compare of draws, in one compiled function."""
    family = case.family

    def evaluate(q: Mapping[str, Array], parameters: Mapping[str, Array], key: Array) -> Any:
        values = family.sample(q, key, (DRAWS,))
        statistics = jax.vmap(family.statistics)(values)
        log_q = jax.vmap(lambda t: family.inner(q, t))(statistics) - family.log_normalizer(q)
        mean, marginals = family.mean(q), family.marginals(q)
        few = {name: value[:50] for name, value in values.items()}
        if case.log_density is None:
            ((name, marginal),) = marginals.items()
            reference = marginal.log_prob(few[name])
        else:
            reference = case.log_density(parameters, few)
        for name, marginal in marginals.items():
            assert values[name].shape == (DRAWS, *marginal.batch_shape, *marginal.event_shape)
            assert marginal.batch_shape == family.batch_shape
        return {
            "values": values,
            "statistics": statistics,
            "mean": mean,
            "log_q": log_q,
            "entropy": family.entropy(q, mean),
            "few": family.log_prob(q, few),
            "reference": reference,
            "marginals": {name: (law.mean, law.variance) for name, law in marginals.items()},
        }

    return quickly(evaluate)


def within_five_errors(sample: Any, expected: Any, rounding: float) -> None:
    """The mean of the first axis agrees with `expected`."""
    sample, expected = np.asarray(sample, float), np.asarray(expected, float)
    error = sample.std(axis=0) / np.sqrt(len(sample))
    distance = np.abs(sample.mean(axis=0) - expected)
    assert np.all(distance <= 5 * error + rounding * (1 + np.abs(expected)))


@every_case
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_draws_agree_with_moments_densities_and_marginals(case: Case, dtype: str) -> None:
    tolerance = TOLERANCE[dtype]
    with jax.enable_x64(True):
        for seed in SEEDS:
            parameters = case.draw(np.random.default_rng(seed))
            q = as_arrays(case.natural(parameters), dtype)
            result = compared(case)(q, as_arrays(parameters, dtype), jax.random.key(seed))
            for key, mean in result["mean"].items():
                within_five_errors(result["statistics"][key], mean, tolerance)
            within_five_errors(-result["log_q"], result["entropy"], tolerance)
            close(result["few"], result["reference"], 10 * tolerance)
            if isinstance(case.family, Categorical | MarkovChain):
                continue  # category numbers have no mean
            for key, (mean, variance) in result["marginals"].items():
                value = np.asarray(result["values"][key], float)
                within_five_errors(value, mean, tolerance)
                within_five_errors(np.square(value - np.asarray(mean)), variance, tolerance)


@every_case
@every_type
def test_draws_keep_the_floating_type(case: Case, dtype: str) -> None:
    with jax.enable_x64(True):
        q = as_arrays(case.natural(case.draw(np.random.default_rng(0))), dtype)
        values = jax.eval_shape(case.family.sample, q, jax.random.key(0))
        for value in values.values():
            assert value.dtype == dtype or jnp.issubdtype(value.dtype, jnp.integer)
        entropy = jax.eval_shape(lambda q: case.family.entropy(q, case.family.mean(q)), q)
        assert entropy.dtype == dtype


def test_every_registered_family_is_in_the_table() -> None:
    # Weights of augmentations have base measures of their own: tests/family/test_polya_gamma.py.
    weights = {PolyaGamma, InverseGaussian, Point}
    assert {type(case.family) for case in CASES} == set(FAMILIES.values()) - weights


@every_case
def test_default_is_proper_and_families_are_static(case: Case) -> None:
    family = case.family
    with jax.enable_x64(True):
        extras = {"lower": jnp.zeros(()), "upper": jnp.ones(()), "total": jnp.ones(())}
        extras["absent"] = jnp.zeros(())
        default = family.default(extras)
        assert tuple(default) == family.statistic_names + family.extra_names
        for key, shape in family.statistic_shapes().items():
            assert default[key].shape == shape
            assert default[key].dtype == "float64"
        assert np.all(quickly(family.in_domain)(default))
    assert hash(family) == hash(type(family)(**vars(family)))
    assert family == type(family)(**vars(family))

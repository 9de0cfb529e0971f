"""Checks of values while a program runs: JAX does not compile them, and a fit says so at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.experimental import checkify

from lowerbound import errors
from lowerbound.model import trace_model

Y = np.random.default_rng(0).normal(size=5)


def directly(y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    checkify.check(scale > 0, "a scale of {scale}", scale=scale)
    numpyro.sample("y", dist.Normal(0.0, scale), obs=y)


def by_a_package(y):
    """As packages do that check what they are built from."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    error, _ = checkify.checkify(lambda s: checkify.check(s > 0, "not positive"))(scale)
    checkify.check_error(error)
    numpyro.sample("y", dist.Normal(0.0, scale), obs=y)


def within_a_loop(y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))

    def step(total, one):
        checkify.check(one < 10.0, "an outlier")
        return total + one, None

    total, _ = jax.lax.scan(step, jnp.zeros(()), jnp.asarray(y))
    numpyro.sample("total", dist.Normal(0.0, scale), obs=total)


@pytest.mark.parametrize("program", [directly, by_a_package, within_a_loop])
def test_a_check_that_is_not_compiled(program):
    with pytest.raises(errors.UncompiledCheckError) as caught:
        trace_model(program, (Y,))
    assert str(caught.value) == (
        "The program, or a package that it calls, checks traced values by checkify.check, which "
        "jax.jit does not compile: NumPyro's samplers cannot run it either.\n"
        "Expected a program that jax.jit takes. Leave the check out, or build what checks its "
        "values (a kernel with its parameters, say) without a check."
    )


def test_a_check_within_a_function_that_is_made_pure_is_none():
    def pure(y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        checked = checkify.checkify(lambda s: (checkify.check(s > 0, "not positive"), s)[1])
        _, scale = checked(scale)
        numpyro.sample("y", dist.Normal(0.0, scale), obs=y)

    assert list(trace_model(pure, (Y,)).latent) == ["scale"]

"""A jitted function within others: traced once a kind, whatever it closes over, never mixed up."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowerbound.compiled import jit, traced
from lowerbound.compiled.jitted import MOST_PARTS

NODES = np.linspace(0.0, 1.0, 5)


def counted(function, **options):
    """The function jitted, and the list of the kinds that it has been traced for."""
    seen = []

    def noted(*args):
        seen.append([getattr(a, "dtype", a) for a in args])
        return function(*args)

    return jit(noted, **options), seen


def test_a_part_that_closes_over_an_array_is_traced_once():
    part, seen = counted(lambda x: jnp.sum(x * NODES))
    many = traced(lambda x: part(x) + part(2.0 * x) + part(x**2))(jnp.ones(5))
    traced(lambda x: part(x) - 1.0)(jnp.ones(5))
    assert len(seen) == 1
    (found,) = jax.core.eval_jaxpr(many.jaxpr, many.consts, jnp.full(5, 2.0))
    assert float(found) == pytest.approx(2.5 * (2.0 + 4.0 + 4.0))


def test_a_part_is_compiled_once_in_a_program():
    """Its calls are calls of one function in what XLA is given."""
    part, _ = counted(lambda x: jnp.sum(jnp.sin(x) * NODES))
    whole = jax.jit(lambda x: part(x) + part(2.0 * x) + part(3.0 * x)).lower(jnp.ones(5))
    assert whole.as_text().count("stablehlo.sine") == 1


def test_other_shapes_precisions_and_numbers_are_other_parts():
    part, seen = counted(lambda x, power: x**power * NODES[:1], static_argnums=1)
    for power in (1, 2, True, 2.0):
        traced(lambda x, power=power: part(x, power))(jnp.ones(3))
    traced(lambda x: part(x, 2))(jnp.ones(4))
    with jax.enable_x64(True):
        closed = traced(lambda x: part(x, 2))(jnp.ones(3))
        assert closed.out_avals[0].dtype == np.float64
    assert len(seen) == 6
    assert closed.out_avals[0].shape == (3,)


def test_a_part_can_be_differentiated_and_mapped():
    part, seen = counted(lambda x: jnp.sum(x**2 * NODES))
    slope = jax.jit(jax.grad(lambda x: part(x) + part(3.0 * x)))(jnp.ones(5))
    np.testing.assert_allclose(slope, 20.0 * NODES, rtol=1e-6)
    each = jax.jit(jax.vmap(part))(jnp.ones((3, 5)))
    np.testing.assert_allclose(each, 2.5, rtol=1e-6)
    assert len(seen) == 1


def test_what_is_an_array_beside_traced_arguments_is_read_each_time():
    part = jit(lambda x, y: x + y * NODES)
    for value in (1.0, 2.0):
        closed = traced(lambda x, y: part(x, y), return_shape=False)
        beside = np.full(5, value)
        found = closed(jnp.zeros(5), beside)
        (sums,) = jax.core.eval_jaxpr(found.jaxpr, found.consts, jnp.zeros(5), beside)
        np.testing.assert_allclose(sums, value * NODES, rtol=1e-6)
        inside = traced(partial(part, y=beside))(jnp.zeros(5))
        (sums,) = jax.core.eval_jaxpr(inside.jaxpr, inside.consts, jnp.zeros(5))
        np.testing.assert_allclose(sums, value * NODES, rtol=1e-6)


def test_not_more_parts_are_kept_than_so_many():
    part, seen = counted(lambda x, n: x * NODES[:1] + n, static_argnums=1)
    for n in (*range(MOST_PARTS + 1), MOST_PARTS, 0):
        traced(lambda x, n=n: part(x, n))(jnp.ones(3))
    assert len(seen) == MOST_PARTS + 2

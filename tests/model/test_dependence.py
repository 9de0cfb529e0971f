"""Which inputs an output depends on, told from the program, against its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowerbound.model.dependence import dependence


def stacked_by_hand(a, b, c):
    rows = jnp.array([a, b, c]) * jnp.array([c, a, b])
    return rows[0], rows[2] ** 2, rows[:2].sum(), jnp.where(rows[1] > 0, rows[1], 0.0)


def moved(a, b, c):
    table = jnp.stack([jnp.stack([a, b]), jnp.stack([b, c])])
    return table.T[0, 1], table[::-1].reshape(4)[0], table[:, None].max(axis=(0, 1))[1]


def spread(a, b, c):
    table = jnp.stack([a, b]) * jnp.stack([b, c])[:, None] - 2.0 * jnp.ones(3)[:, None, None]
    return table[2, 0, 1], table[0, :, 0].sum(), table.sum(axis=0)[1, 1]


def mixed(a, b, c):
    rows = jnp.concatenate([jnp.broadcast_to(a, (2,)), jnp.stack([b, c])])
    return jnp.dot(rows, jnp.ones(4)), jnp.exp(rows)[1:3].sum(), jax.jit(jnp.sort)(rows)[0]


def looped(a, b, c):
    def step(carry, x):
        return carry + x, carry * b

    last, each = jax.lax.scan(step, a, jnp.stack([b, c]))
    return last, each[0], jnp.zeros(())


def unstacked(a, b, c):
    first, second = jnp.unstack(jnp.stack([jnp.stack([a, b]), jnp.stack([b, c])]), axis=1)
    return [*jnp.unstack(first), *jnp.unstack(second)]


@pytest.mark.parametrize("program", [stacked_by_hand, moved, spread, mixed, looped, unstacked])
def test_what_moves_an_output_is_in_its_set(program):
    point = (1.3, 0.7, 2.1)
    slopes = np.asarray(jax.jacobian(lambda v: jnp.stack(program(*v)))(jnp.array(point)))
    found = dependence(jax.make_jaxpr(program)(*point).jaxpr)
    for inputs, slope in zip(found, slopes, strict=True):
        assert set(np.flatnonzero(slope)) <= inputs


@pytest.mark.parametrize("program", [stacked_by_hand, moved, spread, unstacked])
def test_elements_of_a_stack_stay_apart(program):
    """Where only the places of elements are told, the set is what moves the output, no more."""
    points = np.random.default_rng(0).uniform(0.5, 2.0, (20, 3))
    slope = jax.jacobian(lambda v: jnp.stack(program(*v)))
    slopes = np.abs(np.asarray(jax.vmap(slope)(jnp.array(points)))).sum(axis=0)
    found = dependence(jax.make_jaxpr(program)(*points[0]).jaxpr)
    assert [sorted(inputs) for inputs in found] == [sorted(np.flatnonzero(s)) for s in slopes]


def test_long_arrays_are_followed_as_a_whole():
    closed = jax.make_jaxpr(lambda a, b: jnp.concatenate([jnp.full(3000, a), jnp.full(3000, b)])[0])
    assert dependence(closed(1.0, 2.0).jaxpr) == [frozenset({0, 1})]

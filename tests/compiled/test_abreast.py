"""Copies of one operation abreast: the same numbers from fewer operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpy.testing import assert_allclose

from lowerbound.compiled import abreast, equations, jit
from lowerbound.compiled.abreast import LONG

ROWS = 50
X = np.random.default_rng(1).normal(size=(ROWS, 3))
MANY = [np.float64(x) for x in np.random.default_rng(2).normal(size=ROWS)]


def neighbours(a, x):
    return sum(jnp.tanh(x[t, 0] - a * x[t - 1, 2]) for t in range(1, ROWS))


def other_order(a, x):
    order = np.random.default_rng(0).permutation(ROWS)
    return sum(jnp.exp(-a * x[t, 1] ** 2) * t for t in order)


def windows(a, x):
    return jnp.stack(
        [x[t : t + 3, t % 2 : t % 2 + 2].sum() * a + jnp.cos(x[t, 2]) for t in range(ROWS - 3)]
    )


def recurrence(a, x):
    """Every step waits for the one before; what hangs on the steps does not."""
    state, total = a, 0.0
    for t in range(ROWS):
        state = jnp.sin(state + x[t, 0])
        total = total + jnp.log1p(state**2) * jnp.where(x[t, 1] > 0, x[t, 2], 0.5)
    return total


def strays(a, x):
    """Operations of the same kind that belong elsewhere."""
    first = jnp.exp(a) - jnp.exp(2.0 * a)
    return first + sum(jnp.exp(x[t, 0]) - jnp.exp(x[t, 1] * a) for t in range(ROWS))


def inside_a_loop(a, x):
    def step(carry, row):
        return carry + neighbours(a, x) * row[0], sum(carry * row[i % 3] for i in range(ROWS))

    return lax.scan(step, jnp.zeros(()), x[:2])


def of_numbers(a, x):
    """Numbers that are given to what has a derivative of its own."""
    return sum(jax.scipy.special.xlogy(1.5 + t, a + x[t, 0] ** 2) for t in range(ROWS))


def inputs(a, *many):
    return sum((many[t] - a * many[t - 1]) ** 2 for t in range(1, ROWS))


OF_ROWS = (neighbours, other_order, windows, recurrence, strays, inside_a_loop, of_numbers)
CASES = {f.__name__: (f, (0.7, X)) for f in OF_ROWS}
CASES["inputs"] = (inputs, (0.7, *MANY))


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_the_same_and_the_operations_few(case):
    function, given = CASES[case]
    with jax.enable_x64(True):
        closed = jax.make_jaxpr(function)(*given)
        short = abreast(closed)
        steps = ROWS * (6 if case == "recurrence" else 1)
        assert equations(short.jaxpr) < steps + 60 < LONG * 2 < 2 * equations(closed.jaxpr)
        assert [str(a) for a in short.out_avals] == [str(a) for a in closed.out_avals]
        ours, plain = (jax.jit(jax.extend.core.jaxpr_as_fun(c))(*given) for c in (short, closed))
    for one, other in zip(ours, plain, strict=True):
        assert_allclose(one, other, rtol=1e-12)


def test_what_depends_on_other_inputs_stays_apart_when_asked():
    with jax.enable_x64(True):
        closed = jax.make_jaxpr(inputs)(0.7, *MANY)
        assert abreast(closed, len(closed.jaxpr.invars)) is closed


def test_short_programs_are_left_alone():
    closed = jax.make_jaxpr(lambda x: jnp.tanh(x).sum())(X)
    assert abreast(closed) is closed


def test_operations_tell_the_lines_that_they_come_from():
    with jax.enable_x64(True):
        short = abreast(jax.make_jaxpr(neighbours)(0.7, X))
    (tanh,) = (e for e in short.jaxpr.eqns if e.primitive.name == "tanh")
    frames = tanh.source_info.traceback.frames
    lines = [f.line_num for f in frames if f.file_name.endswith("test_abreast.py")]
    assert lines[0] == neighbours.__code__.co_firstlineno + 1


def test_what_is_jitted_is_traced_once_and_as_short():
    runs = []

    def counted(a, x):
        runs.append(1)
        return neighbours(a, x)

    with jax.enable_x64(True):
        known = jit(counted)
        lowered = known.lower(0.7, X).as_text()
        assert lowered.count("stablehlo.tanh") == 1
        assert_allclose(known(0.7, X), neighbours(0.7, X), rtol=1e-12)
        jax.eval_shape(known, 0.7, X)
    assert len(runs) == 1

"""Maximisation inside a compiled program: exact on quadratics, uphill on everything."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowerbound.ascent import maximise as module
from lowerbound.ascent.maximise import maximise


def climbed(objective, start, few=50, monkeypatch=None):
    if monkeypatch is not None:
        monkeypatch.setattr(module, "FEW", few)
    with jax.enable_x64(True):
        climb = jax.jit(jax.vmap(lambda point: maximise(objective, point)))
        ends = climb(jnp.asarray(np.atleast_2d(start), float))
        return jax.tree.map(lambda a: np.asarray(a[0] if np.ndim(start) == 1 else a), ends)


def valley(u):
    """Rosenbrock's function, upside down: its maximum is 0 at (1, 1)."""
    return -((1.0 - u[0]) ** 2) - 100.0 * (u[1] - u[0] ** 2) ** 2


@pytest.mark.parametrize("few", [50, 0])
def test_a_curved_valley(few, monkeypatch):
    end = climbed(valley, [-1.2, 1.0], few, monkeypatch)
    np.testing.assert_allclose(end.point, [1.0, 1.0], atol=1e-6)
    assert end.gain == 0.0


def test_one_step_solves_a_quadratic_whatever_the_units(monkeypatch):
    monkeypatch.setattr(module, "STEPS", 1)
    units = np.array([1e-6, 1.0, 1e6])
    matrix = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 3.0]])

    def bowl(u):
        away = u / units - jnp.array([1.0, -2.0, 3.0])
        return -away @ matrix @ away

    end = climbed(bowl, [0.0, 0.0, 0.0])
    np.testing.assert_allclose(end.point, units * [1.0, -2.0, 3.0], rtol=1e-9)


@pytest.mark.parametrize("start", [-20.0, 0.0, 20.0, 200.0])
def test_a_log_scale_from_far_away(start):
    """-3 u - 5 exp(-u) is flat on one side and steep on the other; its maximum is at log(5/3)."""
    end = climbed(lambda u: (-3.0 * u - 5.0 * jnp.exp(-u)).sum(), [start])
    np.testing.assert_allclose(end.point, np.log(5.0 / 3.0), rtol=1e-9)


def test_a_saddle_is_left_uphill():
    end = climbed(lambda u: u[0] ** 2 - u[0] ** 4 - u[1] ** 2, [1e-3, 1.0])
    np.testing.assert_allclose(end.point, [np.sqrt(0.5), 0.0], atol=1e-7)


@pytest.mark.parametrize("few", [50, 0])
def test_the_value_never_falls(few, monkeypatch):
    rng = np.random.default_rng(0)
    waves = rng.normal(size=(6, 3))

    def rough(u):
        return jnp.sum(jnp.sin(waves @ u)) - 0.1 * u @ u

    starts = rng.normal(size=(20, 3)) * 3.0
    ends = climbed(rough, starts, few, monkeypatch)
    with jax.enable_x64(True):
        assert (ends.value >= np.asarray(jax.vmap(rough)(jnp.asarray(starts)))).all()
        slopes = np.asarray(jax.vmap(jax.grad(rough))(jnp.asarray(ends.point)))
    assert abs(slopes).max() < 1e-4


def test_no_step_uphill_leaves_the_point_and_says_so():
    """A function that is finite at the start alone."""
    end = climbed(lambda u: jnp.where(u[0] == 1.0, u[0], jnp.nan), [1.0])
    assert end.point[0] == 1.0
    end = climbed(lambda u: u[0] + jnp.where(u[0] == 1.0, 0.0, jnp.nan), [1.0])
    assert end.point[0] == 1.0
    assert end.gain > 0.0

"""Trajectories that the host asks for a few at a time: the same as in one piece."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowerbound.compiled import quickly
from lowerbound.cost import at_most
from lowerbound.methods.chains import trajectories as module
from lowerbound.methods.chains.rounds_of_chains import CHAINS, FEWEST_DRAWN
from lowerbound.methods.chains.trajectories import Nuts, trajectories
from lowerbound.methods.chains.units import Units

WARM, KEPT = 60, 150
SCALES = np.array([1.0, 3.0, 0.2])
UNITS = Units(np.zeros(3), np.eye(3))


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def run():
    def density(vector, scales):
        return -0.5 * jnp.sum((vector / scales) ** 2)

    return quickly(trajectories(density, False, warm=WARM))


def chains(run, key=None, **settings):
    key = jax.random.key(0) if key is None else key
    kernel = Nuts(run, SCALES, key, False, warm=WARM, **settings)
    starts = np.random.default_rng(0).normal(size=(CHAINS, 3))
    return kernel(starts, UNITS, KEPT, 1)


@pytest.mark.parametrize("size", [1, 40])
def test_parts_make_one_chain(run, monkeypatch, size):
    whole = chains(run)
    monkeypatch.setattr(module, "LOOK", size)
    monkeypatch.setattr(module, "PATIENCE", 0.0 if size == 1 else 1e9)
    parts = chains(run)
    assert parts.draws.shape == (CHAINS, KEPT, 3)
    np.testing.assert_array_equal(parts.draws, whole.draws)
    np.testing.assert_array_equal(parts.values, whole.values)
    assert (parts.trajectories, parts.gradients) == (whole.trajectories, whole.gradients)


@pytest.mark.parametrize("seed", range(3))
def test_draws_are_those_of_the_density(run, seed):
    """Were 600 draws worth 200, a mean would be beyond 0.3 sds once in 10^4 runs."""
    found = chains(run, key=jax.random.key(seed))
    assert (abs(found.rows.mean(axis=0)) < 0.3 * SCALES).all()
    assert (abs(np.log(found.rows.std(axis=0) / SCALES)) < 0.3).all()
    log_p = -0.5 * ((found.rows / SCALES) ** 2).sum(axis=1)
    np.testing.assert_allclose(found.values.ravel(), log_p, rtol=1e-9)


def test_time_that_is_over_ends_them_with_what_there_is(run):
    told = []
    with at_most(1e-9):
        found = chains(run, seen=told.append)
    assert found.draws.shape == (CHAINS, 0, 3)
    assert told == [module.LOOK]


@pytest.mark.parametrize("partial", [True, False])
def test_an_interruption_leaves_draws_where_it_is_asked_to(run, monkeypatch, partial):
    monkeypatch.setattr(module, "PATIENCE", 0.0)  # one draw at a time

    def pressed(done):
        if done == WARM + FEWEST_DRAWN + 5:
            raise KeyboardInterrupt

    if not partial:
        with pytest.raises(KeyboardInterrupt):
            chains(run, seen=pressed)
        return
    found = chains(run, seen=pressed, partial=True)
    assert found.draws.shape == (CHAINS, FEWEST_DRAWN + 5, 3)


def test_an_interruption_before_chains_can_be_compared_is_one(run):
    def pressed(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chains(run, seen=pressed, partial=True)

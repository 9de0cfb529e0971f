"""Rounds of chains: when they end, by which words, and in which units they go on."""

import numpy as np
import pytest

from lowerbound.methods.chains.rounds_of_chains import Chains, Rounds, drafted, mixed
from lowerbound.methods.chains.units import Units

SCALES = np.array([0.1, 3.0])
NEAR = Units(np.zeros(2), np.diag([0.2, 2.0]))


def apart(step, diverging=0):
    """A kernel of independent draws, whose chains stand `step` apart."""
    asked = []

    def kernel(starts, units, count, number):
        asked.append((number, units))
        draws = np.random.default_rng(number + 10).normal(size=(4, count, 2)) * SCALES
        draws += step * np.arange(4)[:, None, None]
        return Chains(draws, np.zeros((4, count)), 4 * count, diverging, 12 * count)

    return kernel, asked


def walk(kernel, count=50, most=3):
    rounds = Rounds(count, most, lambda chains: mixed(chains, "xy".__getitem__), "lb.More()")
    return list(rounds.walk(kernel, np.zeros((4, 2)), NEAR))


def test_rounds_end_when_draws_are_enough():
    kernel, asked = apart(0.0)
    *before, last = walk(kernel, most=9)
    assert all(one.stop is None and not one.place.enough for one in before)
    assert last.stop.converged
    assert last.place.enough
    assert last.place.chains.draws.shape == (4, 50 * len(asked), 2)
    assert str(last.place).startswith(
        f"4 chains of {50 * len(asked)} trajectories, 0 diverged, 3 gradients each; R-hat at most"
    )


def test_each_round_goes_in_the_units_of_the_draws_before():
    kernel, asked = apart(0.0)
    walk(kernel, count=20, most=2)
    np.testing.assert_array_equal(asked[0][1].root, NEAR.root)
    np.testing.assert_allclose(np.diag(asked[1][1].root), SCALES, rtol=0.3)


def test_chains_that_do_not_agree_stop_with_a_remedy():
    last = walk(apart(2.0)[0])[-1]
    assert not last.stop.converged
    assert last.stop.text == last.place.flaw
    assert last.place.flaw.startswith("R-hat is ")
    assert last.stop.remedy == "More draws come with lb.More()."


def test_trajectories_that_diverge_are_a_flaw():
    last = walk(apart(0.0, diverging=5)[0])[-1]
    assert last.place.flaw == "15 of 600 trajectories diverged"
    assert not last.place.enough


def test_drafts_are_numbered_up_to_the_first_round():
    kernel, asked = apart(0.0)
    _, units = drafted(kernel, np.zeros((4, 2)), NEAR, (20, 40))
    assert [number for number, _ in asked] == [-1, 0]
    np.testing.assert_allclose(np.diag(units.root), SCALES, rtol=0.3)


@pytest.mark.parametrize("size", [2, 7])
def test_units_map_there_and_back(size):
    rng = np.random.default_rng(size)
    draws = rng.normal(size=(30, size)) @ rng.normal(size=(size, size))
    units = Units.of(draws)
    assert units.root.ndim == (2 if size == 2 else 1)
    for some in (units, units.dense):
        np.testing.assert_allclose(some.inward(some.outward(draws)), draws, atol=1e-9)
        by = some.slopes(np.eye(size))  # of u by numbers in these units
        np.testing.assert_allclose(some.outward(np.eye(size)), by.T, atol=1e-12)

"""Integrals over hyperparameters: surfaces whose evidence, means and sds are known."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from lowerbound.errors import NoFiniteStartError
from lowerbound.family.numerics.smoothed import Smoothed, low_discrepancy
from lowerbound.methods.hierarchy.points.integration import MOST, PLENTY, integrate
from lowerbound.methods.hierarchy.summits.uphill import Evaluated, climb
from lowerbound.methods.hierarchy.surface import Solved
from lowerbound.run.walking import ended
from tests.methods.hierarchy import surfaces

LINE = surfaces.on_line(surfaces.at_zero, -40.0, 6.0)
CASES = {
    **{f"Gaussian, k = {k}": (surfaces.gaussian(k), 16 * k + 30) for k in (1, 2, 3, 4, 6, 8)},
    "narrow": (surfaces.gaussian(5, 1e-4, 1), 110),
    "logarithm": (surfaces.logarithms(1.0), 45),
    "long tail": (surfaces.logarithms(0.5), 45),
    "two logarithms": (surfaces.logarithms(1.5, 4.0), 80),
    "four logarithms": (surfaces.logarithms(0.7, 0.7, 5.0, 8.0), 160),
    "eight logarithms": (surfaces.logarithms(*8 * [2.0]), 200),
    "scale at zero": (LINE, 45),
    "two scales at zero": (surfaces.together(LINE, LINE), 80),
    "four of both": (surfaces.together(LINE, LINE, surfaces.logarithms(2.0, 6.0)), 160),
    "correlation": (surfaces.on_line(surfaces.correlation, -6.0, 6.0), 45),
    "flat direction": (surfaces.flat(), 80),
    "an edge on a line": (surfaces.cut(-1.5, 1), 45),
    "an edge": (surfaces.cut(-2.0, 2), 80),
    "two long tails": (surfaces.half_cauchy(3), 110),
    "a bent ridge": (surfaces.banana(0.2), 80),
}


@cache
def integral(name):
    known = CASES[name][0]
    return ended(integrate(known.surface, known.start))


@pytest.mark.parametrize("name", CASES)
def test_evidence_and_moments_are_right(name):
    known, most = CASES[name]
    found = integral(name)
    assert found.enough
    assert found.evaluations <= most
    assert found.log_evidence == pytest.approx(known.log_integral, abs=0.05)
    assert abs((found.smoothed.mean - known.mean) / known.sd).max() < 0.03
    sds = np.sqrt(np.diag(found.smoothed.covariance))
    assert abs(sds / known.sd - 1).max() < 0.03


@pytest.mark.parametrize("name", ["Gaussian, k = 2", "two logarithms"])
def test_the_density_is_that_of_the_surface(name):
    known, found = CASES[name][0], integral(name)
    rng = np.random.default_rng(0)
    t = known.mean + known.sd * rng.uniform(-1.5, 1.5, (20, 2))
    exact = np.array([known(one) for one in t]) - known.log_integral
    assert found.smoothed.log_prob(t) == pytest.approx(exact, abs=0.05)


class Spiked:
    """A surrogate with a tower on the first of some nodes, and how often it was asked."""

    def __init__(self, smoothed, height):
        self.surrogate, self.height, self.asked = smoothed.surrogate, height, 0
        self.top = smoothed.placed.outward(smoothed.nodes[:1])

    def __call__(self, t):
        self.asked += len(t)
        near = (abs(t - self.top) < 1e-6).all(axis=1)
        return self.surrogate(t) + self.height * near


@pytest.mark.parametrize("height", [0.0, 12.0, 300.0])
def test_draws_are_cheap_where_a_surrogate_towers_at_one_place(height):
    """A fit did not end: one proposal of 5,000 was kept, of as many as 4,096 draws needed."""
    plain = integral("two logarithms").smoothed
    spiked = Spiked(plain, height)
    trimmed = replace(plain, surrogate=spiked, ceiling=math.inf).trimmed()
    spiked.asked = 0
    draws = trimmed.sample(np.random.default_rng(0), 2_000)
    assert len(draws) == 2_000
    assert spiked.asked < 2_000 / 0.02 * 1.3
    assert trimmed.weights.sum() == pytest.approx(1.0)
    assert abs((draws.mean(axis=0) - plain.mean) / draws.std(axis=0)).max() < 0.12


def test_it_says_how_good_it_is():
    text = str(integral("two logarithms"))
    assert text.startswith(f"{integral('two logarithms').points} points, effective size ")
    assert text.endswith(" nats")


def test_progress_is_told_after_every_evaluation():
    known = surfaces.gaussian(2)
    told = list(integrate(known.surface, known.start))
    assert next(one.evaluations for one in told if one.phase == "climb") == 1
    assert told[-1].integral is not None
    assert told[-1].evaluations == integral("Gaussian, k = 2").evaluations


def test_as_many_points_as_asked_for():
    known = surfaces.gaussian(2)
    assert ended(integrate(known.surface, known.start, points=40)).points == 40


def test_more_points_are_taken_where_they_are_to_be_had_and_only_where_they_tell_more():
    bent = surfaces.together(surfaces.banana(0.6), surfaces.banana(0.5), surfaces.logarithms(0.5))
    few, many = (ended(integrate(bent.surface, bent.start, most=most)) for most in (MOST, PLENTY))
    assert few.points <= MOST
    assert many.enough or few.points < many.points <= PLENTY
    for found in (few, many):
        away = abs(found.smoothed.mean - bent.mean) / bent.sd
        assert np.max(away) < 0.15
    ridge = surfaces.banana(1.0)
    never = ended(integrate(ridge.surface, ridge.start))
    assert never.points <= 192  # given up, as it knows no more than with a third of them
    assert not never.enough


@pytest.mark.parametrize(("below", "ripples"), [(3.5, 0.4), (30.0, 0.8)])
def test_points_that_are_too_few_are_asked_about_the_tails(below, ripples):
    """A zero-inflated regression had a shelf of a sixteenth of its mass where no point was."""
    surface = surfaces.shelf(below, ripples)
    found = ended(integrate(surface.surface, surface.start, farthest=6.0))
    assert not found.enough
    assert found.missed == (below < 6.0)
    assert not ended(integrate(surface.surface, surface.start)).missed  # not looked at


@pytest.mark.parametrize(("height", "enough"), [(0.2, True), (0.8, False)])
def test_points_that_are_not_foreseen_may_make_a_good_density(height, enough):
    """Ripples are missed point by point; draws of the density tell what that amounts to."""
    smooth = surfaces.gaussian(4)

    def surface(t, starts, slope):
        found = smooth.surface(t, starts, slope)
        ripple = 0.0 if slope else height * math.cos(1e3 * t.sum())  # the climb is not led astray
        return replace(found, value=found.value + ripple)

    found = ended(integrate(surface, smooth.start))
    assert found.points >= 256 if enough else found.is_lost
    assert found.rough > 0.1
    assert found.enough == enough
    if enough:
        assert abs((found.smoothed.mean - smooth.mean) / smooth.sd).max() < 0.03


def test_every_solve_starts_from_those_around_it():
    known, warm = surfaces.gaussian(2), []

    def surface(t, starts, slope):
        warm.append(starts)
        return known.surface(t, starts, slope)

    found = ended(integrate(surface, known.start))
    assert warm[0] == []
    assert all(isinstance(one, Solved) for starts in warm[1:] for one in starts[:2] + starts[-1:])
    assert all(warm[1:])
    assert len(warm) == found.evaluations


def test_solutions_on_straight_lines_are_foreseen():
    rng = np.random.default_rng(0)
    slopes = rng.normal(size=(5, 3))

    def solved(t):
        numbers = 1.0 + slopes @ t
        spread = numbers[:4].astype(np.float32)
        return Solved(t, 0.0, None, numbers, np.ones(4), np.ones(5), spread=spread)

    known = [solved(t) for t in rng.normal(size=(9, 3))]
    evaluated = Evaluated(lambda *_: None, known)
    t = known[0].t + 0.2 * (known[1].t - known[0].t) + 0.1 * (known[2].t - known[0].t)
    ahead, nearest = evaluated.starts(t)
    assert nearest is evaluated.nearest(t)
    off, near = (np.abs(one.loc - solved(t).loc).max() for one in (ahead, nearest))
    assert off < 0.02 * near
    assert np.abs(ahead.spread - np.maximum(solved(t).spread, 0.0)).max() < 0.02 * near
    far = evaluated.starts(t + 50.0)
    assert far == [evaluated.nearest(t + 50.0)]  # nothing is foreseen from so far


def test_a_start_without_a_value_is_left_for_one_beside_it():
    known = surfaces.cut(-2.5, 1)
    found = ended(integrate(known.surface, np.array([-3.0])))
    assert found.log_evidence == pytest.approx(known.log_integral, abs=0.05)


def test_no_value_anywhere_is_an_error():
    with pytest.raises(NoFiniteStartError, match="The bound given the hyperparameters is not fin"):
        ended(integrate(lambda t, warm, slope: None, np.zeros(2)))


@pytest.mark.parametrize("height", [1e10, 1e160, 1e300])
def test_a_climb_comes_back_from_the_foot_of_a_cliff(height):
    """Where the square of a slope is no number, as of a loop that grows without bound."""
    known = surfaces.Known(
        lambda t: t[0] - height * max(t[0], 0.0), np.array([-3.0]), 0.0, np.zeros(1), np.ones(1)
    )
    summit = ended(climb(Evaluated(known.surface), known.start))
    assert -0.5 < summit.top.t[0] <= 0.0


def test_values_that_are_no_numbers_are_stepped_back_from():
    known = surfaces.gaussian(2)

    def surface(t, warm, slope):
        return None if t[0] < -4.0 else known.surface(t, warm, slope)

    found = ended(integrate(surface, known.start))
    assert math.isfinite(found.log_evidence)


APART = {
    "a line": surfaces.two_summits([0], [6], (1.0, 0.7), 0.3),
    "far on a line": surfaces.two_summits([0], [10], (0.5, 1.0), 0.6),
    "two": surfaces.two_summits([0, 0], [5, -4], (0.8, 0.6), 0.4),
    "two, one of them slight": surfaces.two_summits([0, 0], [7, 3], (0.5, 1.2), 0.1),
    "three": surfaces.two_summits([0, 0, 0], [5, -4, 1], (0.8, 0.6), 0.4),
    "four": surfaces.two_summits([0, 0, 0, 0], [4, -4, 1, 0], (0.7, 0.7), 0.5),
}


def _spread(known):
    places = low_discrepancy(5, len(known.start), 4)
    return known.mean + 6.0 * (places - 0.5)


@pytest.mark.parametrize("name", APART)
def test_another_summit_is_found_and_counts_by_its_mass(name):
    known = APART[name]
    found = ended(integrate(known.surface, known.start, others=_spread(known)))
    assert found.enough
    assert found.log_evidence == pytest.approx(known.log_integral, abs=0.05)
    assert abs((found.smoothed.mean - known.mean) / known.sd).max() < 0.03
    sds = np.sqrt(np.diag(found.smoothed.covariance))
    assert abs(sds / known.sd - 1).max() < 0.03


def test_two_summits_are_kept_in_arrays():
    known = APART["two"]
    found = ended(integrate(known.surface, known.start, others=_spread(known))).smoothed
    again = Smoothed.of(found.arrays())
    t = known.mean + known.sd * np.random.default_rng(0).uniform(-1.5, 1.5, (20, 2))
    assert np.allclose(again.log_prob(t), found.log_prob(t), rtol=1e-12)


def test_one_summit_is_not_taken_for_two():
    known = surfaces.logarithms(1.5, 4.0)
    plain = ended(integrate(known.surface, known.start))
    starts = [np.array([-2.0, 0.0]), np.array([2.0, 3.0]), np.array([0.0, -3.0])]
    found = ended(integrate(known.surface, known.start, others=starts))
    assert not found.smoothed.surrogate.frame.beside
    assert found.log_evidence == pytest.approx(plain.log_evidence, abs=0.01)


@pytest.mark.parametrize("name", ["four of both", "a bent ridge"])
def test_starts_that_find_nothing_new_change_nothing(name):
    known, alone = CASES[name][0], integral(name)
    starts = [known.mean + shift * known.sd for shift in (-30.0, 8.0, 40.0)]
    found = ended(integrate(known.surface, known.start, others=starts))
    assert str(found) == str(alone)
    assert found.log_evidence == alone.log_evidence

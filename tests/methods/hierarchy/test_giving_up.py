"""What leads nowhere ends early: solutions far from all mass, looks aside, integrals that are lost.

How long something took is told by a clock of the tests, which goes on with every solution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from lowerbound.cost import at_most
from lowerbound.errors import PoorIntegralError
from lowerbound.methods.hierarchy import hierarchies
from lowerbound.methods.hierarchy.finding_theta import predictors_of
from lowerbound.methods.hierarchy.inner.given_hyperparameters import GivenHyperparameters
from lowerbound.methods.hierarchy.integrated_value import Integrated
from lowerbound.methods.hierarchy.points.integration import MOST, integrate
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.summits import uphill
from lowerbound.methods.hierarchy.summits.other_summits import hills
from lowerbound.methods.hierarchy.summits.uphill import Evaluated
from lowerbound.model import trace_model
from lowerbound.run.problem import Problem
from tests.methods.hierarchy import surfaces


def bent_lines(y, design):
    """A trend whose bends have a prior with a corner at zero."""
    noise = numpyro.sample("noise", dist.HalfNormal(0.5))
    bends = numpyro.sample("bends", dist.Laplace(0.0, 0.05).expand([design.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(design @ bends, noise), obs=y)


def test_a_solution_whose_steps_are_halved_without_gain_is_left(monkeypatch):
    calls = []
    original = Predictors.expected
    counted = lambda self, *args: calls.append(1) or original(self, *args)  # noqa: E731
    monkeypatch.setattr(Predictors, "expected", counted)
    time = np.linspace(0.0, 1.0, 300)
    design = np.maximum(time[:, None] - np.linspace(0.0, 0.8, 15), 0.0)
    y = design @ np.array([1.0, *14 * [0.0]]) + 0.05 * np.random.default_rng(0).normal(size=300)
    with jax.enable_x64(True):
        model = trace_model(bent_lines, (y, design), {}, None)
        surface = GivenHyperparameters.of(predictors_of(model))
        near = surface(np.array([-3.0]), (), True)
        for t in (-2.8, -3.2, -2.9, -3.1):
            assert surface(np.array([t]), (near,), True) is not None
    assert len(calls) < 2500  # more than four thousand, where all steps are taken


@dataclass
class Clock:
    """Seconds that go on with every solution."""

    now: float = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(uphill, "time", made)
    return made


def dear_far_away(known, clock):
    """A surface whose solutions take a second near the mass, and a hundred far from it."""

    def surface(t, warm, slope):
        far = np.linalg.norm(t - known.mean) > 8.0 * known.sd.max()
        clock.now += 100.0 if far else 1.0
        return known.surface(t, warm, slope)

    return surface


def test_other_starts_take_no_longer_than_some_times_the_first(clock):
    known = surfaces.gaussian(2)
    evaluated = Evaluated(dear_far_away(known, clock))
    others = [known.mean + 40.0 * known.sd * np.array(way) for way in ((1, 1), (1, -1), (-1, 1))]
    one = Evaluated(dear_far_away(known, clock))
    for _ in hills(one, [known.mean]):
        pass
    first = len(one.known)
    looks = sum(1 for _ in hills(evaluated, [known.mean, *others]))
    assert looks <= first + 5  # what they have taken is seen after each


def uneven(known):
    """Points of it say nothing of what is beside them, and few of them have all the mass."""

    def surface(t, warm, slope):
        found = known.surface(t, warm, slope)
        noise = np.random.default_rng(crc32(np.round(t, 6).tobytes())).normal()
        return replace(found, value=found.value + 3.0 * noise)

    return surface


def test_points_that_come_no_nearer_are_not_doubled_again():
    known = surfaces.gaussian(4)
    *_, last = integrate(uneven(known), known.start)
    assert last.integral is not None
    assert last.integral.is_lost
    assert last.integral.points < MOST


def small(y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("groups", 8):
        z = numpyro.sample("z", dist.Normal(0.0, scale))
    with numpyro.plate("rows", 24):
        numpyro.sample("y", dist.Poisson(jnp.exp(z[np.arange(24) % 8])), obs=y)


@dataclass
class Slow:
    """A stopwatch by which every look at it is some seconds later."""

    each: float
    looks: int = 0

    @property
    def own_seconds(self):
        self.looks += 1
        return self.each * self.looks


def test_an_integral_whose_points_would_outlast_the_fit_is_given_up_at_once(monkeypatch):
    y = np.random.default_rng(0).poisson(2.0, 24)
    asked = []
    original = GivenHyperparameters.__call__
    counted = lambda *args: asked.append(1) or original(*args)  # noqa: E731
    monkeypatch.setattr(GivenHyperparameters, "__call__", counted)
    monkeypatch.setattr(hierarchies, "Stopwatch", lambda: Slow(40.0))
    with jax.enable_x64(True), at_most(150.0):
        walk = Integrated().plan(Problem(small, (y,), {})).walk()
        with pytest.raises(
            PoorIntegralError, match=r"it would take \d+ s, where 1[45]\d s are left"
        ):
            for _ in walk:
                pass
    assert len(asked) <= 3

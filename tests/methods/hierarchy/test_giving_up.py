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


def captures(seen, traps):
    """Animals are caught near where they live, which nothing tells of those that never were."""
    height = numpyro.sample("height", dist.Normal(-1.0, 1.5))
    width = numpyro.sample("width", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("animals", len(seen)):
        x = numpyro.sample("x", dist.Uniform(0.0, 10.0))
        y = numpyro.sample("y", dist.Uniform(0.0, 10.0))
        squares = (x[:, None] - traps[:, 0]) ** 2 + (y[:, None] - traps[:, 1]) ** 2
        caught = jax.nn.sigmoid(height) * jnp.exp(-squares / (2 * width**2))
        law = dist.Binomial(5, probs=jnp.clip(caught, 1e-7, 1 - 1e-7))
        numpyro.factor("seen", law.log_prob(seen).sum(-1))


@pytest.fixture(scope="module")
def scattered():
    rng = np.random.default_rng(3)
    grid = np.stack(np.meshgrid(np.linspace(2, 8, 4), np.linspace(2, 8, 4)), -1).reshape(-1, 2)
    homes = rng.uniform(0, 10, (30, 2))
    squares = ((homes[:, None] - grid) ** 2).sum(-1)
    seen = rng.binomial(5, 0.35 * np.exp(-squares / (2 * 0.8**2)))
    with jax.enable_x64(True):
        found = predictors_of(trace_model(captures, (seen, grid), {}, None))
        yield GivenHyperparameters.of(found)


def test_a_solution_that_is_halved_again_and_again_begins_at_the_mode(scattered, monkeypatch):
    calls = []
    original = Predictors.expected
    counted = lambda self, *args: calls.append(1) or original(self, *args)  # noqa: E731
    monkeypatch.setattr(Predictors, "expected", counted)
    near = scattered(np.array([-0.5, -0.25]), (), True)
    assert near is not None
    del calls[:]
    far = [np.array([2.0, 0.0]), np.array([2.5, 0.1]), np.array([4.0, -0.3])]
    for t in far:
        scattered(t, (near,), True)
    assert len(calls) < 1200  # half as many again, where all steps are taken from there


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

"""An ascent that creeps ends at a limit that its cost decides, says so, and takes no more draws."""

import sys

import numpyro
import numpyro.distributions as dist
import pytest
from lowerbound.methods.gaussian.engines import draw_sizes

import lowerbound as lb
from lowerbound.errors import ConvergenceWarning
from lowerbound.methods.gaussian.target import Target


def crescent(z):
    """A posterior along a parabola."""
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    y = numpyro.sample("y", dist.Normal(0.0, 10.0))
    numpyro.sample("z", dist.Normal(y - 3 * x**2, 0.05), obs=z)


def test_an_ascent_that_does_not_end_is_not_repeated_with_more_draws(monkeypatch):
    engines = sys.modules["lowerbound.methods.gaussian.engines"]
    monkeypatch.setattr(engines, "MOST_COMPUTED", 1.0)
    monkeypatch.setattr(engines, "LEAST_LIMIT", 3)
    monkeypatch.setattr(engines, "MOST_PLACES", 0)  # starts are compared over as many draws
    sizes, evaluated = draw_sizes(None, 2), []
    whole = Target.__call__

    def counted(self, vectors):
        evaluated.append(len(vectors))
        return whole(self, vectors)

    monkeypatch.setattr(Target, "__call__", counted)
    with pytest.warns(ConvergenceWarning, match="stopped before it converged: 3 iterations"):
        fit = lb.fit(crescent, 0.1, method=lb.Gaussian(), progress=False)
    assert (fit.converged, fit.stop_reason) == (False, "3 iterations")
    assert evaluated.count(sizes[0]) == 3
    assert sizes[2] not in evaluated

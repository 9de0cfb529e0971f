"""An ascent that creeps ends at a limit that its cost decides, says so, and takes no more draws."""

import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.errors import ConvergenceWarning
from lowerbound.methods.gaussian import fixed_stages
from lowerbound.methods.gaussian.climbing import climbs
from lowerbound.methods.gaussian.climbing.over_draws import draw_sizes
from lowerbound.methods.gaussian.target import Target


def crescent(z):
    """A posterior along a parabola."""
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    y = numpyro.sample("y", dist.Normal(0.0, 10.0))
    numpyro.sample("z", dist.Normal(y - 3 * x**2, 0.05), obs=z)


def test_an_ascent_that_does_not_end_is_not_repeated_with_more_draws(monkeypatch):
    monkeypatch.setattr(fixed_stages, "MOST_COMPUTED", 1.0)
    monkeypatch.setattr(fixed_stages, "LEAST_LIMIT", 3)
    monkeypatch.setattr(climbs, "MOST_PLACES", 0)  # starts are compared over as many draws
    sizes, evaluated = draw_sizes(lb.Gaussian(), 2), []
    whole = Target.__call__

    def counted(self, vectors):
        evaluated.append(len(vectors))
        return whole(self, vectors)

    monkeypatch.setattr(Target, "__call__", counted)
    with pytest.warns(ConvergenceWarning, match="stopped before it converged: 3 iterations"):
        fit = lb.fit(crescent, 0.1, method=lb.Gaussian(), progress=False)
    assert (fit.converged, fit.stop_reason) == (False, "stopped: 3 iterations")
    assert evaluated.count(sizes[0]) == 3
    assert sizes[2] not in evaluated

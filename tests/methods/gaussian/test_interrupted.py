"""Walks that are interrupted between two units are answered from where they stood, whatever phase.

Phases: the choice of coordinates, climbs from the starts, stages of draws, Newton's steps, windows.
"""

import numpy as np
import pytest

import lowerbound as lb
from lowerbound.run.walking import Walk
from tests.methods import zoo

WALKS = (
    ("climbs and stages", lb.Gaussian(), zoo.BEND),
    ("coordinates", lb.Gaussian(), zoo.SCHOOLS),
    ("Newton's steps", lb.Gaussian(rank="structured"), zoo.CHAIN),
    ("noisy gradients", lb.StochasticGaussian(), zoo.BEND),
    ("scores", lb.ScoreMatching(), zoo.BEND),
    ("mode", lb.Laplace(), zoo.BEND),
    ("expansion", lb.Delta(), zoo.BEND),
    ("summed out", lb.Gaussian(starts=2), zoo.TAILS),
    ("some sites", lb.Over(("rate",)), zoo.SPIKES),
    ("discrete entries", lb.ScoreFunctions(), zoo.SWITCHES),
)


def interrupted(monkeypatch, units):
    """Press Ctrl-C after some units of a walk."""
    whole = Walk.on

    def on(self, until):
        if self.done >= units:
            raise KeyboardInterrupt
        return whole(self, min(until, units))

    monkeypatch.setattr(Walk, "on", on)


@pytest.mark.parametrize("units", [1, 3, 9])
@pytest.mark.parametrize(
    ("method", "example"), [walk[1:] for walk in WALKS], ids=[walk[0] for walk in WALKS]
)
def test_what_stands_is_answered(method, example, units, monkeypatch):
    interrupted(monkeypatch, units)
    with lb.interruptible():
        fit = lb.fit(example.model, **example.call, method=method)
    if fit.converged:  # it took no more
        assert len(fit.history.elbo) <= units
        return
    assert fit.stop_reason.startswith("stopped: interrupted after ")
    assert fit.stop_reason.endswith(f" {units}")
    assert np.isfinite([fit.elbo, fit.elbo_error]).all()
    assert fit.stop_reason in [one.reason for one in fit.restarts]
    assert max(one.elbo for one in fit.restarts) == pytest.approx(fit.elbo)
    for site, shape in example.shapes.items():
        assert np.isfinite(fit.mean(site)).all()
        assert fit.mean(site).shape == shape


def test_before_the_first_unit_there_is_nothing_to_answer(monkeypatch):
    interrupted(monkeypatch, 0)
    with lb.interruptible(), pytest.raises(KeyboardInterrupt):
        lb.fit(zoo.BEND.model, **zoo.BEND.call, method=lb.Gaussian())


def test_without_being_asked_a_fit_ends_at_once(monkeypatch):
    interrupted(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        lb.fit(zoo.BEND.model, **zoo.BEND.call, method=lb.Gaussian())

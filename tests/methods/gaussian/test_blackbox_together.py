"""Starts side by side: those that meet go on as one, and the best place is the one that is kept."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp

from lowerbound.ascent.gaussian_step import CONVERGED, begin
from lowerbound.bound.draws import cubature
from lowerbound.compute.threads import one_thread
from lowerbound.errors import ConvergenceWarning
from lowerbound.methods.gaussian.climbing import climbs
from lowerbound.methods.gaussian.climbing.together import side_by_side
from lowerbound.run.walking import ended
from tests.methods.gaussian.runs import fitted


def location(y):
    m = numpyro.sample("m", dist.StudentT(3.0, 0.0, 10.0))
    numpyro.sample("y", dist.StudentT(4.0, m, 1.0), obs=y)


def two_places(y):
    m = numpyro.sample("m", dist.Normal(0.0, 4.0))
    numpyro.sample("y", dist.Normal(m**2, 0.2), obs=y)
    numpyro.sample("t", dist.Normal(m, 1.0), obs=np.array(2.0))


def test_starts_of_one_mode_join():
    y = 0.3 + np.random.default_rng(0).standard_t(4.0, 30)
    run = fitted(location, y)
    reasons = [one.reason for one in run.restarts]
    assert len(run.restarts) == 8  # none are made again
    assert reasons.count("stopped: joined another start") >= 1
    assert reasons.count(run.stop_reason) == 1
    # A start that joined another has the ELBO of the place that both came to.
    assert np.ptp([one.elbo for one in run.restarts]) < 0.1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_starts_of_two_modes_stay_apart_and_the_better_is_kept(seed):
    # Modes at m = 2 and m = -2, of which t = 2 prefers the first by 8 nats.
    run = fitted(two_places, np.array([3.9, 4.1, 4.0, 3.95, 4.05]), seed=seed)
    assert run.q.parameters["loc"][0] == pytest.approx(2.0, abs=0.1)
    best = max(one.elbo for one in run.restarts)
    assert all(abs(best - one.elbo) < 0.1 or one.elbo < best - 6.0 for one in run.restarts)
    assert any(one.elbo < best - 6.0 for one in run.restarts)  # the other mode was not joined away


def test_each_ascent_has_its_own_density():
    means = np.array([[0.0, 1.0], [5.0, -3.0], [-40.0, 2.0]])

    def evaluate(vectors, owners):
        gap = vectors - means[owners]
        return -0.5 * (gap**2).sum(axis=1), -gap

    begun = [begin(np.zeros(2), 0.1 * np.eye(2)) for _ in means]
    found = ended(side_by_side(evaluate, cubature(2, 0), begun, 1e-8, 60))
    assert all(one.state.status == CONVERGED for one in found)
    np.testing.assert_allclose([one.state.loc for one in found], means, atol=1e-7)
    # The sum of log q over the normal densities: log (2 pi).
    np.testing.assert_allclose([one.state.elbo for one in found], np.log(2 * np.pi), atol=1e-10)


def test_threads_are_as_before_after_a_fit():
    from threadpoolctl import threadpool_info

    def threads():
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    before = threads()
    with one_thread():
        assert set(threads()) <= {1}
    assert threads() == before


def many_places():
    """Six modes, the better the farther to the right."""
    m = numpyro.sample("m", dist.Normal(0.0, 6.0))
    places = 3.0 * np.arange(-3.0, 3.0) + 1.5
    heights = dist.Normal(places, 0.3).log_prob(m) + 2.0 * np.arange(6)
    numpyro.factor("y", logsumexp(heights))


def test_a_best_place_that_few_starts_have_seen_is_not_called_the_best_in_want_of_time(monkeypatch):
    assert fitted(many_places).converged
    monkeypatch.setattr(climbs, "BEGUN", -1.0)
    why = "may take: most starts came elsewhere, others were not looked at"
    with pytest.warns(ConvergenceWarning, match=why):
        run = fitted(many_places)
    assert not run.converged
    reasons = [one.reason for one in run.restarts]
    assert reasons.count("stopped: elsewhere, and there was no time to look further") > 4
    assert np.isfinite(run.elbo)

"""Chains over scales: the rung that takes them, and draws beside a posterior that is known."""

from types import SimpleNamespace

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.cost import at_most
from lowerbound.errors import NoPredictorsError, PoorIntegralError
from lowerbound.methods.chains import trajectories
from lowerbound.methods.chains.trajectories import Nuts
from tests.methods.sampling.programs import CELLS, X, cells, centred, moments_of_cells, noncentred

RNG = np.random.default_rng(5)
WIDE = RNG.normal(size=(30, 14))
FAR = WIDE @ np.r_[2.0, -1.0, np.zeros(12)] + RNG.normal(size=30)


def one_scale(x, y=None):
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, tau).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def noisy_groups(y=None):
    with numpyro.plate("groups", 12):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        sigma = numpyro.sample("sigma", dist.HalfCauchy(1.0))
    numpyro.sample("y", dist.Normal(mu, sigma), obs=y)


def rung(program, *args) -> str:
    taken = [line for line in lb.explain(program, *args).ladder if line.startswith("->")]
    return taken[0].removeprefix("-> ").split(":")[0]


@pytest.mark.parametrize("program", [centred, noncentred], ids=["centred", "non-centred"])
def test_a_scale_for_every_effect_is_sampled(program):
    assert rung(program, WIDE, FAR) == "trajectories"


def test_few_scales_are_integrated():
    assert rung(one_scale, WIDE, FAR) != "trajectories"
    assert rung(centred, X[:, :4], X[:, 0]) != "trajectories"


def test_noise_of_the_data_is_no_scale_of_effects():
    assert rung(noisy_groups, RNG.normal(size=(6, 12))) != "trajectories"


def test_the_plan_says_what_is_exact_and_what_it_takes():
    plan = lb.explain(centred, WIDE, FAR)
    assert plan.method == "Trajectories over tau, sigma, lam"
    assert {row.site: row.update for row in plan.rows} == {
        "tau": "trajectories",
        "sigma": "trajectories",
        "lam": "trajectories",
        "beta": "exact, given tau, sigma, lam",
    }
    assert plan.work is not None
    assert 1.0 < plan.work.cost.seconds < 150.0


def test_what_has_no_predictors_is_refused():
    def bend(y=None):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(a * b + a**3, 1.0), obs=y)

    with pytest.raises(NoPredictorsError):
        lb.fit(bend, np.zeros(3), method=lb.Trajectories())


@pytest.mark.slow
@pytest.mark.judged
@pytest.mark.parametrize("seed", range(3))
def test_draws_are_those_of_the_posterior(seed):
    """Means are worth some 400 draws, so that five standard errors are a quarter of an sd.

    Of 36 numbers, one is off by more in 2e-5 of all runs. Sds of half as many digits.
    """
    fit = lb.fit(cells, CELLS, seed=seed)
    assert fit.verdict.trust == "all"
    assert fit.method == "Trajectories()"
    mean, sd, log = moments_of_cells(CELLS)
    np.testing.assert_array_less(abs(fit.mean("beta") - mean) / sd, 0.25)
    np.testing.assert_array_less(abs(np.log(fit.sd("beta") / sd)), 0.25)
    draws = np.log(fit.sample(2000, seed=1)["lam"])
    np.testing.assert_array_less(abs(draws.mean(axis=0) - log) / draws.std(axis=0), 0.25)


@pytest.mark.slow
@pytest.mark.judged
def test_a_fit_of_draws_does_what_fits_do(tmp_path):
    first = lb.fit(centred, WIDE, FAR, method=lb.Trajectories(draws=400))
    second = lb.fit(centred, WIDE, FAR, method=lb.Trajectories(draws=400))
    np.testing.assert_array_equal(first.mean("beta"), second.mean("beta"))
    assert first.converged
    assert first.history.elbo[-1] == first.elbo
    assert lb.check(first).trust == first.verdict.trust == "all"
    assert first.predictive(WIDE, seed=0)["y"].shape[-1] == 30
    first.save(tmp_path / "run.lb")
    back = lb.load(tmp_path / "run.lb", centred)
    np.testing.assert_array_equal(back.mean("lam"), first.mean("lam"))
    assert back.verdict.trust == "all"


def test_chains_that_would_take_too_long_are_not_begun(monkeypatch):
    """A fit foretold at 12 s had not ended after 240: its first hundred draws took ten minutes."""
    asked = []
    monkeypatch.setattr(Nuts, "__call__", lambda self, *given: asked.append(given[2]))
    monkeypatch.setattr(trajectories, "Stopwatch", lambda: SimpleNamespace(own_seconds=6.0))
    match = "chains would take 250 s, where 100 s are left"
    with at_most(100.0, SimpleNamespace(own_seconds=0.0)), pytest.raises(PoorIntegralError) as told:
        lb.fit(centred, WIDE, FAR, method=lb.Trajectories(), progress=False)
    assert match in str(told.value)
    assert not asked  # a look at a few trajectories, and no draws

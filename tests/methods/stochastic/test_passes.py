"""Steps on batches end with full ones on all rows: what is left of their noise is nothing."""

import numpy as np
import pytest

import lowerbound as lb
from lowerbound.compute import engine
from lowerbound.methods.stochastic import passes, stepping
from lowerbound.methods.stochastic.stepping import Stepping
from tests.methods.stochastic.test_svi import EXAMPLES, coordinate_ascent, equal
from tests.run.models import words

ALONE = ("regression", "slopes")  # rows have no factors of their own: one pass is exact
SEEDS = (0, 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "topics"])
def test_a_fit_that_has_settled_is_where_coordinate_ascent_stays(name, seed):
    """From its own means, on all rows: those held out to stop by are among them.

    A pass that gains 0.01 nats leaves means less than sqrt(2 x 0.01) = 0.14 posterior sds to go.
    """
    example = EXAMPLES[name]
    fit = example.fit(lb.SVI(batch_size=40), seed)
    assert fit.converged
    means = {site: fit.mean(site) for site in fit.sites}
    exact = example.fit(lb.CAVI(init=means))
    for site, own in example.moments(exact).items():
        away = abs(example.moments(fit)[site] - own) / example.moments(exact, "sd")[site]
        assert np.max(away) < 0.1, site
    assert fit.elbo_error == 0.0
    assert exact.elbo - 0.05 < fit.elbo < exact.elbo + 1e-6 * abs(exact.elbo)


def test_passes_are_no_more_than_twice_those_of_small_steps_and_say_what_they_gain():
    """Topics creep: coordinate ascent takes a hundred sweeps."""
    example = EXAMPLES["topics"]
    fit = example.fit(lb.SVI(batch_size=40))
    read = fit.restarts[0].sweeps * 40 / len(words())
    told = fit.stop_reason.partition("; then ")[2]
    count, gain = int(told.split()[0]), float(told.split()[-2])
    assert passes.MOST_PASSES < count <= passes.MORE * read / 0.95
    assert gain <= passes.SETTLED or count > passes.MORE * read - 1
    exact = example.fit(lb.CAVI(init={"beta": fit.mean("beta")}))
    assert exact.elbo - 5.0 < fit.elbo < exact.elbo


@pytest.mark.parametrize("name", ALONE)
def test_without_factors_of_rows_one_pass_gives_the_bound_of_coordinate_ascent(name):
    exact = coordinate_ascent(name)
    fit = EXAMPLES[name].fit(lb.SVI(batch_size=40))
    assert fit.elbo == pytest.approx(exact.elbo, abs=1e-5)
    assert fit.stop_reason.endswith("is within the tolerance 0.0001; then a full step on all rows")


def test_with_them_a_fit_tells_what_the_last_pass_has_gained():
    fit = EXAMPLES["mixture"].fit(lb.SVI(batch_size=40))
    told = fit.stop_reason.partition("; then ")[2]
    assert " on all rows, the last of which gained " in told
    assert float(told.split()[-2]) <= passes.SETTLED


def test_bounds_of_passes_never_fall(monkeypatch):
    found = []
    step = Stepping._passed

    def noted(self, state):
        new, info = step(self, state)
        found.append(float(info.text.split()[1]))
        return new, info

    monkeypatch.setattr(Stepping, "_passed", noted)
    monkeypatch.setattr(stepping, "SETTLED", -1.0)
    fit = EXAMPLES["mixture"].fit(lb.SVI(batch_size=40))
    assert len(found) >= passes.MOST_PASSES
    assert np.all(np.diff(found) >= -1e-6 * abs(fit.elbo))
    assert fit.elbo >= found[-1] - 1e-4 * abs(fit.elbo)  # local factors anew can only raise it


@pytest.mark.parametrize(
    "method",
    [
        lb.SVI(batch_size=40, steps=24),
        lb.SVI(batch_size=40, steps=24, details=lb.Details(average=True)),
    ],
)
def test_a_number_of_steps_is_all_there_is(method, monkeypatch):
    monkeypatch.setattr(Stepping, "_passed", None)
    assert EXAMPLES["regression"].fit(method).stop_reason == "stopped: ran the 24 steps"


def test_rows_held_out_by_number_stay_out():
    """Those that were asked for are for the user to judge by."""
    example = EXAMPLES["regression"]
    aside = example.fit(lb.SVI(batch_size=40, monitor=30))
    whole = example.fit(lb.SVI(batch_size=40))
    sd = np.asarray(whole.sd("beta"))
    assert np.all(np.asarray(aside.sd("beta")) > 1.03 * sd)  # of 210 rows and of 240
    assert abs(aside.elbo) < 0.95 * abs(whole.elbo)


def test_a_pass_goes_on_after_a_kill(tmp_path, monkeypatch):
    example = EXAMPLES["mixture"]
    method = lb.SVI(batch_size=40)
    expected = example.fit(method, seed=3)
    step, taken = Stepping._passed, []

    def broken(self, state):
        if taken:
            raise InterruptedError
        taken.append(state.passes)
        return step(self, state)

    call = {**dict(example.settings), "method": method, "seed": 3}
    with monkeypatch.context() as patch:
        patch.setattr(Stepping, "_passed", broken)
        patch.setattr(stepping, "SETTLED", -1.0)
        with pytest.raises(InterruptedError):
            lb.fit(example.model, *example.args, checkpoint=lb.Checkpoint(tmp_path, 1), **call)
    assert taken == [0]
    engine._engines.clear()
    found = lb.resume(tmp_path, example.model, *example.args, **dict(example.settings))
    assert equal(found, expected)
    assert found.elbo == expected.elbo
    assert found.stop_reason == expected.stop_reason

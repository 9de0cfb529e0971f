"""What a fit will cost: units of work, the rungs in order, and work that stops in time."""

import importlib
import math
import re
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound import api
from lowerbound.compiled import Kept, equations
from lowerbound.cost import (
    USUAL,
    Alternative,
    Cost,
    Work,
    allowance,
    at_most,
    machine,
)
from lowerbound.errors import (
    ConvergenceWarning,
    LadderWarning,
    LostPosteriorError,
    TooLongToCompileError,
    TooSlowError,
    UncertifiedError,
)
from lowerbound.ladder.costs import cheaper, work_of
from lowerbound.methods.gaussian.climbing.climbs import starts_of
from lowerbound.methods.gaussian.noisy import EFFORTS, NoisyAscent, affordable_effort
from lowerbound.methods.gaussian.target import QUICK_BELOW, is_quick, target_for
from lowerbound.model import trace_model
from lowerbound.run.problem import Problem
from lowerbound.run.walking import ended


def test_the_speed_of_the_machine_is_measured_once():
    found = machine()
    assert found is machine()
    assert 0.0 < found.flop < found.number < found.equation < 1.0


def test_work_costs_the_sum_of_its_parts():
    speed = machine()
    some, more = Work(100.0), Work(100.0, 1e9, 1e10, 2e6)
    assert some.cost.seconds == pytest.approx(100 * speed.equation)
    extra = more.cost.seconds - some.cost.seconds
    assert extra == pytest.approx(1e9 * speed.number + 1e10 * speed.flop)
    assert more.cost.megabytes == pytest.approx(some.cost.megabytes + 2.0)


def test_work_that_is_loose_costs_a_range_whose_middle_are_its_seconds():
    speed = machine()
    firm, loose = (Work(10.0, 1e10, within=times) for times in (1.0, 20.0))
    compiling, computing = 10.0 * speed.equation, 1e10 * speed.number
    least, most = loose.cost.range
    assert (least, most) == pytest.approx((compiling + computing / 20, compiling + computing * 20))
    assert loose.cost.seconds == pytest.approx(math.sqrt(least * most))
    assert firm.cost.within == USUAL
    assert firm.cost.seconds == pytest.approx(compiling + computing)
    assert str(firm.cost).startswith("about ")
    stopped = replace(loose, most=compiling + computing)
    assert stopped.cost.range == pytest.approx((least, compiling + computing))
    compiled = Work(1e6, 1e3, within=20.0)  # what is loose is a small part
    assert compiled.cost.within == USUAL


def test_costs_in_words():
    assert str(Cost(8.0, 512.7, within=5.0)) == "1.6 to 40 s and about 510 MB"
    assert str(Cost(2.345, 4567.0)) == "about 2.3 s and 4,600 MB"
    assert str(Cost(0.0123, 0.5)) == "about 0.012 s and 0.5 MB"
    found = Alternative("lb.CAVI()", Work(0.0))
    assert str(found) == "Cheaper: method=lb.CAVI(), about 0 s and 0 MB."


# --------------------------------------------------------------------------------------------------
# Programs

RNG = np.random.default_rng(0)
SIGMA = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
SERIES = np.cumsum(RNG.normal(size=40))


def schools(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(sigma)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


GROUP = np.repeat(np.arange(100), 4)


def groups(group, y=None):
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("groups", 100):
        effect = numpyro.sample("effect", dist.Normal(0.0, tau))
    with numpyro.plate("rows", len(group)):
        numpyro.sample("y", dist.Normal(effect[group], sigma), obs=y)


def recursion(y):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    expected = w[0] * jax.numpy.tanh(w[1] * y[:-1] + w[2])
    numpyro.sample("y", dist.Normal(expected, 1.0), obs=y[1:])


def mean(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "args", "other"),
    [
        (groups, (GROUP, RNG.normal(size=400) + GROUP / 50), "lb.CAVI()"),
        (recursion, (np.tile(SERIES, 100),), "lb.Laplace()"),
        (mean, (SERIES,), None),
    ],
)
def test_a_plan_says_what_it_costs_and_what_is_cheaper(model, args, other, capsys):
    plan = lb.explain(model, *args)
    printed = capsys.readouterr().out.splitlines()
    assert f"Expected: {plan.cost}, compilation included." in printed
    assert plan.cost.seconds > 0.0
    assert plan.cost.megabytes > 0.0
    if other is None:
        assert plan.cheaper is None
        assert printed[-1] == "Nothing cheaper is known."
        return
    assert plan.cheaper.method == other
    assert printed[-1] == str(plan.cheaper)
    assert plan.cheaper.cost.seconds < plan.cost.seconds
    method = eval(plan.cheaper.method)  # the line of code is a method that fits
    assert np.isfinite(lb.fit(model, *args, method=method).elbo)


def test_rows_by_the_hundred_thousand_are_cheaper_in_batches():
    y = RNG.normal(size=300_000)
    with jax.enable_x64(True):
        problem = Problem(mean, (y,))
        found = cheaper(problem, lb.CAVI(), work_of(problem, lb.CAVI()))
    assert found is not None
    assert found.method == "lb.SVI()"


def test_a_fit_keeps_what_was_expected_beside_what_it_took():
    fit = lb.fit(mean, SERIES)
    assert fit.plan.cost is not None
    assert fit.plan.took > 0.0
    assert fit.plan.cost.ratio(fit.plan.took) == fit.plan.took / fit.plan.cost.seconds
    assert fit.plan.costs.splitlines()[1] == f"It took {fit.plan.took:.2g} s."


# --------------------------------------------------------------------------------------------------
# An end in time


def test_an_allowance_is_that_of_the_outermost_or_less():
    assert not allowance().over
    with at_most(1e-9):
        assert allowance().over
        with at_most(100.0):
            assert allowance().over
    with at_most(100.0):
        with at_most(1e-9):
            assert allowance().over
        assert not allowance().over
    assert allowance().spent == 0.0


def test_what_is_left_for_later_work_is_all_its_own():
    """After 90 of 100 seconds, ten are left; as yet the later work has spent none of them."""
    watch = SimpleNamespace(own_seconds=90.0)
    with at_most(100.0, watch):
        assert allowance().left == 10.0
        assert allowance().spent == 0.0
        watch.own_seconds = 95.0
        assert allowance().spent == 0.5
        watch.own_seconds = 100.0
        assert allowance().over
        assert allowance().reason == "the 100 s that an automatic fit may take"


def test_a_gaussian_stops_with_the_reason_when_its_time_is_over(monkeypatch):
    monkeypatch.setattr(importlib.import_module("lowerbound.api"), "AFFORDABLE", 1e-3)
    with pytest.warns(ConvergenceWarning, match="the 0.001 s that an automatic fit may take") as w:
        fit = lb.fit(recursion, SERIES)
    assert "Name the method, method=lb.Gaussian(), and it takes as long as it needs." in str(
        w[0].message
    )
    assert not fit.converged
    assert fit.stop_reason == "stopped: the 0.001 s that an automatic fit may take"
    assert np.isfinite(fit.elbo)
    named = lb.fit(recursion, SERIES, method=lb.Gaussian())
    assert named.converged
    assert named.elbo >= fit.elbo - 0.1


def test_a_step_that_would_take_too_long_is_refused_when_its_pace_is_known(monkeypatch):
    with jax.enable_x64(True):
        target = target_for(trace_model(recursion, (SERIES,)))
        points = np.zeros((200, target.size))
        target(points)
        module = importlib.import_module("lowerbound.methods.gaussian.target")
        monkeypatch.setattr(module, "LONG", 0.0)
        with at_most(1e-9), pytest.raises(TooSlowError, match="at 200 points, one step of the fit"):
            target(points)


def test_an_engine_whose_steps_do_not_stop_is_refused_when_its_pace_is_known(monkeypatch):
    """The least effort finds the rate of noisy steps by 2 windows of 10 steps over 2 draws."""
    problem = Problem(recursion, (SERIES,))
    with jax.enable_x64(True):
        target = target_for(problem.model)
        target(np.zeros((2, target.size)))
        assert 0.0 < target.seconds(1) < 1.0
        monkeypatch.setitem(target.compiled, "pace", 1e-12)  # none is faster
        target.check_affords(10**9)  # without a limit it takes as long as it needs
        with at_most(39e-12), pytest.raises(TooSlowError) as caught:
            ended(NoisyAscent(problem, lb.Gaussian(starts=1), 1, compares=False).ascent())
    assert str(caught.value).startswith(
        "The log density and its gradient at 40 points, one step of the fit, take about "
    )


def test_noisy_steps_take_what_the_pace_of_the_density_allows(monkeypatch):
    """Four tenths of the time that is left are for finding the rate; named draws are kept."""
    with jax.enable_x64(True):
        target = target_for(trace_model(recursion, (SERIES,)))
        target(np.zeros((2, target.size)))
        monkeypatch.setitem(target.compiled, "pace", 1.0)
        whole, less, least = EFFORTS
        for seconds, expected in ((17_000, whole), (15_000, less), (900, least), (50, least)):
            with at_most(seconds):
                assert affordable_effort(target, None) == expected
        with at_most(900):
            assert affordable_effort(target, 3).draws == 4
        assert affordable_effort(target, None) == whole


def test_fewer_starts_are_looked_for_where_a_point_is_dear():
    with jax.enable_x64(True):
        found = target_for(trace_model(recursion, (SERIES,)))
        target = replace(found, batch=1, compiled={})
        method = lb.Gaussian(starts=4)
        assert len(starts_of(target, method, 0)) == 4
        with at_most(1e-9):  # as for the median of the prior and for zero, and no more
            few = starts_of(target, method, 0)
    assert len(few) == 2
    np.testing.assert_array_equal(few[1], np.zeros(target.size))


def test_work_that_stops_costs_no_more_than_its_time():
    endless = Work(100.0, 1e30, most=150.0)
    assert endless.cost.seconds == 150.0


def twisted(y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.HalfNormal(1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(jnp.sin(a * b), 0.5), obs=y)


def test_rungs_share_the_time_of_one_fit(monkeypatch):
    """The rung after one that was given up has what is left, a third at least."""
    given = []

    @contextmanager
    def noted(seconds, watch=None, uncounted=0.0):
        given.append(seconds + uncounted - (watch.own_seconds if watch is not None else 0.0))
        yield

    def slow(*args, **kwargs):
        clock[0] += 100.0
        raise LostPosteriorError("Not found.\nExpected one.")

    clock = [0.0]
    monkeypatch.setattr(api, "at_most", noted)
    timed = SimpleNamespace(perf_counter=lambda: clock[0], process_time=lambda: clock[0])
    monkeypatch.setattr(importlib.import_module("lowerbound.cost.stopwatch"), "time", timed)
    module = importlib.import_module("lowerbound.methods.grid.grids")
    monkeypatch.setattr(module, "refinements", slow)
    with pytest.warns(LadderWarning):
        fit = lb.fit(twisted, np.array([0.3, 0.8]))
    assert "Gaussian" in fit.method
    assert given == pytest.approx([150.0, 150.0, 50.0])  # for the choice, and for two rungs


def test_a_grid_that_is_given_up_leaves_the_fit_to_the_next_rung(monkeypatch):
    reason = "The posterior of 'tau' was not found."

    def lost(*args, **kwargs):
        raise LostPosteriorError(f"{reason}\nExpected one.")

    module = importlib.import_module("lowerbound.methods.grid.grids")
    monkeypatch.setattr(module, "refinements", lost)
    with pytest.warns(LadderWarning) as caught:
        fit = lb.fit(schools, SIGMA, EFFECTS)
    assert str(caught[0].message) == (
        f"The rung 'conditioned', which lb.explain names, was given up: {reason} The fit is that "
        "of the rung 'coordinate ascent' instead; fit.plan says what it did."
    )
    assert f"   conditioned: given up: {reason}" in fit.plan.ladder
    assert fit.plan.ladder[-1].startswith("-> coordinate ascent")
    with pytest.raises(LostPosteriorError):
        lb.fit(schools, SIGMA, EFFECTS, method=lb.Given(("tau",)))


def unrolled(y=None):
    level = numpyro.sample("level", dist.StudentT(3.0, 0.0, 1.0))
    slope = numpyro.sample("slope", dist.StudentT(3.0, 0.0, 1.0))
    total = jnp.zeros(())
    for value in y:
        level = jnp.tanh(level + slope)
        total = total - (value - level) ** 2
    numpyro.factor("y", total)


def test_a_program_that_takes_too_long_to_compile_is_refused_with_its_operations(monkeypatch):
    module = importlib.import_module("lowerbound.methods.gaussian.target")
    monkeypatch.setattr(module, "UNROLLED", 100)
    y = np.random.default_rng(0).normal(size=40)
    with jax.enable_x64(True):
        target = target_for(trace_model(unrolled, (y,)))
        target.compiled.clear()
        operations = equations(target.closed.jaxpr)
        text = (
            f"The log density has {operations:,} operations, which take about 0 s to compile on "
            "this machine.\n"
            "Expected a program that compiles within the 1e-09 s that an automatic fit may take. "
            "Write a Python loop over steps or rows as jax.lax.scan (with sites inside, "
            "numpyro.contrib.control_flow.scan) or as arrays; or name the method, e.g. "
            "method=lb.Gaussian(starts=1), and it takes as long as it needs."
        )
        with at_most(1e-9), pytest.raises(TooLongToCompileError) as caught:
            target.prepare()
        assert re.sub(r"about \d+ s", "about 0 s", str(caught.value)) == text
        assert np.isfinite(target(np.zeros((1, 2)))[0]).all()  # without a limit it is compiled


def test_many_small_operations_are_compiled_quickly():
    def large(x):
        return jnp.sum(jnp.exp(x))

    def long(x):
        for _ in range(2000):
            x = jnp.sin(x)
        return x

    x = np.ones(20)
    assert is_quick(jax.make_jaxpr(lambda x: long(x[:8]).sum())(x).jaxpr)
    assert not is_quick(jax.make_jaxpr(large)(np.ones(QUICK_BELOW)).jaxpr)


def test_a_derivation_that_cannot_be_checked_leaves_the_fit_to_a_gaussian(monkeypatch):
    """A Gaussian needs no derivation; a method that was named still ends with the error."""
    module = importlib.import_module("lowerbound.compute.engine")

    def check():
        raise UncertifiedError(40, ["y"])

    monkeypatch.setattr(module, "_certificate", lambda *args: check)
    monkeypatch.setattr(module, "_engines", Kept(1))

    def program(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
        precision = numpyro.sample("precision", dist.Gamma(2.0, 1.5))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, precision**-0.5), obs=y)

    with pytest.warns(LadderWarning, match="could not be checked") as caught:
        fit = lb.fit(program, EFFECTS / 10)
    assert fit.plan.ladder[-1].startswith("-> Gaussian: ")
    assert str(caught[-1].message).endswith("of the rung 'Gaussian' instead; fit.plan says what it "
                                            "did.")  # fmt: skip
    given_up = [line for line in fit.plan.ladder if "given up: The derived form of log p" in line]
    assert len(given_up) == len(caught)
    assert np.isfinite(fit.elbo)
    with pytest.raises(UncertifiedError):
        lb.fit(program, EFFECTS / 10, method=lb.CAVI())


def test_what_neighbours_take_of_the_machine_is_not_counted_unless_it_is_most(monkeypatch):
    clock, worked = [0.0], [0.0]
    timed = SimpleNamespace(perf_counter=lambda: clock[0], process_time=lambda: worked[0])
    monkeypatch.setattr(importlib.import_module("lowerbound.cost.stopwatch"), "time", timed)
    with at_most(150.0):
        clock[0], worked[0] = 300.0, 100.0
        assert not allowance().over
        assert allowance().left == pytest.approx(50.0)
        clock[0] = 601.0
        assert allowance().over
    monkeypatch.setattr(jax, "default_backend", lambda: "cuda")  # which the processor waits for
    with at_most(150.0):
        clock[0] += 151.0
        assert allowance().over

"""Memoised fits: coordinate ascent batch by batch, with a bound that never falls."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowerbound as lb
from lowerbound import errors
from lowerbound.methods.stochastic import visiting
from tests.run.models import clusters, line, mixture, regression, repeated, topics, words


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A bound that falls at any visit raises."""
    monkeypatch.setenv("LOWERBOUND_STRICT", "1")


@pytest.fixture(scope="module")
def blurred():
    """Clusters that overlap, so that responsibilities move for many passes."""
    x, _ = clusters(n=240)
    return np.random.default_rng(1).normal(size=x.shape) * 1.5 + x


METHOD = lb.Memoized(batch_size=70, tolerance=1e-12)  # 70 does not divide 240


@pytest.mark.parametrize("name", ["mixture", "repeated", "topics", "regression"])
def test_the_bound_never_falls_at_any_visit(name, blurred):
    rng = np.random.default_rng(0)
    call = {
        "mixture": (mixture, (blurred,), {"K": 3}),
        "repeated": (repeated, (rng.normal(size=(100, 1)) + 0.5 * rng.normal(size=(100, 3)),), {}),
        "topics": (topics, (words(n=100),), {}),
        "regression": (regression, line(n=100), {}),
    }
    model, args, kwargs = call[name]
    method = replace(METHOD, batch_size=70 if name == "mixture" else 30, tolerance=1e-8)
    fit = lb.fit(model, *args, **kwargs, method=method)
    # The first pass is noisy: batches not yet visited are not in its bound.
    history = fit.history.elbo[1:]
    assert np.all(np.diff(history) >= -1e-9 * abs(history[-1]))
    assert fit.converged
    assert fit.elbo == pytest.approx(history[-1], rel=1e-9)
    assert fit.elbo_error == 0.0
    np.testing.assert_allclose(sum(fit.elbo_terms.values()), fit.elbo, rtol=1e-12)
    assert fit.stop_reason.startswith("converged: relative change ")
    passes, rows = len(fit.history.elbo), len(args[0])
    assert list(fit.history.rows) == [rows * (i + 1) for i in range(passes)]
    assert fit.restarts[0].sweeps == passes * -(-rows // method.batch_size)


@pytest.fixture(scope="module")
def start(blurred):
    """Means from which both algorithms climb the same hill."""
    return {"mu": np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])}


@pytest.fixture(scope="module")
def exact(blurred, start):
    return lb.fit(mixture, blurred, K=3, method=lb.CAVI(init=start, tolerance=1e-13))


def test_the_fixed_point_is_that_of_coordinate_ascent(blurred, start, exact):
    fit = lb.fit(mixture, blurred, K=3, method=replace(METHOD, init=start))
    np.testing.assert_allclose(fit.elbo, exact.elbo, rtol=1e-8)
    np.testing.assert_allclose(fit.mean("mu"), exact.mean("mu"), atol=1e-3)
    np.testing.assert_allclose(fit.sd("mu"), exact.sd("mu"), rtol=1e-3)


def test_one_more_pass_changes_nothing_at_a_fixed_point(blurred, start):
    fit = lb.fit(mixture, blurred, K=3, method=replace(METHOD, init=start, tolerance=1e-14))
    visits = fit.restarts[0].sweeps
    more = replace(METHOD, init=start, tolerance=None, visits=visits + 4)
    longer = lb.fit(mixture, blurred, K=3, method=more)
    assert longer.restarts[0].sweeps == visits + 4
    assert longer.stop_reason == f"stopped: ran {visits + 4} visits"
    np.testing.assert_allclose(longer.elbo, fit.elbo, rtol=1e-13)
    np.testing.assert_allclose(longer.mean("mu"), fit.mean("mu"), atol=1e-5)


def test_a_stream_of_batches(blurred, start, exact):
    parts = [{"x": blurred[:100]}, {"x": blurred[100:]}]
    method = replace(METHOD, init=start)
    fit = lb.fit(mixture, **lb.stream(parts, total=240), K=3, method=method)
    np.testing.assert_allclose(fit.elbo, exact.elbo, rtol=1e-8)


def test_one_batch_of_all_rows_is_coordinate_ascent(blurred, start, exact):
    fit = lb.fit(mixture, blurred, K=3, method=replace(METHOD, batch_size=240, init=start))
    np.testing.assert_allclose(fit.elbo, exact.elbo, rtol=1e-10)


def test_a_monitor_is_recorded_and_its_rows_are_left_out(blurred):
    fit = lb.fit(mixture, blurred, K=3, method=replace(METHOD, monitor=40, tolerance=1e-8))
    assert len(fit.history.held_out) == len(fit.history.elbo)
    assert np.isfinite(fit.history.held_out).all()
    assert fit.history.rows[0] == 200


def forgetful(original):
    """Statistics of a batch are added at every visit and never taken away."""

    def visit(batch, inputs, fixed, state, old, rest):
        total = jax.tree.map(jnp.add, rest["total"], old)
        return original(batch, inputs, fixed, state, old, {**rest, "total": total})

    return visit


def test_old_statistics_that_are_not_subtracted_are_noticed(monkeypatch):
    """A planted fault. The sizes are not those of other tests, so that it is compiled anew."""
    x, _ = clusters(n=93)
    monkeypatch.setattr(visiting, "visit", forgetful(visiting.visit))
    with pytest.raises(errors.DecreasingBoundError) as caught:
        lb.fit(mixture, x, K=3, method=lb.Memoized(batch_size=31))
    assert str(caught.value).startswith("The ELBO fell from ")
    assert "Expected a coordinate sweep never to lower it." in str(caught.value)


def test_a_bound_that_falls_warns_and_is_never_reported_as_converged(monkeypatch):
    x, _ = clusters(n=95)
    monkeypatch.delenv("LOWERBOUND_STRICT")
    monkeypatch.setattr(visiting, "visit", forgetful(visiting.visit))
    with pytest.warns(errors.DecreasingBoundWarning):
        fit = lb.fit(mixture, x, K=3, method=lb.Memoized(batch_size=31))
    assert not fit.converged
    assert fit.stop_reason.startswith("stopped: the ELBO fell at visit ")

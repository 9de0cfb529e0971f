"""Pictures of runs and of mixtures: what they show is what the fit holds."""

import builtins
import re
import sys

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.errors import ArgumentError


def mixture(x, K):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K, dim=-2), numpyro.plate("axes", 2, dim=-1):
        tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 10 / jnp.sqrt(tau)))
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(pi))
        numpyro.sample("x", dist.Normal(mu[c], 1 / jnp.sqrt(tau[c])).to_event(1), obs=x)


LABELS = np.repeat([0, 1], 30)
X = np.random.default_rng(0).normal(size=(60, 2)) + 8.0 * LABELS[:, None]


@pytest.fixture(scope="module")
def fit():
    return lb.fit(mixture, X, K=2, method=lb.CAVI(restarts=3))


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_elbo_draws_the_history(fit):
    ax = lb.plot.elbo(fit)
    curve = next(line for line in ax.lines if len(line.get_xdata()) == len(fit.history.elbo))
    np.testing.assert_array_equal(curve.get_ydata(), fit.history.elbo)
    assert curve.get_xdata()[0] == 1
    assert "nats" in ax.get_ylabel()
    other = plt.figure().subplots()
    assert lb.plot.elbo(fit, ax=other) is other


def test_mixture_draws_two_sigma_ellipses(fit):
    (ax,) = lb.plot.mixture(fit, X, LABELS, precision="tau")
    outlines = [line.get_xydata() for line in ax.lines if len(line.get_xdata()) > 1]
    assert len(outlines) == 2
    for outline, centre, precision in zip(outlines, fit.mean("mu"), fit.mean("tau"), strict=True):
        distance = ((outline - centre) ** 2 * precision).sum(axis=1)
        np.testing.assert_allclose(distance, 4.0)
    assert sum(len(points.get_offsets()) for points in ax.collections) >= len(X)


def test_mixture_draws_a_panel_per_fit(fit):
    axes = lb.plot.mixture({"a": fit, "b": fit}, X, precision="tau", weights=None)
    assert [ax.get_title(loc="left") for ax in axes] == ["a", "b"]
    axes[0].figure.canvas.draw()
    with pytest.raises(ArgumentError, match=r"got x of shape \(60, 1\).\nExpected two-dim"):
        lb.plot.mixture(fit, X[:, :1])


def test_matrix_precisions():
    from lowerbound.plot.fits import _covariances

    precision = np.array([[[2.0, 0.5], [0.5, 1.0]]])
    np.testing.assert_allclose(_covariances(precision) @ precision, np.eye(2)[None], atol=1e-15)


def test_without_matplotlib_the_error_says_what_to_install(fit, monkeypatch):
    original = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot")
    for draw in (lb.plot.elbo, lb.plot.posterior, lambda f: lb.plot.mixture(f, X)):
        with pytest.raises(ImportError, match=re.escape('pip install "lowerbound[plot]"')):
            draw(fit)


# --- Stochastic fits ---

ROWS = np.random.default_rng(1).normal(size=(1200, 2)) + 8.0 * np.repeat([0, 1], 600)[:, None]


@pytest.fixture(scope="module", params=["noisy", "short", "memoised"])
def stochastic(request):
    method = {
        "noisy": lb.SVI(batch_size=100, steps=12),
        "short": lb.SVI(batch_size=100, steps=6, monitor=None),  # sees half of the rows
        "memoised": lb.Memoized(batch_size=300, monitor=100),
    }[request.param]
    return request.param, lb.fit(mixture, ROWS, K=2, method=method)


def test_elbo_of_a_stochastic_fit_is_drawn_by_rows(stochastic):
    name, fit = stochastic
    ax = lb.plot.elbo(fit)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), fit.history.rows)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), fit.history.elbo)
    assert ax.get_ylabel() == "ELBO (nats)"
    panels = ax.figure.axes
    assert panels[-1].get_xlabel() == "rows seen"
    assert len(panels) == (1 if name == "short" else 2)
    if name != "short":
        np.testing.assert_array_equal(panels[1].lines[0].get_ydata(), fit.history.held_out)
        assert "nats per row" in panels[1].get_ylabel()
    ax.figure.canvas.draw()
    ticks = [float(t.get_text().replace("−", "-")) for t in ax.get_yticklabels()]
    np.testing.assert_allclose(ticks, ax.get_yticks())


def test_the_result_of_a_noisy_run_has_two_standard_errors(stochastic):
    name, fit = stochastic
    ax = lb.plot.elbo(fit)
    if name == "memoised":
        assert ax.get_legend() is None
        assert ax.lines[0].get_ydata()[-1] == pytest.approx(fit.elbo)
        return
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    where = "on all rows" if name == "noisy" else "on rows drawn anew"
    assert texts == ["noisy, from minibatches", f"the result, {where}"]
    point, *bars = ax.containers[0].lines
    assert point.get_ydata() == pytest.approx([fit.elbo])
    if name == "short":
        (span,) = bars[-1][0].get_segments()
        assert np.ptp(span[:, 1]) == pytest.approx(4 * fit.elbo_error)
        assert fit.elbo_error > 0


def test_axes_given_hold_the_elbo_alone(stochastic):
    _, fit = stochastic
    other = plt.figure().subplots()
    assert lb.plot.elbo(fit, ax=other) is other
    assert other.figure.axes == [other]
    assert other.get_xlabel() == "rows seen"

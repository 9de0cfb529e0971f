"""Sites with bounds in hierarchies: coefficients as they are, positive effects, sums of zero."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.errors import BoundReachedError, LadderWarning
from lowerbound.methods.hierarchy.finding_theta import predictors_of
from lowerbound.model import trace_model
from tests.methods.hierarchy.written import GROUP, WRITTEN, X, Y


def program(law):
    def bounded(x, group, y):
        b = numpyro.sample("b", law)
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        with numpyro.plate("groups", 5):
            a = numpyro.sample("a", dist.Normal(0.0, tau))
        numpyro.sample("y", dist.Normal(b[0] + b[1] * x + a[group], sigma), obs=y)

    return bounded


def fitted(law, y=Y, method="auto"):
    return lb.fit(program(law), X, GROUP, y, method=method, progress=False)


def two(law):
    return law.expand([2]).to_event(1)


def test_wide_bounds_change_the_evidence_alone(tmp_path):
    fit = fitted(two(dist.Uniform(-20.0, 20.0)))
    assert fit.method == "Integrated()"
    flat = fitted(two(dist.ImproperUniform(dist.constraints.real, (), ())))
    assert fit.elbo == pytest.approx(flat.elbo - 2 * np.log(40.0), abs=1e-3)
    for site in ("b", "a", "tau"):
        np.testing.assert_allclose(fit.mean(site), flat.mean(site), atol=1e-3)
        np.testing.assert_allclose(fit.sd(site), flat.sd(site), rtol=1e-3)
    fit.save(tmp_path / "run.lb")
    again = lb.load(tmp_path / "run.lb", program(two(dist.Uniform(-20.0, 20.0))))
    np.testing.assert_array_equal(again.mean("b"), fit.mean("b"))
    draws = fit.sample(5, seed=1)["b"]
    np.testing.assert_allclose(again.sample(5, seed=1)["b"], draws, rtol=1e-9)


def test_where_a_bound_is_reached_the_sites_are_integrated():
    """The slope is about 1.6 with an sd of 0.2, so that a bound at 1.8 cuts its law."""

    def cut(x, group, y, law):
        b = numpyro.sample("b", law)
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        with numpyro.plate("groups", 5):
            a = numpyro.sample("a", dist.Normal(0.0, tau))
        numpyro.sample("y", dist.Normal(b * x + a[group], sigma), obs=y)

    law = dist.Uniform(-18.2, 1.8)  # nearer to zero, b would be integrated from the start
    message = "'b' is taken for Gaussian, and the data leave some probability beyond the bounds"
    args = (0.5 * X, GROUP, Y)
    with pytest.raises(BoundReachedError, match=message):
        lb.fit(cut, *args, law, method=lb.Integrated(), progress=False)
    with pytest.warns(LadderWarning, match="taken for Gaussian"):
        fit = lb.fit(cut, *args, law, progress=False)
    assert fit.method == "Integrated(sites=('b',))"
    assert fit.converged
    assert np.asarray(fit.sample(500, seed=0)["b"]).max() < 1.8
    flat = dist.ImproperUniform(dist.constraints.real, (), ())
    free = lb.fit(cut, *args, flat, progress=False)
    kept = np.asarray(free.sample(40_000, seed=0)["b"])
    kept = kept[kept < 1.8]
    assert 5_000 < len(kept) < 38_000
    assert abs(fit.mean("b") - kept.mean()) < 0.05 * kept.std()
    assert fit.sd("b") == pytest.approx(kept.std(), rel=0.05)


def test_positive_effects_have_the_moments_of_their_draws():
    written, other = WRITTEN["rates"], WRITTEN["log_rates"]
    fit = lb.fit(written.program, **written.data, progress=False)
    logs = lb.fit(other.program, **other.data, progress=False)
    assert fit.method == logs.method == "Integrated()"
    assert fit.elbo == pytest.approx(logs.elbo, abs=2e-3)
    draws = np.asarray(fit.sample(20_000, seed=0)["rate"])
    assert (draws > 0).all()
    sd = draws.std(axis=0)
    np.testing.assert_allclose(fit.mean("rate"), draws.mean(axis=0), atol=0.03 * sd.min())
    np.testing.assert_allclose(fit.sd("rate"), sd, rtol=0.03)
    as_rates = np.exp(np.asarray(logs.sample(20_000, seed=1)["a"]))
    np.testing.assert_allclose(fit.mean("rate"), as_rates.mean(axis=0), atol=0.03 * sd.min())
    median = fit.posterior["rate"].icdf(0.5)
    np.testing.assert_allclose(median, np.median(draws, axis=0), atol=0.05 * sd.min())


def test_effects_that_sum_to_zero_do_so():
    written = WRITTEN["contrasts"]
    fit = lb.fit(written.program, **written.data, progress=False)
    assert fit.method == "Integrated()"
    draws = np.asarray(fit.sample(4_000, seed=0)["a"])
    assert draws.shape == (4_000, 5)
    np.testing.assert_allclose(draws.sum(axis=1), 0.0, atol=1e-9)
    np.testing.assert_allclose(fit.sd("a"), draws.std(axis=0), rtol=0.05)
    assert fit.posterior["a"].mean.shape == (5,)


def rates_of(law):
    """Probabilities of 12 groups with a law given two hyperparameters, and counts of each."""

    def rates(n, y):
        centre = numpyro.sample("centre", dist.Beta(2.0, 2.0))
        size = numpyro.sample("size", dist.Gamma(2.0, 0.1))
        with numpyro.plate("groups", 12):
            p = numpyro.sample("p", law(centre, size))
            numpyro.sample("y", dist.Binomial(n, 0.9 * p + 0.05), obs=y)

    return rates


@pytest.mark.parametrize(
    ("law", "straight"),
    [
        (lambda m, k: dist.Beta(m * k + 1.0, (1.0 - m) * k + 1.0), ()),
        (lambda m, k: dist.Kumaraswamy(m * k + 1.0, (1.0 - m) * k + 1.0), ()),
        (lambda m, k: dist.TruncatedNormal(m, 1.0 / k, low=0.0, high=1.0), ("p",)),
    ],
)
def test_a_density_that_ends_at_bounds_is_read_between_them(law, straight):
    """Of log p there is nothing beyond 0 and 1, where that of a truncated normal goes on."""
    n, y = np.full(12, 20), np.arange(3, 15)
    with jax.enable_x64(True):
        found = predictors_of(trace_model(rates_of(law), (n, y)))
    assert found.z == ("p",)
    assert found.straight == straight
    at = found.expected(np.zeros(2), found.at(np.zeros(2), np.full(12, 0.4)), np.full(12, 1e-4))
    assert np.isfinite(at.value)

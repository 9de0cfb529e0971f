"""Fits of hierarchies: against integrals by brute force, written in several ways, on bad data."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.errors import (
    CodeRangeError,
    ImproperPosteriorError,
    NoPredictorsError,
    NotIdentifiedWarning,
    UnknownSiteError,
)
from lowerbound.methods.hierarchy.hierarchies import predictors_for, surface_for
from lowerbound.methods.hierarchy.points.integration import integrate
from lowerbound.methods.hierarchy.points.kept_points import integrated
from lowerbound.run.problem import Problem
from tests.methods.hierarchy.written import GROUP, WRITTEN, X, Y


@pytest.fixture(scope="module")
def by_force():
    """Evidence, and mean and sd of tau, sigma and mu, of `centred`, over a fine grid."""
    Z = np.concatenate([np.eye(5)[GROUP], X[:, None]], axis=1)
    taus, sigmas = np.geomspace(1e-3, 12.0, 240), np.geomspace(0.15, 4.0, 160)
    logs, means, seconds = (np.empty((240, 160)) for _ in range(3))
    ones = Z[:, :5].sum(axis=1)
    for i, tau in enumerate(taus):
        prior = np.zeros((7, 7))  # of the effects, the slope and mu
        prior[:5, :5] = np.eye(5) * tau**2 + 4.0
        prior[5, 5] = prior[6, 6] = 4.0
        prior[:5, 6] = prior[6, :5] = 4.0
        A = np.concatenate([Z, np.zeros((len(Y), 1))], axis=1)
        for j, sigma in enumerate(sigmas):
            covariance = A @ prior @ A.T + sigma**2 * np.eye(len(Y))
            root = np.linalg.cholesky(covariance)
            half = np.linalg.solve(root, Y)
            log = -0.5 * half @ half - np.log(np.diag(root)).sum()
            log -= 0.5 * len(Y) * np.log(2 * np.pi)
            log += np.log(2) - 0.5 * tau**2 - 0.5 * np.log(2 * np.pi)  # HalfNormal(1)
            log += np.log(2 / np.pi) - np.log1p(sigma**2)  # HalfCauchy(1)
            logs[i, j] = log + np.log(tau) + np.log(sigma)
            gain = np.linalg.solve(covariance, A @ prior[:, 6])
            means[i, j] = gain @ Y
            seconds[i, j] = prior[6, 6] - gain @ (A @ prior[:, 6]) + means[i, j] ** 2
    assert ones.all()
    cell = np.log(taus[1] / taus[0]) * np.log(sigmas[1] / sigmas[0])
    weights = np.exp(logs - logs.max())
    evidence = logs.max() + np.log(weights.sum() * cell)
    weights /= weights.sum()

    def moments(first, second):
        mean = (weights * first).sum()
        return mean, np.sqrt((weights * second).sum() - mean**2)

    grid = np.broadcast_arrays(taus[:, None], sigmas)
    tau, sigma = (moments(one, one**2) for one in grid)
    return {"evidence": evidence, "tau": tau, "sigma": sigma, "mu": moments(means, seconds)}


@pytest.mark.parametrize("name", ["centred", "noncentred", "by_loop"])
def test_evidence_means_and_sds_are_those_of_brute_force(name, by_force):
    written = WRITTEN[name]
    fit = lb.fit(written.program, **written.data, method=lb.Integrated(), progress=False)
    assert fit.converged
    assert fit.elbo == pytest.approx(by_force["evidence"], abs=0.03)
    for site in ("tau", "sigma", "mu"):
        mean, sd = by_force[site]
        assert abs(fit.mean(site) - mean) < 0.03 * sd
        assert fit.sd(site) == pytest.approx(sd, rel=0.03)


def test_the_ladder_takes_it_and_says_so():
    written = WRITTEN["logistic"]
    fit = lb.fit(written.program, **written.data, progress=False)
    assert fit.method == "Integrated()"
    line = next(line for line in fit.plan.ladder if line.startswith("-> integrated"))
    assert "2 numbers of 's1', 's2' over points" in line
    assert fit.stop_reason.startswith("converged: ")
    assert fit.plan.cost is not None


def by_logarithm(x, group, y=None):
    b = numpyro.sample("b", dist.Normal(0.0, 2.0))
    log_sd = numpyro.sample("log_sd", dist.Normal(-1.0, 1.0))
    with numpyro.plate("groups", 5):
        z = numpyro.sample("z", dist.Normal())
    numpyro.sample("y", dist.Poisson(jnp.exp(b * x + jnp.exp(log_sd) * z[group])), obs=y)


def by_scale(x, group, y=None):
    b = numpyro.sample("b", dist.Normal(0.0, 2.0))
    sd = numpyro.sample("sd", dist.LogNormal(-1.0, 1.0))
    with numpyro.plate("groups", 5):
        z = numpyro.sample("z", dist.Normal())
    numpyro.sample("y", dist.Poisson(jnp.exp(b * x + (sd * z)[group])), obs=y)


def test_a_scale_told_by_its_logarithm_is_integrated_too():
    counts = np.random.default_rng(1).poisson(2.0, len(X))
    one, other = (lb.fit(f, X, GROUP, counts, progress=False) for f in (by_logarithm, by_scale))
    assert one.method == other.method == "Integrated()"
    for site in ("b", "z"):
        np.testing.assert_allclose(one.mean(site), other.mean(site), atol=0.02)
        np.testing.assert_allclose(one.sd(site), other.sd(site), rtol=0.02)


@pytest.mark.parametrize(("method", "said"), [(lb.CAVI(), True), (lb.Integrated(), False)])
def test_a_plan_says_where_scales_are_independent_of_what_they_scale(method, said, capsys):
    written = WRITTEN["centred"]
    lb.explain(written.program, **written.data, method=method)
    text = "'tau' sets the scale of 'a', and q keeps them independent: their sds will be too small"
    assert (text in capsys.readouterr().out) == said


@pytest.mark.parametrize(("name", "points"), [("logistic", 20), ("slopes", 16)])
def test_as_many_points_as_asked_for_and_too_few_are_not_called_converged(name, points):
    written = WRITTEN[name]
    method = lb.Integrated(points=points)
    more = rf"{points} points, .*\n?.*lb.Integrated\(points={2 * points}\)"
    with pytest.warns(lb.errors.ConvergenceWarning, match=more):
        fit = lb.fit(written.program, **written.data, method=method, progress=False)
    assert not fit.converged
    assert fit.stop_reason.startswith(f"stopped: {points} points")


def mixed(group, groups, y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    with numpyro.plate("groups", groups):
        a = numpyro.sample("a", dist.Normal(mu, tau))
    with numpyro.plate("rows", len(group)):
        numpyro.sample("y", dist.Normal(a[group], sigma), obs=y)


def fitted(group, groups):
    return lb.fit(mixed, group, groups, Y, method=lb.Integrated(), progress=False)


def test_a_group_without_rows_has_the_law_of_all_groups():
    fit = fitted(GROUP, 7)
    assert np.isfinite(fit.sd("a")).all()
    mean, wide = fit.mean("a")[-1], fit.sd("a")[-1]
    assert mean == pytest.approx(fit.mean("mu"), abs=0.05)
    assert wide**2 > fit.sd("mu") ** 2 + fit.mean("tau") ** 2


def test_codes_beyond_the_groups_are_an_error():
    with pytest.raises(CodeRangeError, match=r"'a' has 4 entries along an axis .* by 4"):
        fitted(GROUP, 4)


def test_a_factor_with_one_level_is_fitted():
    fit = fitted(np.zeros(len(Y), int), 1)
    assert np.isfinite([fit.mean("tau"), fit.sd("tau"), fit.sd("mu")]).all()


def crossed(x, group, groups, y, flat):
    law = dist.ImproperUniform(dist.constraints.real, (), ()) if flat else dist.Normal(0.0, 3.0)
    b = numpyro.sample("b", law.expand([x.shape[1]]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("groups", groups):
        a = numpyro.sample("a", dist.Normal(0.0, tau))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(x @ b + a[group], sigma), obs=y)


TWICE = np.stack([np.ones(len(Y)), X, 2.0 * X], axis=1)


def test_codes_beyond_the_groups_are_an_error_on_a_grid_too():
    with pytest.raises(CodeRangeError, match=r"'a' has 4 entries along an axis"):
        lb.fit(crossed, TWICE[:, :2], GROUP, 4, Y, False, progress=False)


def test_collinear_columns_are_an_error_where_their_prior_is_flat():
    with pytest.raises(ImproperPosteriorError, match=r"The posterior is improper: .* along 'b'"):
        lb.fit(crossed, TWICE, GROUP, 5, Y, True, progress=False)
    lb.explain(crossed, TWICE[:, :2], GROUP, 5, Y, True)


def test_collinear_columns_are_fitted_where_their_prior_is_proper():
    """Of b[1] x + b[2] 2 x the data know one number, and the prior the other."""
    fit = lb.fit(crossed, TWICE, GROUP, 5, Y, False, method=lb.Integrated(), progress=False)
    draws = np.asarray(fit.sample(4000, seed=0)["b"])
    whole, rest = draws @ [0.0, 1.0, 2.0], draws @ [0.0, 2.0, -1.0] / np.sqrt(5.0)
    assert whole.std() < 0.3
    assert rest.std() == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize("noncentred", [False, True])
def test_one_row_a_group_does_not_tell_an_effect_from_noise(noncentred):
    def single(y, noise):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0)) if noise is None else noise
        with numpyro.plate("groups", len(y)):
            law = dist.Normal(0.0, 1.0) if noncentred else dist.Normal(mu, tau)
            a = numpyro.sample("a", law)
            loc = mu + tau * a if noncentred else a
            numpyro.sample("y", dist.Normal(loc, sigma), obs=y)

    with pytest.warns(NotIdentifiedWarning, match="one number of 'tau', 'sigma': every element"):
        lb.explain(single, Y, None)
    lb.explain(single, Y, 0.5)
    lb.explain(crossed, TWICE[:, :2], GROUP, 5, Y, False)


def test_a_scale_at_its_boundary_is_finite():
    """Groups that are alike: tau is as small as the data can tell."""
    y = X + np.tile([-1.0, -0.5, 0.0, 0.0, 0.5, 1.0], 5)
    for method in (lb.Integrated(), "auto"):
        fit = lb.fit(crossed, TWICE[:, :2], GROUP, 5, y, False, method=method, progress=False)
        values = [fit.mean("tau"), fit.sd("tau"), *fit.sd("a"), *fit.sd("b"), fit.elbo]
        assert np.isfinite(values).all()
        assert 0 < fit.mean("tau") < 0.3


def test_what_it_cannot_read_is_said():
    with pytest.raises(UnknownSiteError, match="Integrated got 'nu'"):
        lb.fit(mixed, GROUP, 5, Y, method=lb.Integrated(sites=("nu",)))

    def scales(x, y):
        a = numpyro.sample("a", dist.Normal(0, 1).expand([9]).to_event(1))
        b = numpyro.sample("b", dist.Normal(0, 1).expand([9]).to_event(1))
        numpyro.sample("y", dist.Normal(jnp.exp(a) @ x, jnp.exp(b) @ x), obs=y)

    with pytest.raises(NoPredictorsError, match="all elements of a predictor meet in dot_general"):
        lb.fit(scales, np.ones((9, 30)), Y, method=lb.Integrated())

    def plain(x, y):
        a = numpyro.sample("a", dist.Uniform(-9, 9).expand([4]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=a[0] + a[1] * x + a[2] * x**2 + a[3]), obs=y)

    with pytest.raises(NoPredictorsError, match="no site sets a scale or a shape"):
        lb.fit(plain, X, (Y > 0) * 1.0, method=lb.Integrated())


def test_two_ways_to_tell_the_data_are_weighed_by_their_mass():
    """The rows know the square of r alone, and its prior how much more likely it is positive."""
    rng = np.random.default_rng(0)
    y = 0.8 * rng.normal(size=5)[GROUP] + 4.0 * X + rng.normal(size=len(X))

    def squared(x, group, y):
        r = numpyro.sample("r", dist.Normal(0.5, 1.5))
        tau = numpyro.sample("tau", dist.HalfNormal(2.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
        with numpyro.plate("groups", 5):
            a = numpyro.sample("a", dist.Normal(0.0, tau))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal(a[group] + r**2 * x, sigma), obs=y)

    fit = lb.fit(squared, X, GROUP, y, progress=False)
    assert fit.method.startswith("Integrated")
    r = np.asarray(fit.sample(4000)["r"])
    away = np.abs(r).mean()
    positive = 1.0 / (1.0 + np.exp(-2.0 * 0.5 * away / 1.5**2))
    # 4,000 draws: a standard error of 0.007.
    assert (r > 0).mean() == pytest.approx(positive, abs=0.05)
    assert fit.mean("r") == pytest.approx((2.0 * positive - 1.0) * away, abs=0.2)


def test_sums_of_effects_are_known_better_than_each_of_them():
    """Means of cells have the sd of their noise, where a level and effects are known to units."""

    def crossed(first, second, y):
        level = numpyro.sample("level", dist.Normal(0.0, 20.0))
        total = level
        for name, index in (("a", first), ("b", second)):
            scale = numpyro.sample(f"scale_{name}", dist.Gamma(1.2, 0.1))
            total = total + numpyro.sample(name, dist.Normal(0.0, scale).expand([3]))[index]
        numpyro.deterministic("cell", total)
        numpyro.sample("y", dist.Normal(total, 0.05), obs=y)

    first, second = np.divmod(np.arange(9), 3)
    noise = 0.05 * np.random.default_rng(0).normal(size=9)
    y = 3.0 + first - 2.0 * second + noise
    fit = lb.fit(crossed, first, second, y, method=lb.Integrated(), progress=False)
    draws = np.asarray(fit.sample(2_000, seed=0)["cell"])
    assert fit.sd("level") > 1.0
    # Five numbers say nine cells: each is known as well as 9 / 5 of its rows would tell.
    np.testing.assert_allclose(draws.std(axis=0), 0.05 * np.sqrt(5 / 9), rtol=0.12)
    np.testing.assert_allclose(draws.mean(axis=0), y, atol=0.1)


def test_a_point_without_a_solution_does_not_say_how_effects_follow():
    """A climb that has lost its way is far below all others: its means are no means."""

    def rows(group, y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        a = numpyro.sample("a", dist.Normal(0.0, scale).expand([4]))
        numpyro.sample("y", dist.Normal(a[group], noise), obs=y)

    group = np.repeat(np.arange(4), 3)
    problem = Problem(rows, (group, np.sin(np.arange(12.0))))
    with jax.enable_x64(True):
        one = predictors_for(problem)
        surface = surface_for(problem, one)
        integral = [at.integral for at in integrate(surface, np.zeros(2), points=12)][-1]
        lost = replace(integral.solved[0], value=-1e10, loc=np.full(4, 1e9))
        found = [
            integrated(one.coordinates, one.theta, given, surface.pattern)[1]["slopes"]
            for given in (integral, replace(integral, solved=(*integral.solved, lost)))
        ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
    assert abs(found[0]).max() < 10.0

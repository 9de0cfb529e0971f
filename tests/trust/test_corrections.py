"""`lb.correct`: draws nearer to the posterior than those of q, each way with its law."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.compute.collapsing import largest_factor
from lowerbound.cost import at_most
from lowerbound.data import eight_schools
from lowerbound.errors import (
    FewWeightsError,
    FlatDirectionError,
    NoDensityError,
    NotAtOptimumError,
    SettingError,
    UncorrectableError,
    UnjudgedError,
    UnsupportedModelError,
)
from lowerbound.methods.chains.trajectories import WARM, Nuts
from lowerbound.model import trace_model
from lowerbound.run.bar import Bar
from lowerbound.trust.against import against
from lowerbound.trust.corrections import hamiltonian
from lowerbound.trust.corrections.suited import suited
from tests.models.zoo import CASES

COVARIANCE = np.array([[1.0, 0.9, 0.2], [0.9, 1.0, 0.1], [0.2, 0.1, 2.0]])
LEVEL = np.array([1.0, -2.0, 0.5])


def correlated(precision):
    real = dist.constraints.real
    sites = [numpyro.sample(name, dist.ImproperUniform(real, (), ())) for name in "abc"]
    away = jnp.stack(sites) - LEVEL
    numpyro.factor("f", -0.5 * away @ precision @ away)


def coin(y):
    p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    with numpyro.plate("tosses", len(y)):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)


def mixture(x):
    w = numpyro.sample("w", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("components", 2):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
    with numpyro.plate("data", len(x)):
        z = numpyro.sample("z", dist.Categorical(w))
        numpyro.sample("x", dist.Normal(mu[z], 1 / jnp.sqrt(tau)), obs=x)


def schools(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(sigma)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


X = np.random.default_rng(0).normal(size=24) + np.repeat([-4.0, 4.0], [14, 10])
PRECISION = np.linalg.inv(COVARIANCE)
APART = lb.CAVI(blocks=(("a",), ("b",), ("c",)), tolerance=1e-13, max_sweeps=5000)


def _joint(fit, draws=4000):
    found = fit.sample(draws)
    return np.stack([found[name] for name in "abc"])


def fitted(*args, **kwargs):
    """A fit, good or bad, without a word."""
    with lb.computing(verdicts=False):
        return lb.fit(*args, **kwargs)


@pytest.fixture(scope="module")
def mixed():
    return fitted(mixture, X, method=lb.CAVI())


@pytest.fixture(scope="module")
def swept(mixed):
    return lb.correct(mixed, "gibbs")


@pytest.fixture(scope="module")
def taught():
    return fitted(schools, **eight_schools(), method=lb.CAVI())


# -- the fault and the cure ------------------------------------------------------------------------


@pytest.mark.parametrize("method", [APART, lb.Gaussian(rank="diagonal"), lb.Gaussian()])
def test_linear_response_is_exact_on_gaussians(method):
    fit = fitted(correlated, PRECISION, method=method)
    if method != lb.Gaussian():  # the fault of a mean field
        sds = [float(fit.sd(name)) for name in "abc"]
        np.testing.assert_allclose(sds, np.diag(PRECISION) ** -0.5, rtol=1e-6)
    better = lb.correct(fit, "linear-response")
    sds = [float(better.sd(name)) for name in "abc"]
    np.testing.assert_allclose(sds, np.sqrt(np.diag(COVARIANCE)), rtol=1e-6)
    means = [[float(one.mean(name)) for name in "abc"] for one in (better, fit)]
    np.testing.assert_allclose(*means, rtol=1e-6)
    # Of 4,000 draws a correlation is known to 0.016; its false-failure rate is below 1e-6.
    sd = np.sqrt(np.diag(COVARIANCE))
    wanted = COVARIANCE / np.outer(sd, sd)
    np.testing.assert_allclose(np.corrcoef(_joint(better)), wanted, atol=0.08)


def test_linear_response_of_a_gaussian_has_a_bound_of_its_own():
    fit = fitted(correlated, PRECISION, method=lb.Gaussian(rank="diagonal"))
    better = lb.correct(fit, "linear-response")
    evidence = 1.5 * np.log(2 * np.pi) + 0.5 * np.linalg.slogdet(COVARIANCE)[1]
    assert fit.elbo < evidence - 0.5
    assert better.elbo == pytest.approx(evidence, abs=1e-3)
    assert better.verdict.trust == "all"
    assert better.q.log_prob({n: LEVEL[[i]] for i, n in enumerate("abc")})[0] > 0 - evidence - 1e-3


def test_linear_response_puts_the_scale_of_a_hierarchy_right(taught):
    better = lb.correct(taught, "linear-response")
    # posteriordb: sd 3.20; mean field has 1.13.
    assert taught.sd("tau") == pytest.approx(1.13, abs=0.01)
    assert better.sd("tau") == pytest.approx(3.20, rel=0.1)
    assert better.mean("tau") == pytest.approx(taught.mean("tau"), rel=1e-3)
    assert (better.sample(500)["tau"] > 0).all()
    assert "'tau' is 0.33 times this" in better.notes[-1]
    assert better.verdict.trust == "means"
    assert "right to first order" in better.verdict.reason


def test_many_statistics_by_conjugate_gradients(monkeypatch, mixed):
    from lowerbound.trust.corrections.linear_response import factor_response

    dense = lb.correct(mixed, "linear-response")
    monkeypatch.setattr(factor_response, "DENSE", 10)
    iterated = lb.correct(mixed, "linear-response")
    for site in ("w", "mu", "tau"):
        np.testing.assert_allclose(iterated.sd(site), dense.sd(site), rtol=1e-6)
    assert iterated.sd("tau") > 1.02 * mixed.sd("tau")


# -- nothing changes where q is exact --------------------------------------------------------------


def test_weights_of_an_exact_q_are_equal():
    fit = fitted(coin, np.array([1, 0, 1, 1]))
    better = lb.correct(fit, "psis")
    assert "k-hat 0.00" in better.notes[0]
    assert "worth 4,000 draws of equal weight" in better.notes[0]
    assert better.elbo == pytest.approx(-np.log(20), abs=1e-9)
    assert better.elbo_error == pytest.approx(0, abs=1e-9)
    # 4,000 draws of sd 0.178: standard errors 0.0028 and 0.0016, five of them.
    assert better.mean("p") == pytest.approx(4 / 6, abs=0.014)
    assert better.sd("p") == pytest.approx(fit.sd("p"), abs=0.01)


def test_psis_of_a_mean_field_nears_the_posterior():
    fit = fitted(
        correlated,
        np.linalg.inv(0.6 * COVARIANCE + 0.4 * np.diag(np.diag(COVARIANCE))),
        method=APART,
    )
    better = lb.correct(fit, "psis", draws=10_000)
    assert np.corrcoef(_joint(better))[0, 1] == pytest.approx(0.54, abs=0.1)
    assert better.sd("a") == pytest.approx(1.0, abs=0.1)
    assert fit.sd("a") < 0.9


# -- samplers --------------------------------------------------------------------------------------


def test_gibbs_and_nuts_agree_on_a_mixture_with_discrete_sites(mixed, swept):
    gibbs, nuts = swept, lb.correct(mixed, "nuts")
    for site in ("w", "mu", "tau"):
        # Some 2,000 effective draws each: 0.032 sd, five of them.
        np.testing.assert_allclose(
            gibbs.mean(site), nuts.mean(site), atol=0.16 * nuts.sd(site).max()
        )
        np.testing.assert_allclose(gibbs.sd(site), nuts.sd(site), rtol=0.15)
    # One draws states, the other their probabilities given the rest.
    np.testing.assert_allclose(gibbs.posterior["z"].probs, nuts.posterior["z"].probs, atol=0.06)
    np.testing.assert_allclose(gibbs.mean("z"), nuts.mean("z"), atol=0.06)
    assert set(np.unique(gibbs.sample(100)["z"])) <= {0, 1}


def test_nuts_gives_the_reference_of_eight_schools(taught):
    better = lb.correct(taught, "nuts", draws=8000)
    # Reference draws of posteriordb; some 3,000 effective draws, five standard errors. tau has a
    # heavy tail: its sd is known to some 5%.
    assert better.mean("mu") == pytest.approx(4.38, abs=0.3)
    assert better.sd("mu") == pytest.approx(3.31, rel=0.1)
    assert better.mean("tau") == pytest.approx(3.60, abs=0.35)
    assert better.sd("tau") == pytest.approx(3.20, rel=0.25)
    assert " diverged" in better.notes[0]
    assert "R-hat at most 1.0" in better.notes[0]
    assert "'mu', 'theta' integrated out, and drawn given the rest" in better.notes[0]
    # What was drawn back depends on tau as it should: effects spread with it.
    draws = better.sample(4000)
    assert np.corrcoef(draws["tau"], draws["theta"].std(axis=1))[0, 1] > 0.8
    assert "q was off by" in better.notes[-1]
    assert better.verdict.trust == "all"
    assert better.verdict.reason.startswith("chains of NUTS agree: R-hat at most 1.0")


def test_a_factor_is_integrated_out_exactly(taught):
    data = eight_schools()
    with jax.enable_x64(True):
        found = largest_factor(taught.model())
        assert found is not None
        assert (found.names, found.rest) == (("mu", "theta"), ("tau",))
        left = trace_model(found.function, *found.call)
        for tau in (0.3, 2.0, 9.0):
            spread = np.diag(data["sigma"] ** 2 + tau**2) + 25.0
            wanted = dist.MultivariateNormal(np.zeros(8), spread).log_prob(data["y"])
            wanted += dist.HalfCauchy(5.0).log_prob(tau)
            density = left.log_density({"tau": tau}, left.arguments.data)
            assert float(density) == pytest.approx(float(wanted), abs=1e-9)


def test_effects_of_latent_scales_are_moved_without_a_funnel(taught):
    view = against(taught)
    with jax.enable_x64(True):
        values = view.family.sample(view.parameters, jax.random.key(0), (300,))
        moved = suited(view, values)
        # The same density in other coordinates.
        there, volumes = (np.asarray(a) for a in moved.placed(values))
        here, others = (np.asarray(a) for a in view.placed(values))
    assert moved.coordinates.noncentred == {"theta"}
    difference = (moved.target(there)[0] - volumes) - (view.target(here)[0] - others)
    np.testing.assert_allclose(difference, 0.0, atol=1e-8)


# -- in the shape of a fit -------------------------------------------------------------------------


def test_a_corrected_fit_does_what_a_fit_does(swept, tmp_path):
    better = swept
    assert better.method == "correct(CAVI(), 'gibbs')"
    assert "corrected by gibbs" in str(better.plan)
    assert list(better.summary().columns) == ["mean", "sd", "q5", "median", "q95"]
    assert better.predictive(draws=50)["x"].shape == (50, 24)
    law = better.posterior["tau"]
    assert law.icdf(np.array([0.05, 0.95])).shape == (2,)
    assert law.cdf(law.icdf(0.5)) == pytest.approx(0.5, abs=0.05)
    better.save(tmp_path / "better.lb")
    again = lb.load(tmp_path / "better.lb", mixture, X)
    np.testing.assert_array_equal(again.sample(100)["z"], better.sample(100)["z"])
    np.testing.assert_array_equal(again.sd("mu"), better.sd("mu"))
    assert again.notes == better.notes
    with pytest.raises(NoDensityError, match="is made of draws, which have no density"):
        better.q.log_prob(better.sample(3, sites=["w", "mu", "tau", "z"]))
    with pytest.raises(NoDensityError, match="The marginal of a corrected fit is made of draws"):
        law.log_prob(1.0)


# -- what stands in the way ------------------------------------------------------------------------


def test_where_a_slope_is_left():
    with pytest.warns(lb.errors.ConvergenceWarning):
        fit = fitted(
            correlated, PRECISION, method=lb.CAVI(blocks=(("a",), ("b",), ("c",)), max_sweeps=1)
        )
    with pytest.raises(
        NotAtOptimumError, match=r"not at an optimum, gradient norm .*\n.*sweeps"
    ) as caught:
        lb.correct(fit, "linear-response")
    assert caught.value.entry in "abc"
    assert caught.value.distance > 0.1


def test_a_flat_direction_is_named():
    def flat(x):
        a = numpyro.sample("a", dist.ImproperUniform(dist.constraints.real, (), ()))
        b = numpyro.sample("b", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("x", dist.Normal(a + b, 1.0), obs=x)

    fit = fitted(flat, 0.0, method=lb.CAVI(blocks=(("a",), ("b",))))
    with pytest.raises(FlatDirectionError, match="The ELBO is flat along 'a', 'b'"):
        lb.correct(fit, "linear-response")


def test_ways_that_cannot_be_had(taught):
    grid = fitted(schools, **eight_schools())
    with pytest.raises(UncorrectableError, match="kind Conditioned, not a product of factors"):
        lb.correct(grid, "linear-response")

    def curved(x, y):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Bernoulli(logits=x * beta), obs=y)

    fit = fitted(curved, np.ones(3), np.array([0, 1, 1]), method=lb.Gaussian())
    with pytest.raises(UncorrectableError, match="'beta' enters site 'y' through a function of a"):
        lb.correct(fit, "gibbs")
    with pytest.raises(
        SettingError, match=r"correct got how='mcmc'.\nExpected one of 'linear-resp"
    ):
        lb.correct(taught, "mcmc")
    with pytest.raises(SettingError, match="draws=10"):
        lb.correct(taught, "psis", draws=10)


def test_a_fit_without_its_data(taught, tmp_path):
    taught.save(tmp_path / "fit.lb")
    with pytest.raises(UnjudgedError, match="holds no data"):
        lb.correct(lb.load(tmp_path / "fit.lb", schools), "psis")


def test_weights_that_are_nowhere_finite():
    def walled(x):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(a, 1.0))
        numpyro.sample("x", dist.Normal(b, 1.0), obs=x)
        numpyro.factor("wall", jnp.where(wall > 0, jnp.where(b > 50.0, 0.0, -jnp.inf), 0.0))

    wall = 0.0
    fit = fitted(walled, 0.0, method=lb.Gaussian())
    wall = 1.0
    with pytest.raises(FewWeightsError, match="Of 400 draws of q only 0 have a finite density"):
        lb.correct(fit, "psis", draws=400)


def test_a_heavy_tail_of_weights_warns():
    def wide(x):
        a = numpyro.sample("a", dist.StudentT(2.0, 0.0, 1.0).expand([20]).to_event(1))
        numpyro.sample("x", dist.Normal(a.sum(), 10.0), obs=x)

    fit = fitted(wide, 0.0, method=lb.Laplace())
    with pytest.warns(
        lb.errors.CorrectionWarning, match=r"k-hat .* is above 0.62, the most for 400"
    ):
        worse = lb.correct(fit, "psis", draws=400)
    assert (worse.verdict.trust, worse.verdict.cure) == ("nothing", 'lb.correct(fit, "nuts")')


# -- over the zoo ----------------------------------------------------------------------------------


def _corrected(case, how):
    args, kwargs = case.arguments(0)
    with warnings.catch_warnings():
        # Labels change places, and few draws are few: what is asked is that nothing breaks.
        warnings.simplefilter("ignore", lb.errors.LowerboundWarning)
        fit = fitted(case.model, *args, **kwargs, method=lb.CAVI(tolerance=1e-10))
        return fit, lb.correct(fit, how, draws=200)


def test_matrices_respond_too():
    [case] = [case for case in CASES if case.name == "wishart_mixture"]
    fit, better = _corrected(case, "linear-response")
    assert better.sd("precision").shape == fit.sd("precision").shape
    assert (np.linalg.eigvalsh(better.sample(50)["precision"]) > 0).all()
    assert np.isfinite(better.sd("precision")).all()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["linear-response", "gibbs"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_model_is_corrected_or_says_why_not(case, how):
    try:
        fit, better = _corrected(case, how)
    except (UncorrectableError, UnsupportedModelError, FlatDirectionError, NotAtOptimumError):
        return
    assert set(better.sites) <= set(fit.sites)
    for site in better.sites:
        assert np.isfinite(better.mean(site)).all()
        assert np.isfinite(better.sd(site)).all()


def test_chains_show_how_far_they_are_and_end_when_time_is_over(taught, monkeypatch, capsys):
    """Foretold wrongly, they end; a bar and an interruption are as in `lb.fit`."""
    monkeypatch.setattr(Nuts, "foreseen", lambda *_: 0.0)
    with at_most(1e-9), pytest.raises(UncorrectableError, match="time was over when chains had"):
        lb.correct(taught, "nuts", progress=True)
    assert "NUTS" in capsys.readouterr().err

    class Pressed(Bar):
        def update(self, done, text=""):
            if done > WARM + 150:
                raise KeyboardInterrupt

    monkeypatch.setattr(hamiltonian, "Bar", Pressed)
    with pytest.raises(KeyboardInterrupt):
        lb.correct(taught, "nuts", progress=False)
    with lb.interruptible(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        partly = lb.correct(taught, "nuts", progress=False)
    assert "; ended after " in partly.notes[0]
    assert "of 1,000 draws of each" in partly.notes[0]

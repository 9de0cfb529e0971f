"""Verdicts: what is said of a fit is what its error is."""

import math
import warnings
from types import SimpleNamespace

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose

import lowerbound as lb
from lowerbound.cost import at_most
from lowerbound.errors import ConvergenceWarning, TrustWarning
from lowerbound.methods.chains.trajectories import Nuts
from lowerbound.methods.gaussian.target import Target
from lowerbound.result.evidence import Evidence, Off
from lowerbound.trust import judging
from lowerbound.trust.against import against
from lowerbound.trust.corrections import cures
from lowerbound.trust.drift import drifted
from lowerbound.trust.estimates import measured
from lowerbound.trust.judging import _weighed as weighed
from lowerbound.trust.judging import judged

pytestmark = pytest.mark.judged


def correlated(root):
    numpyro.sample("z", dist.MultivariateNormal(np.zeros(len(root)), scale_tril=root))


def gaussian(dimension, seed):
    rng = np.random.default_rng(seed)
    root = np.tril(rng.normal(size=(dimension, dimension)))
    root[np.diag_indices(dimension)] = 0.5 + rng.uniform(size=dimension)
    return root


def ratios(root):
    """The log sd ratios of mean field: q has the diagonal of the precision."""
    covariance = root @ root.T
    precision = np.linalg.inv(covariance)
    return -0.5 * np.log(np.diag(precision) * np.diag(covariance))


@pytest.mark.parametrize(("dimension", "seed"), [(2, 0), (2, 1), (5, 2), (12, 3)])
def test_the_shrinkage_of_mean_field_is_estimated(dimension, seed):
    root = gaussian(dimension, seed)
    worst = ratios(root).min()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        fit = lb.fit(correlated, root, method=lb.Gaussian(rank="diagonal"))
    evidence = fit.verdict.evidence
    assert evidence.by in ("weights", "proposals", "chains")
    found = evidence.worst_sd
    # Four standard errors: one failure in some ten thousand runs; and a bias of few draws.
    assert abs(found.spread - worst) < 4 * found.spread_error + 0.03
    assert abs(evidence.worst_mean.shift) < 4 * evidence.worst_mean.shift_error + 0.05
    assert fit.verdict.trust == ("all" if worst > -0.15 else "means")


def test_chains_and_curvature_say_the_same_as_the_truth():
    root = gaussian(6, 4)
    with lb.computing(verdicts=False):
        fit = lb.fit(correlated, root, method=lb.Gaussian(rank="diagonal"))
    judge = against(fit)
    drawn = judge.drawn(1024)
    moved = drifted(judge.target, drawn, points=100_000)
    assert moved.accepted > 0.5
    sds = np.sqrt(np.diag(root @ root.T))
    # 256 chains of some forgetting: sds to 5%.
    assert_allclose(moved.vectors.std(axis=0), sds, rtol=0.2)


def test_an_exact_q_is_trusted_without_a_look():
    def coin(y):
        p = numpyro.sample("p", dist.Beta(1.0, 1.0))
        with numpyro.plate("tosses", len(y)):
            numpyro.sample("y", dist.Bernoulli(p), obs=y)

    fit = lb.fit(coin, np.array([1, 0, 1, 1]))
    assert fit.verdict.trust == "all"
    assert fit.verdict.evidence is None
    judge = against(fit)
    drawn = judge.drawn(64)
    assert_allclose(drawn.log_ratios, fit.elbo, rtol=1e-9)  # constant weights are perfect
    evidence = measured(judge, drawn, fit.elbo, 1000)
    assert evidence.k_hat == 0.0
    assert evidence.efficiency == pytest.approx(1.0)


def rate(y):
    r = numpyro.sample("r", dist.Gamma(0.5, 0.01))
    numpyro.sample("y", dist.Poisson(r), obs=y)


@pytest.mark.parametrize("count", [2, 8])
def test_a_shift_of_a_skewed_posterior_is_seen(count):
    with pytest.warns(TrustWarning, match="the mean of 'r'") if count == 2 else _quiet():
        fit = lb.fit(rate, np.array([float(count)]), method=lb.Laplace())
    shape = 0.5 + count
    true_mean, true_sd = shape / 1.01, math.sqrt(shape) / 1.01
    found = fit.verdict.evidence.worst_mean
    truth = (float(fit.mean("r")) - true_mean) / true_sd
    assert abs(found.shift - truth) < 4 * found.shift_error + 0.05


def _quiet():
    return warnings.catch_warnings()


def test_a_mixture_is_judged_with_its_assignments_summed_out():
    def mixture(x):
        w = numpyro.sample("w", dist.Dirichlet(np.ones(2)))
        with numpyro.plate("components", 2):
            mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        with numpyro.plate("rows", len(x)):
            c = numpyro.sample("c", dist.Categorical(w))
            numpyro.sample("x", dist.Normal(mu[c], 1.0), obs=x)

    rng = np.random.default_rng(0)
    apart = np.concatenate([rng.normal(-4, 1, 40), rng.normal(4, 1, 40)])
    fit = lb.fit(mixture, apart, method=lb.CAVI())
    assert fit.verdict.trust == "all"
    assert {one.site for one in fit.verdict.evidence.off} == {"w", "mu"}
    near = np.concatenate([rng.normal(-0.7, 1, 40), rng.normal(0.7, 1, 40)])
    with pytest.warns(TrustWarning):
        fit = lb.fit(mixture, near, method=lb.CAVI())
    assert fit.verdict.trust != "all"


def test_auxiliary_sites_are_no_part_of_the_comparison():
    def logistic(x, y):
        b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ b), obs=y)

    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 2))
    y = (rng.uniform(size=60) < 0.5).astype(float)
    fit = lb.fit(logistic, x, y, method=lb.Augmented({"y": "polya-gamma"}, lb.CAVI()))
    assert [one.site for one in fit.verdict.evidence.off] == ["b"]
    drawn, b = against(fit).drawn(200), fit.posterior["b"]
    assert_allclose(drawn.log_q, b.log_prob(drawn.vectors), atol=1e-5)


def ridge(y):
    a = numpyro.sample("a", dist.Normal(0.0, 10.0))
    b = numpyro.sample("b", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.Normal(a + b, 1.0).expand([len(y)]).to_event(1), obs=y)


def test_a_fit_that_stopped_warns_only_where_its_answer_suffers():
    y = 5.0 + np.random.default_rng(0).normal(size=20)
    far = {"a": 30.0, "b": -25.0}
    apart = lb.CAVI(blocks=[["a"], ["b"]], max_sweeps=2, init=far)
    with pytest.warns(ConvergenceWarning):
        fit = lb.fit(ridge, y, method=apart)
    assert fit.verdict.trust == "nothing"

    def easy(y):
        m = numpyro.sample("m", dist.Normal(0.0, 10.0))
        tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
        numpyro.sample("y", dist.Normal(m, tau**-0.5).expand([len(y)]).to_event(1), obs=y)

    blocks = lb.CAVI(blocks=[["m"], ["tau"]], max_sweeps=3, tolerance=1e-15)
    fit = lb.fit(easy, 0.1 * y, method=blocks)
    assert not fit.converged
    assert fit.verdict.trust == "all"


def test_a_verdict_is_shown_and_kept(tmp_path):
    root = gaussian(3, 0)
    with pytest.warns(TrustWarning, match=r"lb\.correct"):
        fit = lb.fit(correlated, root, method=lb.Gaussian(rank="diagonal"))
    assert str(fit.verdict) in repr(fit)
    assert fit.summary().columns.name == "trust: means"
    fit.save(tmp_path / "fit.lb")
    loaded = lb.load(tmp_path / "fit.lb", correlated, root)
    assert loaded.verdict == fit.verdict


def test_a_check_says_more_of_the_same():
    root = gaussian(3, 0)
    with lb.computing(verdicts=False):
        fit = lb.fit(correlated, root, method=lb.Gaussian(rank="diagonal"))
    assert fit.verdict.cure == "lb.check(fit)"
    verdict = lb.check(fit)
    assert verdict.trust == "means"
    assert abs(verdict.evidence.worst_sd.spread - ratios(root).min()) < 0.1
    with pytest.raises(lb.errors.ArgumentError, match="Expected a fit"):
        lb.check({"z": 1.0})
    with pytest.raises(lb.errors.ArgumentError, match="above 0"):
        lb.check(fit, seconds=0)


def test_a_fit_of_a_file_without_data_is_not_judged(tmp_path):
    fit = lb.fit(rate, np.array([30.0]), method=lb.Gaussian())
    fit.save(tmp_path / "fit.lb")
    with pytest.raises(lb.errors.UnjudgedError, match="holds no data"):
        lb.check(lb.load(tmp_path / "fit.lb", rate))


def test_another_mode_counts_and_another_labelling_does_not():
    def modes(heavier):
        weights = np.array([heavier, 1 - heavier])
        law = dist.Normal(np.array([-3.0, 3.0]), 0.7)
        numpyro.sample("z", dist.MixtureSameFamily(dist.Categorical(probs=weights), law))

    with pytest.warns(
        TrustWarning, match=r"another summit, beyond a valley, with about 0\.67 times"
    ):
        fit = lb.fit(modes, 0.6, method=lb.Gaussian())
    assert fit.verdict.trust == "nothing"
    assert lb.check(fit).trust == "nothing"
    assert lb.fit(modes, 0.999, method=lb.Gaussian()).verdict.trust == "all"

    def labelled(x):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        law = dist.MixtureSameFamily(dist.Categorical(probs=np.ones(2) / 2), dist.Normal(mu, 1.0))
        numpyro.sample("x", law.expand([len(x)]).to_event(1), obs=x)

    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-3, 1, 20), rng.normal(3, 1, 20)])
    assert lb.fit(labelled, x, method=lb.Gaussian()).verdict.trust == "all"


@pytest.mark.parametrize(
    ("sure", "trust"),
    [
        ((0.1, -0.3), "means"),
        ((0.3, 0.0), "nothing"),
        ((0.1, 0.1), "all"),
        ((0.1, -3.0), "means"),
        ((0.1, -7.5), "nothing"),  # q is a point: chains from there have not moved
    ],
)
def test_what_is_known_of_one_site_is_not_hidden_by_noise_of_another(sure, trust):
    known = Off("known", *sure, 0.02, 0.03)
    noisy = Off("noisy", 0.5, 0.8, 0.4, 0.6)
    for off in ((known, noisy), (noisy, known)):
        assert weighed(Evidence("proposals", 512, 0.6, 0.1, 0.5, off)).trust == trust


def test_until_it_can_be_trusted():
    root = gaussian(4, 1)
    fit = lb.fit(correlated, root, method=lb.Gaussian(rank="diagonal"), until="trusted")
    assert fit.verdict.trust == "all"
    assert "psis" in fit.method
    assert any(note.startswith("Before it was corrected: Trust means") for note in fit.notes)
    sds = np.sqrt(np.diag(root @ root.T))
    # Some thousand effective draws: sds to 2.5%, four of them to 10% with hardly an exception.
    assert_allclose(fit.sd("z"), sds, rtol=0.1)
    exact = lb.fit(rate, np.array([30.0]), until="trusted")
    assert "correct" not in exact.method
    with pytest.raises(lb.errors.SettingError, match="until"):
        lb.fit(rate, np.array([30.0]), until="tired")


def test_a_cure_that_would_take_longer_than_there_is_time_is_left_out(monkeypatch):
    """NUTS had not ended after five minutes, where the plan promised corrections of 150 s."""
    monkeypatch.setattr(Nuts, "foreseen", lambda self, starts, units, count: 1e4)
    root = gaussian(4, 1)
    with pytest.warns(TrustWarning):
        fit = lb.fit(correlated, root, method=lb.Gaussian(rank="diagonal"), until="fitted")
    limit = at_most(100.0, SimpleNamespace(own_seconds=0.0))
    match = "it would take 10,000 s, where 100 s are left"
    with limit, pytest.raises(lb.errors.UncorrectableError, match=match):
        lb.correct(fit, "nuts")
    monkeypatch.setattr(cures, "_cures", lambda fit: ("nuts",))
    with pytest.warns(TrustWarning):
        left = lb.fit(correlated, root, method=lb.Gaussian(rank="diagonal"), until="trusted")
    assert left.verdict.trust == "means"
    assert any(note.startswith("nuts could not correct it: ") for note in left.notes)


def test_an_automatic_fit_has_the_weights_that_its_verdict_asks_for():
    """Two powers that share their data: long tails in log b. The truth is a sum over the prior."""

    def powers(x, y):
        a = numpyro.sample("a", dist.Exponential(1.0).expand([2]))
        b = numpyro.sample("b", dist.Exponential(1.0).expand([2]))
        numpyro.sample("y", dist.Poisson(a[0] * x ** b[0] + a[1] * x ** b[1]), obs=y)

    x, y = np.array([1.0, 2.0, 3.0]), np.array([1, 2, 4])
    # The midpoints of 30 equal parts of the prior of each number.
    one = -np.log1p(-(np.arange(30) + 0.5) / 30)
    a0, a1, b0, b1 = (v.ravel() for v in np.meshgrid(one, one, one, one, indexing="ij"))
    rate = a0[:, None] * x ** b0[:, None] + a1[:, None] * x ** b1[:, None]
    log_p = (y * np.log(rate) - rate).sum(axis=1)
    weights = np.exp(log_p - log_p.max())
    mean = np.average(b0, weights=weights)
    sd = np.sqrt(np.average((b0 - mean) ** 2, weights=weights))

    with pytest.warns(TrustWarning, match="psis"):
        kept = lb.fit(powers, x, y, until="fitted")
    assert kept.verdict.trust != "all"
    assert abs(np.log(kept.sd("b") / sd)).max() > 0.2
    fit = lb.fit(powers, x, y)
    assert fit.verdict.trust == "all"
    assert "psis" in fit.method
    assert any(note.startswith("Before its draws were weighted") for note in fit.notes)
    # Above a thousand effective draws: a mean to 0.03 sds, an sd of this tail to 5%, 4 errors each.
    assert_allclose(fit.mean("b"), mean, atol=0.13 * sd)
    assert_allclose(fit.sd("b"), sd, rtol=0.2)
    assert lb.check(fit) is fit.verdict
    compared = lb.compare({"kept": kept, "weighted": fit}, by="elbo")
    assert any("'weighted' are importance-weighted" in note for note in compared.notes)
    assert fit.call.value == "auto"  # as which folds of its rows are fitted
    with pytest.warns(TrustWarning, match="psis"):
        named = lb.fit(powers, x, y, method=lb.Gaussian())
    assert named.sd("b").tolist() == kept.sd("b").tolist()


def test_what_log_p_raises_at_draws_costs_no_fit(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(judging, "against", broken)
    with pytest.warns(TrustWarning, match="not compared with the posterior"):
        fit = lb.fit(rate, np.array([30.0]), method=lb.Gaussian())
    assert not fit.verdict.compared
    assert fit.verdict.advice == "How far to trust the fit is not known"
    assert fit.verdict.trust == "means"
    assert "RuntimeError" in fit.verdict.reason


def test_the_marginal_of_some_factors_has_their_moments():
    def mixture(x):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(x)):
            c = numpyro.sample("c", dist.Bernoulli(0.5))
            tau = 1.0 + c
            numpyro.sample("x", dist.Normal(w, tau), obs=x)
        numpyro.sample("v", dist.Gamma(2.0, 2.0))

    x = np.array([-1.2, -0.8, 1.1, 0.9, 1.3])
    with lb.computing(verdicts=False):
        fit = lb.fit(mixture, x, method=lb.CAVI())
    family, parameters = fit.q.family.without(fit.q.parameters, ["c"])
    for site in ("w", "v"):
        mean, variance = family.moments(parameters, site)
        assert_allclose(mean, fit.mean(site))
        assert_allclose(np.sqrt(variance), fit.sd(site))


def test_a_verdict_does_not_hang_on_the_clock(monkeypatch):
    root = gaussian(6, 4)
    with lb.computing(verdicts=False):
        fit = lb.fit(correlated, root, method=lb.Gaussian(rank="diagonal"))
    quick = judged(fit, 0.1)
    pace = Target.seconds
    monkeypatch.setattr(Target, "seconds", lambda target, points: 5 * pace(target, points))
    assert judged(fit, 7.0) == quick  # a machine that others use
    assert quick.evidence.by == "proposals"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda fit: lb.check({}), "check got dict.\nExpected a fit"),
        (lambda fit: lb.correct({}, "psis"), "correct got dict.\nExpected a fit"),
        (lambda fit: lb.update({}, np.ones(3)), "update got dict.\nExpected a fit"),
        (lambda fit: lb.check(fit, seconds="x"), "check got seconds='x'.\nExpected a number above"),
        (lambda fit: lb.check(fit, seconds=-1), "check got seconds=-1.\nExpected a number above 0"),
        (lambda fit: lb.correct(fit, "mcmc"), "correct got how='mcmc'.\nExpected one of 'linear"),
        (lambda fit: lb.correct(fit, "psis", draws=3), "draws=3.\nExpected an integer of at least"),
        (lambda fit: _computing(verdicts="no"), "computing got verdicts='no'.\nExpected True or"),
    ],
)
def test_bad_input_is_an_error_before_work(call, text):
    with lb.computing(verdicts=False):
        fit = lb.fit(rate, np.array([3.0]))
    with pytest.raises(lb.errors.ArgumentError) as error:
        call(fit)
    assert text in str(error.value)


def _computing(**settings):
    with lb.computing(**settings):
        pass

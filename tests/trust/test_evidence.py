"""The evidence of a verdict: each part of it says what is so."""

import math
import re
import warnings
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.errors import SettingError, TrustWarning, UnjudgedError
from lowerbound.result.evidence import Evidence, Off, k_threshold
from lowerbound.result.verdicts import Verdict
from lowerbound.trust.against import Moments
from lowerbound.trust.corrections.cures import trusted
from lowerbound.trust.estimates import _compared, _paired
from lowerbound.trust.judging import judged
from lowerbound.trust.weighing import weighted

pytestmark = pytest.mark.judged

PRECISION = np.linalg.inv(np.array([[1.0, 0.8], [0.8, 1.0]]))


def pair():
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    numpyro.sample("b", dist.Normal(0.8 * a, 0.6))


def mixture(x, K=2):
    w = numpyro.sample("w", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    with numpyro.plate("rows", len(x)):
        c = numpyro.sample("c", dist.Categorical(w))
        numpyro.sample("x", dist.Normal(mu[c], 1.0), obs=x)


def regression(x, y):
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(5.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(x @ b, s), obs=y)


def fitted(*args, **kwargs):
    with lb.computing(verdicts=False):
        return lb.fit(*args, **kwargs)


def kinds(verdict):
    return {one.what for one in verdict.evidence.findings}


@pytest.fixture(scope="module")
def apart():
    return lb.check(fitted(pair, method=lb.CAVI(blocks=[["a"], ["b"]])), seconds=5)


def test_the_threshold_of_k_hat_grows_with_the_draws():
    assert [round(k_threshold(s), 3) for s in (100, 512, 1000, 2200)] == [
        0.5,
        0.631,
        0.667,
        0.701 - 0.001,
    ]
    assert Evidence("weights", 1000, 0.1, 1.0, 0.0).k_threshold == k_threshold(1000)


def test_linear_response_and_chains_see_what_mean_field_lost(apart):
    evidence = apart.evidence
    ratio = math.log(0.6)  # q has the diagonal of the precision: sd 0.6 where the truth is 1
    assert {one.site for one in evidence.response} == {"a", "b"}
    for one in evidence.response:
        # It is exact on Gaussians; its sds are those of 1000 draws.
        assert one.spread == pytest.approx(ratio, abs=0.02)
    for one in evidence.drift:
        # 256 chains: sds to 4%, and they have nearly forgotten where they began.
        assert one.spread == pytest.approx(ratio, abs=0.2)
        assert abs(one.shift) < 4 * one.shift_error + 0.05


def test_the_gap_is_the_divergence_that_is_left(apart):
    # log det of the correlation is what the best product of two Gaussians lacks.
    assert apart.evidence.gap == pytest.approx(-0.5 * math.log(0.36), abs=0.02)
    assert 0 < apart.evidence.gap_error < 0.02


def test_evidence_is_read_as_text_and_as_a_table(apart):
    text = repr(apart.evidence)
    assert text.startswith("By draws around the posterior, from 4,096 draws of q: k-hat ")
    assert "linear response" in text
    table = apart.evidence.table()
    assert list(table.index) == ["a", "b"]
    assert set(table) >= {"mean_off", "sd_ratio", "k_hat", "effective", "response_ratio"}
    many = tuple(Off(f"s{i}", 0.0, 0.0) for i in range(25))
    assert "and 5 more sites" in repr(Evidence("weights", 100, 0.0, 1.0, 0.0, many))
    assert str(apart).count("\n") == 0


def test_weights_by_site_are_worse_where_q_is():
    def two():
        numpyro.sample("good", dist.Normal(0.0, 1.0))
        numpyro.sample("heavy", dist.StudentT(4.0, 0.0, 1.0))

    evidence = lb.check(fitted(two, method=lb.Laplace()), seconds=2).evidence
    found = {one.site: one for one in evidence.off}
    assert found["heavy"].k_hat > found["good"].k_hat + 0.2
    assert found["heavy"].size < 0.5 * found["good"].size


def test_an_exact_q_has_perfect_weights():
    def coin(y):
        p = numpyro.sample("p", dist.Beta(1.0, 1.0))
        with numpyro.plate("tosses", len(y)):
            numpyro.sample("y", dist.Bernoulli(p), obs=y)

    verdict = lb.check(lb.fit(coin, np.array([1, 0, 1, 1])), seconds=2)
    assert verdict.trust == "all"
    (p,) = verdict.evidence.off
    assert (verdict.evidence.k_hat, p.k_hat) == (0.0, 0.0)
    assert verdict.evidence.gap == pytest.approx(0.0, abs=1e-6)
    assert p.size == pytest.approx(4096, rel=0.05)


def test_numbers_that_are_fixed_are_neither_off_nor_narrow():
    """The ones of a correlation matrix differ by rounding alone, of which no sd is made."""
    rng = np.random.default_rng(0)
    corner, rounding = rng.uniform(-0.6, 0.6, 400), rng.integers(-1, 2, (2, 400)) * 2.0**-52
    matrices = np.stack([1 + rounding[0], corner, corner, 1 + rounding[1]], 1).reshape(-1, 2, 2)
    skewed = rounding[0] * 2.0**51  # log weights that know of the rounding
    for log_ratios in (np.zeros(400), 0.1 * skewed):
        own = weighted({"R": matrices}, corner[:, None], log_ratios)
        moments = {"R": Moments.of_draws(matrices[::2])}
        for (one,) in (_paired(own), _compared(moments, own)):
            assert abs(one.shift) < 0.2
            assert abs(one.spread) < 0.1


@pytest.mark.parametrize("width", [1.0, 2.0])
def test_a_tail_too_heavy_for_an_sd_is_judged_by_the_width_of_its_middle(width):
    """Draws of a Cauchy law of another width: 2 of 1,000 seeds are off by a tenth or more."""
    for seed in range(3):
        x = width * np.random.default_rng(seed).standard_cauchy(4000)
        log_q, log_p = -np.log1p((x / width) ** 2) - np.log(width), -np.log1p(x**2)
        (found,) = _paired(weighted({"x": x}, x[:, None], log_p - log_q))
        assert abs(found.spread - np.log(width)) < 0.1
        assert found.spread_error < 0.1
        assert found.middle == (width != 1.0)  # even weights know the sd as well


def test_weights_with_one_heavy_draw_are_not_left_for_those_of_a_law_that_misses_a_neck():
    """A scale of groups that may be zero: no Student law has the neck of its funnel, q has."""

    def players(hits):
        loc = numpyro.sample("loc", dist.Normal(-1, 1))
        scale = numpyro.sample("scale", dist.HalfCauchy(1))
        with numpyro.plate("players", len(hits)):
            alpha = numpyro.sample("alpha", dist.Normal(loc, scale))
            numpyro.sample("hits", dist.Binomial(45, logits=alpha), obs=hits)

    hits = np.array([18, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7])
    verdict = lb.fit(players, hits).verdict
    assert verdict.trust == "all", str(verdict)
    assert verdict.evidence.by == "weights"
    assert abs(verdict.evidence.worst_mean.shift) < 0.1


def test_components_without_rows_are_named():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-4, 1, 60), rng.normal(4, 1, 60)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        fit = lb.fit(mixture, x, K=6, method=lb.CAVI(restarts=3))
    (restarts,) = (one for one in fit.verdict.evidence.findings if one.what == "restarts")
    assert "3 starts" in restarts.text
    dead = [one for one in fit.verdict.evidence.findings if one.what == "component"]
    probabilities = np.asarray(fit.posterior["c"].probs).sum(axis=0)
    assert sum(one.value for one in dead) == (probabilities < 0.5).sum()


def test_bounds_and_scales_are_seen():
    def edge(y):
        p = numpyro.sample("p", dist.Uniform(0.0, 1.0))
        numpyro.sample("s", dist.HalfNormal(1.0))
        numpyro.sample("y", dist.Normal(p, 0.01), obs=y)

    verdict = lb.check(fitted(edge, np.array(1.02), method=lb.Gaussian()), seconds=2)
    found = {one.site: one.text for one in verdict.evidence.findings if one.what == "boundary"}
    assert found["p"].startswith("'p' leans on its bound 1, with ")
    assert found["s"] == "'s' is not kept away from 0: the sd of its log is 0.7."


@pytest.fixture(scope="module")
def line():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(80, 2))
    return x, x @ np.array([0.5, 20.0]) + rng.normal(size=80)


def test_a_prior_at_odds_with_the_data_and_rows_left_out(line):
    verdict = lb.check(fitted(regression, *line, method=lb.Gaussian()), seconds=3)
    found = {one.what: one for one in verdict.evidence.findings}
    assert "none of 1,000 draws of it goes as far as the mean of 1 of 2 numbers of 'b'" in (
        found["prior"].text
    )
    # Three parameters: about so many nats between rows that were seen and rows that were not.
    assert 1.0 < found["predictive"].value < 9.0


@pytest.fixture(scope="module")
def batches():
    rng = np.random.default_rng(0)
    x = rng.permutation(np.concatenate([rng.normal(-3, 1, 2400), rng.normal(3, 1, 1600)]))
    few = fitted(mixture, x, method=lb.SVI(batch_size=200, steps=60), seed=1)
    return x, few, fitted(mixture, x, method=lb.CAVI(tolerance=1e-10))


def test_a_fit_on_batches_is_judged_by_all_rows_that_it_is_given(batches):
    x, few, full = batches
    evidence = lb.check(few, seconds=4, rows=(x,)).evidence
    order, true = np.argsort(few.mean("mu")), np.argsort(full.mean("mu"))
    # The clusters are so far apart that mean field on all rows is the posterior to a percent or so.
    shift = (few.mean("mu")[order] - full.mean("mu")[true]) / full.sd("mu")[true]
    (mu,) = (one for one in evidence.off if one.site == "mu")
    assert abs(mu.shift) == pytest.approx(np.abs(shift).max(), abs=4 * mu.shift_error + 0.1)
    assert mu.shift_error < 0.2
    (rows,) = (one for one in evidence.findings if one.what == "rows")
    assert rows.text.startswith("Means are told by all 4,000 rows, to 0.00 posterior sds")


def test_the_rows_that_a_fit_has_kept_tell_sds_and_say_what_they_do_not_know(batches):
    few = batches[1]
    verdict = lb.check(few, seconds=4)
    (rows,) = (one for one in verdict.evidence.findings if one.what == "rows")
    assert "200 of 4,000 rows" in rows.text or "192 of 4,000 rows" in rows.text
    (mu,) = (one for one in verdict.evidence.off if one.site == "mu")
    assert mu.shift_error > 1.0  # 20 times fewer rows place it sqrt(20) times worse
    assert abs(mu.spread) < 4 * mu.spread_error + 0.1
    assert verdict.trust != "all"


def test_every_fit_on_batches_has_a_verdict(batches):
    x = batches[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = lb.fit(mixture, x, method=lb.SVI(batch_size=200, steps=60), seed=1)
    assert "rows" in kinds(fit.verdict)


def test_rows_with_continuous_sites_of_their_own_are_not_judged():
    def effects(x):
        s = numpyro.sample("s", dist.Gamma(2.0, 2.0))
        with numpyro.plate("rows", len(x)):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0 / jnp.sqrt(s)))
            numpyro.sample("x", dist.Normal(z, 1.0), obs=x)

    x = np.random.default_rng(0).normal(size=200)
    fit = fitted(effects, x, method=lb.SVI(batch_size=50, steps=5))
    verdict = judged(fit, 1.0)
    assert not verdict.compared
    assert "rows have continuous sites of their own" in verdict.reason
    assert verdict.advice == "Do not trust the fit"  # it did not converge either
    with pytest.raises(UnjudgedError, match="rows have continuous sites of their own \\('z'\\)"):
        lb.check(fit)


def test_rows_that_do_not_fit_are_an_error(line, batches):
    whole = fitted(regression, *line, method=lb.Gaussian())
    with pytest.raises(SettingError) as error:
        lb.check(whole, rows=line)
    assert str(error.value) == ("check got rows='tuple'.\nExpected None: the fit has all its rows.")
    with pytest.raises(SettingError) as error:
        lb.check(batches[1], rows={"z": np.ones(3)})
    assert str(error.value) == (
        "check got rows='z'.\nExpected arguments of the model (x, K), by name or in their order."
    )


def test_test_data_of_the_wrong_shape_are_named(line):
    fit = fitted(regression, *line, method=lb.Gaussian())
    with pytest.raises(lb.errors.ShapeError) as error:
        lb.compare({"one": fit}, test={"x": np.ones((5, 2)), "y": np.ones(4)})
    text = (
        r"Site 'y' observes a value of shape \(4,\), its distribution has shape \(5,\)   "
        r"\(test_evidence\.py:\d+\)\.\nExpected one to broadcast to the other\. Check the plates "
        r"and the orientation of the arguments \(a column \(n, 1\) is not a vector \(n,\)\)\."
    )
    assert re.fullmatch(text, str(error.value))
    assert error.value.__notes__[-1] == "In the test data of the fit 'one'."


def test_corrections_keep_to_their_seconds():
    fit = fitted(pair, method=lb.CAVI(blocks=[["a"], ["b"]]))
    with pytest.warns(TrustWarning):
        short = trusted(replace(fit, verdict=Verdict("means", "q is narrow", "")), budget=1e-6)
    assert short.plan.notes[-1] == "Until it is trusted: corrections of at most 0 s."
    assert short.notes[-1].startswith("NUTS was left out: about ")

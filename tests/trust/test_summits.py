"""Summits that q is not at: they are found, weighed and said, and other labels are none."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.errors import TrustWarning
from lowerbound.trust.against import against
from lowerbound.trust.laws import Law
from lowerbound.trust.optima import summits
from lowerbound.trust.weighing import weighted

pytestmark = pytest.mark.judged


def square(y):
    z = numpyro.sample("z", dist.Normal(0.4, 1.0))
    numpyro.sample("y", dist.Normal(z**2, 0.5), obs=y)


def outliers(y):
    m = numpyro.sample("m", dist.Normal(0.0, 20.0))
    numpyro.sample("y", dist.Cauchy(m, 0.5).expand([len(y)]).to_event(1), obs=y)


def wave(t, y):
    f = numpyro.sample("f", dist.Uniform(0.0, 10.0))
    numpyro.sample("y", dist.Normal(jnp.sin(f * t), 0.8).to_event(1), obs=y)


def product(y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(a * b, 0.5).expand([len(y)]).to_event(1), obs=y)


T = np.linspace(0.0, 6.0, 25)
NOISE = np.random.default_rng(3).normal(size=25)
FAR = 1.5 + 0.1 * np.arange(-4, 5)
ONE = lb.Gaussian(starts=1)


@pytest.mark.parametrize(
    ("model", "data", "start"),
    [
        (square, {"y": np.array(1.5)}, {"z": 1.2}),
        (outliers, {"y": np.array([-6.0, -5.6, 5.8, 6.2, 6.3])}, {"m": 6.0}),
        (wave, {"t": T, "y": np.sin(2.6 * T) + 0.8 * NOISE}, {"f": 6.5}),
    ],
)
def test_a_summit_that_no_start_has_found_is_seen_from_afar(model, data, start):
    with pytest.warns(TrustWarning, match="another summit"):
        fit = lb.fit(model, **data, method=lb.Gaussian(starts=1, init=start))
    assert fit.verdict.trust != "all"
    # The grid over the one number is the posterior; weighted draws of both summits say the same.
    (site,) = start
    with lb.computing(verdicts=False):
        truth = lb.fit(model, **data)
    off = next(one for one in fit.verdict.evidence.off if one.site == site)
    spread = float(np.log(fit.sd(site) / truth.sd(site)))
    assert abs(off.spread - spread) < 4 * off.spread_error + 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lb.errors.CorrectionWarning)
        better = lb.correct(fit, "psis")
    assert abs(np.log(better.sd(site) / truth.sd(site))) < 0.2


def test_the_sign_of_a_product_is_not_known():
    with pytest.warns(TrustWarning, match="With the signs of 'a' and 'b' reversed|with the signs"):
        fit = lb.fit(product, FAR, method=lb.CAVI())
    assert fit.verdict.trust == "nothing"
    assert "HalfNormal" in fit.verdict.cure


def test_a_grid_has_both_summits_of_a_product():
    fit = lb.fit(product, FAR)
    assert fit.verdict.trust == "all"
    assert abs(fit.mean("a")) < 0.01 * fit.sd("a")
    assert np.isclose(fit.sd("a"), fit.sd("b"), rtol=0.01)
    axis = np.linspace(-5.0, 5.0, 801)
    a, b = np.meshgrid(axis, axis)
    p = np.exp(-0.5 * (a**2 + b**2) - 0.5 * len(FAR) * (FAR.mean() - a * b) ** 2 / 0.25)
    assert np.isclose(fit.sd("a"), np.sqrt((p * a**2).sum() / p.sum()), rtol=0.01)


def test_other_labels_are_no_other_summit():
    def mixture(x):
        with numpyro.plate("components", 2):
            mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        with numpyro.plate("rows", len(x)):
            c = numpyro.sample("c", dist.Categorical(jnp.array([0.5, 0.5])))
            numpyro.sample("x", dist.Normal(mu[c], 1.0), obs=x)

    x = np.concatenate([NOISE - 4.0, NOISE + 4.0])
    fit = lb.fit(mixture, x, method=lb.CAVI())
    assert fit.verdict.trust == "all"
    assert not fit.verdict.evidence.summits


def test_a_law_of_two_places_integrates_to_one_and_finds_both():
    places = [(np.zeros(2), np.eye(2)), (np.full(2, 9.0), 0.3 * np.eye(2))]
    law = Law.at(places, [1.0, 3.0])
    rng = np.random.default_rng(0)
    vectors, log_law = law.drawn(20_000, rng)

    def log_p(u):
        parts = [
            np.log(share) - 0.5 * (((u - loc) / root[0, 0]) ** 2).sum(axis=1)
            - 2 * np.log(root[0, 0]) - np.log(2 * np.pi)
            for (loc, root), share in zip(places, (0.25, 0.75), strict=True)
        ]  # fmt: skip
        return np.logaddexp(*parts)

    found = weighted({"u": vectors}, vectors, log_p(vectors) - log_law)
    assert abs(found.log_mean) < 4 * found.log_mean_error
    assert np.allclose(np.exp(found.log_weights) @ vectors, 0.75 * 9.0, atol=0.1)
    moved = law.moved(found, np.eye(2))
    assert np.allclose([one[0][0] for one in moved.places], [0.0, 9.0], atol=0.1)


def two(away):
    with numpyro.plate("d", 3):
        z = numpyro.sample("z", dist.Normal(away, 100.0))
    near, far = -0.5 * jnp.sum(z**2), -0.5 * jnp.sum(((z - away) / 0.5) ** 2)
    numpyro.factor("either", jnp.logaddexp(near, far + 20.0))


@pytest.mark.parametrize("start", [np.full(3, 25.0), np.full(3, 25.2)])
def test_a_summit_that_is_known_is_one_though_a_climb_from_it_has_no_step(start, monkeypatch):
    monkeypatch.setattr(summits, "STARTS", 4)  # the centre, what is known, and two by chance
    with lb.computing(verdicts=False):
        fit = lb.fit(two, 25.0, method=lb.Gaussian(starts=1, init={"z": np.zeros(3)}))
    judge = against(fit)
    drawn = judge.drawn(1000, 0)
    own = weighted(judge.values(drawn.vectors), drawn.vectors, drawn.log_ratios)

    def found(optima):
        return summits.other_summits(judge, drawn, own.log_mean, summits.SEARCHED, optima)

    assert found(()) == ()
    (one,) = found([(-20.0, start)])
    np.testing.assert_allclose(one.vector, 25.0, atol=0.1)
    assert abs(np.log(one.mass) - (20.0 + 3 * np.log(0.5))) < 0.5

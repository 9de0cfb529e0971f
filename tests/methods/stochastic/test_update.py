"""`lb.update`: the posterior of old rows is the prior of new ones (eq:marginal)."""

from itertools import pairwise

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound import errors
from lowerbound.rewrite.augment import augmented
from tests.run.models import clusters, grouped, groups, level, line, mixture, regression

WHOLE = lb.Memoized(batch_size=40)


def parts(*arrays, ends=(0, 80, 130, 200)):
    return [tuple(a[low:high] for a in arrays) for low, high in pairwise(ends)]


@pytest.fixture(scope="module")
def rows():
    return line(n=200)


@pytest.fixture(scope="module")
def all_rows(rows):
    return lb.fit(regression, *rows)


def assert_same(fit, other, sites=("beta", "tau"), rtol=1e-8):
    for site in sites:
        np.testing.assert_allclose(fit.mean(site), other.mean(site), rtol=rtol)
        np.testing.assert_allclose(fit.sd(site), other.sd(site), rtol=rtol)


@pytest.mark.parametrize("method", [lb.CAVI(), WHOLE], ids=["from CAVI", "from SVI"])
def test_a_chain_of_updates_of_a_conjugate_model_is_exact(method, rows, all_rows):
    """Factors are those of all rows, and log p(all) = log p(first) + log p(second | first) + ..."""
    first, second, third = parts(*rows)
    fit = lb.fit(regression, *first, method=method)
    elbos = [fit.elbo]
    for new in (second, third):
        fit = lb.update(fit, *new)
        elbos.append(fit.elbo)
    assert_same(fit, all_rows)
    np.testing.assert_allclose(sum(elbos), all_rows.elbo, rtol=1e-9)
    np.testing.assert_allclose(sum(fit.elbo_terms.values()), fit.elbo, rtol=1e-12)
    assert fit.converged


def test_minibatches_of_new_rows(rows, all_rows):
    """Whole passes with steps 1/t average the targets of all batches, which is exact."""
    fit = lb.fit(regression, *parts(*rows)[0])
    new = tuple(a[80:] for a in rows)
    method = lb.SVI(batch_size=40, steps=9, forgetting=1.0)
    fit = lb.update(fit, *new, method=method, seed=3)
    assert_same(fit, all_rows)
    assert fit.restarts[0].sweeps == 9
    assert "held out" not in str(fit.plan)  # rows that arrive in turn are all to be learned


def test_after_a_file(rows, all_rows, tmp_path):
    first, second, third = parts(*rows)
    fit = lb.update(lb.fit(regression, *first, method=WHOLE), *second)
    fit.save(tmp_path / "run.lb")
    assert_same(lb.update(lb.load(tmp_path / "run.lb", regression), *third), all_rows)


def test_settings_are_kept_and_indices_are_rows():
    y, g = groups(n=200)
    (first, second, third) = parts(y, g)
    fit = lb.fit(grouped, *first, G=5)  # one group never occurs
    for new in (second, third):
        fit = lb.update(fit, *new)
    # q(a) q(tau) is not the posterior: early rows keep the weight that the early tau gave them.
    exact = lb.fit(grouped, y, g, G=5)
    assert fit.mean("a").shape == (5,)
    np.testing.assert_allclose(fit.mean("a"), exact.mean("a"), atol=0.2 * exact.sd("a").max())
    np.testing.assert_allclose(fit.sd("a"), exact.sd("a"), rtol=0.1)


def test_single_rows_and_streams():
    y = np.random.default_rng(0).normal(size=30)
    fit = lb.fit(level, y[:20])
    for value in y[20:23]:
        fit = lb.update(fit, np.array([value]))
    fit = lb.update(fit, **lb.stream([{"y": y[23:26]}, {"y": y[26:]}], total=7))
    np.testing.assert_allclose(fit.mean("mu"), y.sum() / 31, rtol=1e-10)
    np.testing.assert_allclose(fit.sd("mu"), 31**-0.5, rtol=1e-10)


def test_rows_far_from_zero():
    y = 1e6 + np.random.default_rng(0).normal(size=60)

    def far(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1e7))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    fit = lb.update(lb.fit(far, y[:30]), y[30:])
    np.testing.assert_allclose(fit.mean("mu"), y.sum() / (60 + 1e-14), rtol=1e-9)
    np.testing.assert_allclose(fit.sd("mu"), 60**-0.5, rtol=1e-4)


@pytest.mark.slow
def test_a_mixture_gets_better():
    """From 30 rows to 330: over 20 seeds the smallest gain was 0.05 nats a row."""
    test, _ = clusters(9, n=200)
    for seed in range(3):
        x, _ = clusters(seed, n=330)
        first = lb.fit(mixture, x[:30], K=3, method=lb.CAVI(restarts=5))
        fit = lb.update(first, x[30:])
        before, after = (f.log_predictive(test).mean() for f in (first, fit))
        assert after > before
        assert fit.sd("mu").max() < first.sd("mu").max()
        assert fit.posterior["pi"].concentration.sum() == pytest.approx(333, rel=1e-9)


def test_the_new_fit_answers_like_any_other(rows):
    first, second, _ = parts(*rows)
    fit = lb.update(lb.fit(regression, *first), *second)
    assert fit.plan.method == "Memoized"
    x_new = np.ones((4, 2))
    assert fit.predictive(x_new, draws=10)["y"].shape == (10, 4)
    assert set(fit.posterior) == {"tau", "beta"}


def logistic(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


def test_an_augmented_fit_goes_on_as_the_program_that_was_given():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = (rng.random(60) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
    method = lb.Augmented({"y": "polya-gamma"}, lb.CAVI())
    first = lb.fit(logistic, x[:20], y[:20], method=method)
    fit = lb.update(lb.update(first, x[20:40], y[20:40]), x[40:], y[40:])
    assert fit.call.function is logistic
    assert fit.answer.augment == {"y": "polya-gamma"}
    assert set(fit.posterior) == {"beta"}
    assert set(fit.predictive(x[:3], draws=5)) == {"y"}
    # The numbers are those of the augmented program, fitted as it is.
    other = lb.fit(augmented(logistic, {"y": "polya-gamma"}), x[:20], y[:20], method=lb.CAVI())
    other = lb.update(lb.update(other, x[20:40], y[20:40]), x[40:], y[40:])
    np.testing.assert_array_equal(fit.mean("beta"), other.mean("beta"))
    assert fit.elbo == other.elbo
    assert (fit.sd("beta") < first.sd("beta")).all()


# --------------------------------------------------------------------------------------------------
# Errors


@pytest.mark.judged
def test_the_posterior_of_new_rows_alone_is_no_measure(rows, tmp_path):
    """The prior of an updated fit is that of the old rows, which no density of the program has."""
    (first, second, _) = parts(*rows)
    fit = lb.update(lb.fit(regression, *first), *second)  # warnings are errors here
    why = "its prior is what earlier rows have taught, and these are not kept"
    assert fit.verdict.trust == "means"
    assert fit.verdict.reason == f"q was not compared with the posterior, as {why}"
    assert fit.verdict.cure == ""
    fit.save(tmp_path / "fit.lb")
    for known in (fit, lb.load(tmp_path / "fit.lb", regression)):
        with pytest.raises(errors.UnjudgedError, match=why):
            lb.check(known, rows=second)


def test_no_new_rows(rows):
    fit = lb.fit(regression, *rows)
    with pytest.raises(errors.ArgumentError) as caught:
        lb.update(fit)
    assert str(caught.value) == (
        "update got no new rows.\n"
        "Expected data arguments of the model after the fit: lb.update(fit, x_new)."
    )


def shared(y):
    """Coordinate ascent puts mu and the levels of all rows into one Gaussian."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        a = numpyro.sample("a", dist.Normal(mu, 1.0))
        numpyro.sample("y", dist.Normal(a, 1.0), obs=y)


def test_a_global_site_that_shares_a_factor_with_local_ones():
    y = np.random.default_rng(0).normal(size=20)
    with pytest.raises(errors.ArgumentError) as caught:
        lb.update(lb.fit(shared, y), y)
    assert str(caught.value) == (
        "The fit has no factor of mu alone, of kind normal and shape ().\n"
        "Expected a fit of the same model whose global sites share no factor with local ones. "
        "Fit the first data with method=lb.SVI()."
    )
    again = lb.update(lb.fit(shared, y, method=lb.Memoized()), y)
    assert again.sd("mu") < 20**-0.5

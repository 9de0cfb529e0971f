"""Crossed factors whose smaller one is too large to be dense, against the dense answer."""

import re

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.compute.threads import one_thread
from lowerbound.errors import PoorIntegralError
from lowerbound.family.sparse import elimination, independent_sets
from lowerbound.methods.hierarchy import hierarchies
from lowerbound.methods.hierarchy.inner.parabolas import Parabolas

ROWS, FIRSTS, SECONDS = 2000, 160, 90


@pytest.fixture(autouse=True)
def eliminated(monkeypatch):
    """Small designs are eliminated like large ones."""
    monkeypatch.setattr(independent_sets, "STAGE", 0.0)
    monkeypatch.setattr(independent_sets, "SCATTERED", 1.0)
    monkeypatch.setattr(elimination, "_MOST_ENTRIES", 0.0)
    with one_thread():
        yield


def rows(seed):
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, FIRSTS, ROWS), rng.integers(0, SECONDS, ROWS)
    mean = 0.8 * rng.normal(size=FIRSTS)[first] + 0.5 * rng.normal(size=SECONDS)[second]
    return rng, {"first": first, "second": second}, 0.4 + mean


def effects(first, second):
    centre = numpyro.sample("centre", dist.Normal(0.0, 3.0))
    s_first = numpyro.sample("s_first", dist.HalfNormal(1.0))
    s_second = numpyro.sample("s_second", dist.HalfNormal(1.0))
    with numpyro.plate("firsts", FIRSTS):
        a = numpyro.sample("a", dist.Normal(0.0, s_first))
    with numpyro.plate("seconds", SECONDS):
        b = numpyro.sample("b", dist.Normal(0.0, s_second))
    return centre + a[first] + b[second]


def gaussian(first, second, y):
    mean = effects(first, second)
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("rows", len(first)):
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


def logistic(first, second, y):
    logits = effects(first, second)
    with numpyro.plate("rows", len(first)):
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def data_of(program, seed=0):
    rng, codes, mean = rows(seed)
    if program is gaussian:
        return codes | {"y": mean + rng.normal(size=ROWS)}
    return codes | {"y": (rng.uniform(size=ROWS) < 1 / (1 + np.exp(-mean))).astype(float)}


@pytest.mark.parametrize("program", [gaussian, logistic])
def test_the_answer_is_that_of_the_dense_factor(program, monkeypatch):
    data, method = data_of(program), lb.Integrated()
    # What is not Gaussian is corrected by dense covariances alone: here both go without it.
    monkeypatch.setattr(hierarchies, "with_remainders", lambda surface, integral: integral)
    exact = lb.fit(program, **data, method=method, progress=False)
    monkeypatch.setattr(elimination, "MOST_DENSE", 20)
    found = lb.fit(program, **data, method=method, progress=False)
    assert found.converged
    assert found.answer.exact == (program is gaussian)
    (note,) = found.notes
    assert re.fullmatch(r"The sds of centre, a, b are estimates, to about \d\.\d+%\.", note)
    assert exact.elbo_error < found.elbo_error < 0.1
    assert abs(found.elbo - exact.elbo) < 4.0 * found.elbo_error
    for site in ("s_first", "s_second", "centre", "a", "b"):
        off = (found.mean(site) - exact.mean(site)) / exact.sd(site)
        assert np.sqrt(np.mean(off**2)) < 0.03
        assert np.sqrt(np.mean((found.sd(site) / exact.sd(site) - 1.0) ** 2)) < 0.03


def test_draws_and_files(monkeypatch, tmp_path):
    monkeypatch.setattr(elimination, "MOST_DENSE", 20)
    data = data_of(gaussian)
    fit = lb.fit(gaussian, **data, method=lb.Integrated(), progress=False)
    draws = fit.sample(400, seed=0)
    for site in ("a", "b", "centre"):
        off = (np.mean(draws[site], axis=0) - fit.mean(site)) / fit.sd(site)
        assert np.sqrt(np.mean(off**2)) < 2.0 / np.sqrt(400)
        ratio = np.std(draws[site], axis=0) / fit.sd(site)
        assert abs(np.mean(np.log(ratio))) < 0.15
    total = np.asarray(draws["a"]).mean(axis=1) + np.asarray(draws["b"]).mean(axis=1)
    total = total + np.asarray(draws["centre"])
    assert total.std() < 0.5 * fit.sd("centre")  # what crossed factors tell: the sum, not the parts
    fit.save(tmp_path / "crossed.lb")
    again = lb.load(tmp_path / "crossed.lb", gaussian)
    for site, draws in again.sample(5, seed=1).items():
        np.testing.assert_allclose(draws, fit.sample(5, seed=1)[site], rtol=1e-7, atol=1e-9)


def test_the_plan_says_so(monkeypatch):
    monkeypatch.setattr(elimination, "MOST_DENSE", 20)
    text = str(lb.explain(gaussian, **data_of(gaussian), method=lb.Integrated()))
    assert "exact mean, estimated sds, given s_first, s_second, sigma" in text
    assert "160 eliminated in small blocks; 91 left, more than the 20 that may be dense" in text
    assert "log-determinants by 8 fixed probes, whose error is in fit.elbo_error" in text


@pytest.mark.parametrize(("stated", "percent"), [(3.0, 150), (0.5, 25)])
def test_estimates_that_tell_nothing_are_an_error(monkeypatch, stated, percent):
    """Of the start, where hopeless, and in the end."""
    monkeypatch.setattr(elimination, "MOST_DENSE", 20)
    monkeypatch.setattr(Parabolas, "variance_error", lambda self, solved: stated)
    text = (
        "The integral over 's_first', 's_second', 'sigma' is not to be trusted: the sds of centre, "
        f"a, b given these are estimated to {percent}% only, for too many effects meet each other, "
        "and lean on each other too much."
    )
    with pytest.raises(PoorIntegralError, match=re.escape(text)):
        lb.fit(gaussian, **data_of(gaussian), method=lb.Integrated(), progress=False)

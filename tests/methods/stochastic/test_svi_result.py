"""What a stochastic fit answers: global factors, local ones of any rows, predictions, files."""

import re

import numpy as np
import pytest

import lowerbound as lb
from lowerbound import errors
from tests.run.models import (
    clusters,
    grouped,
    groups,
    line,
    mixture,
    regression,
    topics,
    words,
)

METHOD = lb.SVI(batch_size=40, steps=60, forgetting=0.7, monitor=None)


@pytest.fixture(scope="module")
def fitted():
    return lb.fit(mixture, clusters(n=240)[0], K=3, method=METHOD)


@pytest.fixture(scope="module")
def exact():
    return lb.fit(mixture, clusters(n=240)[0], K=3, method=lb.CAVI(restarts=3))


def test_the_posterior_is_that_of_the_global_sites(fitted):
    assert set(fitted.posterior) == {"pi", "tau", "mu"}
    np.testing.assert_allclose(fitted.posterior["pi"].mean, fitted.mean("pi"), rtol=1e-6)
    with pytest.raises(KeyError) as caught:
        fitted.posterior["z"]
    assert caught.value.args[0] == (
        "'z' is local, and a stochastic fit keeps the global factors alone; fit.local(rows)['z'] "
        "gives its factors for any rows"
    )


def test_local_factors_of_any_rows(fitted):
    x, labels = clusters(3, n=50)
    probs = fitted.local(x)["z"].probs
    assert probs.shape == (50, 3)
    chosen = probs.argmax(axis=-1)
    # Three clusters six sds apart: assignments are the labels, by other names.
    names = {label: set(chosen[labels == label]) for label in range(3)}
    assert all(len(name) == 1 for name in names.values())
    assert len(set.union(*names.values())) == 3


def test_densities_and_draws_of_new_rows(fitted, exact):
    """Posterior means differ by less than 0.15 sds, and so, by little, do densities."""
    x, _ = clusters(3, n=50)
    densities = fitted.log_predictive(x)
    assert densities.shape == (50,)
    np.testing.assert_allclose(densities, exact.log_predictive(x), atol=0.05)
    draws = fitted.predictive(x)["x"]
    assert draws.shape == (1000, 50, 2)
    # 50,000 draws of coordinates with sd below 4: the standard error of their mean is below 0.02.
    np.testing.assert_allclose(draws.mean(axis=(0, 1)), clusters(n=240)[0].mean(axis=0), atol=0.1)


def test_rows_of_the_fit_cannot_be_replicated(fitted):
    with pytest.raises(errors.ArgumentError) as caught:
        fitted.predictive()
    assert str(caught.value) == (
        "The fit holds global factors alone, not those of the rows it was made from, so it cannot "
        "replicate these.\nExpected rows to predict: fit.predictive(x_new)."
    )


def test_terms_of_the_bound(fitted, exact):
    assert list(fitted.elbo_terms) == list(exact.elbo_terms)
    np.testing.assert_allclose(sum(fitted.elbo_terms.values()), fitted.elbo, rtol=1e-12)
    # The bound is flat at its maximum, its terms are not.
    for site, value in exact.elbo_terms.items():
        assert abs(fitted.elbo_terms[site] - value) < 1.0, site


def test_text(fitted):
    lines = repr(fitted).splitlines()
    assert lines[0] == (
        "Fit of mixture by SVI(batch_size=40, steps=60, forgetting=0.7, monitor=None): ELBO "
        f"{fitted.elbo:.6g} nats, not converged after 60 steps (2,400 rows)"
    )
    assert lines[1:] == [
        "  stopped: ran the 60 steps",
        f"  {fitted.verdict}",
        "  pi: Dirichlet, shape (3,)",
        "  tau: Normal-Gamma(mu, tau), shape (3, 2)",
        "  mu: Normal-Gamma(mu, tau), shape (3, 2)",
    ]
    plan = str(fitted.plan)
    assert "rows = plate 'rows (240)'" in plan
    assert "SVI draws 40 of 240 rows without replacement, scaled by 6; step (t + 1)^-0.7." in plan
    assert "Sliced by rows: x." in plan


def test_explain_prints_the_plan_of_the_fit(fitted, capsys):
    x = clusters(n=240)[0]
    plan = lb.explain(mixture, x, K=3, method=METHOD)
    assert str(plan) == str(fitted.plan)
    printed = capsys.readouterr().out
    assert printed.startswith(f"{plan}\n")
    assert re.search(r"^Expected: about \S+ s and \S+ MB", printed, re.MULTILINE)
    memoized = lb.explain(mixture, x, K=3, method=lb.Memoized(batch_size=100))
    text = "Memoized visits 3 batches of 100 rows in turn and keeps their statistics; step 1."
    assert text in str(memoized)
    method = lb.SVI(batch_size=100, details=lb.Details(sampling="uniform"))
    uniform = lb.explain(mixture, x, K=3, method=method)
    text = "SVI draws 100 of 240 rows uniformly, scaled by 2.4; step adaptive, then full ones"
    assert text in str(uniform)


def test_summary_and_draws(fitted):
    table = fitted.summary()
    assert list(table.index[:3]) == ["pi[0]", "pi[1]", "pi[2]"]
    assert len(table) == 3 + 6 + 6
    draws = fitted.sample(seed=1)
    assert {name: a.shape for name, a in draws.items()} == {
        "pi": (1000, 3),
        "tau": (1000, 3, 2),
        "mu": (1000, 3, 2),
    }
    posterior = fitted.to_arviz().posterior
    assert posterior["mu"].shape == (1, 1000, 3, 2)


def test_deterministic_sites_of_the_global_ones():
    fit = lb.fit(grouped, *groups(), method=METHOD)
    draws = fit.sample()
    spread = draws["a"].max(axis=1) - draws["a"].min(axis=1)
    np.testing.assert_allclose(draws["spread"], spread, rtol=1e-12)
    # Moments of deterministic sites are from more draws, of which standard errors are a tenth.
    np.testing.assert_allclose(fit.mean("spread"), spread.mean(), atol=0.2 * spread.std())
    assert 3.5 < spread.mean() < 4.5


def test_deterministic_sites_of_the_rows_are_left_out():
    """The fit holds one batch of rows, and what is computed from them is of no meaning."""
    fit = lb.fit(regression, *line(n=240), method=METHOD)
    with pytest.raises(errors.ArgumentError) as caught:
        fit.mean("mean")
    assert str(caught.value) == "'mean' is no site of the fit.\nExpected one of tau, beta."


def test_saved_and_loaded(fitted, tmp_path):
    x, _ = clusters(3, n=50)
    fitted.save(tmp_path / "run.lb")
    loaded = lb.load(tmp_path / "run.lb", mixture)
    assert repr(loaded) == repr(fitted)
    assert loaded.elbo == fitted.elbo
    assert loaded.elbo_terms == fitted.elbo_terms
    np.testing.assert_array_equal(loaded.history.rows, fitted.history.rows)
    np.testing.assert_array_equal(loaded.mean("mu"), fitted.mean("mu"))
    np.testing.assert_allclose(loaded.log_predictive(x), fitted.log_predictive(x), rtol=1e-12)
    with pytest.raises(KeyError, match="is local"):
        loaded.posterior["z"]


def test_local_factors_that_depend_on_each_other():
    """Of the rows of a converged fit they are the factors that coordinate ascent found."""
    w = words(n=40)
    exact = lb.fit(topics, w, method=lb.CAVI(tolerance=1e-12))
    found = exact.local(w)
    np.testing.assert_allclose(found["theta"].mean, exact.mean("theta"), atol=1e-3)
    np.testing.assert_allclose(found["z"].probs, exact.posterior["z"].probs, atol=1e-3)

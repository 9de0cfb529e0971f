"""`Fit`: moments, draws, predictions and tables."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import lowerbound as lb
from lowerbound import errors
from tests.laws.compilations import counted
from tests.run.models import clusters, line, mixture, regression


@pytest.fixture(scope="module")
def mixture_fit():
    x, labels = clusters()
    return lb.fit(mixture, x, K=3, method=lb.CAVI(restarts=4), seed=0), x, labels


@pytest.fixture(scope="module")
def regression_fit():
    x, y = line()
    return lb.fit(regression, x, y), x, y


def exact_regression(x, y):
    """V*, beta*, a*, b* of appendix A with alpha = 1, by hand."""
    precision = np.eye(x.shape[1]) + x.T @ x
    beta = np.linalg.solve(precision, x.T @ y)
    a = 3.0 + len(y) / 2
    b = 2.0 + (y @ y - beta @ precision @ beta) / 2
    return precision, beta, a, b


def test_moments_are_those_of_the_exact_posterior(regression_fit):
    fit, x, y = regression_fit
    precision, beta, a, b = exact_regression(x, y)
    np.testing.assert_allclose(fit.mean("beta"), beta, rtol=1e-10)
    np.testing.assert_allclose(fit.mean("tau"), a / b, rtol=1e-10)
    variance = np.diag(np.linalg.inv(precision)) * b / (a - 1)
    np.testing.assert_allclose(fit.sd("beta"), np.sqrt(variance), rtol=1e-10)
    assert fit.mean("beta").dtype == np.float64


def test_draws_include_deterministic_sites(regression_fit):
    fit, x, _ = regression_fit
    draws = fit.sample(500, seed=3)
    assert {name: array.shape for name, array in draws.items()} == {
        "tau": (500,),
        "beta": (500, 2),
        "mean": (500, len(x)),
    }
    np.testing.assert_allclose(draws["mean"], draws["beta"] @ x.T, rtol=1e-10)
    np.testing.assert_allclose(draws["beta"], fit.sample(500, seed=3)["beta"])
    with counted() as compilations:
        others = fit.sample(500, seed=4)
    assert not compilations
    assert not np.allclose(draws["beta"], others["beta"])
    np.testing.assert_allclose(fit.mean("mean"), x @ fit.mean("beta"), atol=0.1)


def test_few_draws_are_the_first_of_more_by_one_program(regression_fit):
    fit, *_ = regression_fit
    more = fit.sample(300, seed=3, sites=["beta", "tau"])
    with counted() as compilations:
        few = fit.sample(20, seed=3, sites=["beta", "tau"])
    assert not compilations
    for site, draws in few.items():
        np.testing.assert_array_equal(draws, more[site][:20])


def test_draws_of_some_sites_leave_the_factors_of_others_alone(mixture_fit, monkeypatch):
    fit, *_ = mixture_fit
    blocks = zip(fit.q.family.blocks, fit.q.family.families, strict=True)
    (rows,) = (family for block, family in blocks if block.sites == ("z",))
    # As many draws of everything have the same keys, and are the same.
    every = fit.sample(700, seed=3)

    def never(*args):
        raise AssertionError("drawn")

    monkeypatch.setattr(type(rows), "sample", never)
    some = fit.sample(700, seed=3, sites=["mu", "pi"])
    assert set(some) == {"mu", "pi"}
    for site, draws in some.items():
        np.testing.assert_allclose(draws, every[site], rtol=1e-12)
    # Nor are they drawn for a table of what rows share, or for rows that are new.
    assert {name.split("[")[0] for name in fit.summary(draws=700).index} == {"pi", "tau", "mu"}
    assert fit.predictive(np.zeros((2, 2)), K=3, draws=700)["x"].shape == (700, 2, 2)


def test_log_predictive_of_a_regression_is_student_t(regression_fit):
    fit, x, y = regression_fit
    precision, beta, a, b = exact_regression(x, y)
    new_x, new_y = line(seed=1, n=12)
    variance = 1 + np.einsum("nd,de,ne->n", new_x, np.linalg.inv(precision), new_x)
    exact = stats.t.logpdf(new_y, 2 * a, new_x @ beta, np.sqrt(b / a * variance))
    np.testing.assert_allclose(fit.log_predictive(new_x, new_y), exact, rtol=1e-9)


def test_log_predictive_of_a_mixture_is_a_mixture_of_student_t(mixture_fit):
    fit, *_ = mixture_fit
    new, _ = clusters(seed=5, n=9)
    weights = fit.mean("pi")
    tau, mu = fit.posterior["tau"], fit.posterior["mu"]
    a, b = np.asarray(tau.concentration), np.asarray(tau.rate)
    # mu given tau has precision kappa tau, and is Student t with scale^2 = b / (a kappa).
    kappa = b / (a * np.asarray(mu.scale) ** 2)
    scale = np.sqrt(b / a * (1 + 1 / kappa))
    each = stats.t.logpdf(new[:, None], 2 * a, np.asarray(mu.loc), scale).sum(-1)
    exact = np.logaddexp.reduce(np.log(weights) + each, axis=1)
    np.testing.assert_allclose(fit.log_predictive(new), exact, rtol=1e-8)


def test_log_predictive_by_draws_where_no_closed_form_exists():
    """q(beta) q(tau) apart: at one draw it is the density given the draw; 4000 draws are near the
    exact posterior's Student t (each value within 0.1 but for a chance below 1e-6)."""
    x, y = line()
    fit = lb.fit(regression, x, y, method=lb.CAVI(blocks=[("beta",), ("tau",)]))
    new_x, new_y = line(seed=1, n=12)
    draw = fit.sample(1, seed=7)
    given = stats.norm.logpdf(new_y, new_x @ draw["beta"][0], 1 / np.sqrt(draw["tau"][0]))
    np.testing.assert_allclose(fit.log_predictive(new_x, new_y, draws=1, seed=7), given, rtol=1e-9)
    precision, beta, a, b = exact_regression(x, y)
    variance = 1 + np.einsum("nd,de,ne->n", new_x, np.linalg.inv(precision), new_x)
    exact = stats.t.logpdf(new_y, 2 * a, new_x @ beta, np.sqrt(b / a * variance))
    for seed in range(3):
        found = fit.log_predictive(new_x, new_y, draws=4000, seed=seed)
        np.testing.assert_allclose(found, exact, atol=0.1)


def test_local_assigns_new_rows(mixture_fit):
    fit, x, labels = mixture_fit
    new, new_labels = clusters(seed=5, n=30)
    found = fit.local(new)["z"].probs.argmax(-1)
    own = fit.posterior["z"].probs.argmax(-1)
    names = {label: own[labels == label][0] for label in range(3)}
    assert [names[label] for label in new_labels] == list(found)
    np.testing.assert_allclose(fit.local(x)["z"].probs, fit.posterior["z"].probs, atol=1e-4)
    with pytest.raises(errors.ArgumentError, match="no local latent sites"):
        lb.fit(regression, *line()).local(*line(seed=2))


def test_second_question_of_the_same_shapes_compiles_nothing(mixture_fit, regression_fit):
    fit, x, y = regression_fit
    answers = []
    for seed in range(2):
        new_x = x[4 * seed : 4 * seed + 4]
        with counted() as compilations:
            drawn = fit.predictive(new_x, draws=50, seed=seed)["y"]
            fit.log_predictive(new_x, y[:4])
            mixture_fit[0].predictive(draws=50, seed=seed)
        answers.append(drawn)
    assert not compilations
    assert not np.array_equal(*answers), "the rows are others"


def test_predictive_draws(mixture_fit, regression_fit):
    fit, _x, y = regression_fit
    new_x = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    drawn = fit.predictive(new_x, draws=4000, seed=1)
    assert set(drawn) == {"y"}
    assert drawn["y"].shape == (4000, 3)
    np.testing.assert_allclose(drawn["y"].mean(0), new_x @ fit.mean("beta"), atol=0.1)
    again = fit.predictive(draws=10)
    assert again["y"].shape == (10, len(y))
    mix, data, _ = mixture_fit
    assert mix.predictive(data[:7], draws=5)["x"].shape == (5, 7, 2)
    replicated = mix.predictive(draws=200)["x"]
    np.testing.assert_allclose(replicated.mean(0), data, atol=3.5)


def test_elbo_terms_sum_to_the_elbo(mixture_fit):
    fit, *_ = mixture_fit
    assert set(fit.elbo_terms) == {"pi", "tau", "mu", "z", "x"}
    np.testing.assert_allclose(sum(fit.elbo_terms.values()), fit.elbo, rtol=1e-12)


def test_local_draws_nothing_where_the_means_are_known(mixture_fit, monkeypatch):
    """E_q of the global statistics is exact here; draws of large global sites take minutes."""
    fit, x, _ = mixture_fit

    def refuse(*_):
        raise AssertionError("drew from q")

    monkeypatch.setattr(type(fit.q.family), "sample", refuse)
    assert fit.local(x[:5])["z"].probs.shape == (5, 3)


def test_summary_leaves_local_sites_out(mixture_fit):
    fit, *_ = mixture_fit
    table = fit.summary()
    assert list(table.columns) == ["mean", "sd", "q5", "median", "q95"]
    assert "mu[0, 1]" in table.index
    assert not any(name.startswith("z") for name in table.index)
    assert (table.q5 <= table["median"]).all()
    assert len(fit.summary(sites=["z"])) == 60


def test_posterior_is_a_mapping_of_numpyro_distributions(mixture_fit):
    fit, *_ = mixture_fit
    assert set(fit.posterior) == {"pi", "tau", "mu", "z"}
    assert isinstance(fit.posterior["pi"], dist.Dirichlet)
    assert isinstance(fit.posterior["mu"], dist.StudentT)
    with pytest.raises(KeyError, match="no latent site"):
        fit.posterior["x"]


def test_repr_says_what_happened(mixture_fit):
    fit, *_ = mixture_fit
    text = repr(fit)
    assert text.startswith("Fit of mixture by CAVI(restarts=4): ELBO ")
    assert "converged after" in text
    assert "best of 4 restarts" in text


def test_to_arviz(regression_fit):
    fit, *_ = regression_fit
    data = fit.to_arviz(draws=50)
    assert data.posterior["beta"].shape == (1, 50, 2)


def test_missing_entries_have_a_posterior():
    x, labels = clusters()
    row = int(np.flatnonzero(labels == 2)[0])  # the cluster whose second coordinate tells it
    masked = np.ma.masked_array(x, mask=np.zeros_like(x, bool))
    masked[row, 0] = np.ma.masked
    masked[10] = np.ma.masked
    fit = lb.fit(mixture, masked, K=3, method=lb.CAVI(restarts=3))
    draws = fit.sample(2000, seed=0)["x"]
    keep = ~np.ma.getmaskarray(masked)
    np.testing.assert_allclose(draws[:, keep], np.broadcast_to(x[keep], (2000, keep.sum())))
    assert draws[:, row, 0].std() > 0.1
    assert abs(draws[:, row, 0].mean()) < 1.5
    assert fit.mean("x").shape == x.shape
    assert np.isfinite(fit.elbo)


def test_discrete_moments_use_the_support_values():
    def model(y):
        k = numpyro.sample("k", dist.Binomial(4, 0.5))
        numpyro.sample("y", dist.Normal(k * 1.0, 1.0), obs=y)

    y = 3.2
    fit = lb.fit(lambda y: model(y[0]), np.array([y]))
    weights = stats.binom.pmf(np.arange(5), 4, 0.5) * stats.norm.pdf(y, np.arange(5), 1.0)
    weights /= weights.sum()
    np.testing.assert_allclose(fit.mean("k"), weights @ np.arange(5), rtol=1e-10)
    assert set(np.unique(fit.sample(200)["k"])) <= set(range(5))


def test_draws_of_a_discrete_site_are_its_values():
    def model(y):
        k = numpyro.sample("k", dist.DiscreteUniform(3, 6))
        numpyro.sample("y", dist.Normal(k * 1.0, 1.0), obs=y[0])

    fit = lb.fit(model, np.array([4.4]))
    weights = stats.norm.pdf(4.4, np.arange(3, 7), 1.0)
    draws = fit.sample(2000)["k"]
    assert set(np.unique(draws)) == {3, 4, 5, 6}
    error = fit.sd("k") / np.sqrt(2000)
    exact = weights @ np.arange(3, 7) / weights.sum()
    assert abs(draws.mean() - exact) < 5 * error

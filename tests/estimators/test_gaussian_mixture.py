"""Mixtures of Gaussians as an estimator: what it finds, predicts and refuses."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lowerbound as lb
from lowerbound.errors import ArgumentError, ConvergenceWarning, SettingError
from lowerbound.estimators import ComponentPrior, GaussianMixture
from lowerbound.estimators.mixtures.gaussian_mixture import PROGRAMS

CENTRES = np.array([[-6.0, 0.0], [0.0, 6.0], [6.0, 0.0]])


def clusters(seed: int = 0, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three clusters, six sds apart and more, and their labels."""
    z = np.arange(n) % 3
    return CENTRES[z] + np.random.default_rng(seed).normal(size=(n, 2)), z


X, Z = clusters()


MORE = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("full", "tied", "spherical")]


@pytest.fixture(scope="module", params=["diag", *MORE])
def fitted(request) -> GaussianMixture:
    return GaussianMixture(3, covariance_type=request.param, n_init=3).fit(X)


def test_planted_clusters_are_found(fitted):
    assert_allclose(fitted.means_[np.argsort(fitted.means_[:, 0])], CENTRES, atol=0.7)
    assert adjusted_rand_score(fitted.predict(X), Z) == 1.0
    assert_allclose(fitted.weights_, 1 / 3, atol=0.03)
    assert fitted.converged_


def test_shapes_are_those_of_scikit_learn(fitted):
    shape = {"full": (3, 2, 2), "tied": (2, 2), "diag": (3, 2), "spherical": (3,)}
    assert fitted.covariances_.shape == shape[fitted.covariance_type]
    assert fitted.precisions_.shape == shape[fitted.covariance_type]
    assert fitted.weights_.sum() == pytest.approx(1.0, rel=1e-12)


def test_probabilities_are_the_local_factors(fitted):
    found = fitted.predict_proba(X)
    assert found.shape == (60, 3)
    assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)
    local = fitted.result_.local(X)["z"].probs
    assert_allclose(found, np.asarray(local).reshape(60, 3), rtol=1e-9)


def test_densities_are_those_of_the_fit_and_rows_do_not_touch(fitted):
    """Padding to a power of two changes nothing."""
    found = fitted.score_samples(X)
    assert_allclose(found, fitted.result_.log_predictive(X), rtol=1e-8)
    assert_allclose(fitted.score_samples(X[:5]), found[:5], rtol=1e-9)
    assert fitted.score(X) == pytest.approx(found.mean(), rel=1e-12)


def test_the_result_is_the_fit_of_the_program(fitted):
    result = fitted.result_
    assert result.call.function is PROGRAMS[fitted.covariance_type]
    assert result.elbo == fitted.lower_bound_
    assert sum(result.elbo_terms.values()) == pytest.approx(result.elbo, rel=1e-9)


def test_pickles_predict_the_same(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert_allclose(again.predict_proba(X), fitted.predict_proba(X), rtol=1e-12)
    assert_allclose(again.score_samples(X), fitted.score_samples(X), rtol=1e-12)
    assert again.result_.elbo == fitted.result_.elbo


@pytest.mark.parametrize("seed", range(3))
def test_draws_have_the_moments_of_the_predictive(fitted, seed):
    """2,000 rows, five standard errors: four means a case, false failures below 1e-5."""
    model = clone(fitted)
    model.__dict__.update(vars(fitted))
    model.random_state = seed
    rows, z = model.sample(2000)
    assert rows.shape == (2000, 2)
    assert_allclose(np.bincount(z, minlength=3) / 2000, fitted.weights_, atol=5 * 0.011)
    for k in range(3):
        inside = rows[z == k]
        error = 5 * inside.std(axis=0) / np.sqrt(len(inside))
        assert (abs(inside.mean(axis=0) - fitted.means_[k]) < error + 0.3 / np.sqrt(20)).all()


@pytest.mark.parametrize("kind", ["diag", pytest.param("full", marks=pytest.mark.slow)])
def test_the_predictive_density_integrates_to_one(kind):
    x = np.concatenate([clusters()[0][:20, :1], clusters()[0][20:40, :1] + 9])
    model = GaussianMixture(2, covariance_type=kind, n_init=2).fit(x)
    grid = np.linspace(-400, 400, 2**15)[:, None]
    mass = np.exp(model.score_samples(grid)).sum() * (grid[1, 0] - grid[0, 0])
    assert mass == pytest.approx(1.0, abs=2e-3)


@pytest.mark.slow
def test_weights_of_both_kinds_empty_what_is_not_needed():
    for kind in ("dirichlet_process", "dirichlet_distribution"):
        model = GaussianMixture(
            6, covariance_type="spherical", n_init=3, weight_concentration_prior_type=kind,
            weight_concentration_prior=1e-3,
        ).fit(X)  # fmt: skip
        assert ((model.weights_ > 0.05).sum()) <= 4
        assert model.weights_.sum() == pytest.approx(1.0, rel=1e-9)


def test_translation_and_scale_change_nothing_else():
    here = GaussianMixture(3, covariance_type="diag", n_init=3).fit(X)
    there = GaussianMixture(3, covariance_type="diag", n_init=3).fit(1000 + 10 * X)
    assert_allclose(there.means_, 1000 + 10 * here.means_, rtol=1e-6)
    assert_allclose(there.covariances_, 100 * here.covariances_, rtol=1e-4)
    assert there.lower_bound_ == pytest.approx(here.lower_bound_ - X.size * np.log(10), rel=1e-6)


@pytest.mark.parametrize("kind", ["diag", pytest.param("spherical", marks=pytest.mark.slow)])
def test_missing_entries_are_left_out(kind):
    holes = X.copy()
    holes[np.arange(0, 60, 7), np.arange(0, 60, 7) % 2] = np.nan
    model = GaussianMixture(3, covariance_type=kind, n_init=3).fit(holes)
    assert_allclose(model.means_[np.argsort(model.means_[:, 0])], CENTRES, atol=0.8)
    assert adjusted_rand_score(model.predict(holes), Z) > 0.75
    assert np.isfinite(model.score_samples(holes)).all()


def test_missing_entries_of_correlated_columns_are_refused():
    holes = X.copy()
    holes[0, 0] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        GaussianMixture(3).fit(holes)


@pytest.mark.slow
def test_parts_come_to_what_a_fit_comes_to():
    """The posterior of the first half is the prior of the second."""
    model = GaussianMixture(3, covariance_type="diag", n_init=3)
    order = np.random.default_rng(0).permutation(60)
    for part in (order[:30], order[30:]):
        model.partial_fit(X[part])
    assert_allclose(model.means_[np.argsort(model.means_[:, 0])], CENTRES, atol=0.7)
    assert adjusted_rand_score(model.predict(X), Z) == 1.0


@pytest.mark.parametrize("make", [pd.DataFrame, lambda x, columns: pl.DataFrame(x, schema=columns)])
def test_data_frames_name_the_columns(make):
    frame = make(X, columns=["a", "b"])
    model = GaussianMixture(3, covariance_type="diag", n_init=3).fit(frame)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert_array_equal(model.predict(frame), model.fit(X).predict(X))


def test_what_is_known_of_a_component_counts():
    prior = ComponentPrior(mean=[50.0, 50.0], mean_weight=1e6)
    model = GaussianMixture(3, covariance_type="diag", prior=prior).fit(X)
    assert_allclose(model.means_, 50.0, atol=0.1)


def test_a_fit_that_stops_early_says_so():
    with pytest.warns(ConvergenceWarning, match="Give more with max_iter, or raise tol."):
        GaussianMixture(3, covariance_type="diag", max_iter=1).fit(X)


def test_the_verdict_is_measured_when_the_result_is_read():
    model = GaussianMixture(1, covariance_type="diag").fit(X)
    with lb.computing(verdicts=True):
        assert model.result_.verdict.trust == "all"
        assert model.result_ is model.result_


@pytest.mark.slow
def test_a_pipeline_and_a_grid():
    pipe = make_pipeline(StandardScaler(), GaussianMixture(covariance_type="diag", n_init=2))
    search = GridSearchCV(pipe, {"gaussianmixture__n_components": [1, 3]}, cv=3).fit(X)
    assert search.best_params_ == {"gaussianmixture__n_components": 3}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"covariance_type": "round"},
            "GaussianMixture got covariance_type='round'.\n"
            "Expected one of 'full', 'tied', 'diag', 'spherical'.",
        ),
        ({"n_init": 0}, "GaussianMixture got n_init=0.\nExpected an integer of at least 1."),
        ({"tol": -1}, "GaussianMixture got tol=-1.\nExpected a number of at least 0."),
        (
            {"random_state": "a"},
            "GaussianMixture got random_state='a'.\n"
            "Expected a whole number of at least 0, a numpy generator, or None.",
        ),
        (
            {"prior": ComponentPrior(covariance_weight=0.5)},
            "ComponentPrior got covariance_weight=0.5.\n"
            "Expected a number above 2: an empty component has no mean else.",
        ),
    ],
)
def test_settings_without_meaning(settings, text):
    with pytest.raises(SettingError) as error:
        GaussianMixture(2, **settings).fit(X)
    assert str(error.value) == text


def test_a_prior_of_another_shape():
    with pytest.raises(ArgumentError) as error:
        GaussianMixture(2, prior=ComponentPrior(mean=[0.0])).fit(X)
    assert str(error.value) == (
        "ComponentPrior got mean of shape (1,).\nExpected finite numbers of shape (2,)."
    )

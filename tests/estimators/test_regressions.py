"""Regressions as estimators, against closed forms and scikit-learn's where the two should agree."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, ndtr
from scipy.stats import t as student
from sklearn.base import is_classifier, is_regressor
from sklearn.linear_model import ARDRegression as TheirARD
from sklearn.linear_model import LogisticRegression as TheirLogistic

from lowerbound.errors import ArgumentError, SettingError, SupportError
from lowerbound.estimators import (
    ARDRegression,
    LinearRegression,
    LogisticRegression,
    PoissonRegression,
    ProbitRegression,
)
from lowerbound.estimators.regressions.linear_predictor import log_expected

N, D = 200, 3
BETA = np.array([1.0, -1.0, 0.0])
RANDOM = np.random.default_rng(0)
X = 2.0 + RANDOM.normal(size=(N, D))
ETA = (X - 2.0) @ BETA + 0.3
Y = ETA + 0.5 * RANDOM.normal(size=N)
CLASSES = np.where(RANDOM.random(N) < expit(ETA), "yes", "no")
SIDES = np.where(RANDOM.random(N) < ndtr(ETA), 1, 0)
COUNTS = RANDOM.poisson(np.exp(ETA))
GROUPS = np.arange(N) % 8
EFFECTS = RANDOM.normal(size=8)


@pytest.fixture(scope="module")
def ard() -> ARDRegression:
    return ARDRegression().fit(X, Y)


@pytest.fixture(scope="module")
def line() -> LinearRegression:
    return LinearRegression().fit(X, Y)


@pytest.fixture(scope="module")
def logistic() -> LogisticRegression:
    return LogisticRegression().fit(X, CLASSES)


@pytest.fixture(scope="module")
def probit() -> ProbitRegression:
    return ProbitRegression().fit(X, SIDES)


@pytest.fixture(scope="module")
def poisson() -> PoissonRegression:
    return PoissonRegression().fit(X, COUNTS)


# --------------------------------------------------------------------------------------------------
# Gaussian responses


def test_the_line_is_the_conjugate_posterior(line):
    """Normal-Gamma in closed form, with the prior that the docstring states."""
    Z = np.column_stack([np.ones(N), X - X.mean(axis=0)])
    scale = 10.0 * np.append(10.0, 1 / X.std(axis=0))
    precision = np.diag(scale**-2.0) + Z.T @ Z
    y = Y - Y.mean()
    mean = np.linalg.solve(precision, Z.T @ y)
    shape, rate = 0.5 + N / 2, 0.5 * Y.var() + 0.5 * (y @ y - mean @ precision @ mean)
    assert_allclose(line.coef_, mean[1:], rtol=1e-8)
    assert_allclose(line.intercept_, Y.mean() + mean[0] - X.mean(axis=0) @ mean[1:], rtol=1e-8)
    spread = np.einsum("nd,de,ne->n", Z, np.linalg.inv(precision), Z)
    exact = student(2 * shape, Z @ mean, np.sqrt(rate / shape * (1 + spread)))
    assert_allclose(line.log_predictive(X[:20], Y[:20]), exact.logpdf(y)[:20], rtol=1e-8)
    assert_allclose(line.predict(X, return_std=True)[1], exact.std(), rtol=1e-8)


def test_parts_of_a_line_are_the_whole(line):
    """Exactly, but for the prior, whose scales the first part sets."""
    parts = LinearRegression()
    for low in range(0, N, 100):
        parts.partial_fit(X[low : low + 100], Y[low : low + 100])
    assert_allclose(parts.coef_, line.coef_, atol=2e-4)
    assert_allclose(parts.intercept_, line.intercept_, atol=1e-3)


@pytest.mark.slow
def test_groups_have_effects():
    y = Y + EFFECTS[GROUPS]
    model = LinearRegression().fit(X, y, groups=GROUPS)
    assert_allclose(model.coef_, BETA, atol=0.15)
    centred = EFFECTS - EFFECTS.mean()
    assert_allclose(model.effects_ - model.effects_.mean(), centred, atol=0.4)
    assert model.score(X, y) < 1 - np.var(y - model.predict(X, groups=GROUPS)) / np.var(y)
    mean, sd = model.predict(X[:2], groups=[0, 99], return_std=True)
    assert mean[1] == pytest.approx(model.predict(X[:2])[1])  # a new group
    assert sd[1] > 1.5 * sd[0]
    assert np.isfinite(model.log_predictive(X, y, groups=GROUPS)).all()
    with pytest.raises(ArgumentError, match="rows without a group, or of new ones"):
        model.log_predictive(X[:1], y[:1], groups=[99])


def test_relevance_is_found(ard):
    assert_allclose(ard.coef_, BETA, atol=0.1)
    assert abs(ard.coef_[2]) < 0.05
    assert ard.lambda_[2] > 20 * ard.lambda_[:2].max()
    assert ard.alpha_ == pytest.approx(4.0, rel=0.25)
    assert ard.sigma_.shape == (D, D)


def test_relevance_is_near_the_one_that_maximises_evidence(ard):
    """Not equal: this one averages over the precisions."""
    theirs = TheirARD().fit(X, Y)
    assert_allclose(ard.coef_[:2], theirs.coef_[:2], atol=0.01)
    mean, sd = ard.predict(X, return_std=True)
    assert_allclose(mean, theirs.predict(X), atol=0.05)
    assert_allclose(sd, theirs.predict(X, return_std=True)[1], rtol=0.05)


def test_densities_of_relevance_are_gaussian_nearly(ard):
    mean, sd = ard.predict(X[:30], return_std=True)
    gaussian = -0.5 * ((Y[:30] - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
    assert_allclose(ard.log_predictive(X[:30], Y[:30]), gaussian, atol=0.05)


def test_irrelevant_columns_are_zero_past_the_threshold():
    model = ARDRegression(threshold_lambda=50.0).fit(X, Y)
    assert model.coef_[2] == 0.0
    assert ARDRegression(threshold_lambda=None).fit(X, Y).coef_[2] != 0.0


def test_without_an_intercept(ard):
    for kind in (ARDRegression, LinearRegression):
        model = kind(fit_intercept=False).fit(X - X.mean(axis=0), Y - Y.mean())
        assert model.intercept_ == 0.0
        assert_allclose(model.coef_, BETA, atol=0.15)


# --------------------------------------------------------------------------------------------------
# Classes and counts


def test_classes_have_the_probabilities_of_the_mean_of_q(logistic):
    mode = TheirLogistic().fit(X, CLASSES)
    assert_allclose(logistic.coef_, mode.coef_, atol=0.1)
    assert logistic.classes_.tolist() == ["no", "yes"]
    found = logistic.predict_proba(X)
    assert_allclose(found, mode.predict_proba(X), atol=0.03)
    assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    assert logistic.score(X, CLASSES) == pytest.approx(mode.score(X, CLASSES), abs=0.03)
    draws = logistic.result_.sample(4000, sites=["beta"])["beta"]
    Z = np.column_stack([np.ones(5), X[:5] - X.mean(axis=0)])
    assert_allclose(found[:5, 1], expit(draws @ Z.T).mean(axis=0), atol=0.01)


def test_more_than_two_classes():
    three = np.digitize(ETA + 0.5 * RANDOM.normal(size=N), [-0.5, 0.8])
    model = LogisticRegression().fit(X, three)
    mode = TheirLogistic().fit(X, three)
    assert model.coef_.shape == (3, D)
    assert_allclose(model.predict_proba(X), mode.predict_proba(X), atol=0.06)
    assert model.decision_function(X).shape == (N, 3)


def test_probit_probabilities_are_exact(probit):
    assert_allclose(probit.coef_[0], BETA, atol=0.4)
    draws = probit.result_.sample(4000, sites=["beta"])["beta"]
    Z = np.column_stack([np.ones(5), X[:5] - X.mean(axis=0)])
    found = probit.predict_proba(X[:5])[:, 1]
    assert_allclose(found, ndtr(draws @ Z.T).mean(axis=0), atol=0.01)


def test_counts(poisson):
    assert_allclose(poisson.coef_, BETA, atol=0.2)
    assert poisson.intercept_ == pytest.approx(0.3, abs=0.5)
    assert 0.4 < poisson.score(X, COUNTS) < 1.0
    total = sum(np.exp(poisson.log_predictive(X[:4], np.full(4, k))) for k in range(200))
    assert_allclose(total, 1.0, atol=1e-3)


def test_quadrature():
    """E[exp(a)] = exp(m + s^2 / 2)."""
    mean, sd = np.array([0.0, 1.0]), np.array([0.5, 2.0])
    assert_allclose(log_expected(lambda a: a, mean, sd), mean + sd**2 / 2, rtol=1e-9)


@pytest.mark.parametrize("name", ["ard", "line", "logistic", "probit", "poisson"])
def test_what_all_share(name, request):
    model = request.getfixturevalue(name)
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict(X) == model.predict(X)).all()
    assert model.result_.elbo == model.lower_bound_
    assert model.converged_
    assert is_classifier(model) == hasattr(model, "classes_")
    assert is_regressor(model) != is_classifier(model)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    with pytest.warns(UserWarning, match="feature names"):
        model.predict(frame)


# --------------------------------------------------------------------------------------------------
# What is refused


@pytest.mark.parametrize(
    ("model", "y", "kind", "text"),
    [
        (
            ProbitRegression(),
            np.arange(N) % 3,
            ArgumentError,
            "Only binary classification is supported: ProbitRegression got y with 3 classes.\n"
            "Expected two.",
        ),
        (
            LogisticRegression(),
            np.zeros(N, int),
            ArgumentError,
            "LogisticRegression got y with one class, np.int64(0).\nExpected at least two classes.",
        ),
        (
            PoissonRegression(),
            -np.ones(N),
            ArgumentError,
            "PoissonRegression got y with negative numbers.\nExpected counts, 0 or more.",
        ),
        (
            ARDRegression(),
            np.ones(N),
            ArgumentError,
            "ARDRegression got y without variance: the precision of the noise has no posterior.\n"
            "Expected responses that differ.",
        ),
        (
            LogisticRegression(C=0.0),
            np.arange(N) % 2,
            SettingError,
            "LogisticRegression got C=0.0.\nExpected a number above 0.",
        ),
    ],
)
def test_bad_input(model, y, kind, text):
    with pytest.raises(kind) as error:
        model.fit(X, y)
    assert str(error.value) == text


def test_counts_are_whole_numbers():
    with pytest.raises(SupportError, match="the integers 0, 1, 2"):
        PoissonRegression().fit(X, COUNTS + 0.5)


def test_groups_of_another_length(line):
    with pytest.raises(ArgumentError, match="groups, but was fitted without"):
        line.predict(X, groups=GROUPS)
    with pytest.raises(ArgumentError, match="Expected one for each of the 200 rows"):
        LinearRegression().fit(X, Y, groups=GROUPS[:3])

"""Mixtures of exponential families, and matrix factorisation, as estimators."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.stats import nbinom
from sklearn.metrics import adjusted_rand_score

from lowerbound.errors import ArgumentError, SettingError
from lowerbound.estimators import ExponentialFamilyMixture, MatrixFactorization

N = 60
RANDOM = np.random.default_rng(0)
Z = np.arange(N) % 2
MIXED = np.column_stack(
    [
        RANDOM.normal(6.0 * Z),
        RANDOM.poisson(2 + 18 * Z),
        RANDOM.random(N) < 0.1 + 0.8 * Z,
        np.where(Z == 1, 2, RANDOM.integers(2, size=N)),
    ]
).astype(float)
KINDS = ["gaussian", "poisson", "bernoulli", "categorical"]


@pytest.fixture(scope="module")
def mixed() -> ExponentialFamilyMixture:
    holes = MIXED.copy()
    holes[[3, 8, 11, 20], [0, 1, 2, 3]] = np.nan
    return ExponentialFamilyMixture(2, families=KINDS, n_init=2).fit(holes)


def test_columns_of_all_kinds_tell_the_components(mixed):
    assert adjusted_rand_score(mixed.predict(MIXED), Z) == 1.0
    low, high = np.argsort(mixed.components_["poisson"][:, 0])
    assert_allclose(mixed.components_["gaussian"][[low, high], 0], [0.0, 6.0], atol=0.8)
    assert_allclose(mixed.components_["poisson"][[low, high], 0], [2.0, 20.0], rtol=0.3)
    assert_allclose(mixed.components_["bernoulli"][[low, high], 0], [0.1, 0.9], atol=0.2)
    assert mixed.components_["categorical3"].shape == (2, 1, 3)
    assert mixed.components_["categorical3"][high, 0].argmax() == 2


def test_draws_are_of_the_kinds_of_the_columns(mixed):
    rows, z = mixed.sample(50)
    assert rows.shape == (50, 4)
    assert set(rows[:, 2]) <= {0.0, 1.0}
    assert set(rows[:, 3]) <= {0.0, 1.0, 2.0}
    assert (rows[:, 1] == rows[:, 1].round()).all()
    assert set(z) <= {0, 1}


def test_the_predictive_of_counts_is_negative_binomial():
    """One component: Gamma(1 + sum, 1 / mean + n) mixed over."""
    x = MIXED[:, 1:2]
    model = ExponentialFamilyMixture(1, families="poisson").fit(x)
    shape, rate = 1.0 + x.sum(), 1 / x.mean() + N
    exact = nbinom(shape, rate / (rate + 1)).logpmf(x[:, 0])
    assert_allclose(model.score_samples(x), exact, rtol=1e-8)
    again = pickle.loads(pickle.dumps(model))
    assert_allclose(again.score_samples(x), exact, rtol=1e-8)


@pytest.mark.parametrize(
    ("families", "column", "text"),
    [
        (
            "bernoulli",
            [0, 2],
            "got 2 in column 0, which is bernoulli.\nExpected whole numbers from 0 to 1.",
        ),
        (
            "poisson",
            [0.5, 1],
            "got 0.5 in column 0, which is poisson.\nExpected whole numbers of 0 or more.",
        ),
        (
            ["poisson", "poisson"],
            [1, 2],
            "got 2 families for 1 columns.\nExpected one for each column.",
        ),
    ],
)
def test_columns_that_are_not_of_their_kind(families, column, text):
    with pytest.raises(ArgumentError) as error:
        ExponentialFamilyMixture(1, families=families).fit(np.array(column, float)[:, None])
    assert str(error.value) == f"ExponentialFamilyMixture {text}"


def test_a_family_that_is_none():
    with pytest.raises(SettingError, match="Expected one of 'gaussian', 'poisson'"):
        ExponentialFamilyMixture(families="gamma").fit(MIXED)


# --------------------------------------------------------------------------------------------------
# Factors

LOADINGS = np.array([[2.0, -1.5, 1.0, 0.5], [0.0, 1.0, 1.5, -1.0]])
ROWS = RANDOM.normal(size=(N, 2)) @ LOADINGS + 5.0 + 0.2 * RANDOM.normal(size=(N, 4))


@pytest.fixture(scope="module")
def factors() -> MatrixFactorization:
    return MatrixFactorization(4).fit(ROWS)


def test_factors_that_the_data_do_not_have_are_switched_off(factors):
    assert (np.sort(factors.relevance_)[:2] < 0.02).all()
    assert factors.noise_variance_ == pytest.approx(0.04, rel=0.5)
    assert factors.components_.shape == (4, 4)
    assert_allclose(factors.mean_, ROWS.mean(axis=0), rtol=1e-12)


def test_rows_are_their_factors(factors):
    H = factors.transform(ROWS)
    assert H.shape == (N, 4)
    assert np.std(factors.inverse_transform(H) - ROWS) < 0.25
    assert_allclose(H, factors.result_.mean("h"), atol=0.02)
    assert_allclose(factors.transform(ROWS[:3]), H[:3], rtol=1e-6)


@pytest.mark.slow
def test_missing_entries_of_factors_are_foretold():
    holes = ROWS.copy()
    hidden = np.arange(N) % 5 == 0
    holes[hidden, 1] = np.nan
    model = MatrixFactorization(2).fit(holes)
    guess = model.inverse_transform(model.transform(holes))[hidden, 1]
    assert np.std(guess - ROWS[hidden, 1]) < 0.5 * np.std(ROWS[hidden, 1])
    assert np.isfinite(model.score_samples(ROWS)).all()


@pytest.mark.slow
def test_counts_are_sums_of_positive_factors():
    truth = RANDOM.gamma(1.0, 1.0, size=(80, 2)) @ np.array([[9, 9, 0.1, 0.1], [0.1, 0.1, 9, 9.0]])
    counts = RANDOM.poisson(truth)
    model = MatrixFactorization(2, likelihood="poisson", n_init=3).fit(sp.csr_array(counts))
    found = model.components_ / model.components_.sum(axis=1, keepdims=True)
    first = int(found[:, 0].argmax())
    assert_allclose(found[[first, 1 - first]], [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]], atol=0.1)
    again = model.inverse_transform(model.transform(counts))
    assert np.mean((again - truth) ** 2) < 0.1 * np.var(truth)


def test_counts_that_are_none():
    with pytest.raises(ArgumentError) as error:
        MatrixFactorization(2, likelihood="poisson").fit(ROWS)
    assert str(error.value) == (
        "MatrixFactorization of counts got negative values in data, or fractions.\n"
        'Expected whole numbers of 0 or more, or likelihood="gaussian".'
    )

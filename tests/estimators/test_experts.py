"""Mixtures of experts: planted pieces, hierarchical ones, the evidence in a tiny case."""

import pickle
from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy.special import expit, gammaln, logsumexp

import lowerbound as lb
from lowerbound.estimators import MixtureOfExperts, MixtureOfExpertsClassifier
from tests.estimators.rising import assert_rises


def two_pieces(seed, n=200):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, size=(n, 2))
    mean = np.where(x[:, 0] < 0, -2 * x[:, 0] + x[:, 1], 1 + x[:, 0])
    return x, mean + 0.1 * rng.normal(size=n)


@cache
def fitted(seed):
    return MixtureOfExperts(2, random_state=seed).fit(*two_pieces(seed))


@pytest.mark.parametrize("seed", range(3))
def test_planted_pieces_are_found(seed):
    """Slopes have sds of 0.01, and the tolerance is ten of them."""
    model = fitted(seed)
    assert_rises(model)
    order = np.argsort(model.coef_[:, 0])
    np.testing.assert_allclose(model.coef_[order], [[-2, 1], [1, 0]], atol=0.1)
    np.testing.assert_allclose(model.intercept_[order], [0, 1], atol=0.2)


def test_gates_predictions_and_files_of_planted_pieces():
    (x, y), model = two_pieces(2), fitted(2)
    order = np.argsort(model.coef_[:, 0])
    shares = model.gate_proba([[-2.0, 0.0], [2.0, 0.0]])
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert (shares[[0, 1], order] > 0.95).all()
    mean, sd = model.predict(x, return_std=True)
    inside = abs(y - mean) < 2 * sd
    assert 0.9 < inside.mean() <= 1.0
    np.testing.assert_allclose(model.predict(x), mean)
    # Where one expert speaks, and but for tails, the density is a Gaussian of those moments.
    sure = inside & (model.gate_proba(x).max(axis=1) > 0.999)
    near = -0.5 * ((y - mean) / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi))
    assert abs((model.log_predictive(x, y) - near)[sure]).max() < 0.3
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(back.predict(x), mean)


@pytest.mark.parametrize("seed", range(2))
def test_a_tree_of_gates_finds_four_pieces(seed):
    """With eight starts."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-4, 4, size=(400, 1))
    pieces = [3 * x[:, 0] + 6, -2 * x[:, 0], 1.5 * x[:, 0], 6 - 1.5 * x[:, 0]]
    mean = np.select([x[:, 0] < -2, x[:, 0] < 0, x[:, 0] < 2], pieces[:3], pieces[3])
    y = mean + 0.1 * rng.normal(size=400)
    model = MixtureOfExperts(2, depth=2, n_init=8).fit(x, y)
    np.testing.assert_allclose(np.sort(model.coef_[:, 0]), [-2, -1.5, 1.5, 3], atol=0.1)


@pytest.mark.parametrize("seed", range(2))
def test_logistic_experts_find_classes_on_two_sides(seed):
    """No one line parts them; labels are wrong for 2 of 100, and 90 of 100 are found."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, size=(150, 2))
    y = np.where(rng.random(150) < expit(8 * (abs(x[:, 0]) - 1.5)), "out", "in")
    model = MixtureOfExpertsClassifier(2, random_state=seed).fit(x, y)
    assert_rises(model)
    assert model.score(x, y) > 0.85
    assert model.predict([[-2.8, 0.0], [0.0, 0.0], [2.8, 0.0]]).tolist() == ["out", "in", "out"]
    np.testing.assert_allclose(model.predict_proba(x).sum(axis=1), 1.0)


def log_marginal(Z, y, scale, rate):
    """Log p(y) with beta ~ Normal(0, S / tau) and tau ~ Gamma(3/2, rate) integrated out."""
    n = len(y)
    K = np.eye(n) + (Z * scale**2) @ Z.T
    quadratic = y @ np.linalg.solve(K, y) if n else 0.0
    return (
        gammaln(1.5 + n / 2)
        - gammaln(1.5)
        + 1.5 * np.log(rate)
        - (1.5 + n / 2) * np.log(rate + quadratic / 2)
        - 0.5 * np.linalg.slogdet(K)[1]
        - 0.5 * n * np.log(2 * np.pi)
    )


def test_with_gates_that_know_nothing_the_bound_is_below_the_enumerated_evidence():
    """All 2 ** 8 divisions of 8 rows; log 2 is the price of one of two labellings."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, size=(8, 1))
    y = np.where(np.arange(8) % 2, 3 * x[:, 0], -3 * x[:, 0] + 5) + 0.1 * rng.normal(size=8)
    model = MixtureOfExperts(2, gate_scale=1e-6, n_init=20, tol=1e-7).fit(x, y)
    Z = np.column_stack([np.ones(8), x - x.mean()])
    scale = 10.0 * np.array([10.0, 1.0 / x.std()])
    rate = 1.5 * (y.std() / 2) ** 2
    centred, total = y - y.mean(), []
    for division in product([False, True], repeat=8):
        one = np.array(division)
        parts = [log_marginal(Z[m], centred[m], scale, rate) for m in (one, ~one)]
        total.append(sum(parts) - 8 * np.log(2))
    exact = logsumexp(total)
    assert exact - np.log(2) - 1.0 < model.lower_bound_ < exact - np.log(2) + 0.05


def test_an_expert_without_rows_has_coefficients():
    """Three experts for one line: what is left over stays at its prior, and predictions hold."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 1))
    model = MixtureOfExperts(3, n_init=1).fit(x, 2 * x[:, 0] + 0.1 * rng.normal(size=30))
    mean, sd = model.predict(x, return_std=True)
    np.testing.assert_allclose(mean, 2 * x[:, 0], atol=0.5)
    assert np.isfinite(sd).all()


def test_settings_are_checked():
    x, y = two_pieces(0, n=20)
    for settings in ({"n_experts": 1}, {"depth": 0}, {"gate_scale": 0.0}, {"prior_scale": -1.0}):
        with pytest.raises(lb.errors.SettingError) as error:
            MixtureOfExperts(**settings).fit(x, y)
        assert next(iter(settings)) in str(error.value)

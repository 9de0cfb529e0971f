"""Mixtures of experts, flat or hierarchical (paper section 4.2; Jordan and Jacobs 1994)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.estimators.regressions.linear_predictor import (
    as_coefficients,
    centre_of,
    design,
    log_expected,
    units_of,
)
from lowerbound.estimators.regressions.supervised import Classifier, Regressor, Supervised
from lowerbound.run.method import COUNT, is_count, is_size

Prior = dict[str, Any]
SHAPE = 1.5  # of the precisions: an expert without rows has coefficients with a mean and an sd


def gate_shares(X: Any, scale: Any, K: int, depth: int) -> Any:
    """The probability of each of K ** depth experts, (n, experts), by a tree of gates.

    A gate of level d, of which there are K ** d, breaks its share into K by sticks: it gives
    branch k to a row that no branch before has taken, with probability sigmoid(x w_k).
    """
    shares = jnp.ones((X.shape[0], 1))
    for level in range(depth):
        gates = K**level
        with (
            numpyro.plate(f"sticks {level}", gates * (K - 1), dim=-2),
            numpyro.plate("columns", X.shape[1], dim=-1),
        ):
            w = numpyro.sample(f"gate {level}", dist.Normal(0.0, scale))
        a = (X @ w.T).reshape(-1, gates, K - 1)
        one = jnp.ones((*a.shape[:-1], 1))
        taken = jnp.concatenate([jax.nn.sigmoid(a), one], axis=-1)
        left = jnp.concatenate([one, jnp.cumprod(jax.nn.sigmoid(-a), axis=-1)], axis=-1)
        shares = (shares[:, :, None] * taken * left).reshape(-1, gates * K)
    return shares


def linear_experts(X: Any, y: Any = None, *, prior: Prior, K: int, depth: int) -> None:
    """tau_k ~ Gamma, beta_k ~ Normal(0, S / tau_k), y_n ~ Normal(x_n beta_z, 1 / tau_z)."""
    shares = gate_shares(X, prior["gate"], K, depth)
    with numpyro.plate("experts", K**depth):
        tau = numpyro.sample("tau", dist.Gamma(SHAPE, prior["noise"][0]))
        precision = tau[:, None, None] * jnp.diag(prior["scale"][0] ** -2)
        beta = numpyro.sample(
            "beta", dist.MultivariateNormal(jnp.zeros(X.shape[1]), precision_matrix=precision)
        )
    with numpyro.plate("rows", X.shape[0]):
        z = numpyro.sample("z", dist.Categorical(shares))
        mean = (X * beta[z]).sum(axis=-1)
        numpyro.sample("y", dist.Normal(mean, 1 / jnp.sqrt(tau[z])), obs=y)


def logistic_experts(X: Any, y: Any = None, *, prior: Prior, K: int, depth: int) -> None:
    """beta_k ~ Normal(0, S), y_n ~ Bernoulli(sigmoid(x_n beta_z))."""
    shares = gate_shares(X, prior["gate"], K, depth)
    with (
        numpyro.plate("experts", K**depth, dim=-2),
        numpyro.plate("columns", X.shape[1], dim=-1),
    ):
        beta = numpyro.sample("beta", dist.Normal(0.0, prior["scale"]))
    with numpyro.plate("rows", X.shape[0]):
        z = numpyro.sample("z", dist.Categorical(shares))
        numpyro.sample("y", dist.Bernoulli(logits=(X * beta[z]).sum(axis=-1)), obs=y)


@dataclass(eq=False, repr=False)
class Gated(Supervised):
    """What mixtures of experts share: the tree of gates, and where rows go in it."""

    n_experts: int = 2
    _: KW_ONLY
    depth: int = 1
    gate_scale: float = 5.0
    prior_scale: float = 10.0
    tol: float = 1e-3
    max_iter: int = 1000
    n_init: int = 5
    random_state: Any = 0

    def _check_experts(self) -> None:
        def positive(value: Any) -> bool:
            return is_size(value) and value > 0

        self._check(
            ("n_experts", is_count(self.n_experts) and self.n_experts > 1, "at least 2"),
            ("depth", is_count(self.depth), COUNT),
            ("gate_scale", positive(self.gate_scale), "a number above 0"),
            ("prior_scale", positive(self.prior_scale), "a number above 0"),
        )

    def _learn_experts(self, program: Any, X: np.ndarray, y: np.ndarray, **known: Any) -> None:
        """Fit the program, and keep the moments of q."""
        self._centre = centre_of(X, True)
        units = units_of(X, True)
        prior = {"gate": self.gate_scale * units, "scale": self.prior_scale * units, **known}
        self._learn(
            program,
            design(X, self._centre),
            y,
            prior=prior,
            K=int(self.n_experts),
            depth=int(self.depth),
            method=self._sweeps(y.size, self.n_init),
        )
        self._tree = (int(self.n_experts), int(self.depth))
        self._describe()

    def _describe(self) -> None:
        found = self._fitted("coef_")
        beta = np.asarray(found.mean("beta"))
        both = [as_coefficients(row, self._centre) for row in beta]
        self.coef_ = np.stack([coefficients for coefficients, _ in both])
        self.intercept_ = np.array([intercept for _, intercept in both])

    def gate_proba(self, X: Any) -> np.ndarray:
        """The probability of each expert for each row, (n, experts), averaged over q."""
        self._fitted("gate_proba")
        return self._shares(design(self._read(X, reset=False), self._centre))

    def _shares(self, Z: np.ndarray) -> np.ndarray:
        from scipy.special import log_expit

        found = self._fitted("gate_proba")
        K, depth = self._tree
        shares = np.ones((len(Z), 1))
        for level in range(depth):
            q = found.posterior[f"gate {level}"]
            mean, sd = _moments(Z, np.asarray(q.mean), np.asarray(q.covariance_matrix))
            flat = (mean.ravel(), sd.ravel())
            taken = np.exp(log_expected(log_expit, *flat)).reshape(len(Z), -1, K - 1)
            left = np.exp(log_expected(lambda a: log_expit(-a), *flat)).reshape(taken.shape)
            one = np.ones((*taken.shape[:-1], 1))
            sticks = np.concatenate([taken, one], axis=-1)
            sticks = sticks * np.concatenate([one, left.cumprod(axis=-1)], axis=-1)
            shares = (shares[:, :, None] * sticks).reshape(len(Z), -1)
        return shares


def _moments(Z: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mean and sd of x'beta_k, (n, K) each, for beta_k with means (K, D), covariances (K, D, D)."""
    variance = np.einsum("nd,kde,ne->nk", Z, covariance, Z)
    return Z @ mean.T, np.sqrt(np.maximum(variance, 0.0))


class MixtureOfExperts(Regressor, Gated):
    """Linear regressions that each hold in a part of the space of X; gates of X say which.

    z_n is the expert of row n, with probabilities by sticks of logistic regressions on x_n, and
    y_n ~ Normal(x_n beta_z, 1 / tau_z). depth: of the tree of gates, each with n_experts branches;
    more than 1 gives a hierarchical mixture of n_experts ** depth. gate_scale, prior_scale: the
    prior sds of a coefficient of a gate, and of an expert in units of its noise, for one sd of its
    column; intercepts have ten times as much. tol: sweeps stop when they change the ELBO by about
    so many nats. n_init: starts, of which the best ELBO is kept; they run together.

    Fitted: coef_ (experts, D), intercept_ and noise_variances_ (experts,), converged_, n_iter_,
    lower_bound_ (the ELBO), result_ (the `Fit`).

    >>> from lowerbound.estimators import MixtureOfExperts
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-3, 3, size=(80, 1))
    >>> y = np.where(x[:, 0] < 0, -2 * x[:, 0], 1 + x[:, 0]) + 0.1 * rng.normal(size=80)
    >>> model = MixtureOfExperts(2).fit(x, y)
    >>> np.sort(model.coef_[:, 0]).round(1)
    array([-2.,  1.])
    >>> model.predict([[-2.0], [2.0]]).round(1)
    array([4., 3.])
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Learn gates and experts from rows X (n, D) and responses y (n,)."""
        self._check_experts()
        X, y = self._both(X, y, y_numeric=True)
        self._mean = float(y.mean())
        spread = max(float(y.std()), 1e-6 * max(abs(y).max(), 1e-6))
        # Experts divide the space: their noise is expected to be a part of the spread.
        noise = SHAPE * (spread / self.n_experts**self.depth) ** 2
        self._learn_experts(linear_experts, X, y - self._mean, noise=np.full(1, noise))
        return self

    def _describe(self) -> None:
        super()._describe()
        found = self._fitted("coef_")
        self.intercept_ = self.intercept_ + self._mean
        self.noise_variances_ = 1.0 / np.asarray(found.mean("tau"))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The predictive means of y, and with `return_std` the predictive sds."""
        found = self._fitted("predict")
        Z = design(self._read(X, reset=False), self._centre)
        shares, q = self._shares(Z), found.posterior["beta"]
        means, sds = _moments(Z, np.asarray(q.mean), np.asarray(q.covariance_matrix))
        mean = (shares * means).sum(axis=1)
        if not return_std:
            return mean + self._mean
        within = sds**2 + self.noise_variances_
        variance = (shares * (within + (means - mean[:, None]) ** 2)).sum(axis=1)
        return mean + self._mean, np.sqrt(variance)

    def log_predictive(self, X: Any, y: Any) -> np.ndarray:
        """The log predictive density of each y, its expert summed out."""
        self._fitted("log_predictive")
        Z = design(self._read(X, reset=False), self._centre)
        return self._densities(Z, np.asarray(y, float) - self._mean)


@dataclass(eq=False, repr=False, kw_only=True)
class MixtureOfExpertsClassifier(Classifier, Gated):
    """Logistic regressions that each hold in a part of the space of X; gates of X say which.

    Two classes: P(y = 1) = sum_k P(z = k | x) sigmoid(x beta_k). Settings are those of
    `MixtureOfExperts`: n_experts branches a gate, a tree of some depth, gate_scale; prior_scale is
    in units of the log odds.

    Fitted: classes_, coef_ (experts, D) and intercept_ (experts,), converged_, n_iter_,
    lower_bound_ (the ELBO), result_ (the `Fit`).

    >>> from lowerbound.estimators import MixtureOfExpertsClassifier
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-3, 3, size=(100, 1))
    >>> model = MixtureOfExpertsClassifier(2).fit(x, abs(x[:, 0]) > 1.5)
    >>> model.predict([[-2.5], [0.0], [2.5]]).tolist()
    [True, False, True]
    """

    binary = True
    prior_scale: float = 5.0

    def fit(self, X: Any, y: Any) -> Self:
        """Learn gates and experts from rows X (n, D) and their classes y (n,)."""
        self._check_experts()
        X, y = self._both(X, y)
        self._learn_experts(logistic_experts, X, self._coded(y))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The predictive probabilities of the classes, (n, 2), averaged over q."""
        from scipy.special import log_expit

        found = self._fitted("predict_proba")
        Z = design(self._read(X, reset=False), self._centre)
        q = found.posterior["beta"]
        mean, sd = _moments(Z, np.asarray(q.mean), np.asarray(q.covariance_matrix))
        each = np.exp(log_expected(log_expit, mean.ravel(), sd.ravel())).reshape(mean.shape)
        one = np.clip((self._shares(Z) * each).sum(axis=1), 0.0, 1.0)
        return np.column_stack([1.0 - one, one])

"""Logistic regression as an estimator, of two or more classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.estimators.regressions.linear_predictor import (
    Generalised,
    as_coefficients,
    design,
    log_expected,
)
from lowerbound.estimators.regressions.supervised import Classifier
from lowerbound.methods.gaussian.unconstrained_methods import Gaussian

DRAWS = 500  # of the coefficients, for probabilities of more than two classes


def logistic(X: Any, y: Any = None, prior: Any = None) -> None:
    """beta_j ~ Normal(m_j, s_j^2), y_n ~ Bernoulli(sigmoid(x_n beta))."""
    mean, sd = prior[0]
    with numpyro.plate("columns", X.shape[1]):
        beta = numpyro.sample("beta", dist.Normal(mean, sd))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ beta), obs=y)


def multinomial(X: Any, y: Any = None, prior: Any = None, K: int = 3) -> None:
    """beta_kj ~ Normal(m_j, s_j^2), y_n ~ Categorical(softmax(beta x_n))."""
    mean, sd = prior[0]
    with numpyro.plate("classes", K, dim=-2), numpyro.plate("columns", X.shape[1], dim=-1):
        beta = numpyro.sample("beta", dist.Normal(mean, sd))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=X @ beta.T), obs=y)


@dataclass(eq=False, repr=False, kw_only=True)
class LogisticRegression(Classifier, Generalised):
    """P(y = 1) = sigmoid(x beta + intercept), with the uncertainty of beta averaged over.

    C: the prior variance of a coefficient, which scikit-learn's penalty of the same name is; its
    LogisticRegression gives the mode of this posterior. The intercept has a prior sd of ten, where
    columns are at their means. Of more than two classes, each has its own coefficients (softmax).
    tol: sweeps stop when they change the ELBO by about so many nats.

    Fitted: classes_, coef_ (1 or classes, D) and intercept_ (posterior means), converged_, n_iter_,
    lower_bound_ (the ELBO), result_ (the `Fit`).

    >>> from lowerbound.estimators import LogisticRegression
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> classifier = LogisticRegression().fit(x, x[:, 0] > 0)
    >>> classifier.predict([[2.0, 0.0], [-2.0, 0.0]]).tolist()
    [True, False]
    >>> bool(classifier.predict_proba([[0.0, 0.0]]).max() < 0.7)
    True
    """

    program = staticmethod(logistic)

    random_state: Any = 0

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows X (n, D) and their classes y (n,)."""
        self._check_line()
        X, y = self._both(X, y)
        codes = self._coded(y)
        vars(self).pop("_drawn", None)
        if len(self.classes_) == 2:
            self._learn_line(X, codes)
            beta = self._beta[None]
        else:
            beta = self._learn_classes(X, codes)
        both = [as_coefficients(row, self._centre) for row in beta]
        self.coef_ = np.stack([coefficients for coefficients, _ in both])
        self.intercept_ = np.array([intercept for _, intercept in both])
        return self

    def _learn_classes(self, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        prior = self._prior(X)
        Z, K = design(X, self._centre), len(self.classes_)
        found = self._learn(multinomial, Z, codes, prior, K=K, method=Gaussian())
        self._drawn = found.sample(DRAWS, 0, ["beta"])["beta"]
        return np.asarray(found.mean("beta"))

    def decision_function(self, X: Any) -> np.ndarray:
        """The log odds of the second of two classes, else log probabilities, (n, classes)."""
        found = self.predict_log_proba(X)
        return found[:, 1] - found[:, 0] if len(self.classes_) == 2 else found

    def predict_proba(self, X: Any) -> np.ndarray:
        """The predictive probabilities of the classes, (n, classes), averaged over q(beta)."""
        from scipy.special import log_expit, softmax

        self._fitted("predict_proba")
        if len(self.classes_) == 2:
            one = np.exp(log_expected(log_expit, *self._predictor(X, "predict_proba")))
            return np.column_stack([1.0 - one, one])
        Z = design(self._read(X, reset=False), self._centre)
        total = np.zeros((len(Z), len(self.classes_)))
        for beta in self._drawn:
            total += softmax(Z @ beta.T, axis=1)
        return total / len(self._drawn)

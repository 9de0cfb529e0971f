"""Matrix factorisation (paper section 5.3) as an estimator: rows are sums of a few factors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.errors import ArgumentError
from lowerbound.estimators.programmed import Restarted, padded
from lowerbound.methods.rewriting.augmenting import Augmented
from lowerbound.result.fitted import Fit
from lowerbound.run.method import one_of

WEAK = 1e-3  # the shape of the precisions of noise and loadings: next to nothing is known of them


def gaussian_factors(x: Any, prior: dict[str, Any], K: int) -> None:
    """Probabilistic PCA with relevance: w_dk ~ Normal(0, 1 / alpha_k), h_n ~ Normal(0, I)."""
    n, D = x.shape
    tau = numpyro.sample("tau", dist.Gamma(WEAK, prior["scale"][0]))
    with numpyro.plate("factors", K, dim=-1):
        alpha = numpyro.sample("alpha", dist.Gamma(WEAK, prior["scale"][0]))
        with numpyro.plate("variables", D, dim=-2):
            W = numpyro.sample("W", dist.Normal(0.0, 1 / jnp.sqrt(alpha)))
    with numpyro.plate("rows", n, dim=-2):
        with numpyro.plate("row factors", K, dim=-1):
            h = numpyro.sample("h", dist.Normal(0.0, 1.0))
        with numpyro.plate("columns", D, dim=-1):
            numpyro.sample("x", dist.Normal(h @ W.T, 1 / jnp.sqrt(tau)), obs=x)


def poisson_factors(x: Any, prior: dict[str, Any], K: int) -> None:
    """beta_kd ~ Gamma(0.3, b), h_nk ~ Gamma(1, 1), x_nd ~ Poisson(h_n beta_d)."""
    n, D = x.shape
    with numpyro.plate("factors", K, dim=-2), numpyro.plate("columns", D, dim=-1):
        beta = numpyro.sample("beta", dist.Gamma(SPARSE, prior["rate"]))
    with numpyro.plate("rows", n, dim=-2):
        with numpyro.plate("row factors", K, dim=-1):
            h = numpyro.sample("h", dist.Gamma(1.0, 1.0))
        with numpyro.plate("columns", D, dim=-1):
            numpyro.sample("x", dist.Poisson(h @ beta), obs=x)


SPARSE: Final = 0.3  # the shape of the loadings of counts: below 1, many are next to zero
PROGRAMS: Final = {"gaussian": gaussian_factors, "poisson": poisson_factors}


@dataclass(eq=False, repr=False, kw_only=True)
class MatrixFactorization(Restarted):
    """Rows as sums of K factors: x_n ~ Normal(mean + W h_n, 1 / tau), or Poisson(h_n beta).

    likelihood: "gaussian" is probabilistic PCA in which each factor has a relevance alpha_k, so
    that factors the data do not have are switched off; "poisson" is for counts, with loadings and
    factors that are positive. tol: sweeps stop when they change the ELBO by about so many nats.
    n_init: starts, of which the best ELBO is kept. NaN are entries that are missing, of a Gaussian.

    Fitted: components_ (K, D), mean_ and noise_variance_ (Gaussian), relevance_ (the share of each
    factor in the mean square of the loadings), converged_, n_iter_, lower_bound_, result_.

    >>> from lowerbound.estimators import MatrixFactorization
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 1)) @ rng.normal(size=(1, 4)) + 0.1 * rng.normal(size=(80, 4))
    >>> model = MatrixFactorization(2).fit(x)
    >>> np.sort(model.relevance_).round(2)
    array([0., 1.])
    >>> bool(abs(model.inverse_transform(model.transform(x)) - x).mean() < 0.1)
    True
    """

    likelihood: str = "gaussian"
    max_iter: int = 5000

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the factors from rows X (n, D)."""
        self._check(one_of("likelihood", self.likelihood, PROGRAMS))
        self._likelihood = self.likelihood
        x = self._open(X, reset=True)
        K = int(self.n_components)
        if self._likelihood == "gaussian":
            self.mean_ = np.asarray(x.mean(axis=0))
            x = x - self.mean_
            size = max(float(x.var()), 1e-12)
            prior = {"scale": np.full(1, WEAK * size)}
            method = self._sweeps(x.size, self.n_init)
            found = self._learn(gaussian_factors, x, prior, K=K, method=method)
        else:
            found = self._allocate(x, K)
        if self._likelihood == "gaussian":
            self.components_ = np.asarray(found.mean("W")).T
            self.noise_variance_ = 1.0 / float(found.mean("tau"))
            square = np.asarray(found.sd("W")).T ** 2 + self.components_**2
        else:
            self.components_ = np.asarray(found.mean("beta"))
            square = self.components_**2
        total = square.sum(axis=1)
        self.relevance_ = total / total.sum()
        return self

    def _allocate(self, x: np.ndarray, K: int) -> Fit:
        """Each count is allocated to the factors, which have to differ at the start."""
        # A row of average factors has the mean of the counts.
        prior = {"rate": np.full((1, 1), SPARSE * K / max(float(x.mean()), 1e-3))}
        random, found = np.random.default_rng(self._seed()), []
        for _ in range(self.n_init):
            init = {
                "beta": random.gamma(
                    1.0, np.maximum(x.mean(axis=0), 1e-3) / K, size=(K, x.shape[1])
                ),
                "h": random.gamma(1.0, 1.0, size=(len(x), K)),
            }
            method = Augmented({"x": "indicator"}, replace(self._sweeps(x.size), init=init))
            found.append(self._learn(poisson_factors, x, prior, K=K, method=method))
        return self._keep(max(found, key=lambda one: one.elbo), self._took)

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, then the factors of the same rows."""
        return self.fit(X).transform(X)

    def transform(self, X: Any) -> np.ndarray:
        """E[h] of each row, (n, K), with the loadings as fitted."""
        found = self._fitted("transform")
        rows = self._centred(X)
        with jax.enable_x64(True):
            factors = np.asarray(found.local(padded(rows))["h"].mean)
        return factors.reshape(-1, len(self.components_))[: len(rows)]

    def inverse_transform(self, H: Any) -> np.ndarray:
        """The rows that factors H (n, K) stand for: their expected entries."""
        self._fitted("inverse_transform")
        rows = np.asarray(H, dtype=float) @ self.components_
        return np.asarray(rows + self.mean_ if self._likelihood == "gaussian" else rows)

    def score_samples(self, X: Any) -> np.ndarray:
        """The log predictive density of each row, its factors integrated out (an estimate)."""
        self._fitted("score_samples")
        return self._densities(self._centred(X))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the columns of `transform`."""
        self._fitted("get_feature_names_out")
        return np.asarray([f"factor{k}" for k in range(len(self.components_))], dtype=object)

    def _centred(self, X: Any) -> Any:
        rows = self._open(X, reset=False)
        return rows - self.mean_ if self._likelihood == "gaussian" else rows

    def _open(self, X: Any, *, reset: bool) -> Any:
        if self._likelihood == "gaussian":
            return self._missing_allowed(X, reset=reset)
        least = 2 if reset else 1
        found = self._read(X, reset=reset, ensure_min_samples=least, accept_sparse=True)
        dense = found if isinstance(found, np.ndarray) else found.toarray()
        if (dense < 0).any() or (dense != np.round(dense)).any():
            raise ArgumentError(
                "MatrixFactorization of counts got negative values in data, or fractions.\n"
                'Expected whole numbers of 0 or more, or likelihood="gaussian".'
            )
        return dense.astype(np.int64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        counts = self.likelihood == "poisson"
        tags.input_tags.allow_nan = not counts
        tags.input_tags.sparse = tags.input_tags.positive_only = counts
        return tags

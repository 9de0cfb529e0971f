"""Factorial mixtures (paper section 4.2) as an estimator: components that add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.estimators.mixtures.assigned import drawn_components
from lowerbound.estimators.mixtures.gaussian_mixture import ComponentPrior
from lowerbound.estimators.programmed import Restarted, padded
from lowerbound.run.method import is_count, is_size

MOST = 4096  # combinations: each row has a probability of every one
FEW = f"a whole number of at least 1, with n_components ** n_factors of at most {MOST}"


def factorial(x: Any, prior: dict[str, Any], M: int, K: int) -> None:
    """z_nm ~ Categorical(pi_m) for each factor m; x_nd ~ Normal(sum_m mu_m[z_nm]_d, 1 / tau_d).

    The values of a row are one site, the number of their combination: they depend on each other
    given the row, and so they do in q.
    """
    n, D = x.shape
    with numpyro.plate("columns", D, dim=-1):
        tau = numpyro.sample("tau", dist.Gamma(prior["shape"], prior["rate"]))
        with numpyro.plate("factors", M, dim=-3), numpyro.plate("values", K, dim=-2):
            mu = numpyro.sample("mu", dist.Normal(0.0, prior["spread"]))
    with numpyro.plate("factors", M):
        pi = numpyro.sample("pi", dist.Dirichlet(jnp.broadcast_to(prior["concentration"], (K,))))
    mean, share = jnp.zeros(()), jnp.ones(())
    for m, values in enumerate(combinations(M, K)):
        mean, share = mean + mu[m, values], share * pi[m, values]
    with numpyro.plate("rows", n, dim=-2):
        z = numpyro.sample("z", dist.Categorical(share))[:, 0]
        with numpyro.plate("columns", D, dim=-1):
            numpyro.sample("x", dist.Normal(mean[z], 1 / jnp.sqrt(tau)), obs=x)


def combinations(M: int, K: int) -> np.ndarray:
    """The value of each factor in each combination, (M, K ** M).

    >>> combinations(2, 2).tolist()
    [[0, 0, 1, 1], [0, 1, 0, 1]]
    """
    return np.indices((K,) * M).reshape(M, -1)


@dataclass(eq=False, repr=False, kw_only=True)
class FactorialMixture(Restarted):
    """Rows with a value of each of several factors, whose means add up; noise is independent.

    x_n ~ Normal(mean + sum_m mu_m[z_nm], 1 / tau), with z_nm ~ Categorical(pi_m): n_factors times
    n_components vectors say what a mixture needs n_components ** n_factors components for. All
    these combinations are looked at for each row. A constant that moves from one factor to another
    changes nothing; the prior divides it among them.
    tol: sweeps stop when they change the ELBO by about so many nats. n_init: starts, of which the
    best ELBO is kept; they run together, and there are many optima. weight_concentration_prior: of
    the Dirichlet of each pi_m. NaN are entries that are missing.

    Fitted: mean_ (D,), means_ (factors, K, D), weights_ (factors, K), covariances_ (D,) of the
    noise, converged_, n_iter_, lower_bound_ (the ELBO), result_ (the `Fit`).

    >>> from lowerbound.estimators import FactorialMixture
    >>> rng = np.random.default_rng(0)
    >>> first, second = rng.integers(2, size=(2, 100))
    >>> x = 9.0 * first[:, None] * [1, 0, 1] + 4.0 * second[:, None] * [0, 1, 1]
    >>> mixture = FactorialMixture(2, n_factors=2).fit(x + 0.5 * rng.normal(size=x.shape))
    >>> steps = abs(mixture.means_[:, 1] - mixture.means_[:, 0]).round(0)
    >>> steps[np.argsort(steps[:, 0])] + 0.0
    array([[0., 4., 4.],
           [9., 0., 9.]])
    >>> mixture.predict_proba(x[:5]).shape
    (5, 2, 2)
    """

    n_factors: int = 2
    n_init: int = 10
    weight_concentration_prior: float = 1.0

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the factors from rows X (n, D)."""
        self._check_factors()
        x = self._missing_allowed(X, reset=True)
        M, K = int(self.n_factors), int(self.n_components)
        known = ComponentPrior().arrays(x, "diag", K**M)
        self.mean_ = known["mean"][0]
        x = x - self.mean_
        spread = np.sqrt(np.maximum(np.asarray(x.var(axis=0)), 1e-12) / M)
        prior = {
            "shape": known["shape"],
            "rate": known["rate"],
            "spread": spread[None],
            "concentration": np.full(1, float(self.weight_concentration_prior)),
        }
        self._learn(factorial, x, prior, M=M, K=K, method=self._sweeps(x.size, self.n_init))
        return self._describe()

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, then the values of the same rows."""
        return self.fit(X).predict(X)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from more rows: the posterior so far is their prior. The first call is `fit`."""
        if not hasattr(self, "_result"):
            return self.fit(X)
        self._check_factors()
        self._learn_more(self._rows(X, "partial_fit"))
        return self._describe()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable value of each factor for each row, (n, factors)."""
        return np.asarray(self.predict_proba(X).argmax(axis=2))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Q(z_m = k) of each row, (n, factors, K), with the means as fitted."""
        rows = self._rows(X, "predict_proba")
        with jax.enable_x64(True):
            found = np.asarray(self._fitted("predict_proba").local(padded(rows))["z"].probs)
        M, K = self.weights_.shape
        shares = found[: len(rows)].reshape(-1, *(K,) * M)
        axes = range(1, M + 1)
        parts = [shares.sum(axis=tuple(a for a in axes if a != m)) for m in axes]
        return np.stack(parts, axis=1)

    def score_samples(self, X: Any) -> np.ndarray:
        """The log predictive density of each row, its values summed out."""
        return self._densities(self._rows(X, "score_samples"))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """New rows from the posterior predictive, and their values (n, factors)."""
        drawn, random = self._global_draws(n_samples)
        parts = [drawn_components(pi, random) for pi in drawn["pi"].swapaxes(0, 1)]
        z = np.stack(parts, axis=1)
        chosen = drawn["mu"][np.arange(n_samples)[:, None], np.arange(z.shape[1]), z]
        mean = self.mean_ + chosen.sum(axis=1)
        return mean + random.normal(size=mean.shape) / np.sqrt(drawn["tau"][:, 0]), z

    def _describe(self) -> Self:
        found = self._fitted("means_")
        self.means_ = np.asarray(found.mean("mu"))
        self.weights_ = np.asarray(found.mean("pi"))
        self.covariances_ = 1.0 / np.asarray(found.mean("tau"))[0]
        return self

    def _rows(self, X: Any, wanted: str) -> Any:
        """New rows, as the program takes them."""
        self._fitted(wanted)
        return self._missing_allowed(X, reset=False) - self.mean_

    def _check_factors(self) -> None:
        concentration = self.weight_concentration_prior
        self._check(
            ("n_factors", is_count(self.n_factors) and self._few(), FEW),
            (
                "weight_concentration_prior",
                is_size(concentration) and concentration > 0,
                "a number above 0",
            ),
        )

    def _few(self) -> bool:
        return bool(int(self.n_components) ** int(self.n_factors) <= MOST)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "density_estimator"
        tags.input_tags.allow_nan = True
        return tags

"""Factorial mixtures (paper section 4.2) as an estimator: components that add up."""

from __future__ import annotations

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.errors import SettingError
from lowerbound.estimators.mixtures.assigned import drawn_components
from lowerbound.estimators.mixtures.gaussian_mixture import ComponentPrior
from lowerbound.estimators.programmed import Programmed, padded
from lowerbound.run.method import COUNT, is_count, is_size


def factorial(x: Any, prior: dict[str, Any], M: int, K: int) -> None:
    """z_nm ~ Categorical(pi_m) for each factor m; x_nd ~ Normal(sum_m mu_m[z_nm]_d, 1 / tau_d).

    A site a factor, so that rows are updated together and the factors of a row one after the other.
    """
    n, D = x.shape
    with numpyro.plate("columns", D, dim=-1):
        tau = numpyro.sample("tau", dist.Gamma(prior["shape"], prior["rate"]))
    concentration = jnp.broadcast_to(prior["concentration"], (K,))
    mean = jnp.zeros(())
    for m in range(M):
        pi = numpyro.sample(f"pi {m}", dist.Dirichlet(concentration))
        with numpyro.plate("values", K, dim=-2), numpyro.plate("columns", D, dim=-1):
            mu = numpyro.sample(f"mu {m}", dist.Normal(0.0, prior["spread"]))
        with numpyro.plate("rows", n, dim=-2):
            z = numpyro.sample(f"z {m}", dist.Categorical(pi))[:, 0]
        mean = mean + mu[z]
    with numpyro.plate("rows", n, dim=-2), numpyro.plate("columns", D, dim=-1):
        numpyro.sample("x", dist.Normal(mean, 1 / jnp.sqrt(tau)), obs=x)


class FactorialMixture(Programmed):
    """Rows with a value of each of several factors, whose means add up; noise is independent.

    x_n ~ Normal(mean + sum_m mu_m[z_nm], 1 / tau), with z_nm ~ Categorical(pi_m): n_factors times
    n_components vectors say what a mixture needs n_components ** n_factors components for. A
    constant that moves from one factor to another changes nothing; the prior divides it among them.
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

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_factors: int = 2,
        tol: float = 1e-3,
        max_iter: int = 1000,
        n_init: int = 10,
        weight_concentration_prior: float = 1.0,
        random_state: Any = 0,
    ) -> None:
        self.n_components = n_components
        self.n_factors = n_factors
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.weight_concentration_prior = weight_concentration_prior
        self.random_state = random_state

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
        self.n_factors_ = M
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
            found = self._fitted("predict_proba").local(padded(rows))
            parts = [np.asarray(found[f"z {m}"].probs) for m in range(self.n_factors_)]
        return np.concatenate(parts, axis=1)[: len(rows)]

    def score_samples(self, X: Any) -> np.ndarray:
        """The log predictive density of each row, its values summed out."""
        return self._densities(self._rows(X, "score_samples"))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """New rows from the posterior predictive, and their values (n, factors)."""
        if not is_count(n_samples):
            raise SettingError("sample", "n_samples", n_samples, COUNT)
        found, random = self._fitted("sample"), np.random.default_rng(self._seed())
        sites = [s for s, record in found.sites.items() if record["scope"] == "global"]
        count = len(padded(np.zeros(n_samples)))
        drawn = {s: a[:n_samples] for s, a in found.sample(count, self._seed(), sites).items()}
        factors = range(self.n_factors_)
        z = np.stack([drawn_components(drawn[f"pi {m}"], random) for m in factors], axis=1)
        draws = np.arange(n_samples)
        mean = self.mean_ + sum(drawn[f"mu {m}"][draws, z[:, m]] for m in factors)
        return mean + random.normal(size=mean.shape) / np.sqrt(drawn["tau"][:, 0]), z

    def _describe(self) -> Self:
        found = self._fitted("means_")
        factors = range(self.n_factors_)
        self.means_ = np.stack([np.asarray(found.mean(f"mu {m}")) for m in factors])
        self.weights_ = np.stack([np.asarray(found.mean(f"pi {m}")) for m in factors])
        self.covariances_ = 1.0 / np.asarray(found.mean("tau"))[0]
        return self

    def _rows(self, X: Any, wanted: str) -> Any:
        """New rows, as the program takes them."""
        self._fitted(wanted)
        return self._missing_allowed(X, reset=False) - self.mean_

    def _check_factors(self) -> None:
        concentration = self.weight_concentration_prior
        self._check(
            ("n_components", is_count(self.n_components), COUNT),
            ("n_factors", is_count(self.n_factors), COUNT),
            ("n_init", is_count(self.n_init), COUNT),
            (
                "weight_concentration_prior",
                is_size(concentration) and concentration > 0,
                "a number above 0",
            ),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "density_estimator"
        tags.input_tags.allow_nan = True
        return tags

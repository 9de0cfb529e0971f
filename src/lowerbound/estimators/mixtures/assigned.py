"""What mixtures share: weights of components, assignments of rows, and densities of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.estimators.programmed import Restarted, count_of, padded
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.run.method import Rule, one_of

PROCESS: Final = "dirichlet_process"
WEIGHTS: Final = (PROCESS, "dirichlet_distribution")


def component_weights(concentration: Any, K: int, process: bool) -> Any:
    """Dirichlet(a, ..., a), or the first K sticks of a Dirichlet process, v_k ~ Beta(1, a).

    The last stick is what is left (truncation). concentration: an array of one number.
    """
    if not process or K == 1:
        return numpyro.sample("pi", dist.Dirichlet(jnp.broadcast_to(concentration, (K,))))
    if K == 2:  # one stick: Beta(1, a) of v is Dirichlet(1, a) of (v, 1 - v)
        both = jnp.concatenate([jnp.ones(1), concentration])
        return numpyro.sample("pi", dist.Dirichlet(both))
    with numpyro.plate("sticks", K - 1):
        v = numpyro.sample("v", dist.Beta(1.0, concentration))
    left = jnp.cumprod(1.0 - v)
    return jnp.concatenate([v, jnp.ones(1)]) * jnp.concatenate([jnp.ones(1), left])


def drawn_components(weights: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A component for each row of weights (n, K), drawn by them.

    >>> drawn_components(np.array([[0.0, 1.0], [1.0, 0.0]]), np.random.default_rng(0))
    array([1, 0])
    """
    cumulated = weights.cumsum(axis=1)
    below = random.random((len(weights), 1)) * cumulated[:, -1:] > cumulated
    return np.asarray(np.minimum(below.sum(axis=1), weights.shape[1] - 1))


@dataclass(eq=False, repr=False)
class Mixture(Restarted, ABC):
    """Rows of K components: what holds whatever the distribution of a component is."""

    n_components: int = 1
    _: KW_ONLY
    weight_concentration_prior_type: str = PROCESS
    weight_concentration_prior: float | None = None

    weights_: np.ndarray = field(init=False)
    n_features_in_: int = field(init=False)

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, then the components of the same rows."""
        return self.fit(X).predict(X)

    @abstractmethod
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the components from rows X (n, D)."""

    def predict(self, X: Any) -> np.ndarray:
        """The most probable component of each row."""
        return np.asarray(self.predict_proba(X).argmax(axis=1))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Q(z = k) of each row, (n, K): the step of alg:gmm-cavi, with the components as fitted."""
        rows = self._rows(X)
        with jax.enable_x64(True):
            found = np.asarray(self._fitted("predict_proba").local(padded(rows))["z"].probs)
        return found.reshape(-1, self._components())[: count_of(rows)]

    def score_samples(self, X: Any) -> np.ndarray:
        """The log predictive density of each row, components integrated out."""
        return self._densities(self._rows(X))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from more rows: the posterior so far is their prior. The first call is `fit`."""
        if not hasattr(self, "_result"):
            return self.fit(X)
        self._check_mixture()
        self._learn_more(self._rows(X))
        return self._describe()

    @abstractmethod
    def _describe(self) -> Self:
        """The fitted attributes, from the factors."""

    def _rows(self, X: Any) -> Any:
        """New rows, as the program takes them."""
        self._fitted("rows")
        return self._read(X, reset=False)

    def _components(self) -> int:
        return len(self.weights_)

    # -- weights ----------------------------------------------------------------------------------

    def _climb(self, x: Any) -> CAVI:
        """Sweeps from k-means++ where rows are whole."""
        init = "auto" if np.ma.isMaskedArray(x) else "k-means++"
        return self._sweeps(x.size, self.n_init, init)

    def _check_mixture(self, *rules: Rule) -> None:
        self._check(
            one_of(
                "weight_concentration_prior_type", self.weight_concentration_prior_type, WEIGHTS
            ),
            (
                "weight_concentration_prior",
                self.weight_concentration_prior is None or self.weight_concentration_prior > 0,
                "a number above 0, or None",
            ),
            *rules,
        )

    def _concentration(self) -> np.ndarray:
        """That of the weights; by default 1 / K, which empties components that are not needed."""
        given = self.weight_concentration_prior
        return np.full(1, 1.0 / self.n_components if given is None else float(given))

    def _process(self) -> bool:
        return self.weight_concentration_prior_type == PROCESS

    def _mean_weights(self) -> np.ndarray:
        """E[pi]."""
        found = self._fitted("weights_")
        if "v" not in found.sites:
            return np.asarray(found.mean("pi"))
        v = np.append(np.asarray(found.mean("v")), 1.0)
        return np.asarray(v * np.append(1.0, np.cumprod(1.0 - v[:-1])))

    def _drawn_weights(self, drawn: dict[str, np.ndarray]) -> np.ndarray:
        """Draws of pi, (S, K)."""
        if "v" not in drawn:
            return drawn["pi"]
        v = np.pad(drawn["v"], ((0, 0), (0, 1)), constant_values=1.0)
        left = np.cumprod(1.0 - v[:, :-1], axis=1)
        return v * np.pad(left, ((0, 0), (1, 0)), constant_values=1.0)

    # -- draws ------------------------------------------------------------------------------------

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """New rows from the posterior predictive, and their components.

        Each row has its own draw of the components.
        """
        drawn, random = self._global_draws(n_samples)
        z = drawn_components(self._drawn_weights(drawn), random)
        return self._drawn_rows(drawn, z, random), z

    @abstractmethod
    def _drawn_rows(
        self, drawn: dict[str, np.ndarray], z: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        """A row of each draw, from the component z."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "density_estimator"
        return tags

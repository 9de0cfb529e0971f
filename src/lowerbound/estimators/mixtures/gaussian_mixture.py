"""Mixtures of Gaussians (paper Appendix B) as an estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.errors import ArgumentError, SettingError
from lowerbound.estimators.mixtures.assigned import Mixture, component_weights
from lowerbound.run.method import Settings, one_of

Prior = dict[str, np.ndarray]

# --------------------------------------------------------------------------------------------------
# The programs. Every array of a prior has a leading axis of one: none is taken for rows of data.


def diagonal(x: Any, prior: Prior, K: int, process: bool) -> None:
    """tau_kd ~ Gamma, mu_kd ~ Normal(m_d, 1 / (b tau_kd)), x_nd ~ Normal(mu_zd, 1 / tau_zd)."""
    n, D = x.shape
    pi = component_weights(prior["concentration"], K, process)
    with numpyro.plate("components", K, dim=-2), numpyro.plate("columns", D, dim=-1):
        tau = numpyro.sample("tau", dist.Gamma(prior["shape"], prior["rate"]))
        mu = numpyro.sample("mu", dist.Normal(prior["mean"], 1 / jnp.sqrt(prior["weight"] * tau)))
    with numpyro.plate("rows", n, dim=-2):
        z = numpyro.sample("z", dist.Categorical(pi))[:, 0]
        with numpyro.plate("columns", D, dim=-1):
            numpyro.sample("x", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])), obs=x)


def spherical(x: Any, prior: Prior, K: int, process: bool) -> None:
    """As `diagonal`, with one tau_k for all columns."""
    n, D = x.shape
    pi = component_weights(prior["concentration"], K, process)
    with numpyro.plate("components", K, dim=-2):
        tau = numpyro.sample("tau", dist.Gamma(prior["shape"], prior["rate"]))
        with numpyro.plate("columns", D, dim=-1):
            scale = 1 / jnp.sqrt(prior["weight"] * tau)
            mu = numpyro.sample("mu", dist.Normal(prior["mean"], scale))
    with numpyro.plate("rows", n, dim=-2):
        z = numpyro.sample("z", dist.Categorical(pi))[:, 0]
        with numpyro.plate("columns", D, dim=-1):
            numpyro.sample("x", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])), obs=x)


def full(x: Any, prior: Prior, K: int, process: bool) -> None:
    """P_k ~ Wishart, mu_k ~ Normal(m, (b P_k)^-1), x_n ~ Normal(mu_z, P_z^-1)."""
    pi = component_weights(prior["concentration"], K, process)
    with numpyro.plate("components", K):
        wishart = dist.Wishart(prior["freedom"][0], rate_matrix=prior["rate"][0])
        P = numpyro.sample("precision", wishart)
        weighted = prior["weight"][0] * P
        mu = numpyro.sample(
            "mu", dist.MultivariateNormal(prior["mean"][0], precision_matrix=weighted)
        )
    with numpyro.plate("rows", x.shape[0]):
        z = numpyro.sample("z", dist.Categorical(pi))
        numpyro.sample("x", dist.MultivariateNormal(mu[z], precision_matrix=P[z]), obs=x)


def tied(x: Any, prior: Prior, K: int, process: bool) -> None:
    """As `full`, with one P for all components."""
    pi = component_weights(prior["concentration"], K, process)
    wishart = dist.Wishart(prior["freedom"][0], rate_matrix=prior["rate"][0])
    P = numpyro.sample("precision", wishart)
    with numpyro.plate("components", K):
        weighted = prior["weight"][0] * P
        mu = numpyro.sample(
            "mu", dist.MultivariateNormal(prior["mean"][0], precision_matrix=weighted)
        )
    with numpyro.plate("rows", x.shape[0]):
        z = numpyro.sample("z", dist.Categorical(pi))
        numpyro.sample("x", dist.MultivariateNormal(mu[z], precision_matrix=P), obs=x)


PROGRAMS: Final = {"full": full, "tied": tied, "diag": diagonal, "spherical": spherical}


# --------------------------------------------------------------------------------------------------
# The prior


@dataclass(frozen=True, eq=False, repr=False)
class ComponentPrior(Settings):
    """What is known of a Gaussian component before the data; None is taken from their spread.

    mean: where components lie on average (D,); by default the mean of the data. covariance: that
    which a component is expected to have, (D, D), (D,) for "diag", a number for "spherical"; by
    default the covariance of the data times K^(-2/D), so that K of them fill its volume.
    mean_weight, covariance_weight: the rows that these are worth; by default K^(-2/D), which
    spreads the means as the data are, and 2 (D + 1 for "full" and "tied"), one more than what an
    empty component needs to have a mean.

    >>> from lowerbound.estimators import ComponentPrior, GaussianMixture
    >>> GaussianMixture(3, prior=ComponentPrior(covariance_weight=10.0))
    GaussianMixture(n_components=3, prior=ComponentPrior(covariance_weight=10.0))
    """

    mean: Any = None
    mean_weight: float | None = None
    covariance: Any = None
    covariance_weight: float | None = None

    def __post_init__(self) -> None:
        def positive(value: Any) -> bool:
            return value is None or (isinstance(value, int | float) and value > 0)

        expected = "a number above 0, or None"
        self.check(
            ("mean_weight", positive(self.mean_weight), expected),
            ("covariance_weight", positive(self.covariance_weight), expected),
        )

    def arrays(self, X: Any, kind: str, K: int) -> Prior:
        """The numbers of the program, for rows X."""
        D = X.shape[1]
        share = float(K) ** (-2.0 / D)
        whole, least = kind in ("full", "tied"), 2.0
        shape: tuple[int, ...]
        if whole:
            spread, least, shape = share * _covariance(X), D + 1.0, (D, D)
        elif kind == "diag":
            spread, shape = share * _variances(X), (D,)
        else:
            spread, shape = np.asarray(share * _variances(X).mean()), ()
        freedom = least if self.covariance_weight is None else float(self.covariance_weight)
        if freedom <= least - 1:
            expected = f"a number above {least - 1:g}: an empty component has no mean else"
            raise SettingError("ComponentPrior", "covariance_weight", freedom, expected)
        rate = freedom * _given("covariance", self.covariance, spread, shape)
        mean = _given("mean", self.mean, np.asarray(X.mean(axis=0)), (D,))
        weight = share if self.mean_weight is None else float(self.mean_weight)
        prior = {"mean": mean[None], "weight": np.full((1, 1), weight)}
        if whole:
            return {**prior, "rate": rate[None], "freedom": np.full(1, freedom)}
        gamma = {"rate": rate.reshape(1, -1) / 2, "shape": np.full((1, 1), freedom / 2)}
        return {**prior, **gamma}


def _given(name: str, value: Any, default: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if value is None:
        return default
    array = np.asarray(value, dtype=float)
    if array.shape != shape or not np.isfinite(array).all():
        raise ArgumentError(
            f"ComponentPrior got {name} of shape {array.shape}.\n"
            f"Expected finite numbers of shape {shape}."
        )
    return array


def _variances(X: Any) -> np.ndarray:
    """Those of the columns; a column that does not vary is given a scale of its own."""
    variances = np.asarray(X.var(axis=0))
    least = 1e-6 * np.maximum(np.asarray(abs(X).max(axis=0)) ** 2, 1e-12)
    return np.asarray(np.maximum(variances, least))


def _covariance(X: Any) -> np.ndarray:
    """That of the data, with a little more of its diagonal: columns may be collinear."""
    variances = _variances(X)
    return np.cov(X.T, bias=True).reshape(len(variances), -1) + np.diag(1e-6 * variances)


# --------------------------------------------------------------------------------------------------
# The estimator


@dataclass(eq=False, repr=False, kw_only=True)
class GaussianMixture(Mixture):
    """K Gaussian components by coordinate ascent (alg:gmm-cavi), with conjugate priors.

    Settings have the names of scikit-learn's BayesianGaussianMixture. covariance_type: "full",
    "tied", "diag" or "spherical". tol: sweeps stop when they change the ELBO by about so many nats.
    n_init: starts, of which the best ELBO is kept; they run together.
    weight_concentration_prior_type: "dirichlet_process" (truncated at n_components) or
    "dirichlet_distribution"; weight_concentration_prior: its concentration, by default
    1 / n_components. prior: a `ComponentPrior`, what is known of a component. NaN are entries that
    are missing, where columns are independent given the component ("diag", "spherical").

    Fitted: weights_, means_ (K, D), covariances_ and precisions_ (inverse, and mean of the
    precision), converged_, n_iter_, lower_bound_ (the ELBO), result_ (the `Fit`).

    >>> from lowerbound.estimators import GaussianMixture
    >>> x = np.random.default_rng(0).normal(size=(90, 2)) + np.repeat([[-5], [0], [5]], 30, 0)
    >>> mixture = GaussianMixture(3, n_init=3).fit(x)
    >>> np.sort(mixture.means_[:, 0]).round(0) + 0.0
    array([-5.,  0.,  5.])
    >>> mixture.predict_proba(x).shape
    (90, 3)
    """

    covariance_type: str = "full"
    prior: ComponentPrior | None = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the components from rows X (n, D)."""
        self._check_mixture(
            one_of("covariance_type", self.covariance_type, PROGRAMS),
            (
                "prior",
                self.prior is None or isinstance(self.prior, ComponentPrior),
                "a ComponentPrior, or None",
            ),
        )
        x = self._with_missing(X, reset=True)
        known = self.prior or ComponentPrior()
        prior = known.arrays(x, self.covariance_type, self.n_components)
        self._learn(
            PROGRAMS[self.covariance_type],
            x,
            {**prior, "concentration": self._concentration()},
            K=int(self.n_components),
            process=self._process(),
            method=self._climb(x),
        )
        self._kind = self.covariance_type
        return self._describe()

    def _describe(self) -> Self:
        found = self._fitted("means_")
        self.weights_ = self._mean_weights()
        self.means_ = np.asarray(found.mean("mu"))
        if "tau" in found.sites:
            precisions = np.asarray(found.mean("tau"))
            self.precisions_ = precisions[:, 0] if self._kind == "spherical" else precisions
            self.covariances_ = 1.0 / self.precisions_
        else:
            self.precisions_ = np.asarray(found.mean("precision"))
            self.covariances_ = np.linalg.inv(self.precisions_)
        return self

    def _rows(self, X: Any) -> Any:
        self._fitted("rows")
        return self._with_missing(X, reset=False)

    def _with_missing(self, X: Any, *, reset: bool) -> Any:
        kind = self.covariance_type if reset else self._kind
        if kind in ("full", "tied"):
            return self._read(X, reset=reset, ensure_min_samples=2 if reset else 1)
        return self._missing_allowed(X, reset=reset)

    def _drawn_rows(
        self, drawn: dict[str, np.ndarray], z: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        draws = np.arange(len(z))
        mu = drawn["mu"][draws, z]
        noise = random.normal(size=mu.shape)
        if "tau" in drawn:
            return np.asarray(mu + noise / np.sqrt(drawn["tau"][draws, z]))
        P = drawn["precision"] if self._kind == "tied" else drawn["precision"][draws, z]
        root = np.linalg.cholesky(P)
        spread = np.linalg.solve(root.swapaxes(-1, -2), noise[..., None])[..., 0]
        return np.asarray(mu + spread)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.covariance_type in ("diag", "spherical")
        return tags

"""Mixtures of exponential families, with columns of one kind or of several, as an estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.errors import ArgumentError
from lowerbound.estimators.mixtures.assigned import Mixture, component_weights
from lowerbound.estimators.mixtures.gaussian_mixture import ComponentPrior

KINDS: Final = ("gaussian", "poisson", "bernoulli", "categorical")
Columns = dict[str, Any]  # kind -> its columns; "categorical3" holds those of three levels


def by_kind(x: Columns, prior: dict[str, Any], K: int, process: bool) -> None:
    """Columns are independent given the component z; each kind has its conjugate prior."""
    pi = component_weights(prior["concentration"], K, process)
    components = {}
    for kind, columns in x.items():
        D = columns.shape[1]
        with numpyro.plate("components", K, dim=-2), numpyro.plate(f"{kind} columns", D, dim=-1):
            components[kind] = _component(kind, prior)
    with numpyro.plate("rows", len(next(iter(x.values()))), dim=-2):
        z = numpyro.sample("z", dist.Categorical(pi))[:, 0]
        for kind, columns in x.items():
            with numpyro.plate(f"{kind} columns", columns.shape[1], dim=-1):
                numpyro.sample(f"x {kind}", _density(kind, components[kind], z), obs=columns)


def _component(kind: str, prior: dict[str, Any]) -> Any:
    """The parameters of a kind of columns, (K, D) each."""
    if kind == "gaussian":
        tau = numpyro.sample("tau", dist.Gamma(prior["shape"], prior["rate"]))
        scale = 1 / jnp.sqrt(prior["weight"] * tau)
        return numpyro.sample("gaussian", dist.Normal(prior["mean"], scale)), tau
    if kind == "poisson":
        return numpyro.sample("poisson", dist.Gamma(1.0, prior["poisson"]))
    if kind == "bernoulli":
        return numpyro.sample("bernoulli", dist.Beta(1.0, 1.0))
    return numpyro.sample(kind, dist.Dirichlet(jnp.ones(_levels(kind))))


def _density(kind: str, component: Any, z: Any) -> Any:
    if kind == "gaussian":
        mu, tau = component
        return dist.Normal(mu[z], 1 / jnp.sqrt(tau[z]))
    if kind == "poisson":
        return dist.Poisson(component[z])
    return dist.Bernoulli(component[z]) if kind == "bernoulli" else dist.Categorical(component[z])


def _levels(kind: str) -> int:
    return int(kind.removeprefix("categorical"))


@dataclass(eq=False, repr=False, kw_only=True)
class ExponentialFamilyMixture(Mixture):
    """K components, and in each of them independent columns, whatever these are.

    families: "gaussian", "poisson" (counts), "bernoulli" (0 or 1) or "categorical" (0, 1, ...,
    levels - 1), for all columns, or a list of one for each. Priors are Normal-Gamma as of
    `ComponentPrior`, Gamma(1, 1 / mean of the column), Beta(1, 1), Dirichlet(1, ..., 1). NaN are
    entries that are missing. The other settings are those of `GaussianMixture`.

    Fitted: weights_, components_ (kind -> posterior means of its parameters, (K, columns) or
    (K, columns, levels)), columns_ (kind -> which columns), converged_, n_iter_, lower_bound_,
    result_ (the `Fit`).

    >>> from lowerbound.estimators import ExponentialFamilyMixture
    >>> rng = np.random.default_rng(0)
    >>> z = np.repeat([0, 1], 50)
    >>> x = np.column_stack([rng.poisson(3 + 20 * z), rng.random(100) < 0.1 + 0.8 * z])
    >>> mixture = ExponentialFamilyMixture(2, families=["poisson", "bernoulli"]).fit(x)
    >>> np.sort(mixture.components_["poisson"][:, 0]).round(0)
    array([ 3., 23.])
    """

    families: Any = "gaussian"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the components from rows X (n, D)."""
        given = [self.families] if isinstance(self.families, str) else list(self.families)
        expected = f"one of {', '.join(map(repr, KINDS))}, or a list of these"
        self._check_mixture(("families", set(given) <= set(KINDS), expected))
        x = self._missing_allowed(X, reset=True)
        D = x.shape[1]
        names = given * D if isinstance(self.families, str) else given
        if len(names) != D:
            raise ArgumentError(
                f"ExponentialFamilyMixture got {len(names)} families for {D} columns.\n"
                "Expected one for each column."
            )
        kinds = [f"{n}{_count(x[:, j])}" if n == "categorical" else n for j, n in enumerate(names)]
        self.columns_ = {k: np.flatnonzero(np.array(kinds) == k) for k in dict.fromkeys(kinds)}
        rows = self._split(x)
        prior: dict[str, Any] = {"concentration": self._concentration()}
        if "gaussian" in rows:
            prior |= ComponentPrior().arrays(rows["gaussian"], "diag", self.n_components)
        if "poisson" in rows:
            means = np.asarray(rows["poisson"].mean(axis=0), dtype=float)
            prior["poisson"] = 1.0 / np.maximum(means, 0.5 / len(x))[None]
        self._learn(
            by_kind,
            rows,
            prior,
            K=int(self.n_components),
            process=self._process(),
            method=self._climb(x),
        )
        return self._describe()

    def _describe(self) -> Self:
        found = self._fitted("components_")
        self.weights_ = self._mean_weights()
        self.components_ = {kind: np.asarray(found.mean(kind)) for kind in self.columns_}
        return self

    def _rows(self, X: Any) -> Columns:
        self._fitted("rows")
        return self._split(self._missing_allowed(X, reset=False))

    def _split(self, x: Any) -> Columns:
        """The columns by kind, counts and levels as whole numbers."""
        found: Columns = {}
        for kind, columns in self.columns_.items():
            part = x[:, columns]
            if kind != "gaussian":
                top = {"poisson": np.inf, "bernoulli": 1}.get(kind)
                _check_whole(part, columns, kind, _levels(kind) - 1 if top is None else top)
                part = part.astype(np.int64)
            found[kind] = part
        return found

    def _drawn_rows(
        self, drawn: dict[str, np.ndarray], z: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        draws = np.arange(len(z))
        rows = np.empty((len(z), self.n_features_in_))
        for kind, columns in self.columns_.items():
            of_row = drawn[kind][draws, z]
            if kind == "gaussian":
                noise = random.normal(size=of_row.shape)
                rows[:, columns] = of_row + noise / np.sqrt(drawn["tau"][draws, z])
            elif kind == "poisson":
                rows[:, columns] = random.poisson(of_row)
            elif kind == "bernoulli":
                rows[:, columns] = random.random(of_row.shape) < of_row
            else:
                uniform = random.random((*of_row.shape[:-1], 1))
                rows[:, columns] = (uniform > of_row.cumsum(axis=-1)[..., :-1]).sum(axis=-1)
        return rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _count(column: Any) -> int:
    """The levels of a categorical column."""
    top = column.max()
    return 2 if np.ma.is_masked(top) else max(int(top) + 1, 2)


def _check_whole(part: Any, columns: np.ndarray, kind: str, top: float) -> None:
    """Counts, zeros and ones, and levels are whole numbers from 0."""
    wrong = np.ma.filled((part != np.round(part)) | (part < 0) | (part > top), False)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        name = "categorical" if kind.startswith("categorical") else kind
        bounds = "of 0 or more" if np.isinf(top) else f"from 0 to {int(top)}"
        raise ArgumentError(
            f"ExponentialFamilyMixture got {part[row, column]:g} in column {columns[column]}, "
            f"which is {name}.\nExpected whole numbers {bounds}."
        )

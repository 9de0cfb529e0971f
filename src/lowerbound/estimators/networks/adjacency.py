"""What models of networks share: adjacency matrices, densities of links, starts, tags."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.errors import ArgumentError
from lowerbound.estimators.programmed import Restarted
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.run.method import Rule, one_of

LIKELIHOODS: Final = ("bernoulli", "poisson")


def link_densities(prior: Any, table: Any, likelihood: str) -> Any:
    """B_kl ~ Beta(1, 1), or Gamma(1, b) where links are counts: a matrix (K, K).

    table: the number of the site's element for each pair of blocks; B is symmetric where k, l and
    l, k have the same one.
    """
    with numpyro.plate("pairs of blocks", int(np.max(table)) + 1):
        if likelihood == "poisson":
            density = numpyro.sample("density", dist.Gamma(1.0, prior[0]))
        else:
            density = numpyro.sample("density", dist.Beta(1.0, 1.0))
    return density[jnp.asarray(table)]


def link_distribution(rate: Any, likelihood: str) -> Any:
    """Of the link between two nodes whose blocks have this rate."""
    return dist.Poisson(rate) if likelihood == "poisson" else dist.Bernoulli(rate)


@dataclass(frozen=True, eq=False)
class Links:
    """An adjacency matrix: numbers, zero where unknown, and which are known."""

    values: np.ndarray
    known: np.ndarray

    @property
    def mean(self) -> float:
        """That of the known links."""
        return float(self.values[self.known].mean()) if self.known.any() else 0.0


@dataclass(eq=False, repr=False, kw_only=True)
class Network(Restarted, ABC):
    """A model of an adjacency matrix (n, n), whose nodes have blocks."""

    directed: bool = False
    likelihood: str = "bernoulli"

    memberships_: np.ndarray = field(init=False)
    labels_: np.ndarray = field(init=False)
    densities_: np.ndarray = field(init=False)
    _likelihood: str = field(init=False)  # as fitted: settings may have changed since
    _directed: bool = field(init=False)

    @abstractmethod
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the blocks from an adjacency matrix X (n, n)."""

    @abstractmethod
    def predict_proba(self, X: Any) -> np.ndarray:
        """The memberships of new nodes, (m, K), from their links to the fitted ones."""

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, then the block of each node: `labels_`."""
        return self.fit(X).labels_

    def predict(self, X: Any) -> np.ndarray:
        """The most probable block of each new node, from its links X (m, n) to the fitted nodes."""
        return np.asarray(self.predict_proba(X).argmax(axis=1))

    def link_proba(self) -> np.ndarray:
        """The expected link from each fitted node to each other, (n, n): its probability."""
        self._fitted("link_proba")
        return np.asarray(self.memberships_ @ self.densities_ @ self.memberships_.T)

    # -- reading ----------------------------------------------------------------------------------

    def _check_network(self, *rules: Rule) -> None:
        self._check(
            ("directed", isinstance(self.directed, bool | np.bool_), "True or False"),
            one_of("likelihood", self.likelihood, LIKELIHOODS),
            *rules,
        )

    def _graph(self, X: Any) -> Links:
        """The links among the nodes of a fit, each pair once; a node has none to itself."""
        links = self._links(X, reset=True)
        values, known, name = links.values, links.known, type(self).__name__
        if values.shape[0] != values.shape[1]:
            raise ArgumentError(
                f"{name} got a matrix of shape {values.shape}.\n"
                "Expected an adjacency matrix, square: row i has the links of node i."
            )
        apart = ~np.eye(len(values), dtype=bool)
        if self.directed:
            return Links(values, known & apart)
        # What is known in one of its two places is known.
        values, known = np.where(known, values, values.T), known | known.T
        if (values != values.T).any():
            i, j = np.argwhere(values != values.T)[0]
            raise ArgumentError(
                f"{name} got an adjacency matrix that is not symmetric: entries ({i}, {j}) and "
                f"({j}, {i}) differ.\nExpected a symmetric one, or directed=True."
            )
        return Links(values, known & np.triu(apart))

    def _links(self, X: Any, *, reset: bool) -> Links:
        rules: dict[str, Any] = {"ensure_all_finite": "allow-nan", "accept_sparse": "csr"}
        found = self._read(X, reset=reset, ensure_min_samples=2 if reset else 1, **rules)
        dense = found if isinstance(found, np.ndarray) else found.toarray()
        known = ~np.isnan(dense)
        values = np.where(known, dense, 0.0)
        counts = (self.likelihood if reset else self._likelihood) == "poisson"
        wrong = (values != np.round(values)) | (values < 0) | ((values > 1) & (not counts))
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            kind = "whole numbers of 0 or more" if counts else "0 and 1"
            other = "" if counts else ', or likelihood="poisson" for counts'
            lead = "Negative values in data: " if values[i, j] < 0 else ""
            raise ArgumentError(
                f"{lead}{type(self).__name__} got a link of {values[i, j]:g} from node {i} to "
                f"node {j}.\n"
                f"Expected {kind}; NaN where it is unknown{other}."
            )
        return Links(values, known)

    def _table(self) -> np.ndarray:
        """The number of the density of each pair of blocks, (K, K)."""
        K = int(self.n_components)
        if self.directed:
            return np.arange(K * K).reshape(K, K)
        table = np.zeros((K, K), dtype=int)
        rows, columns = np.triu_indices(K)
        table[rows, columns] = table[columns, rows] = np.arange(len(rows))
        return table

    # -- learning ---------------------------------------------------------------------------------

    def _starts(self, links: Links) -> Iterator[np.ndarray]:
        """Blocks to start from: k-means of the leading singular vectors; every third by chance."""
        from sklearn.cluster import KMeans

        K, n, seed = int(self.n_components), len(links.values), self._seed()
        places = embedding(links, min(K, n - 1), self.directed)
        random, distinct = np.random.default_rng(seed), len(np.unique(places.round(9), axis=0))
        for number in range(int(self.n_init)):
            if distinct < 2 or number % 3 == 2:
                yield random.integers(K, size=n)
            else:
                means = KMeans(min(K, distinct), n_init=1, random_state=seed + number)
                yield means.fit_predict(places.round(9))

    def _drawn_graph(self, rate: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Links drawn with these rates, (n, n); none of a node to itself."""
        counts = self._likelihood == "poisson"
        links = random.poisson(rate) if counts else (random.random(rate.shape) < rate).astype(int)
        upper = np.triu(links, 1)
        return upper + (np.tril(links, -1) if self._directed else upper.T)

    def _climb_from(self, size: int, **init: np.ndarray) -> CAVI:
        return replace(self._sweeps(size), init=init)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = tags.input_tags.sparse = tags.input_tags.allow_nan = True
        tags.input_tags.positive_only = True
        return tags


def embedding(links: Links, K: int, directed: bool) -> np.ndarray:
    """Nodes in the leading singular vectors of the normalised adjacency matrix, (n, K or 2 K).

    Degrees have their mean added, so that nodes of few links do not lead (Amini et al. 2013).
    """
    A = np.where(links.known, links.values, 0.0 if not directed else links.mean)
    if not directed:
        A = A + A.T
    out, into = A.sum(axis=1), A.sum(axis=0)
    scaled = A / np.sqrt(np.outer(out + out.mean() + 1e-12, into + into.mean() + 1e-12))
    left, values, right = np.linalg.svd(scaled)
    ends = [left[:, :K]] if not directed else [left[:, :K], right[:K].T]
    return np.concatenate([vectors * values[:K] for vectors in ends], axis=1)

"""Stochastic blockmodels (paper section 4.2) as an estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.errors import SettingError
from lowerbound.estimators.mixtures.assigned import drawn_components
from lowerbound.estimators.networks.adjacency import Network, link_densities, link_distribution
from lowerbound.run.method import COUNT, is_count


def blocks(
    links: Any, known: Any, prior: dict[str, Any], table: Any, K: int, likelihood: str
) -> None:
    """z_i ~ Categorical(pi); the link from i to j is Bernoulli(B[z_i, z_j]), or Poisson of it."""
    n = len(links)
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    B = link_densities(prior["rate"], table, likelihood)
    with numpyro.plate("nodes", n):
        z = numpyro.sample("z", dist.Categorical(pi))
    with numpyro.plate("from", n, dim=-2), numpyro.plate("to", n, dim=-1):
        link = link_distribution(B[z[:, None], z[None]], likelihood)
        numpyro.sample("links", link.mask(known), obs=links)


@dataclass(eq=False, repr=False, kw_only=True)
class StochasticBlockModel(Network):
    """Nodes in K blocks; the probability of a link depends on the blocks of its two ends.

    X: an adjacency matrix (n, n), dense or sparse (it is held dense), as of
    SpectralClustering(affinity="precomputed"); links are 0 or 1, or counts with
    likelihood="poisson"; NaN are those that are unknown, and the diagonal does not count. directed:
    whether the link from i to j may differ from that from j to i. tol: sweeps stop when they change
    the ELBO by about so many nats. n_init: starts, from k-means of the leading singular vectors or
    by chance, of which the best ELBO is kept.

    Fitted: labels_ (n,), memberships_ (n, K), weights_ (K,), densities_ (K, K, the expected link
    from a block to a block), converged_, n_iter_, lower_bound_ (the ELBO), result_ (the `Fit`).

    >>> from lowerbound.estimators import StochasticBlockModel
    >>> rng = np.random.default_rng(0)
    >>> z = np.repeat([0, 1], 20)
    >>> upper = np.triu(rng.random((40, 40)) < np.where(z[:, None] == z, 0.6, 0.1), 1)
    >>> model = StochasticBlockModel(2).fit(upper + upper.T)
    >>> len(set(model.labels_[:20])), len(set(model.labels_[20:])), len(set(model.labels_))
    (1, 1, 2)
    >>> model.predict((upper + upper.T)[:1]) == model.labels_[0]
    array([ True])
    """

    n_init: int = 5

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the blocks from an adjacency matrix X (n, n)."""
        self._check_network()
        graph = self._graph(X)
        self._likelihood, self._directed = self.likelihood, bool(self.directed)
        prior = {"rate": np.full(1, 1.0 / max(graph.mean, 1e-3))}
        table, found = self._table(), []
        self._pairs = table
        for start in self._starts(graph):
            method = self._climb_from(int(graph.known.sum()), z=start)
            found.append(
                self._learn(
                    blocks,
                    graph.values.astype(np.int64),
                    graph.known,
                    prior,
                    table=table,
                    K=int(self.n_components),
                    likelihood=self.likelihood,
                    method=method,
                )
            )
        best = self._keep(max(found, key=lambda one: one.elbo), self._took)
        self.memberships_ = np.asarray(best.posterior["z"].probs)
        self.labels_ = self.memberships_.argmax(axis=1)
        self.weights_ = np.asarray(best.mean("pi"))
        self.densities_ = np.asarray(best.mean("density"))[table]
        self._tables = self._expected_logs(table)
        return self

    def _expected_logs(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What a link, and what a possible link, adds to the log density: (K, K) each."""
        from scipy.special import digamma

        q = self._fitted("densities_").posterior["density"]
        if self._likelihood == "poisson":
            shape, rate = np.asarray(q.concentration), np.asarray(q.rate)
            return (digamma(shape) - np.log(rate))[table], (-shape / rate)[table]
        a, b = np.asarray(q.concentration1), np.asarray(q.concentration0)
        return (digamma(a) - digamma(b))[table], (digamma(b) - digamma(a + b))[table]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Q(z = k) of new nodes, (m, K), from their links X (m, n) to the fitted ones.

        The optimal factor of one more node, with all else as fitted (eq:optimal-qj). Those of the
        nodes that were fitted are `memberships_`.
        """
        from scipy.special import digamma, softmax

        found = self._fitted("predict_proba")
        links = self._links(X, reset=False)
        each, possible = self._tables
        concentration = np.asarray(found.posterior["pi"].concentration)
        logits = (
            digamma(concentration)
            + links.values @ self.memberships_ @ each.T
            + links.known @ self.memberships_ @ possible.T
        )
        return np.asarray(softmax(logits, axis=1))

    def score_samples(self, X: Any) -> np.ndarray:
        """The log probability of the links X (m, n) of each new node to the fitted ones.

        Blocks of the new node are summed out; weights and densities are at their means.
        """
        from scipy.special import gammaln, logsumexp

        self._fitted("score_samples")
        links = self._links(X, reset=False)
        rate = self.memberships_ @ self.densities_.T  # of a link to each node, from each block
        if self._likelihood == "poisson":
            rows = links.values @ np.log(rate) - links.known @ rate
            rows = rows - gammaln(links.values + 1.0).sum(axis=1, keepdims=True)
        else:
            rows = links.values @ np.log(rate)
            rows = rows + (links.known - links.values) @ np.log1p(-rate)
        return np.asarray(logsumexp(rows + np.log(self.weights_), axis=1))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def sample(self, n_nodes: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """A new graph from the posterior predictive, (n_nodes, n_nodes), and its blocks."""
        if not is_count(n_nodes):
            raise SettingError("sample", "n_nodes", n_nodes, COUNT)
        found, random = self._fitted("sample"), np.random.default_rng(self._seed())
        drawn = found.sample(8, self._seed(), ["pi", "density"])
        z = drawn_components(np.repeat(drawn["pi"][:1], n_nodes, axis=0), random)
        rate = drawn["density"][0][self._pairs][z[:, None], z]
        return self._drawn_graph(rate, random), z

"""Mixed-membership blockmodels (paper section 4.2; Airoldi et al. 2008) as an estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.errors import SettingError
from lowerbound.estimators.mixtures.assigned import drawn_components
from lowerbound.estimators.networks.adjacency import (
    Links,
    Network,
    link_densities,
    link_distribution,
)
from lowerbound.estimators.programmed import padded
from lowerbound.result.fitted import Fit
from lowerbound.run.method import COUNT, is_count, is_size

OWN = 0.7  # the share of a node in its own block, at the start


def mixed_blocks(
    links: Any,
    ends: dict[str, Any],
    prior: dict[str, Any],
    table: Any,
    n: int,
    K: int,
    likelihood: str,
) -> None:
    """theta_i ~ Dirichlet; in each pair the two ends choose blocks, k ~ theta_i and l ~ theta_j.

    The link is Bernoulli(B_kl), or Poisson of it. The two choices are one site c = k K + l: they
    depend on each other given the link, and so they do in q.
    """
    B = link_densities(prior["rate"], table, likelihood)
    with numpyro.plate("nodes", n):
        concentration = jnp.broadcast_to(prior["concentration"], (K,))
        theta = numpyro.sample("theta", dist.Dirichlet(concentration))
    with numpyro.plate("pairs", len(links)):
        both = theta[ends["from"]][:, :, None] * theta[ends["to"]][:, None, :]
        c = numpyro.sample("c", dist.Categorical(both.reshape(-1, K * K)))
        numpyro.sample("links", link_distribution(B.reshape(-1)[c], likelihood), obs=links)


def newcomers(
    links: Any, known: Any, concentration: Any, rates: Any, K: int, likelihood: str
) -> None:
    """Each new node has theta ~ Dirichlet, and meets node j as z ~ theta, with rate P[z, j]."""
    m, n = links.shape
    P = rates[0]
    with numpyro.plate("new", m, dim=-2):
        each = dist.Dirichlet(jnp.broadcast_to(concentration, (K,)))
        theta = numpyro.sample("theta", each)
        with numpyro.plate("fitted", n, dim=-1):
            z = numpyro.sample("z", dist.Categorical(theta))
            link = link_distribution(P[z, jnp.arange(n)], likelihood)
            numpyro.sample("links", link.mask(known), obs=links)


@dataclass(eq=False, repr=False, kw_only=True)
class MixedMembershipBlockModel(Network):
    """Nodes with a share theta_i in each of K blocks; in each pair both ends choose one.

    X, directed, likelihood, tol and n_init are those of `StochasticBlockModel`. membership_prior:
    the concentration of theta_i ~ Dirichlet(a, ..., a); small ones keep a node to few blocks. By
    default 1 / n_components.

    Fitted: memberships_ (n, K, the means of theta), labels_ (n,), densities_ (K, K, the expected
    link from a block to a block), converged_, n_iter_, lower_bound_ (the ELBO), result_ (the
    `Fit`).

    >>> from lowerbound.estimators import MixedMembershipBlockModel
    >>> rng = np.random.default_rng(0)
    >>> theta = np.repeat([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], 10, axis=0)
    >>> upper = np.triu(rng.random((30, 30)) < theta @ [[0.9, 0.05], [0.05, 0.9]] @ theta.T, 1)
    >>> model = MixedMembershipBlockModel(2, n_init=1).fit(upper + upper.T)
    >>> share = np.sort(model.memberships_, axis=1)[:, 1].reshape(3, 10).mean(axis=1)
    >>> bool(share[1] < 0.8 < min(share[0], share[2]))
    True
    """

    membership_prior: float | None = None
    n_init: int = 3

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the blocks from an adjacency matrix X (n, n)."""
        given = self.membership_prior
        valid = given is None or (is_size(given) and given > 0)
        self._check_network(("membership_prior", valid, "a number above 0, or None"))
        graph = self._graph(X)
        self._likelihood, self._directed = self.likelihood, bool(self.directed)
        K = int(self.n_components)
        self._concentration = np.full(1, 1.0 / K if given is None else float(given))
        sender, receiver = np.nonzero(graph.known)
        links = graph.values[sender, receiver].astype(np.int64)
        prior = {
            "rate": np.full(1, 1.0 / max(graph.mean, 1e-3)),
            "concentration": self._concentration,
        }
        found = []
        self._pairs = self._table()
        for start in self._starts(graph):
            # Nodes wholly in one block would stay there: c follows from both, and is not given.
            shares = OWN * np.eye(K)[start] + (1.0 - OWN) / K
            density = self._between(links, start[sender], start[receiver])
            method = self._climb_from(links.size, theta=shares, density=density)
            found.append(
                self._learn(
                    mixed_blocks,
                    links,
                    {"from": sender, "to": receiver},
                    prior,
                    table=self._pairs,
                    n=len(graph.values),
                    K=K,
                    likelihood=self.likelihood,
                    method=method,
                )
            )
        best = self._keep(max(found, key=lambda one: one.elbo), self._took)
        self.memberships_ = np.asarray(best.mean("theta"))
        self.labels_ = self.memberships_.argmax(axis=1)
        self.densities_ = np.asarray(best.mean("density"))[self._pairs]
        return self

    def _between(self, links: np.ndarray, own: np.ndarray, other: np.ndarray) -> np.ndarray:
        """The mean link of each pair of blocks, with one of each kind added."""
        number = self._pairs[own, other]
        count = np.bincount(number, minlength=self._pairs.max() + 1)
        return (np.bincount(number, links, len(count)) + 1.0) / (count + 2.0)

    def predict_proba(self, X: Any) -> np.ndarray:
        """E[theta] of new nodes, (m, K), from their links X (m, n) to the fitted ones."""
        self._fitted("predict_proba")
        links = self._links(X, reset=False)
        theta = np.asarray(self._joined(links).mean("theta"))
        return theta.reshape(-1, theta.shape[-1])[: len(links.values)]

    def score(self, X: Any, y: Any = None) -> float:
        """A lower bound of the mean log probability of the links X (m, n) of new nodes.

        It is the ELBO of their memberships, with all else at its mean.
        """
        self._fitted("score")
        links = self._links(X, reset=False)
        return float(self._joined(links, repeated=False).elbo) / len(links.values)

    def _joined(self, links: Links, *, repeated: bool = True) -> Fit:
        """The fit of new nodes; the last one is repeated where few shapes are to be compiled."""
        from lowerbound.api import fit
        from lowerbound.compute.computing import without_verdicts

        values, known = links.values.astype(np.int64), links.known
        if repeated:
            values, known = padded(values), padded(known)
        rates = (self.densities_ @ self.memberships_.T)[None]
        K = len(self.densities_)
        with without_verdicts():
            return fit(
                newcomers,
                values,
                known,
                self._concentration,
                rates,
                K=K,
                likelihood=self._likelihood,
                method=self._sweeps(values.size),
                progress=False,
            )

    def sample(self, n_nodes: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """A new graph from the posterior predictive, (n_nodes, n_nodes), and its memberships."""
        if not is_count(n_nodes):
            raise SettingError("sample", "n_nodes", n_nodes, COUNT)
        found, random = self._fitted("sample"), np.random.default_rng(self._seed())
        density = found.sample(8, self._seed(), ["density"])["density"][0][self._pairs]
        K = len(density)
        theta = random.dirichlet(np.full(K, self._concentration[0]), size=n_nodes)
        s, r = (
            drawn_components(np.repeat(theta, n_nodes, axis=0), random).reshape(n_nodes, n_nodes)
            for _ in range(2)
        )
        rate = density[s, r.T]
        return self._drawn_graph(rate, random), theta

"""What computes: the steps that every inference for topics is made of (alg:cavi_lda, alg:svi).

Topics are kept as lambda, one row per word: q(beta_k) = Dirichlet(lambda[:, k]). For a document
with counts n_w, proportions q(theta) = Dirichlet(gamma) and weights B[w, k], all rules iterate

    phi[w, k]  ∝  t(gamma_k) B[w, k],        gamma_k  =  alpha_k + sum_w n_w phi[w, k]

and differ in t and B. "mean field": t = exp psi, B = exp E_q[log beta] (eq:lda_phi, eq:lda_gamma).
"mean": t and B are the means themselves. "collapsed": as "mean", with the word's own token left out
of its document's counts, t = gamma_k - phi[w, k] (CVB0).
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, Protocol, TypedDict, Unpack

import numpy as np

from lowerbound.topics.documents import Documents

Rule = Literal["mean field", "collapsed", "mean"]
TOLERANCE: Final = 1e-3  # of the mean change of gamma's elements, as scikit-learn's


class How(TypedDict, total=False):
    """By which rule documents are solved, and when they stand still."""

    rule: Rule
    iterations: int
    tolerance: float


BY_DEFAULT: Final[How] = {"rule": "mean field", "iterations": 100, "tolerance": TOLERANCE}


class Local(NamedTuple):
    """The documents of a batch, given the topics."""

    gamma: Any  # (D, K); empty documents have alpha
    statistics: Any  # (V, K): sum_d n_dw phi_dwk, with phi at the final gamma
    bound: (
        Any  # nats; sum_dw n log sum_k t B - sum_d KL(q(theta) || p(theta)) in mean field, else 0
    )
    iterations: Any  # mean number of inner iterations


class Engine(Protocol):
    """An implementation of the steps; arrays it returns are its own (NumPy, or on a device)."""

    name: str

    def alone(self) -> Engine:
        """The same engine with nothing that changes its bits, such as the number of threads."""

    def place(self, topics: np.ndarray) -> Any:
        """Lambda (V, K), or any array of that shape, as the engine keeps it."""

    def fetch(self, array: Any) -> np.ndarray:
        """An array of the engine's, as NumPy float64."""

    def pack(self, documents: Documents) -> Any:
        """A batch as the engine wants it; safe to call from another thread."""

    def weights(self, topics: Any, rule: Rule) -> Any:
        """B (V, K): exp(psi(lambda_wk) - psi(sum_w lambda_wk)), or lambda_wk / sum_w lambda_wk."""

    def local(
        self,
        weights: Any,
        batch: Any,
        prior: np.ndarray,
        start: Any = None,
        **how: Unpack[How],
    ) -> Local:
        """Iterate the rule for each document until gamma's mean change is below `tolerance`.

        `prior` is alpha (K,). `start` is gamma (D, K); without it gamma_k = alpha_k + n_d / K.
        With `iterations=0` gamma stays, and phi follows from it.
        """

    def blend(
        self, topics: Any, statistics: Any, prior: np.ndarray, step: float, scale: float
    ) -> Any:
        """(1 - step) lambda + step (eta + scale * statistics), eta = `prior` (V,) or (1,).

        The statistics are used up.
        """

    def assign(self, documents: Documents, weights: Any, prior: np.ndarray) -> Any:
        """Phi of every entry given topics ("collapsed" weights), kept for sweeps of CVB0."""

    def reassign(self, assigned: Any, prior: np.ndarray, eta: np.ndarray) -> Any:
        """One sweep of CVB0 over all entries; the argument is used up.

        phi[d, w, k] ∝ (N_dk - phi + alpha_k) (N_wk - phi + eta_w) / (N_k - phi + sum_w eta_w), with
        the counts N those of the current phi of all documents or, inside a sweep, older by at most
        a batch of documents.
        """

    def word_counts(self, assigned: Any) -> np.ndarray:
        """N_wk (V, K), expected under the current phi."""

    def document_counts(self, assigned: Any) -> np.ndarray:
        """N_dk (D, K), expected under the current phi."""

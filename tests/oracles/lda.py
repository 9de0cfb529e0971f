"""Latent Dirichlet allocation with one topic per word (alg:cavi_lda), by hand."""

from collections.abc import Iterator

import numpy as np
from scipy.special import softmax

from tests.oracles import expectations as ex
from tests.oracles.expectations import Step


def trajectory(w, present, start, V: int, eta: float, alpha: float) -> Iterator[Step]:
    """The sweeps from point topics and proportions: phi, gamma, lambda (eq:lda_phi and on).

    Words (docs, words) where `present` is False are no part of the model: they add nothing to
    the ELBO, and their topics are reported as NaN.
    """
    log_beta, log_theta = np.log(start["beta"]), np.log(start["theta"].reshape(len(w), -1))
    words = np.eye(V)[w] * present[..., None]
    while True:
        logits = log_theta[:, None, :] + log_beta.T[w]
        phi = softmax(logits, axis=-1) * present[..., None]
        gamma = alpha + phi.sum(1)
        lam = eta + np.einsum("dnk,dnv->kv", phi, words)
        log_theta, log_beta = ex.dirichlet_log(gamma), ex.dirichlet_log(lam)
        elbo = (
            np.sum(phi * (log_theta[:, None, :] + log_beta.T[w])) + ex.categorical_entropy(phi)
            - ex.dirichlet_kl(gamma, np.array(alpha)) - ex.dirichlet_kl(lam, np.array(eta))
        )  # fmt: skip
        sites = {
            "z": np.where(present[..., None], phi, np.nan),
            "theta": ex.dirichlet_moments(gamma),
            "beta": ex.dirichlet_moments(lam),
        }
        yield Step(float(elbo), sites)

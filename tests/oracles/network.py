"""A mixed-membership blockmodel: coordinate ascent by hand."""

from collections.abc import Iterator

import numpy as np
from scipy.special import digamma, softmax

from tests.oracles import expectations as ex
from tests.oracles.expectations import Step


def mixed_membership(i, j, y, nodes: int, K: int, prior, start) -> Iterator[Step]:
    """The sweeps receive, send, theta, B; prior = (Dirichlet concentration, Beta a, Beta b)."""
    concentration0, a0, b0 = prior
    log_theta = np.log(start["theta"])
    log, log1m = np.log(start["B"]), np.log1p(-start["B"])
    send = np.eye(K)[start["send"]]
    edge = y[:, None, None]
    while True:
        table = edge * log + (1 - edge) * log1m
        receive = softmax(log_theta[j] + np.einsum("pk,pkm->pm", send, table), axis=1)
        send = softmax(log_theta[i] + np.einsum("pm,pkm->pk", receive, table), axis=1)
        gamma = np.full((nodes, K), concentration0)
        np.add.at(gamma, i, send)
        np.add.at(gamma, j, receive)
        log_theta = ex.dirichlet_log(gamma)
        joint = send[:, :, None] * receive[:, None, :]
        a, b = a0 + (edge * joint).sum(0), b0 + ((1 - edge) * joint).sum(0)
        log, log1m = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
        elbo = (
            np.sum(joint * (edge * log + (1 - edge) * log1m))
            + np.sum(send * log_theta[i]) + np.sum(receive * log_theta[j])
            + ex.categorical_entropy(send) + ex.categorical_entropy(receive)
            - ex.dirichlet_kl(gamma, np.array(concentration0)) - ex.beta_kl(a, b, a0, b0)
        )  # fmt: skip
        sites = {
            "receive": receive,
            "send": send,
            "theta": ex.dirichlet_moments(gamma),
            "B": ex.beta_moments(a, b),
        }
        yield Step(float(elbo), sites)

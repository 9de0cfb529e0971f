"""A factorial mixture of Gaussians: coordinate ascent and enumeration by hand."""

from collections.abc import Iterator

import numpy as np
from scipy.special import softmax

from tests.oracles import expectations as ex
from tests.oracles.enumeration import log_sum
from tests.oracles.evidence import linear_gaussian
from tests.oracles.expectations import LOG_2PI, Moments, Step


def trajectory(x, sd: float, s0: float, start) -> Iterator[Step]:
    """x ~ N(mu[a] + nu[b], sd^2), uniform a and b: the sweeps b, a, then (mu, nu) jointly."""
    K, L = len(start["mu"]), len(start["nu"])
    m, V = np.concatenate([start["mu"], start["nu"]]), np.zeros((K + L, K + L))
    r_a = np.eye(K)[start["a"]]
    while True:
        second = V + np.outer(m, m)
        r_b = _responsibilities(x, m[K:], second[K:, K:], r_a @ second[:K, K:], sd)
        r_a = _responsibilities(x, m[:K], second[:K, :K], r_b @ second[K:, :K], sd)
        design = np.concatenate([r_a, r_b], axis=1)
        gram = design.T @ design
        gram[:K, :K], gram[K:, K:] = np.diag(r_a.sum(0)), np.diag(r_b.sum(0))
        V = np.linalg.inv(np.eye(K + L) / s0**2 + gram / sd**2)
        m = V @ design.T @ x / sd**2
        second = V + np.outer(m, m)
        square = x @ x - 2 * x @ design @ m + np.sum(gram * second)
        elbo = (
            -0.5 * (len(x) * (LOG_2PI + 2 * np.log(sd)) + square / sd**2)
            - len(x) * np.log(K * L) + ex.categorical_entropy(r_a) + ex.categorical_entropy(r_b)
            - ex.gaussian_kl(m, V, np.zeros(K + L), s0**2 * np.eye(K + L))
        )  # fmt: skip
        sd_ = np.sqrt(np.diag(V))
        sites = {
            "a": r_a,
            "b": r_b,
            "mu": Moments(m[:K], sd_[:K]),
            "nu": Moments(m[K:], sd_[K:]),
        }
        yield Step(float(elbo), sites)


def _responsibilities(x, mean, second, cross, sd):
    """q of one assignment: x_i m_k - (E m_k^2 + 2 E m_k other_i) / 2 in units of sd^2."""
    return softmax((x[:, None] * mean - 0.5 * np.diag(second) - cross) / sd**2, axis=1)


def evidence(x, K: int, L: int, sd: float, s0: float) -> float:
    """log p(x), the means integrated out in closed form for each of the (K L)^n assignments."""
    covariance = s0**2 * np.eye(K + L)

    def log_joint(c: np.ndarray) -> float:
        design = np.concatenate([np.eye(K)[c // L], np.eye(L)[c % L]], axis=1)
        return linear_gaussian(x, design, covariance, sd**2) - len(x) * np.log(K * L)

    return log_sum(log_joint, K * L, len(x))

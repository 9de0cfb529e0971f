"""Probit regression with truncated-normal auxiliaries: coordinate ascent by hand."""

from collections.abc import Iterator

import numpy as np
from scipy.special import log_ndtr, logsumexp

from tests.oracles import expectations as ex
from tests.oracles.expectations import LOG_2PI, Moments, Step


def trajectory(x, y, sd: float, start) -> Iterator[Step]:
    """The sweeps z, beta from a point value of beta; the prior of beta is N(0, sd^2 I)."""
    D = x.shape[1]
    sign = 2.0 * y - 1.0
    V = np.linalg.inv(x.T @ x + np.eye(D) / sd**2)
    beta = start["beta"]
    while True:
        # q(z_i) is N(eta_i, 1) cut to the side of y_i.
        eta = x @ beta
        log_mass = log_ndtr(sign * eta)
        ratio = np.exp(-0.5 * (eta**2 + LOG_2PI) - log_mass)
        z = eta + sign * ratio
        variance = 1 - sign * ratio * eta - ratio**2
        entropy = 0.5 * LOG_2PI + log_mass + 0.5 * ((z - eta) ** 2 + variance)
        beta = V @ x.T @ z
        square = (z - x @ beta) ** 2 + variance + np.einsum("ni,ij,nj->n", x, V, x)
        kl = ex.gaussian_kl(beta, V, np.zeros(D), sd**2 * np.eye(D))
        elbo = np.sum(entropy - 0.5 * (LOG_2PI + square)) - kl
        sites = {"z": Moments(z, np.sqrt(variance)), "beta": Moments(beta, np.sqrt(np.diag(V)))}
        yield Step(float(elbo), sites)


def evidence(x, y, sd: float) -> float:
    """log p(y) of two coefficients, by trapezoids over a square of 8 prior deviations."""
    u = np.linspace(-8 * sd, 8 * sd, 401)
    beta = np.stack(np.meshgrid(u, u, indexing="ij"), axis=-1).reshape(-1, 2)
    likelihood = log_ndtr((2 * y - 1) * (beta @ x.T)).sum(1)
    prior = -0.5 * np.sum(beta**2 / sd**2 + LOG_2PI + 2 * np.log(sd), axis=1)
    return float(logsumexp(likelihood + prior) + 2 * np.log(u[1] - u[0]))

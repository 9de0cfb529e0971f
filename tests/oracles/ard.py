"""Regression with automatic relevance determination (Appendix A), by hand."""

from collections.abc import Iterator

import numpy as np
from scipy.special import digamma, gammaln, logsumexp

from tests.oracles import expectations as ex
from tests.oracles.evidence import gamma_log_density
from tests.oracles.expectations import LOG_2PI, Moments, Step


def trajectory(x, y, alpha, a0: float, b0: float, c0: float, d0: float) -> Iterator[Step]:
    """The sweeps from point values of alpha: q(beta, tau), then q(alpha)."""
    n, D = x.shape
    e_alpha = alpha
    while True:
        # The paper's V*, beta*, a*, b*, then c*, d*.
        precision = np.diag(e_alpha) + x.T @ x
        V = np.linalg.inv(precision)
        beta = V @ x.T @ y
        a = a0 + n / 2
        b = b0 + 0.5 * (y @ y - beta @ precision @ beta)
        c = c0 + 0.5
        d = d0 + 0.5 * (beta**2 * a / b + np.diag(V))
        e_alpha = c / d
        sites = {
            "beta": Moments(beta, np.sqrt(np.diag(V) * b / (a - 1))),
            "tau": ex.gamma_moments(a, b),
            "alpha": ex.gamma_moments(np.full(D, c), d),
        }
        yield Step(elbo(x, y, (V, beta, a, b, c, d), (a0, b0, c0, d0)), sites)


def elbo(x, y, q, prior) -> float:
    """E log p(y, beta, tau, alpha) - E log q, every constant kept."""
    n, D = x.shape
    (V, beta, a, b, c, d), (a0, b0, c0, d0) = q, prior
    tau, log_tau = a / b, digamma(a) - np.log(b)
    alpha, log_alpha = c / d, digamma(c) - np.log(d)
    tau_beta2 = tau * beta**2 + np.diag(V)
    residual = tau * np.sum((y - x @ beta) ** 2) + np.trace(x @ V @ x.T)
    log_y = 0.5 * n * (log_tau - LOG_2PI) - 0.5 * residual
    log_beta = 0.5 * np.sum(log_tau + log_alpha - LOG_2PI - alpha * tau_beta2)
    log_tau_prior = a0 * np.log(b0) - gammaln(a0) + (a0 - 1) * log_tau - b0 * tau
    log_alpha_prior = np.sum(c0 * np.log(d0) - gammaln(c0) + (c0 - 1) * log_alpha - d0 * alpha)
    entropy_beta = 0.5 * (D * (1 + LOG_2PI) - D * log_tau + np.linalg.slogdet(V)[1])
    entropy_tau = a - np.log(b) + gammaln(a) + (1 - a) * digamma(a)
    entropy_alpha = np.sum(c - np.log(d) + gammaln(c) + (1 - c) * digamma(c))
    energy = log_y + log_beta + log_tau_prior + log_alpha_prior
    return float(energy + entropy_beta + entropy_tau + entropy_alpha)


def evidence(x, y, a0: float, b0: float, c0: float, d0: float) -> float:
    """log p(y): beta and tau in closed form, the relevances by trapezoids in log alpha."""
    n, D = x.shape
    u = np.linspace(-14.0, 7.0, 64)
    alpha = np.stack(np.meshgrid(*[np.exp(u)] * D, indexing="ij"), axis=-1).reshape(-1, D)
    precision = x.T @ x + alpha[:, :, None] * np.eye(D)
    xy = x.T @ y
    solved = np.linalg.solve(precision, np.broadcast_to(xy[:, None], (len(alpha), D, 1)))[..., 0]
    a, b = a0 + n / 2, b0 + 0.5 * (y @ y - solved @ xy)
    given_alpha = (
        0.5 * (np.log(alpha).sum(1) - np.linalg.slogdet(precision)[1] - n * LOG_2PI)
        + gammaln(a) - a * np.log(b) - gammaln(a0) + a0 * np.log(b0)
    )  # fmt: skip
    prior = (gamma_log_density(alpha, c0, d0) + np.log(alpha)).sum(1)
    return float(logsumexp(given_alpha + prior) + D * np.log(u[1] - u[0]))

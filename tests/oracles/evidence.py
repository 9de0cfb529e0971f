"""Log evidences in closed form, or by quadrature over at most three scalars."""

from collections.abc import Callable

import numpy as np
from scipy.special import betaln, gammaln, logsumexp
from scipy.stats import multivariate_normal

from tests.oracles.expectations import LOG_2PI, dirichlet_log_normalizer


def beta_bernoulli(x: np.ndarray, a: float, b: float) -> float:
    return float(betaln(a + x.sum(), b + (1 - x).sum()) - betaln(a, b))


def gamma_poisson(x: np.ndarray, exposure: np.ndarray, a: float, rate: float) -> float:
    a_star, rate_star = a + x.sum(), rate + exposure.sum()
    likelihood = (x * np.log(exposure) - gammaln(x + 1)).sum()
    prior, posterior = gammaln(a) - a * np.log(rate), gammaln(a_star) - a_star * np.log(rate_star)
    return float(likelihood + posterior - prior)


def dirichlet_multinomial(x: np.ndarray, concentration: np.ndarray) -> float:
    coefficients = gammaln(x.sum(1) + 1) - gammaln(x + 1).sum(1)
    normalizers = dirichlet_log_normalizer(concentration + x.sum(0))
    return float(coefficients.sum() + normalizers - dirichlet_log_normalizer(concentration))


def linear_gaussian(
    y: np.ndarray, X: np.ndarray, prior_covariance: np.ndarray, noise_variance: float
) -> float:
    """log p(y) for y = X beta + noise, beta ~ N(0, prior_covariance)."""
    covariance = X @ prior_covariance @ X.T + noise_variance * np.eye(len(y))
    return float(multivariate_normal(np.zeros(len(y)), covariance).logpdf(y))


def gaussian_integral(P: np.ndarray, h: np.ndarray, constant: float) -> float:
    """log of the integral of exp(-z'Pz/2 + h'z + constant)."""
    logdet = np.linalg.slogdet(P)[1]
    return float(constant + 0.5 * (h @ np.linalg.solve(P, h) - logdet + len(h) * LOG_2PI))


def gamma_log_density(z: np.ndarray, a: float, rate: float) -> np.ndarray:
    return a * np.log(rate) - gammaln(a) + (a - 1) * np.log(z) - rate * z


def over_precision(log_joint: Callable[[float], float], a: float, rate: float) -> float:
    """log of the integral of Gamma(tau; a, rate) exp log_joint(tau), by trapezoids in log tau."""
    u = np.linspace(-12.0, 8.0, 1201)
    tau = np.exp(u)
    values = gamma_log_density(tau, a, rate) + u + np.array([log_joint(t) for t in tau])
    return float(logsumexp(values) + np.log(u[1] - u[0]))

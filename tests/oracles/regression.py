"""Normal data whose mean is linear and whose precision is latent: coordinate ascent by hand."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp
from scipy.stats import t as student_t

from tests.oracles import expectations as ex
from tests.oracles.evidence import gamma_log_density, linear_gaussian, over_precision
from tests.oracles.expectations import LOG_2PI, Moments, Step


@dataclass(frozen=True)
class Regression:
    """y ~ N(X beta, 1/tau), beta ~ N(0, prior_covariance), tau ~ Gamma(*prior): q(beta) q(tau).

    `columns` says which coefficients each site holds; `noise` names the site of tau, or, when
    `inverse`, of 1/tau.
    """

    X: np.ndarray
    y: np.ndarray
    prior_covariance: np.ndarray
    prior: tuple[float, float]
    columns: dict[str, int | slice]
    noise: str = "tau"
    inverse: bool = False

    def trajectory(self, start: dict[str, np.ndarray]) -> Iterator[Step]:
        """The sweeps: noise first from a point beta, or beta first from a point noise."""
        a = self.prior[0] + len(self.y) / 2
        noise_first = self.noise not in start
        if noise_first:
            m = np.zeros(self.X.shape[1])
            for name, where in self.columns.items():
                m[where] = start[name]
            V = np.zeros_like(self.prior_covariance)
        else:
            tau = float(start[self.noise]) ** (-1 if self.inverse else 1)
        while True:
            if noise_first:
                rate = self._rate(m, V)
                m, V = self._coefficients(a / rate)
            else:
                m, V = self._coefficients(tau)
                rate = self._rate(m, V)
                tau = a / rate
            yield Step(self._elbo(m, V, a, rate), self._sites(m, V, a, rate))

    def evidence(self) -> float:
        """log p(y), the coefficients in closed form and tau by quadrature."""
        return over_precision(
            lambda tau: linear_gaussian(self.y, self.X, self.prior_covariance, 1 / tau),
            *self.prior,
        )

    def _square(self, m, V):
        return np.sum((self.y - self.X @ m) ** 2) + np.trace(self.X @ V @ self.X.T)

    def _rate(self, m, V):
        return self.prior[1] + 0.5 * self._square(m, V)

    def _coefficients(self, tau):
        V = np.linalg.inv(np.linalg.inv(self.prior_covariance) + tau * self.X.T @ self.X)
        return tau * V @ self.X.T @ self.y, V

    def _elbo(self, m, V, a, rate) -> float:
        n = len(self.y)
        square = a / rate * self._square(m, V)
        log_y = 0.5 * n * (ex.gamma_log(a, rate) - LOG_2PI) - 0.5 * square
        kl = ex.gaussian_kl(m, V, np.zeros_like(m), self.prior_covariance)
        return float(log_y - kl - ex.gamma_kl(a, rate, *self.prior))

    def _sites(self, m, V, a, rate) -> dict[str, Moments]:
        sd = np.sqrt(np.diag(V))
        sites = {name: Moments(m[where], sd[where]) for name, where in self.columns.items()}
        inverse = Moments(rate / (a - 1), rate / ((a - 1) * np.sqrt(a - 2)))
        return sites | {self.noise: inverse if self.inverse else ex.gamma_moments(a, rate)}


def student(x, nu: float, s0: float, a0: float, r0: float, start) -> Iterator[Step]:
    """x_i ~ N(mu, 1/(tau w_i)), w_i ~ Gamma(nu/2, nu/2): the sweeps w, tau, mu."""
    m, s2, tau = start["mu"], 0.0, start["tau"]
    while True:
        a_w, rate_w = np.full(len(x), nu / 2 + 0.5), nu / 2 + 0.5 * tau * ((x - m) ** 2 + s2)
        w = a_w / rate_w
        a, rate = a0 + len(x) / 2, r0 + 0.5 * np.sum(w * ((x - m) ** 2 + s2))
        tau = a / rate
        s2 = 1 / (1 / s0**2 + tau * w.sum())
        m = s2 * tau * np.sum(w * x)
        log_x = 0.5 * np.sum(
            ex.gamma_log(a, rate) + ex.gamma_log(a_w, rate_w) - LOG_2PI
            - tau * w * ((x - m) ** 2 + s2)
        )  # fmt: skip
        kl = (
            ex.gamma_kl(a_w, rate_w, nu / 2, nu / 2) + ex.gamma_kl(a, rate, a0, r0)
            + ex.normal_kl(m, s2, 0.0, s0**2)
        )  # fmt: skip
        sites = {
            "w": ex.gamma_moments(a_w, rate_w),
            "tau": ex.gamma_moments(a, rate),
            "mu": Moments(m, np.sqrt(s2)),
        }
        yield Step(float(log_x - kl), sites)


def student_evidence(x, nu: float, s0: float, a0: float, r0: float) -> float:
    """log p(x) with Student-t errors, by trapezoids over mu and log tau."""
    mu, u = np.linspace(-6.0, 8.0, 281)[:, None, None], np.linspace(-6.0, 5.0, 221)[:, None]
    likelihood = student_t(nu, loc=mu, scale=np.exp(-u / 2)).logpdf(x).sum(-1)
    prior_mu = -0.5 * (mu[..., 0] ** 2 / s0**2 + LOG_2PI) - np.log(s0)
    prior = prior_mu + gamma_log_density(np.exp(u[:, 0]), a0, r0) + u[:, 0]
    cell = (mu[1] - mu[0]).item() * (u[1] - u[0]).item()
    return float(logsumexp(likelihood + prior) + np.log(cell))


def varying_lines(x, group, y, groups: int, start) -> Iterator[Step]:
    """The hierarchical regression with every site its own factor: b, a, tau, tau_b, tau_a, mu's.

    Means have N(0, 25) priors, precisions Gamma(2, 1).
    """
    one, n = np.eye(groups)[group], len(y)
    mean = {name: start[name] for name in ("mu_a", "mu_b", "a", "b")}
    variance = {name: np.zeros_like(value) for name, value in mean.items()}
    tau = {name: (np.inf, np.inf, start[name]) for name in ("tau", "tau_a", "tau_b")}

    def coefficient(name, other, weight, other_weight, prior):
        precision = tau[prior][2] + tau["tau"][2] * (one.T @ weight**2)
        residual = y - other_weight * mean[other][group]
        linear = tau[prior][2] * mean["mu_" + name] + tau["tau"][2] * (one.T @ (weight * residual))
        mean[name], variance[name] = linear / precision, 1 / precision

    def error():
        fitted = mean["a"][group] + mean["b"][group] * x
        return (y - fitted) ** 2 + variance["a"][group] + x**2 * variance["b"][group]

    def spread(name):
        return (mean[name] - mean["mu_" + name]) ** 2 + variance[name] + variance["mu_" + name]

    def precision(name, square):
        a, rate = 2.0 + len(square) / 2, 1.0 + 0.5 * square.sum()
        tau[name] = (a, rate, a / rate)

    while True:
        coefficient("b", "a", x, np.ones(n), "tau_b")
        coefficient("a", "b", np.ones(n), x, "tau_a")
        precision("tau", error())
        precision("tau_b", spread("b"))
        precision("tau_a", spread("a"))
        for name in ("b", "a"):
            total = 1 / 25.0 + groups * tau["tau_" + name][2]
            mean["mu_" + name] = tau["tau_" + name][2] * mean[name].sum() / total
            variance["mu_" + name] = 1 / total
        elbo = 0.0
        for name, square in (("tau", error()), ("tau_a", spread("a")), ("tau_b", spread("b"))):
            a, rate, value = tau[name]
            elbo += 0.5 * np.sum(ex.gamma_log(a, rate) - LOG_2PI - value * square)
            elbo -= ex.gamma_kl(a, rate, 2.0, 1.0)
        for name in ("a", "b"):
            elbo += 0.5 * np.sum(1 + LOG_2PI + np.log(variance[name]))
            elbo -= ex.normal_kl(mean["mu_" + name], variance["mu_" + name], 0.0, 25.0)
        sites = {name: Moments(mean[name], np.sqrt(variance[name])) for name in mean}
        sites |= {name: ex.gamma_moments(a, rate) for name, (a, rate, _) in tau.items()}
        yield Step(float(elbo), sites)

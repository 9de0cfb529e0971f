"""Conjugate mixture components: q, its statistics, its update given responsibilities, its KL.

Every component answers the same five questions, with parameters of shape (K, ...):
    point(start)                    statistics at the point values of the first sweep
    posterior(r, x)                 parameters of the optimal q given responsibilities r (n, K)
    statistics(q)                   expected statistics under q
    log_density(statistics, x)      E log p(x_i | component k), shape (n, K)
    kl(q), moments(q), evidence(x)  KL(q || prior); by site; log p(x) of rows from one component
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import digamma, gammaln, multigammaln
from scipy.stats import multivariate_normal

from tests.oracles import expectations as ex
from tests.oracles.expectations import LOG_2PI, Moments

Arrays = dict[str, np.ndarray]


class Component(Protocol):
    """A conjugate pair of a likelihood and the prior of its parameters."""

    def point(self, start: Arrays) -> Arrays: ...
    def posterior(self, r: np.ndarray, x: np.ndarray) -> Arrays: ...
    def statistics(self, q: Arrays) -> Arrays: ...
    def log_density(self, statistics: Arrays, x: np.ndarray) -> np.ndarray: ...
    def kl(self, q: Arrays) -> float: ...
    def moments(self, q: Arrays) -> dict[str, Moments]: ...
    def evidence(self, x: np.ndarray) -> float: ...


@dataclass(frozen=True)
class UnitNormal:
    """x ~ N(mu, 1), mu ~ N(0, variance): alg:gmm-cavi."""

    variance: float
    site: str = "mu"

    def point(self, start):
        return {"mu": start[self.site], "mu2": start[self.site] ** 2}

    def posterior(self, r, x):
        s2 = 1 / (1 / self.variance + r.sum(0))
        return {"m": s2 * (r.T @ x), "s2": s2}

    def statistics(self, q):
        return {"mu": q["m"], "mu2": q["m"] ** 2 + q["s2"]}

    def log_density(self, statistics, x):
        x = x[:, None]
        return -0.5 * (LOG_2PI + x**2 - 2 * x * statistics["mu"] + statistics["mu2"])

    def kl(self, q):
        return ex.normal_kl(q["m"], q["s2"], 0.0, self.variance)

    def moments(self, q):
        return {self.site: Moments(q["m"], np.sqrt(q["s2"]))}

    def evidence(self, x):
        n = len(x)
        return float(multivariate_normal(np.zeros(n), np.eye(n) + self.variance).logpdf(x))


@dataclass(frozen=True)
class NormalGamma:
    """x_d ~ N(mu_d, 1/tau_d), mu_d ~ N(m0, 1/(b0 tau_d)), tau_d ~ Gamma(a0, r0): Appendix B.

    Entries of a masked array that are missing carry no weight.
    """

    m0: float
    b0: float
    a0: float
    r0: float
    sites: tuple[str, str] = ("mu", "tau")

    def point(self, start):
        mu, tau = (start[name] for name in self.sites)
        return {"log": np.log(tau), "tau": tau, "tau_mu": tau * mu, "tau_mu2": tau * mu**2}

    def posterior(self, r, x):
        observed, x = ~np.ma.getmaskarray(x), np.ma.filled(x, 0.0)
        count = r.T @ observed
        b = self.b0 + count
        m = (self.b0 * self.m0 + r.T @ x) / b
        rate = self.r0 + 0.5 * (r.T @ x**2 + self.b0 * self.m0**2 - b * m**2)
        return {"m": m, "b": b, "a": self.a0 + count / 2, "rate": rate}

    def statistics(self, q):
        tau = q["a"] / q["rate"]
        return {
            "log": ex.gamma_log(q["a"], q["rate"]),
            "tau": tau,
            "tau_mu": tau * q["m"],
            "tau_mu2": tau * q["m"] ** 2 + 1 / q["b"],
        }

    def log_density(self, statistics, x):
        observed, x = ~np.ma.getmaskarray(x)[:, None, :], np.ma.filled(x, 0.0)[:, None, :]
        square = statistics["tau"] * x**2 - 2 * statistics["tau_mu"] * x + statistics["tau_mu2"]
        return 0.5 * (observed * (statistics["log"] - LOG_2PI - square)).sum(-1)

    def kl(self, q):
        ratio = self.b0 / q["b"]
        shift = self.b0 * q["a"] / q["rate"] * (q["m"] - self.m0) ** 2
        gamma = ex.gamma_kl(q["a"], q["rate"], self.a0, self.r0)
        return gamma + float(np.sum(0.5 * (shift + ratio - 1 - np.log(ratio))))

    def moments(self, q):
        # The marginal of mu is Student's t with 2a degrees of freedom.
        sd = np.sqrt(q["rate"] / (q["b"] * (q["a"] - 1)))
        return dict(
            zip(self.sites, (Moments(q["m"], sd), ex.gamma_moments(q["a"], q["rate"])), strict=True)
        )

    def evidence(self, x):
        q = self.posterior(np.ones((len(x), 1)), x)
        count = (q["b"] - self.b0).sum()
        normalizers = (
            gammaln(q["a"]) - q["a"] * np.log(q["rate"]) - 0.5 * np.log(q["b"])
            - gammaln(self.a0) + self.a0 * np.log(self.r0) + 0.5 * np.log(self.b0)
        )  # fmt: skip
        return float(normalizers.sum() - 0.5 * count * LOG_2PI)


@dataclass(frozen=True)
class NormalWishart:
    """x ~ N(mu, L^-1), mu ~ N(0, (b0 L)^-1), L ~ Wishart(nu0, scale * I) in D dimensions."""

    b0: float
    nu0: float
    scale: float
    D: int
    sites: tuple[str, str] = ("mean", "precision")

    def point(self, start):
        mu, L = (start[name] for name in self.sites)
        return {
            "logdet": np.linalg.slogdet(L)[1],
            "L": L,
            "L_mu": np.einsum("kij,kj->ki", L, mu),
            "mu_L_mu": np.einsum("ki,kij,kj->k", mu, L, mu),
        }

    def posterior(self, r, x):
        count = r.sum(0)
        b = self.b0 + count
        m = (r.T @ x) / b[:, None]
        scatter = np.einsum("nk,ni,nj->kij", r, x, x) - np.einsum("k,ki,kj->kij", b, m, m)
        W = np.linalg.inv(np.eye(self.D) / self.scale + scatter)
        return {"m": m, "b": b, "nu": self.nu0 + count, "W": W}

    def statistics(self, q):
        L = q["nu"][:, None, None] * q["W"]
        return {
            "logdet": self._logdet(q["nu"], q["W"]),
            "L": L,
            "L_mu": np.einsum("kij,kj->ki", L, q["m"]),
            "mu_L_mu": np.einsum("ki,kij,kj->k", q["m"], L, q["m"]) + self.D / q["b"],
        }

    def log_density(self, statistics, x):
        square = (
            np.einsum("ni,kij,nj->nk", x, statistics["L"], x)
            - 2 * x @ statistics["L_mu"].T + statistics["mu_L_mu"]
        )  # fmt: skip
        return 0.5 * (statistics["logdet"] - self.D * LOG_2PI - square)

    def kl(self, q):
        nu, W, ratio = q["nu"], q["W"], self.b0 / q["b"]
        trace = np.trace(W, axis1=-2, axis2=-1) / self.scale - self.D
        wishart = (
            0.5 * (nu - self.nu0) * self._logdet(nu, W) + 0.5 * nu * trace
            - self._log_normalizer(nu, W)
            + self._log_normalizer(self.nu0, self.scale * np.eye(self.D))
        )  # fmt: skip
        shift = self.b0 * nu * np.einsum("ki,kij,kj->k", q["m"], W, q["m"])
        return float(np.sum(wishart + 0.5 * (shift + self.D * (ratio - 1 - np.log(ratio)))))

    def moments(self, q):
        nu, W = q["nu"][:, None, None], q["W"]
        diagonal = np.einsum("kii->ki", W)
        sd = np.sqrt(nu * (W**2 + diagonal[:, :, None] * diagonal[:, None, :]))
        # The marginal of mu is a multivariate t with nu - D + 1 degrees of freedom.
        variance = np.einsum("kii->ki", np.linalg.inv(W))
        mu_sd = np.sqrt(variance / (q["b"] * (q["nu"] - self.D - 1))[:, None])
        return dict(zip(self.sites, (Moments(q["m"], mu_sd), Moments(nu * W, sd)), strict=True))

    def evidence(self, x):
        q = self.posterior(np.ones((len(x), 1)), x)
        normalizers = self._log_normalizer(q["nu"], q["W"]) - self._log_normalizer(
            self.nu0, self.scale * np.eye(self.D)
        )
        constant = 0.5 * self.D * (np.log(self.b0 / q["b"]) - len(x) * LOG_2PI)
        return float((normalizers + constant)[0])

    def _logdet(self, nu, W):
        steps = digamma((nu[..., None] - np.arange(self.D)) / 2).sum(-1)
        return steps + self.D * np.log(2) + np.linalg.slogdet(W)[1]

    def _log_normalizer(self, nu, W):
        logdet = np.linalg.slogdet(W)[1]
        return 0.5 * nu * (self.D * np.log(2) + logdet) + multigammaln_of(nu / 2, self.D)


def multigammaln_of(values, D):
    """scipy's multigammaln over an array."""
    return np.vectorize(lambda value: multigammaln(value, D))(values)


@dataclass(frozen=True)
class GammaRate:
    """Poisson(rate) or Exponential(rate) columns with rate ~ Gamma(a0, r0)."""

    a0: float
    r0: float
    counts: bool
    site: str

    def point(self, start):
        rate = start[self.site].reshape(len(start[self.site]), -1)
        return {"log": np.log(rate), "rate": rate}

    def posterior(self, r, x):
        x = x.reshape(len(x), -1)
        size = np.broadcast_to(r.sum(0)[:, None], (r.shape[1], x.shape[1]))
        events, exposure = (r.T @ x, size) if self.counts else (size, r.T @ x)
        return {"a": self.a0 + events, "rate": self.r0 + exposure}

    def statistics(self, q):
        return {"log": ex.gamma_log(q["a"], q["rate"]), "rate": q["a"] / q["rate"]}

    def log_density(self, statistics, x):
        x = x.reshape(len(x), 1, -1)
        log, rate = statistics["log"], statistics["rate"]
        return (x * log - rate - gammaln(x + 1) if self.counts else log - rate * x).sum(-1)

    def kl(self, q):
        return ex.gamma_kl(q["a"], q["rate"], self.a0, self.r0)

    def moments(self, q):
        return {self.site: ex.gamma_moments(q["a"], q["rate"])}

    def evidence(self, x):
        q = self.posterior(np.ones((len(x), 1)), x)
        normalizers = (
            gammaln(q["a"]) - q["a"] * np.log(q["rate"])
            - gammaln(self.a0) + self.a0 * np.log(self.r0)
        )  # fmt: skip
        return float(normalizers.sum() - (gammaln(x + 1.0).sum() if self.counts else 0.0))


@dataclass(frozen=True)
class DirichletProbabilities:
    """Categorical columns with values 0..V-1 and probabilities ~ Dirichlet(concentration).

    With V = 2 and `beta`, the Bernoulli: the concentration of 0 comes first, the site is that of 1.
    """

    concentration: tuple[float, ...]
    beta: bool = False
    site: str = "theta"

    def _onehot(self, x):
        return np.eye(len(self.concentration))[x.reshape(len(x), -1)]

    def point(self, start):
        theta = start[self.site]
        return {"log": np.log(np.stack([1 - theta, theta], axis=-1) if self.beta else theta)}

    def posterior(self, r, x):
        counts = np.einsum("nk,ndv->kdv", r, self._onehot(x))
        return {"concentration": np.array(self.concentration) + counts}

    def statistics(self, q):
        return {"log": ex.dirichlet_log(q["concentration"])}

    def log_density(self, statistics, x):
        return np.einsum("ndv,kdv->nk", self._onehot(x), statistics["log"])

    def kl(self, q):
        return ex.dirichlet_kl(q["concentration"], np.array(self.concentration))

    def moments(self, q):
        moments = ex.dirichlet_moments(q["concentration"])
        if self.beta:
            moments = Moments(moments.mean[..., 1], moments.sd[..., 1])
        return {self.site: moments}

    def evidence(self, x):
        q = self.posterior(np.ones((len(x), 1)), x)["concentration"]
        prior = ex.dirichlet_log_normalizer(np.array(self.concentration))
        return float(np.sum(ex.dirichlet_log_normalizer(q) - prior))

"""The diagonal mixture of Appendix B, swept by hand: the peer of the derived update.

q(mu, tau) is Normal-Gamma for every component and dimension, q(pi) Dirichlet, q(z) categorical.
Two matrix products give the logits (n, K) and two the statistics (K, D); nothing has the shape
(n, K, D). The ELBO reads the statistics that the sweep has computed anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import digamma, gammaln, logsumexp

LOG_TWO_PI = float(np.log(2 * np.pi))


class Prior(NamedTuple):
    """pi ~ Dirichlet(a0, ..., a0), mu ~ Normal(m0, 1 / (b0 tau)), tau ~ Gamma(alpha0, beta0)."""

    a0: float
    m0: float = 0.0
    b0: float = 1.0
    alpha0: float = 1.0
    beta0: float = 1.0


class Posterior(NamedTuple):
    """Parameters of q(pi) q(mu, tau): concentration, b, alpha (K,); m, rate (K, D)."""

    concentration: Array
    b: Array
    m: Array
    alpha: Array
    rate: Array


class Expected(NamedTuple):
    """E_q[log pi_k + log N(x | mu_k, 1/tau_k)] = quadratic.x^2 + linear.x + constant."""

    quadratic: Array  # (K, D)
    linear: Array  # (K, D)
    constant: Array  # (K,)


def expected(q: Posterior) -> Expected:
    """The expected log density of a row as a quadratic function of it."""
    D = q.m.shape[1]
    tau = q.alpha[:, None] / q.rate
    linear = tau * q.m
    log_tau = D * digamma(q.alpha) - jnp.log(q.rate).sum(axis=1)
    log_pi = digamma(q.concentration) - digamma(q.concentration.sum())
    spread = (linear * q.m).sum(axis=1) + D / q.b
    return Expected(-0.5 * tau, linear, log_pi + 0.5 * (log_tau - spread - D * LOG_TWO_PI))


def sweep(prior: Prior, x: Array, x2: Array, old: Expected) -> tuple[Posterior, Expected, Array]:
    """Responsibilities, then weights and components, and the ELBO of them all (alg:gmm-cavi)."""
    logits = x2 @ old.quadratic.T + x @ old.linear.T + old.constant
    shift = logits.max(axis=1, keepdims=True)
    weights = jnp.exp(logits - shift)
    total = weights.sum(axis=1, keepdims=True)
    evidence = jnp.sum(shift + jnp.log(total), dtype=float)
    # A product with a transposed left factor is twice as slow on CPUs: transpose it for good.
    r = jax.lax.optimization_barrier((weights / total).T)
    statistics = Expected(r @ x2, r @ x, r.sum(axis=1))
    q = posterior(prior, statistics)
    new = expected(q)
    # The entropy of q(z) is the evidence less E[logits]; both energies are sums over (K, D).
    gain = sum(
        jnp.sum(s * (a - b), dtype=float) for s, a, b in zip(statistics, new, old, strict=True)
    )
    return q, new, evidence + gain - divergence(prior, q)


def posterior(prior: Prior, statistics: Expected) -> Posterior:
    """The optimal q(pi) q(mu, tau) given sums of r x^2, r x and r."""
    x2, x, n = statistics
    b = prior.b0 + n
    m = (prior.b0 * prior.m0 + x) / b[:, None]
    rate = prior.beta0 + 0.5 * (prior.b0 * prior.m0**2 + x2 - b[:, None] * m**2)
    return Posterior(prior.a0 + n, b, m, prior.alpha0 + 0.5 * n, rate)


def divergence(prior: Prior, q: Posterior) -> Array:
    """KL(q(pi) q(mu, tau) || prior)."""
    K, D = q.m.shape
    a, alpha = q.concentration, q.alpha
    dirichlet = (
        gammaln(a.sum()) - gammaln(a).sum() - gammaln(K * prior.a0) + K * gammaln(prior.a0)
        + jnp.sum((a - prior.a0) * (digamma(a) - digamma(a.sum())))
    )  # fmt: skip
    tau = alpha[:, None] / q.rate
    gamma = (
        (alpha - prior.alpha0) * digamma(alpha) - gammaln(alpha) + gammaln(prior.alpha0)
    ).sum() * D + jnp.sum(
        prior.alpha0 * (jnp.log(q.rate) - jnp.log(prior.beta0)) + (prior.beta0 - q.rate) * tau,
        dtype=float,
    )
    ratio = prior.b0 / q.b
    normal = 0.5 * D * jnp.sum(ratio - 1 - jnp.log(ratio)) + 0.5 * prior.b0 * jnp.sum(
        tau * (q.m - prior.m0) ** 2, dtype=float
    )
    return dirichlet + gamma + normal


def runner(prior: Prior) -> Callable[..., tuple[Posterior, Expected, Array]]:
    """Compiled: `count` sweeps from `start`; the ELBO of each, padded with NaN to `length`."""

    @jax.jit
    def run(x: Array, x2: Array, start: Expected, history: Array, count: int) -> tuple:
        q = Posterior(*(jnp.zeros_like(a) for a in (start.constant,) * 2), start.linear,
                      jnp.zeros_like(start.constant), start.linear)  # fmt: skip

        def body(t: Array, carry: tuple) -> tuple:
            _, old, history = carry
            q, new, elbo = sweep(prior, x, x2, old)
            return q, new, history.at[t].set(elbo)

        return jax.lax.fori_loop(0, count, body, (q, start, history))

    return run


def from_responsibilities(prior: Prior, x: Array, x2: Array, r: Array) -> Posterior:
    """The optimal q(pi) q(mu, tau) given responsibilities r (n, K)."""
    return posterior(prior, Expected(r.T @ x2, r.T @ x, r.sum(axis=0)))


def log_predictive(q: Posterior, x: Array) -> Array:
    """The density log sum_k E[pi_k] prod_d Student(x_d; 2 alpha_k, m_kd, s_kd).

    The exact predictive of new rows x (rows, D) under q, one component at a time, with squared
    scales s = rate (1 + b) / (alpha b).
    """
    log_pi = jnp.log(q.concentration) - jnp.log(q.concentration.sum())

    def component(parameters: tuple[Array, ...]) -> Array:
        b, m, alpha, rate = parameters
        scale2 = rate * (1 + b) / b
        half = alpha + 0.5
        constant = gammaln(half) - gammaln(alpha) - 0.5 * LOG_TWO_PI
        return jnp.sum(
            constant - 0.5 * jnp.log(scale2) - half * jnp.log1p(0.5 * (x - m) ** 2 / scale2), axis=1
        )

    densities = jax.lax.map(component, (q.b, q.m, q.alpha, q.rate))  # (K, rows)
    return logsumexp(log_pi[:, None] + densities, axis=0)

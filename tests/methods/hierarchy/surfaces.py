"""Surfaces over hyperparameters whose integral, means and sds are known."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from lowerbound.methods.hierarchy.surface import Solved

Y = np.array([0.3, -0.5, 0.8, 0.1, -0.2, 0.4])
SQUARES = float(Y @ Y)


@dataclass(frozen=True)
class Known:
    """log density, start, log integral, means, sds."""

    log_density: object
    start: np.ndarray
    log_integral: float
    mean: np.ndarray
    sd: np.ndarray

    def surface(self, t, warm, slope):
        step = 1e-5 * np.eye(len(t))
        slopes = None
        if slope:
            slopes = np.array([self(t + e) - self(t - e) for e in step]) / 2e-5
        return Solved(t, self(t), slopes, np.zeros(1), np.ones(1), np.ones(1))

    def __call__(self, t):
        return float(self.log_density(t))


def gaussian(k, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((k, k))
    spread = scale * (root @ root.T / k + 0.2 * np.eye(k))
    precision, mean = np.linalg.inv(spread), 2 * rng.standard_normal(k)
    log_integral = 0.5 * np.linalg.slogdet(2 * np.pi * spread)[1]
    return Known(
        lambda t: -0.5 * (t - mean) @ precision @ (t - mean),
        np.zeros(k),
        log_integral,
        mean,
        np.sqrt(np.diag(spread)),
    )


def logarithms(*shapes):
    """Logarithms of Gamma variables: long tails to the left."""
    a = np.array(shapes, float)
    return Known(
        lambda t: np.sum(a * t - np.exp(t)),
        np.zeros(len(a)),
        special.gammaln(a).sum(),
        special.digamma(a),
        np.sqrt(special.polygamma(1, a)),
    )


def banana(bend):
    """A ridge that bends: t1 given t0 is around bend * t0^2."""
    return Known(
        lambda t: -0.5 * t[0] ** 2 - 2 * (t[1] - bend * t[0] ** 2) ** 2,
        np.ones(2),
        math.log(math.pi),
        np.array([0.0, bend]),
        np.sqrt([1.0, 2 * bend**2 + 0.25]),
    )


def on_line(log_density, low, high, start=0.0):
    t = np.linspace(low, high, 20001)
    values = np.array([log_density(one[None]) for one in t])
    weights = np.exp(values - values.max())
    total = weights.sum()
    mean = weights @ t / total
    sd = math.sqrt(weights @ (t - mean) ** 2 / total)
    log_integral = values.max() + math.log(total * (t[1] - t[0]))
    return Known(log_density, np.array([start]), log_integral, np.array([mean]), np.array([sd]))


def at_zero(t):
    """The log scale of effects that may well be nil: its posterior piles up at zero."""
    scale = math.exp(t[0])
    log_prior = 0.5 * math.log(2 / math.pi) - 0.5 * scale**2  # half-normal
    variance = scale**2 + 1.0
    log_likelihood = -0.5 * (SQUARES / variance + len(Y) * math.log(2 * math.pi * variance))
    return log_likelihood + log_prior + t[0]


def correlation(t):
    """A correlation of twenty pairs, on the atanh scale."""
    r = math.tanh(t[0])
    left = 1 - r * r
    return -9 * math.log(left) - 10 * (1 - 0.6 * r) / left


def together(*parts):
    """Independent surfaces as one."""
    sizes = np.cumsum([len(part.start) for part in parts])[:-1]
    return Known(
        lambda t: sum(part(own) for part, own in zip(parts, np.split(t, sizes), strict=True)),
        np.concatenate([part.start for part in parts]),
        sum(part.log_integral for part in parts),
        np.concatenate([part.mean for part in parts]),
        np.concatenate([part.sd for part in parts]),
    )


def cut(edge, k):
    """A normal law with no value where the first coordinate is beyond an edge."""
    law = stats.truncnorm(edge, np.inf)
    return Known(
        lambda t: -0.5 * t @ t if t[0] > edge else -math.inf,
        np.zeros(k),
        0.5 * k * math.log(2 * math.pi) + stats.norm.logsf(edge),
        np.array([law.mean(), *np.zeros(k - 1)]),
        np.array([law.std(), *np.ones(k - 1)]),
    )


def flat():
    """One direction eight times as wide as the other."""
    return Known(
        lambda t: -0.5 * t[0] ** 2 - 0.5 * (t[1] / 8) ** 2,
        np.array([0.5, 0.5]),
        math.log(2 * math.pi * 8),
        np.zeros(2),
        np.array([1.0, 8.0]),
    )


def half_cauchy(k):
    """Logarithms of scales of which nothing but a half-Cauchy prior is known: two long tails."""
    return Known(
        lambda t: np.sum(t - np.log1p(np.exp(2 * t)) + math.log(2 / math.pi)),
        np.full(k, 0.1),
        0.0,
        np.zeros(k),
        np.full(k, math.pi / 2),
    )


def two_summits(one, other, widths, share, seed=0):
    """Two normal laws far from each other, the second with a share of the mass."""
    rng, k = np.random.default_rng(seed), len(one)
    means, parts, spreads = np.array([one, other], float), [], []
    for mean, width, mass in zip(means, widths, (1 - share, share), strict=True):
        root = rng.standard_normal((k, k))
        spread = width**2 * (root @ root.T / k + np.eye(k)) / 2
        parts.append((stats.multivariate_normal(mean, spread), math.log(mass)))
        spreads.append(spread)
    shares = np.array([1 - share, share])
    mean = shares @ means
    spread = sum(
        p * (s + np.outer(m - mean, m - mean))
        for p, s, m in zip(shares, spreads, means, strict=True)
    )
    return Known(
        lambda t: special.logsumexp([law.logpdf(t) + mass for law, mass in parts]),
        means[0] + 0.3,
        0.0,
        mean,
        np.sqrt(np.diag(spread)),
    )


def shelf(below, ripples):
    """Three numbers, with a wide shelf beside the summit, so many nats below it."""

    def log_density(t):
        beside = -0.5 * ((t[0] + 6.0) / 2.5) ** 2 - 0.5 * t[1] ** 2 - 0.5 * t[2] ** 2 - below
        return np.logaddexp(-0.5 * t @ t, beside) + ripples * np.sin(11.0 * t).prod()

    unknown = np.full(3, np.nan)
    return Known(log_density, np.zeros(3), math.nan, unknown, unknown)

"""Laws of unconstrained numbers x that a Gaussian does not have: logits of Beta, logs of Gamma.

Each has the score d log p / dx = first * f(x) + second * g(x), linear in its two shapes, so that
least squares finds the law that is nearest to another by their scores (Hyvarinen 2005).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from lowerbound.rewrite.warped import GRID

LEAST_SHAPE = {8: 0.02, 4: 0.15}  # by bytes of a number: of less, most shares are rounded to 0
MOST_SHAPE = 1e8
SMALL = -25.0  # x below which a density is the power of its leading term
HALVINGS = 90
_NONE = 1e-12  # share of a sum of squares that tells nothing


@dataclass(frozen=True, eq=False)
class Skewed(ABC):
    """A law of each entry of x, by two positive shapes; `offset` is that of x from its law."""

    offset: np.ndarray

    @abstractmethod
    def parts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The functions f and g of the score."""

    @abstractmethod
    def log_below(self, x: np.ndarray, shapes: np.ndarray) -> np.ndarray:
        """The log of the distribution function, to its relative precision in the lower tail."""

    @abstractmethod
    def log_above(self, x: np.ndarray, shapes: np.ndarray) -> np.ndarray:
        """The log of what is above x, to its relative precision in the upper tail."""

    @abstractmethod
    def log_density(self, x: np.ndarray, shapes: np.ndarray) -> np.ndarray:
        """The log of the density of x."""

    def nearest(self, x: np.ndarray, slopes: np.ndarray, least: float) -> np.ndarray:
        """The shapes of the law whose score is nearest to slopes at rows x; at least `least`."""
        f, g = self.parts(x - self.offset)
        size_f, size_g = (np.sqrt(np.mean(one**2, axis=0)) + 1e-300 for one in (f, g))
        f, g = f / size_f, g / size_g
        both = np.mean(f * g, axis=0)
        left, right = np.mean(f * slopes, axis=0), np.mean(g * slopes, axis=0)
        volume = np.maximum(1.0 - both**2, _NONE)
        first, second = (left - both * right) / volume, (right - both * left) / volume
        first, second = (
            np.where(second < 0.0, left, first),
            np.where(first < 0.0, right, second),
        )
        shapes = np.stack([first / size_f, second / size_g], axis=-1)
        found: np.ndarray = np.clip(shapes, self.least(least), MOST_SHAPE)
        return found

    def least(self, shape: float) -> np.ndarray:
        """The least shapes that a table is made of."""
        return np.array([shape, shape])

    def table(self, shapes: np.ndarray) -> np.ndarray:
        """Values and slopes of x at standard normal numbers on the grid."""
        from scipy.special import log_ndtr

        shapes = shapes[..., None, :]
        u = np.broadcast_to(GRID, (*shapes.shape[:-2], len(GRID)))
        target, lower = log_ndtr(-np.abs(u)), u < 0.0
        ends = 60.0 + 60.0 / shapes.min(axis=-1) + np.abs(np.log(shapes)).max(axis=-1)
        low, high = np.broadcast_arrays(-ends, ends, u)[:2]
        with np.errstate(all="ignore"):
            for _ in range(HALVINGS):
                x = 0.5 * (low + high)
                below = np.where(
                    lower, self.log_below(x, shapes) < target, self.log_above(x, shapes) > target
                )
                low, high = np.where(below, x, low), np.where(below, high, x)
            x = 0.5 * (low + high)
            slope = np.exp(-0.5 * u**2 - 0.5 * np.log(2 * np.pi) - self.log_density(x, shapes))
        return np.stack([x + self.offset[..., None], slope], axis=-1)


class LogitBeta(Skewed):
    """The logit of a Beta number: density v^a (1 - v)^b / B(a, b) of x, v = expit(x)."""

    def parts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """1 - v and -v."""
        from scipy.special import expit

        return expit(-x), -expit(x)

    def log_below(self, x: np.ndarray, shapes: np.ndarray) -> np.ndarray:
        """The incomplete Beta function; its leading term far below."""
        return _log_beta(x, shapes[..., 0], shapes[..., 1])

    def log_above(self, x: np.ndarray, shapes: np.ndarray) -> np.ndarray:
        """The same of 1 - v."""
        return _log_beta(-x, shapes[..., 1], shapes[..., 0])

    def log_density(self, x: np.ndarray, shapes: np.ndarray) -> np.ndarray:
        """Of the logit."""
        from scipy.special import betaln

        a, b = shapes[..., 0], shapes[..., 1]
        found = -a * np.logaddexp(0.0, -x) - b * np.logaddexp(0.0, x) - betaln(a, b)
        return np.asarray(found)


class LogGamma(Skewed):
    """The log of a Gamma number: density e^(a x) exp(-b e^x) b^a / Gamma(a) of x."""

    def parts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """1 and -e^x."""
        return np.ones_like(x), -np.exp(x)

    def least(self, shape: float) -> np.ndarray:
        """A rate may be as small as it likes."""
        return np.array([shape, 1.0 / MOST_SHAPE])

    def log_below(self, x: np.ndarray, shapes: np.ndarray) -> np.ndarray:
        """The incomplete Gamma function; its leading term far below."""
        from scipy.special import gammainc, gammaln

        a, y = shapes[..., 0], x + np.log(shapes[..., 1])
        known = np.log(gammainc(a, np.exp(y)))
        return np.asarray(np.where(y < SMALL, a * y - gammaln(a + 1.0), known))

    def log_above(self, x: np.ndarray, shapes: np.ndarray) -> np.ndarray:
        """The incomplete Gamma function; all but its leading term far below."""
        from scipy.special import gammaincc, gammaln

        a, y = shapes[..., 0], x + np.log(shapes[..., 1])
        rest = np.log1p(-np.exp(a * y - gammaln(a + 1.0)))
        return np.asarray(np.where(y < SMALL, rest, np.log(gammaincc(a, np.exp(y)))))

    def log_density(self, x: np.ndarray, shapes: np.ndarray) -> np.ndarray:
        """Of the log."""
        from scipy.special import gammaln

        a, y = shapes[..., 0], x + np.log(shapes[..., 1])
        return np.asarray(a * y - np.exp(y) - gammaln(a))


def _log_beta(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The log of the probability of a logit below x."""
    from scipy.special import betainc, betaln, expit

    leading = a * x - np.log(a) - betaln(a, b)
    rest = np.log1p(-np.exp(-b * x - np.log(b) - betaln(a, b)))
    known = np.log(betainc(a, b, expit(x)))
    return np.asarray(np.where(x < SMALL, leading, np.where(x > -SMALL, rest, known)))

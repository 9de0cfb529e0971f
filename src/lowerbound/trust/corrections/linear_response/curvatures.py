"""How an optimum moves: the inverse of a negative Hessian, where it has one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lowerbound.errors import FlatDirectionError, NotAtOptimumError

FLAT = 1e-8  # of the curvature that q alone would have
FAR = 0.1  # sds by which a Newton step may move an optimum

Names = Callable[[int], str]


@dataclass(frozen=True, eq=False)
class Response:
    """root A^-1 root': how far each number moves for a pull at each; root root' is that of q alone.

    A is the negative Hessian of the ELBO in coordinates where that of q alone is the identity.
    """

    root: np.ndarray
    values: np.ndarray
    vectors: np.ndarray

    @property
    def matrix(self) -> np.ndarray:
        """The whole of it."""
        part = self.root @ (self.vectors / np.sqrt(self.values))
        whole: np.ndarray = part @ part.T
        return whole

    def moved(self, pull: np.ndarray) -> np.ndarray:
        """A Newton step: where a slope leads."""
        inside = self.vectors.T @ (self.root.T @ pull)
        step: np.ndarray = self.root @ (self.vectors @ (inside / self.values))
        return step


def response(root: np.ndarray, inside: np.ndarray, names: Names) -> Response:
    """The response of an optimum whose negative Hessian, in the coordinates of `root`, is given.

    Raises FlatDirectionError where that is not positive.
    """
    values, vectors = np.linalg.eigh(0.5 * (inside + inside.T))
    if not values[0] > FLAT * max(1.0, values[-1]):
        raise FlatDirectionError(_direction(root @ vectors[:, 0], root, names), float(values[0]))
    return Response(root, values, vectors)


def check_optimum(
    steps: np.ndarray, errors: np.ndarray, sds: np.ndarray, gradient: float, names: Names
) -> None:
    """Raise NotAtOptimumError where a Newton step, beyond its own error, leads far."""
    with np.errstate(all="ignore"):
        far = (np.abs(steps) - 3.0 * errors) / sds
    far = np.where(np.isfinite(far), far, 0.0)
    worst = int(far.argmax())
    if far[worst] > FAR:
        raise NotAtOptimumError(gradient, names(worst), float(abs(steps[worst]) / sds[worst]))


def _direction(direction: np.ndarray, root: np.ndarray, names: Names) -> str:
    """The numbers that a direction moves most, in sds of q."""
    sds = np.sqrt(np.square(root).sum(axis=1))
    size = np.abs(direction) / np.where(sds > 0, sds, np.inf)
    order = np.argsort(-size)
    shown = sorted(int(k) for k in order[:3] if size[k] > 0.3 * size[order[0]])
    return ", ".join(dict.fromkeys(f"'{names(k)}'" for k in shown))

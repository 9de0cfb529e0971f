"""A program with data, a method and the truth, and the sums that give it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Truth = dict[str, tuple[Any, Any]]  # mean and sd


@dataclass(frozen=True)
class Case:
    """A program with data and a method, and the truth of some sites.

    truth: where labels are free, a function of the fit. precision: of the fit, by default double.
    """

    model: Callable[..., None]
    truth: Truth | Callable[[Any], Truth]
    method: Any = "auto"
    data: dict[str, Any] = field(default_factory=dict)
    precision: str | None = None

    def known(self, fit: Any) -> Truth:
        """Mean and sd of the sites."""
        return self.truth(fit) if callable(self.truth) else self.truth


def named(
    name: str, model: Any, truth: Any, data: dict[str, Any], methods: Mapping[str, Any]
) -> dict[str, Case]:
    """One program by several methods."""
    return {f"{name}: {label}": Case(model, truth, m, data) for label, m in methods.items()}


def weighed(log_p: np.ndarray, values: Mapping[str, np.ndarray]) -> Truth:
    """Means and sds of sites, points along the first axis, under weights exp(log_p)."""
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    found: Truth = {}
    for name, array in values.items():
        mean = np.tensordot(p, array, 1)
        found[name] = (mean, np.sqrt(np.tensordot(p, (array - mean) ** 2, 1)))
    return found


def on_mesh(log_density: Callable[..., np.ndarray], **axes: np.ndarray) -> Truth:
    """Means and sds of a density of up to three numbers, on a mesh of evenly spaced points."""
    points = [a.ravel() for a in np.meshgrid(*axes.values(), indexing="ij")]
    with np.errstate(all="ignore"):
        log_p = log_density(*points)
    return weighed(np.where(np.isnan(log_p), -np.inf, log_p), dict(zip(axes, points, strict=True)))


def on_grid(log_density: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> Any:
    """Mean and sd of a density of one number."""
    x = np.linspace(low, high, 400_001)
    log_p = log_density(x)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = float(p @ x)
    return mean, math.sqrt(float(p @ (x - mean) ** 2))


def log_normal(x: Any, mean: Any, sd: Any) -> Any:
    """The log density of a normal law, without its constant."""
    return -0.5 * ((x - mean) / sd) ** 2 - np.log(sd)


def states(count: int, values: int) -> np.ndarray:
    """All assignments of so many discrete sites, one a row."""
    return np.array(list(itertools.product(range(values), repeat=count)))


def mixed(log_p: np.ndarray, parts: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Truth:
    """Means and sds of a mixture: of sites, means and variances given each of its parts."""
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    found: Truth = {}
    for name, (mean, variance) in parts.items():
        centre = np.tensordot(p, mean, 1)
        spread = np.tensordot(p, variance + (mean - centre) ** 2, 1)
        found[name] = (centre, np.sqrt(spread))
    return found


def normal_means(
    y: np.ndarray, z: np.ndarray, components: int, noise: float, prior: tuple[Any, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of rows assigned to components: log p(y | z), and means and variances of the components'
    means under a normal prior. Assignments are rows of z.
    """
    loc, scale = np.broadcast_to(np.asarray(prior[0], float), components), prior[1]
    log_p = np.zeros(len(z))
    means, variances = np.zeros((len(z), components)), np.zeros((len(z), components))
    for k in range(components):
        own = z == k
        count, total = own.sum(axis=1), own @ y
        precision = scale**-2 + count * noise**-2
        variances[:, k] = 1 / precision
        means[:, k] = (loc[k] * scale**-2 + total * noise**-2) / precision
        log_p += -0.5 * (own @ y**2) * noise**-2 - count * math.log(noise)
        log_p += 0.5 * precision * means[:, k] ** 2 - 0.5 * (loc[k] / scale) ** 2
        log_p += -0.5 * np.log(precision) - math.log(scale)
    return log_p, means, variances

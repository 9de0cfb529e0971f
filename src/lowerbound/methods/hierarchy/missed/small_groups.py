"""What is left of log p where predictors meet: groups of rows that depend on two numbers at most.

Rows of a group, as of one with a mean and a spread of its own, have predictors that span a line or
a plane of z. There exp of R, all of its orders, is summed over a grid. R has no linear and no
quadratic part, so that what groups do to a number of z is of second order: it adds up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from lowerbound.family.numerics.smoothed import low_discrepancy
from lowerbound.methods.hierarchy.predictors import Predictors

DRAWS, FEWER = 4096, 512  # the same at every theta: what they miss hardly moves with it
MOST_NUMBERS = 200_000  # draws times curved predictors, from where on they are fewer
EVENLY = 64  # numbers of z, up to which draws are of low discrepancy
FARTHEST = 20.0  # nats of a group of rows, beyond which a place counts no more
PLANE = 2  # numbers that a group may depend on
SPAN = 1e-6  # of the largest of its directions, below which one is none
FAR = 6.5  # sds up to which the plane is summed over, in steps that a normal density hardly shows
SIDE = np.linspace(-FAR, FAR, 17)
SQUARE = np.stack(np.meshgrid(SIDE, SIDE, indexing="ij"), axis=-1).reshape(-1, PLANE)
NODES = SQUARE[(SQUARE**2).sum(axis=1) <= FAR**2]
EVEN = np.exp(-0.5 * (NODES**2).sum(axis=1))
EVEN /= EVEN.sum()


def normals(rows: int, d: int) -> np.ndarray:
    """Draws of a standard normal vector, each with its opposite; the same at every theta."""
    count = DRAWS if DRAWS * rows <= MOST_NUMBERS else FEWER
    if d <= EVENLY:
        half = np.asarray(ndtri(low_discrepancy(count // 2, d, 5)))
    else:
        half = np.random.default_rng(5).standard_normal((count // 2, d))
    return np.concatenate([half, -half])


def left(
    one: Predictors, t: np.ndarray, mean: np.ndarray, half: np.ndarray, away: np.ndarray
) -> np.ndarray:
    """R of every cluster (n, c), predictors `away` (n, count) from their means."""
    clusters, pairs = one.joint.clusters, one.joint.pairs
    lines, moved = (
        np.concatenate([x, x[:, pairs[:, 0]] + x[:, pairs[:, 1]]], axis=1) for x in (half, away)
    )
    here = one.expected(t, mean, (lines**2).sum(axis=0))
    which, place = np.nonzero(clusters >= 0)
    cluster = np.zeros(one.count, int)
    cluster[clusters[which, place]] = which
    member = np.zeros((lines.shape[1], len(clusters)))
    member[clusters[which, place], which] = 1.0
    member[one.count + np.arange(len(pairs)), cluster[pairs[:, 0]]] = 1.0
    straight = (away * here.slope) @ member[: one.count]
    bent = 0.5 * (moved**2 * here.curvature) @ member
    found: np.ndarray = one.raised(t, mean, away) - straight + bent
    return found


@dataclass(frozen=True, eq=False)
class Planes:
    """The planes of groups: bases (groups, d, 2) of whitened z; away: (nodes, count), there."""

    bases: np.ndarray
    away: np.ndarray

    @classmethod
    def of(cls, half: np.ndarray, group: np.ndarray) -> Planes | None:
        """Of predictors with their groups, -1 of none; None where one depends on more numbers."""
        count = int(group.max()) + 1
        bases = np.zeros((count, len(half), PLANE))
        away = np.zeros((len(NODES), half.shape[1]))
        for number in range(count):
            own = np.flatnonzero(group == number)
            vectors, values, _ = np.linalg.svd(half[:, own], full_matrices=False)
            rank = int((values > SPAN * values[0]).sum())
            if rank > PLANE:
                return None
            bases[number, :, :rank] = vectors[:, :rank]
            away[:, own] = NODES @ (bases[number].T @ half[:, own])
        return cls(bases, away)


@dataclass(frozen=True, eq=False)
class Groups:
    """R of groups at the nodes of their planes (nodes, groups), and which numbers they touch."""

    planes: Planes
    left: np.ndarray
    touched: np.ndarray

    @property
    def _raised(self) -> np.ndarray:
        raised: np.ndarray = EVEN[:, None] * np.exp(np.minimum(self.left, FARTHEST))
        return raised

    @property
    def missed(self) -> float:
        """The sum of log E exp R."""
        return float(np.log(self._raised.sum(axis=0)).sum() - (EVEN @ self.left).sum())

    def moments(
        self, unit: np.ndarray, shift: np.ndarray, stretch: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Shifts and log stretches of numbers with directions `unit` (d, numbers).

        What is known of those that several groups touch is kept, with what other groups add.
        """
        shares = self._raised / self._raised.sum(axis=0)
        mean = shares.T @ NODES
        square = np.einsum("ng,nk,nl->gkl", shares, NODES, NODES, optimize=True)
        change = square - mean[:, :, None] * mean[:, None, :] - np.eye(PLANE)
        along = np.einsum("gdk,du->guk", self.planes.bases, unit, optimize=True)
        means = np.einsum("guk,gk->gu", along, mean)
        changes = np.einsum("guk,gkl,gul->gu", along, change, along, optimize=True)
        several = self.touched.sum(axis=0) > 1
        counted = ~(self.touched & several)
        base = np.where(several, shift, 0.0), np.where(several, stretch, 0.0)
        more = 0.5 * np.log(np.maximum(1.0 + (changes * counted).sum(axis=0), 1e-6))
        return base[0] + (means * counted).sum(axis=0), base[1] + more

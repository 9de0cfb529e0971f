"""What an integral over hyperparameters has found, and how good it is.

A surrogate goes through L - log q0 at all points known, q0 being the proposal. What it says of each
point without that point, by how much the density has moved, and how even its weights are, tell
whether the points are enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lowerbound.compute.threads import one_thread
from lowerbound.family.numerics.pareto import smoothed_weights
from lowerbound.family.numerics.smoothed import Placed, Smoothed
from lowerbound.family.numerics.surrogate import Frame, Interpolation, interpolate
from lowerbound.methods.hierarchy.summits.uphill import Evaluated
from lowerbound.methods.hierarchy.surface import Solved

ROUGH = 0.1  # nats: the error of the surrogate at a point left out; of a grid, twice
MOVED = 0.08  # sds that a mean of any function of theta may move from one size to the next
NARROWLY = 0.016  # the same of two numbers, for which few more points are needed
FINE = 0.02  # nats: where every point is foreseen so well, nothing need be compared
# Errors of single points average out: times as rough is fine where the density has moved by so
# little of what is allowed, and the evidence is known as well as that.
ROUGHER, STEADY = 2.0, 0.5
# Sds that a mean may be off, and that the mean of any function may have moved by, where the density
# may be good though single points are not foreseen.
OFF, ANY_FUNCTION = 0.03, 0.16
LOOKED_AT = 2048  # nodes at which two densities are compared
POOR = 0.35  # efficiency of a proposal that is made anew
LEAST = 0.1  # efficiency with which an answer is good
ABOVE = 1.0  # nats that the surrogate may exceed the largest weight known
NODES = 4096  # that masses of cells are summed over
FAR = 0.1  # nats: an evidence known no better is none
ALONE = 5.0  # effective points, below which it is none either
QUADRATURE = 1e-3  # nats: the error of sums over nodes
UNKNOWN, UNCLEAR = 0.03, 0.5  # share of mass, that is small, and that hides most of it
CANDIDATES = 1024  # places of which the most doubtful are looked at
MOST_DOUBT = 3.0  # nats
DOUBTED, MUCH = (
    16,
    0.1,
)  # nodes most in doubt, and the unknown mass from which on they are looked at
BOUNDED = 0.003  # mass at the ceiling that does not matter
HEAVY = 0.7  # k-hat of weights that are not to be trusted
EVEN = 0.8  # efficiency of weights, of which the heaviest matter little whatever their tail
LOW = 6.0  # nats below the average weight, from where on weights hardly matter
NEAR = 0.02  # distance of points that are one


@dataclass(frozen=True, eq=False)
class Integral:
    """q(t) and the log evidence, and how good they are.

    solved: all points with a value. points: those of the proposals. efficiency: the effective size
    of the weights over their number. k_hat: that of the weights. rough: the error in nats of the
    surrogate at a point left out. error: that of the log evidence. off: sds that the mean of a
    hyperparameter, or of its square, may be off by the same errors. unknown: the share of mass that
    the surrogate may have missed, by its own variance. doubtful: (n, k), nodes with much of it.
    moved: how far means and sds moved with the last points, over what is allowed. enough: whether
    all of it is good. missed: whether a tail is heavier than was foreseen, with no points left for
    it; beyond: (n, k), where.
    """

    smoothed: Smoothed
    interpolation: Interpolation
    solved: tuple[Solved, ...]
    evaluations: int
    points: int
    efficiency: float
    k_hat: float
    rough: float
    error: float
    off: float
    unknown: float
    doubtful: np.ndarray
    moved: float
    enough: bool
    missed: bool = False
    beyond: np.ndarray | None = None

    @property
    def known(self) -> bool:
        """Whether means and sds seem to be known, though points are not quite foreseen.

        Errors of many points average out in these, as they do not in the density.
        """
        allowed = NARROWLY if len(self.solved[0].t) == 2 else MOVED
        still = self.off < OFF and self.moved * allowed < ANY_FUNCTION
        return still and self.rough < ROUGHER * ROUGH and self.unknown < UNKNOWN

    @property
    def promising(self) -> bool:
        """Whether they are, by a proposal that covers the density."""
        return self.known and not self.misplaced

    @property
    def covered(self) -> bool:
        """Whether the points are where the density is, so that moments mean something."""
        light = self.k_hat < HEAVY or self.efficiency > EVEN
        return light and self.efficiency > LEAST and self.unknown < UNCLEAR

    @property
    def is_lost(self) -> bool:
        """Whether nothing is known yet: not the evidence, nor where the density is.

        An error of what rests on a few nodes alone says nothing.
        """
        alone = self.efficiency * self.points < ALONE
        return (self.error >= FAR or alone) and not self.covered

    @property
    def misplaced(self) -> bool:
        """Whether the proposal does not cover the density, so that other points are needed."""
        thin = self.efficiency < POOR or self.k_hat > HEAVY
        return thin or self.smoothed.bounded > BOUNDED

    @property
    def log_evidence(self) -> float:
        """The log integral of exp L."""
        return self.smoothed.log_evidence

    def __str__(self) -> str:
        k_hat = f", k-hat {self.k_hat:.1f}" if math.isfinite(self.k_hat) else ""
        return (
            f"{self.points} points, effective size {self.points * self.efficiency:.0f}{k_hat}, "
            f"evidence to {self.error:.2g} nats"
        )


@one_thread()
def through_points(
    evaluated: Evaluated,
    frame: Frame,
    placed: Placed,
    own: list[Solved],
    count: int,
    before: Integral | None,
) -> Integral:
    """The density through all points known, and how good it is."""
    alive = evaluated.alive
    s, log_ratios, kept = _ratios(placed, alive)
    # What is far below the average weight must stay low, and need not be known exactly.
    middle = _log_mean(log_ratios)
    floor = middle - LOW
    depth = np.log1p(np.maximum(floor - log_ratios, 0.0))
    squeezed = np.where(depth > 0.0, floor - depth, log_ratios)
    matter = np.exp(np.clip(squeezed - middle, -4.0, 2.0))
    dead = np.array([one.t for one in evaluated.known if not math.isfinite(one.value)])
    dead = frame.inward(dead) if len(dead) else np.zeros((0, s.shape[1]))
    log_density = placed.proposal.log_prob(s)
    log_proposal = log_density - placed.log_volume
    # Weights are of draws of q0; points of a climb may lie where it has next to no mass.
    drawn = _ratios(placed, [one for one in own if math.isfinite(one.value)])
    if len(drawn[0]):
        least = float(placed.proposal.log_prob(drawn[0]).min())
        matter = matter * np.exp(np.minimum(log_density - least, 0.0))
    earlier = None if before is None else before.interpolation
    places = frame.inward(placed.outward(s))
    interpolation = interpolate(
        frame, places, squeezed + log_proposal, matter, 0.3 * depth, dead, earlier
    )
    smoothed = Smoothed(placed, interpolation.surrogate, float(squeezed.max()) + ABOVE)
    left_out = interpolation.left_out - log_proposal

    errors = np.where(depth > 0.0, 0.0, squeezed - left_out)
    mass = _cell_masses(smoothed, s)
    rough = math.sqrt(float(mass @ errors**2))
    by_errors = mass * np.expm1(np.clip(-errors, -3.0, 3.0))
    error = float(np.linalg.norm(by_errors))
    off = _off(places, mass, by_errors)
    looked_at = placed.outward(smoothed.nodes[:CANDIDATES])
    sds = interpolation.doubt(looked_at)
    weights = smoothed.weights[:CANDIDATES]
    doubt = weights * np.expm1(0.5 * np.minimum(sds, MOST_DOUBT) ** 2) / weights.sum()
    unknown = float(doubt.sum())
    # What is estimated errs alike at all points: no average makes it less.
    estimated = float(mass @ [alive[number].error for number in kept])
    parts = (error, unknown, QUADRATURE, _edge_mass(smoothed), estimated)
    error = float(np.linalg.norm(parts))
    moved = math.inf
    if before is not None:
        moved = _moved(before.smoothed, smoothed)
    even = s.shape[1] == 1  # a grid: its points are no draws
    k_hat = 0.0 if even else smoothed_weights(smoothed.log_weights)[1]
    if not even and len(drawn[1]) >= 25:
        k_hat = max(k_hat, smoothed_weights(drawn[1])[1])
    efficiency = smoothed.efficiency
    solved = tuple(alive[number] for number in kept)
    return Integral(
        smoothed=smoothed,
        interpolation=interpolation,
        solved=solved,
        evaluations=len(evaluated.known),
        points=count,
        efficiency=efficiency,
        k_hat=k_hat,
        rough=rough,
        error=error,
        off=off,
        unknown=unknown,
        doubtful=looked_at[np.argsort(-doubt, kind="stable")[:DOUBTED]][
            : DOUBTED * (unknown > MUCH)
        ],
        moved=moved,
        enough=(
            rough < FINE
            or (rough < ROUGH * (2 if even else 1) and moved < 1.0)
            or (rough < ROUGHER * ROUGH and moved < STEADY and error < FINE)
        )
        and unknown < UNKNOWN
        and efficiency > LEAST
        and (k_hat < HEAVY or efficiency > EVEN)
        and smoothed.bounded < BOUNDED,
    )


def _off(places: np.ndarray, mass: np.ndarray, changes: np.ndarray) -> float:
    """Sds that means of numbers (n, k) and of their squares may be off, by changes of masses."""
    shifted = places - mass @ places
    squares = shifted**2
    squares = squares - mass @ squares
    both = np.concatenate([shifted, squares], axis=1)
    sds = np.sqrt(np.maximum(mass @ both**2, 1e-300))
    return float((np.sqrt(changes**2 @ both**2) / sds).max())


def _cell_masses(smoothed: Smoothed, s: np.ndarray) -> np.ndarray:
    """The probability of where each point is the nearest one."""
    nodes, weights = smoothed.nodes[:NODES], smoothed.weights[:NODES]
    nearest = ((s**2).sum(axis=1) - 2 * nodes @ s.T).argmin(axis=1)
    return np.bincount(nearest, weights / weights.sum(), len(s))


def _edge_mass(smoothed: Smoothed) -> float:
    """About what part of the mass may be on the other side of an edge, beyond which is nothing."""
    from scipy.spatial.distance import cdist

    surrogate = smoothed.surrogate
    if not len(surrogate.dead):
        return 0.0
    s = surrogate.frame.inward(smoothed.placed.outward(smoothed.nodes[:NODES]))
    near, far = (cdist(s, points).min(axis=1) for points in (surrogate.points, surrogate.dead))
    weights = smoothed.weights[:NODES]
    return 0.5 * float(weights[far < 1.5 * near].sum() / weights.sum())


def _ratios(placed: Placed, solved: list[Solved]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The coordinates s of points, L - log q0 there, and which of them are inside, each once."""
    s = placed.inward(np.array([one.t for one in solved]))
    values = np.array([one.value for one in solved]) + placed.log_volume
    log_ratios = values - placed.proposal.log_prob(s)
    kept: list[int] = []
    for number in np.flatnonzero(np.isfinite(log_ratios)):
        near = [other for other in kept if abs(s[number] - s[other]).max() < NEAR]
        if not near:
            kept.append(int(number))
    index = np.array(kept, int)
    return s[index], log_ratios[index], index


def _moved(old: Smoothed, new: Smoothed) -> float:
    """How far the density moved, in units of what is allowed: twice Hellinger's distance.

    Of densities that are near each other, the mean of any function moves by no more of its sds. A
    log scale that may go far below zero counts for as little as the scale itself does there.
    """
    some = slice(None, None, max(1, len(new.nodes) // LOOKED_AT))
    places = new.placed.outward(new.nodes[some])
    ratio = np.exp(0.5 * np.clip(old.log_prob(places) - new.log_prob(places), -20.0, 20.0))
    weights = new.weights[some] / new.weights[some].sum()
    allowed = NARROWLY if places.shape[1] == 2 else MOVED
    return 2.0 * math.sqrt(float(weights @ (ratio - 1.0) ** 2)) / allowed


def _log_mean(values: np.ndarray) -> float:
    top = float(values.max())
    return top + math.log(float(np.mean(np.exp(values - top))))

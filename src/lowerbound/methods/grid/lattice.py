"""Where a profile F over a few scalars has its mass, and a lattice of points that covers it.

All logic is on the host; `profile.at` evaluates points in batches. On a lattice of spacing h the
sum of exp F converges faster than any power of h, for smooth densities that fall at both ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpyro.distributions.transforms import IdentityTransform, Transform

from lowerbound.cost import allowance
from lowerbound.errors import LostPosteriorError
from lowerbound.methods.grid.profile import BATCH, SCANNED, Profile

Node = tuple[int, ...]


DROP = {1: 15.0, 2: 14.0, 3: 13.0}  # nats below the maximum at which the lattice ends
ACROSS = {1: 64, 2: 24, 3: 12}  # intervals from one end to the other
# Difference of even and odd nodes' log mass: the error of their sum is about its square.
UNEVEN = {1: 1e-3, 2: 2e-3, 3: 1e-2}
# Difference of their means and log sds, in sds. Where a posterior ends at an edge, sums over nodes
# gain one digit with ten times the nodes, no more; half of this is then the error.
APART = 0.05
SEEN = 7.0  # nats that F must be seen to fall by before it cannot be evaluated any more
WIDENINGS = 6
EDGE = 4  # differences, each half as long, that have no value before a mode is one at an edge
SEARCHED = 0.4  # of what a fit may take: after that the posterior is not found
ROUNDS = 30
BULK = 2.0  # nats below the maximum
LONG = 30.0  # widths of the bulk that one scalar's lattice has: 3 of a normal law, 8 of a Laplace


@dataclass(frozen=True)
class Lattice:
    """Points u = origin + axes (spacing * node) over integers; `known` are their numbers."""

    origin: np.ndarray
    axes: np.ndarray
    spacing: np.ndarray
    known: dict[Node, int]
    complete: bool = True

    def points(self, nodes: np.ndarray) -> np.ndarray:
        """The unconstrained points of the nodes, (m, k)."""
        points: np.ndarray = self.origin + (nodes * self.spacing) @ self.axes.T
        return points

    @property
    def log_cell(self) -> float:
        """The log volume of a cell."""
        _, volume = np.linalg.slogdet(self.axes)
        return float(np.log(self.spacing).sum() + volume)

    def log_total(self, profile: Profile) -> float:
        """Log of the integral of exp F, by the trapezoid rule."""
        return _log_sum(profile.values[list(self.known.values())]) + self.log_cell

    def long_tails(self, profile: Profile) -> tuple[float, float] | None:
        """The middle and half the width of the bulk of one scalar whose tails are far longer.

        So many nodes would be needed to see both at one spacing. None for all others.
        """
        if len(self.origin) > 1:
            return None
        bulk = profile.u[profile.values > profile.values.max() - BULK]
        low, high = float(bulk.min()), float(bulk.max())
        wide = float(self.spacing[0]) * ACROSS[1] > LONG * (high - low) > 0.0
        return (0.5 * (low + high), 0.5 * (high - low)) if wide else None

    def uneven(self, profile: Profile) -> np.ndarray:
        """For each axis, how much the log mass of even and odd nodes differs.

        Every third node differs more, but is asked for less: both agree by chance only rarely.
        """
        nodes = np.asarray(list(self.known))
        values = profile.values[list(self.known.values())]
        found = []
        for axis in nodes.T:
            worst = 0.0
            for stride, share in ((2, 1.0), (3, 0.02)):
                parts = [_log_sum(values[axis % stride == part]) for part in range(stride)]
                apart = np.ptp(parts) if np.isfinite(parts).all() else np.inf
                worst = max(worst, share * apart)
            found.append(worst)
        return np.asarray(found)

    def apart(self, profile: Profile) -> float:
        """How far means and log sds of even and odd nodes are apart at most, in sds."""
        nodes = np.asarray(list(self.known))
        values = profile.values[list(self.known.values())]
        weights = np.exp(values - values.max())
        _, spread = _moments(nodes, weights)
        worst = 0.0
        for axis in nodes.T:
            even, odd = (
                _moments(nodes[own], weights[own]) for own in (axis % 2 == 0, axis % 2 == 1)
            )
            means, sds = abs(even[0] - odd[0]) / spread, abs(np.log(even[1] / odd[1]))
            worst = max(worst, float(np.max([means, sds])))
        return worst if np.isfinite(worst) else np.inf


def _moments(nodes: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and sds of weighted nodes, axis by axis; not finite where there is no weight."""
    with np.errstate(all="ignore"):
        share = weights / weights.sum()
        mean = share @ nodes
        return mean, np.sqrt(share @ (nodes - mean) ** 2)


def lattice_for(profile: Profile, start: np.ndarray | None = None) -> Lattice:
    """The lattice of a profile before it is filled, from a start or from a wide scan."""
    k = len(profile.sites)
    scans = [_scan(transform) for transform in profile.transforms]
    if k == 1:
        scan = scans[0] if start is None else start[0] + _OUTWARDS
        low, high = _bracket(profile, np.zeros(1), np.ones(1), scan, DROP[1])
        return Lattice(np.asarray([low]), np.eye(1), np.asarray([(high - low) / ACROSS[1]]), {})
    centre = _first(profile, scans) if start is None else start
    if start is not None:
        scans = [value + _OUTWARDS for value in start]
    centre, widths = _line_by_line(profile, centre, scans)
    centre, axes = _climb(profile, centre, np.diag(widths))
    profile.axes = axes
    spacing = np.ones(k)
    for axis in range(k):
        low, high = _bracket(profile, centre, axes[:, axis], _OUTWARDS, DROP[k])
        spacing[axis] = (high - low) / ACROSS[k]
    return Lattice(centre, axes, spacing, {})


def filled(profile: Profile, lattice: Lattice, budget: int, seeds: Sequence[Node] = ()) -> Lattice:
    """The lattice with all nodes within the drop of the maximum, and those around them.

    Nodes are taken from the best known neighbour outwards, so that any shape is followed; `seeds`
    are others to begin from.
    """
    k = len(profile.sites)
    drop, known = DROP[k], dict(lattice.known)
    nodes = [*known] if known else [(i,) for i in range(ACROSS[1] + 1)] if k == 1 else [(0,) * k]
    queue = [] if known else [(-np.inf, node) for node in nodes]
    queue += [(-np.inf, node) for node in seeds]
    seen = {*nodes, *seeds}

    def spread(node: Node) -> None:
        value = profile.values[known[node]]
        for axis in range(k):
            for step in (-1, 1):
                other = (*node[:axis], node[axis] + step, *node[axis + 1 :])
                if other not in seen:
                    seen.add(other)
                    heapq.heappush(queue, (-value, other))

    for node in known:
        spread(node)
    top = max((profile.values[number] for number in known.values()), default=-np.inf)
    while queue and len(known) < budget and not (known and allowance().over):
        batch: list[Node] = []
        while queue and len(batch) < min(BATCH, budget - len(known)):
            value, node = heapq.heappop(queue)
            if not known or -value > top - drop:
                batch.append(node)
        if not batch:
            break
        begin = len(profile.values)
        top = max(top, profile.at(lattice.points(np.asarray(batch))).max())
        known.update({node: begin + i for i, node in enumerate(batch)})
        for node in batch:
            spread(node)
    left = any(-value > top - drop for value, _ in queue)
    return replace(lattice, known=known, complete=not left)


def refined(lattice: Lattice, axis: int) -> Lattice:
    """The lattice with half the spacing along an axis; its old nodes stay known."""
    factor = np.where(np.arange(len(lattice.spacing)) == axis, 2, 1)
    known = {
        tuple(int(i) for i in np.asarray(node) * factor): number
        for node, number in lattice.known.items()
    }
    return replace(lattice, spacing=lattice.spacing / factor, known=known)


def _log_sum(values: np.ndarray) -> float:
    if not len(values) or not np.isfinite(values.max()):
        return -np.inf
    top = values.max()
    return float(top + np.log(np.exp(values - top).sum()))


# --------------------------------------------------------------------------------------------------
# From nowhere to the mode

_OUTWARDS = np.sinh(np.linspace(-3.2, 3.2, BATCH + 1))  # deviations, to 12 on either side


def _scan(transform: Transform) -> np.ndarray:
    """Unconstrained points over all scales that data are likely to have."""
    if isinstance(transform, IdentityTransform):
        return np.sinh(np.linspace(-13.0, 13.0, BATCH))
    return np.linspace(-12.0, 14.0, BATCH)


def _first(profile: Profile, scans: Sequence[np.ndarray]) -> np.ndarray:
    """The best of a few points that cover all combinations of scales evenly."""
    golden = GOLDEN[len(scans)]
    share = (0.5 + np.outer(np.arange(2 * BATCH), golden)) % 1.0
    share[0] = 0.5  # a unit scale for all
    points = np.stack(
        [np.interp(s, np.linspace(0, 1, len(g)), g) for s, g in zip(share.T, scans, strict=True)],
        axis=1,
    )
    values = profile.at(points, SCANNED)
    if not np.isfinite(values).any():
        raise _nowhere(profile)
    best: np.ndarray = points[np.argmax(values)]
    return best


# The additive recurrence with the lowest discrepancy in two and three dimensions.
GOLDEN = {
    2: np.array([0.7548776662, 0.5698402910]),
    3: np.array([0.8191725, 0.6710436, 0.5497005]),
}


def _bracket(
    profile: Profile, origin: np.ndarray, direction: np.ndarray, scan: np.ndarray, drop: float
) -> tuple[float, float]:
    """The ends of the part of a line on which F is within `drop` of its maximum there.

    All maxima that the scan sees are kept.
    """
    t = scan.copy()
    f = profile.at(origin + np.outer(t, direction), SCANNED)
    if not np.isfinite(f).any():
        raise _nowhere(profile)
    widened = zoomed = 0
    for _ in range(ROUNDS):
        if allowance().spent > SEARCHED:
            raise _too_slow(profile)
        near = np.flatnonzero(f > f.max() - drop)
        left, right = near[0], near[-1]
        width = t[-1] - t[0]
        if left == 0 or right == len(t) - 1:
            widened += 1
            if widened > WIDENINGS:
                raise _endless(profile, direction, below=bool(left == 0))
            begin = t[0] - width if left == 0 else t[-1]
            end = t[0] if left == 0 else t[-1] + width
            new = np.linspace(begin, end, BATCH + 1)
            new = new[:-1] if left == 0 else new[1:]
        elif len(near) < BATCH // 2:
            new = np.linspace(t[left - 1], t[right + 1], BATCH + 2)[1:-1]
        else:
            sides = [(left, left - 1), (right, right + 1)]
            unseen = [
                (inside, outside)
                for inside, outside in sides
                if f[inside] > f.max() - min(SEEN, drop / 2)
                and profile.lost(origin + t[outside] * direction)
            ]
            if not unseen:
                low, high = (_end(t, f, *side, f.max() - drop) for side in sides)
                return low, high
            inside, outside = unseen[0]
            zoomed += 1
            if zoomed > 2:
                raise _endless(profile, direction, below=bool(outside < inside))
            new = np.linspace(t[outside], t[inside], BATCH + 2)[1:-1]
        f = np.concatenate([f, profile.at(origin + np.outer(new, direction), SCANNED)])
        t, order = np.unique(np.concatenate([t, new]), return_index=True)
        f = f[order]
    return float(t[left - 1]), float(t[right + 1])


def _end(t: np.ndarray, f: np.ndarray, inside: int, outside: int, level: float) -> float:
    """Where F crosses a level between two points; the inner one where the outer has no value."""
    if np.isneginf(f[outside]):
        return float(t[inside])
    return float(np.interp(level, f[[outside, inside]], t[[outside, inside]]))


def _line_by_line(
    profile: Profile, centre: np.ndarray, scans: Sequence[np.ndarray], cycles: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """Climb along one coordinate at a time, by scans of whole lines; also the widths found."""
    widths = np.ones(len(centre))
    for cycle in range(cycles):
        for axis in range(len(centre)):
            direction = np.eye(len(centre))[axis]
            scan = scans[axis] - centre[axis] if cycle == 0 else 2 * widths[axis] * _OUTWARDS
            low, high = _bracket(profile, centre, direction, scan, 2.0)
            widths[axis] = (high - low) / 4.0  # two nats below a normal mode: two deviations
            centre = profile.u[np.argmax(profile.values)]
    return centre, widths


def _climb(profile: Profile, centre: np.ndarray, axes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Newton's method by central differences in a trust region; the mode and principal axes.

    `axes` scale the differences: at the end they are the deviations along the principal axes of
    the curvature at the mode. Where F has no value beyond the mode, at however small a distance,
    there is no curvature to speak of: the axes stay what they were.
    """
    k = len(centre)
    pairs = [(i, j) for i in range(k) for j in range(i)]
    unit = np.eye(k)
    design = [np.zeros(k), *unit, *-unit]
    design += [a * unit[i] + b * unit[j] for i, j in pairs for a in (-1, 1) for b in (-1, 1)]
    home, begun, blocked = (-np.inf, centre, axes), axes, 0
    for _ in range(ROUNDS):
        if allowance().spent > SEARCHED:
            raise _too_slow(profile)
        f = profile.at(centre + np.asarray(design) @ axes.T)
        best = int(np.argmax(f))
        if not f[0] > home[0] - 1.0:  # a step that led away: back, with shorter differences
            centre, axes = home[1], 0.5 * home[2]
            home = (home[0], centre, axes)
            continue
        home = (f[0], centre, axes)
        blocked = 0 if np.isfinite(f).all() else blocked + 1
        if blocked > EDGE:
            return centre + axes @ design[best], begun
        if blocked:
            centre, axes = centre + axes @ design[best], 0.5 * axes
            continue
        up, down = f[1 : k + 1], f[k + 1 : 2 * k + 1]
        gradient = (up - down) / 2
        hessian = np.diag(up + down - 2 * f[0])
        for number, (i, j) in enumerate(pairs):
            corners = f[2 * k + 1 + 4 * number :][:4]  # (-,-), (-,+), (+,-), (+,+)
            cross = corners[0] - corners[1] - corners[2] + corners[3]
            hessian[i, j] = hessian[j, i] = cross / 4
        curvature, vectors = np.linalg.eigh(-hessian)
        bounded = np.clip(curvature, 0.05, 20.0)  # in a round, axes stretch fourfold at most
        step = vectors @ ((vectors.T @ gradient) / bounded)
        length = float(np.linalg.norm(step))
        step *= min(1.0, 3.0 / max(length, 1e-300))
        settled = length < 0.1 and (abs(np.log(bounded)) < 0.7).all()
        predicted = centre + axes @ step
        if f[best] > f[0] + 0.5 * gradient @ step:  # the quadratic is no guide here
            predicted = centre + axes @ design[best]
        centre, axes = predicted, axes @ vectors @ np.diag(bounded**-0.5)
        if settled:
            return centre, axes
    return home[1], home[2]


def _nowhere(profile: Profile) -> LostPosteriorError:
    names = ", ".join(f"'{site}'" for site in profile.sites)
    return LostPosteriorError(
        f"The ELBO is finite at no value of {names} that was tried, from very small to very large "
        "ones.\n"
        "Expected a posterior that can be evaluated. Check the data against the model, or "
        "rescale them to unit variance."
    )


def _too_slow(profile: Profile) -> LostPosteriorError:
    names = ", ".join(f"'{site}'" for site in profile.sites)
    share = SEARCHED * allowance().seconds
    return LostPosteriorError(
        f"The search for the posterior of {names} took {share:.0f} s without an end: the rest of "
        "the model takes long at every point.\nExpected a grid that is affordable. Condition on "
        "fewer sites."
    )


def _endless(profile: Profile, direction: np.ndarray, *, below: bool) -> LostPosteriorError:
    """The density does not fall: of an improper posterior, where the prior is; else a failure."""
    site = profile.sites[int(np.argmax(abs(direction)))]
    side = "small" if below == (direction[np.argmax(abs(direction))] > 0) else "large"
    if site in profile.improper:
        return LostPosteriorError(
            f"The posterior of '{site}' is improper, as far as it can be followed: it does not "
            f"fall towards {side} values.\nExpected a proper posterior. Give '{site}' a proper "
            "prior."
        )
    return LostPosteriorError(
        f"The search for the posterior of '{site}' failed: as far as its density can be computed, "
        f"it does not fall towards {side} values.\n"
        f"Expected a posterior that ends within reach. Start near its mass with "
        f"init={{'{site}': value}}, rescale the data to unit variance, or use lb.Gaussian()."
    )

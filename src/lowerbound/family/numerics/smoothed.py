"""The density of a few hyperparameters known at scattered points: a proposal times a surrogate.

A surrogate goes through the log target wherever it is known, and q(t) is proportional to its exp,
within bounds: nowhere more than a given multiple of a proposal q0 in coordinates t = centre + axes
s, whose axes are independent and whose draws the sums over q are taken of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from lowerbound.family.numerics.surrogate import Centred, Frame, Surrogate
from lowerbound.family.numerics.tabulated import Tabulated

NODES = 2**14  # of low discrepancy, that sums over q are taken of
MOST_AT_ONCE = 2**17  # proposals of which draws are kept
KEPT, MOST_LOWERED = 0.02, 2_000  # the share that is kept at least; steps of the ceiling to that


@dataclass(frozen=True, eq=False)
class Placed(Centred):
    """Coordinates s of t, and a proposal in them."""

    centre: np.ndarray
    axes: np.ndarray
    proposal: Tabulated

    @cached_property
    def log_volume(self) -> float:
        """Log |dt/ds|."""
        return float(np.linalg.slogdet(self.axes)[1])


@dataclass(frozen=True, eq=False)
class Smoothed:
    """q(t), normalised by sums over nodes of low discrepancy."""

    placed: Placed
    surrogate: Surrogate
    ceiling: float  # of log target - log q0

    @cached_property
    def nodes(self) -> np.ndarray:
        """The nodes s (NODES, k), draws of the proposal."""
        return self.placed.proposal.quantile(low_discrepancy(NODES, self.placed.proposal.size))

    @cached_property
    def log_weights(self) -> np.ndarray:
        """Log weights of the nodes, which sum to one after exp."""
        log_weights: np.ndarray = self._ratios - self.log_evidence - np.log(NODES)
        return log_weights

    @cached_property
    def log_evidence(self) -> float:
        """The log integral of the target that the surrogate stands for."""
        top = self._ratios.max()
        return float(top + np.log(np.mean(np.exp(self._ratios - top))))

    @cached_property
    def _ratios(self) -> np.ndarray:
        return self.ratios(self.nodes)

    def ratios(self, s: np.ndarray) -> np.ndarray:
        """Log target - log q0 at the rows of s; -inf where q0 has no mass."""
        log_proposal = self.placed.proposal.log_prob(s)
        inside = np.isfinite(log_proposal)
        found = np.full(len(s), -np.inf)
        log_target = self.surrogate(self.placed.outward(s[inside])) + self.placed.log_volume
        found[inside] = np.minimum(log_target - log_proposal[inside], self.ceiling)
        return found

    @cached_property
    def weights(self) -> np.ndarray:
        """The weights of the nodes."""
        weights: np.ndarray = np.exp(self.log_weights)
        return weights

    @property
    def efficiency(self) -> float:
        """The effective size of the weights over their number."""
        return float(1.0 / (NODES * np.sum(self.weights**2)))

    @property
    def bounded(self) -> float:
        """The mass where the proposal bounds the density: there it is too low to be believed."""
        return float(self.weights[self._ratios >= self.ceiling].sum())

    @cached_property
    def mean(self) -> np.ndarray:
        """E t, (k,)."""
        mean: np.ndarray = self.placed.outward((self.weights @ self.nodes)[None])[0]
        return mean

    @cached_property
    def covariance(self) -> np.ndarray:
        """Cov t, (k, k)."""
        t = self.placed.outward(self.nodes) - self.mean
        spread: np.ndarray = (t * self.weights[:, None]).T @ t
        return spread

    def log_prob(self, t: np.ndarray) -> np.ndarray:
        """Log q(t) of the rows of t."""
        s = self.placed.inward(t)
        ratios = self.ratios(s)
        log_proposal = np.where(np.isfinite(ratios), self.placed.proposal.log_prob(s), 0.0)
        return ratios + log_proposal - self.log_evidence - self.placed.log_volume

    def sample(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Independent draws of t (count, k), by rejection from the proposal: exact."""
        rate = float(np.exp(self.log_evidence - self.ceiling))
        found, have = [np.zeros((0, self.placed.proposal.size))], 0
        while have < count:
            size = min(int(1.1 * (count - have) / rate) + 64, MOST_AT_ONCE)
            s = self.placed.proposal.quantile(rng.random((size, self.placed.proposal.size)))
            kept = s[np.log(rng.random(size)) < self.ratios(s) - self.ceiling]
            found.append(kept)
            have += len(kept)
        return self.placed.outward(np.concatenate(found)[:count])

    def trimmed(self) -> Smoothed:
        """The same with a ceiling so low that draws are cheap.

        It is just above what the nodes reach, and lower where a few of them tower over all others:
        there the surrogate is not to be believed, and one proposal in thousands would be kept.
        """
        ceiling = min(self.ceiling, float(self._ratios.max()) + 0.1)
        for _ in range(MOST_LOWERED):
            capped = replace(self, ceiling=ceiling)
            capped.__dict__["_ratios"] = np.minimum(self._ratios, ceiling)
            above = ceiling - capped.log_evidence + np.log(KEPT)
            if above <= 0.0:
                break
            ceiling -= max(float(above), 0.01)
        return capped

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it as arrays, for parameters of a density and for files."""
        own, table, smooth = self.placed, self.placed.proposal, self.surrogate
        return {
            "centre": own.centre,
            "axes": own.axes,
            "low": table.low,
            "step": table.step,
            "log_density": table.log_density,
            **_frame_arrays(smooth.frame),
            "known": smooth.points,
            "coefficients": smooth.coefficients,
            "lengths": smooth.lengths,
            "shares": smooth.shares,
            "mean": np.asarray(smooth.mean),
            "dead": smooth.dead,
            "ceiling": np.asarray(self.ceiling),
        }

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> Smoothed:
        """From the arrays."""
        own = {name: np.asarray(value) for name, value in arrays.items()}
        table = Tabulated(own["low"], own["step"], own["log_density"])
        surrogate = Surrogate(
            _frame_of(own),
            own["known"],
            own["coefficients"],
            own["lengths"],
            own["shares"],
            float(own["mean"]),
            own["dead"],
        )
        placed = Placed(own["centre"], own["axes"], table)
        return cls(placed, surrogate, float(own["ceiling"]))


FRAME = "centre", "axes", "widths", "skewness", "tails"


def _frame_arrays(frame: Frame) -> dict[str, np.ndarray]:
    """The arrays of a frame, and of those beside it, each with a leading axis."""
    found = {f"frame_{name}": getattr(frame, name) for name in FRAME}
    if not frame.beside:
        return found
    found["beside_lower"] = np.array([lower for lower, _ in frame.beside])
    for name in FRAME:
        found[f"beside_{name}"] = np.stack([getattr(one, name) for _, one in frame.beside])
    return found


def _frame_of(arrays: Mapping[str, np.ndarray]) -> Frame:
    """The frame of some arrays."""
    lower = arrays.get("beside_lower", np.zeros(0))
    beside = tuple(
        (float(gap), _plain_frame([arrays[f"beside_{name}"][number] for name in FRAME]))
        for number, gap in enumerate(lower)
    )
    return replace(_plain_frame([arrays[f"frame_{name}"] for name in FRAME]), beside=beside)


def _plain_frame(arrays: Sequence[np.ndarray]) -> Frame:
    centre, axes, widths, skewness, tails = arrays
    return Frame(centre, axes, widths, skewness, tails)


@lru_cache(maxsize=32)
def low_discrepancy(count: int, dimension: int, seed: int = 0) -> np.ndarray:
    """Points of a scrambled Sobol sequence inside the unit cube, (count, dimension)."""
    from scipy.stats import qmc

    sequence = qmc.Sobol(dimension, scramble=True, seed=np.random.default_rng(seed))
    points = sequence.random_base2((count - 1).bit_length())[:count]
    inside: np.ndarray = np.clip(points, 1e-12, 1 - 1e-12)
    return inside

"""Rounds of chains: each in the units of the draws before, until all of them agree.

How a trajectory is made is a value that is passed in (`Kernel`): NUTS, compiled with a density
(`trajectories`), or leapfrogs along a function of several rows (`leapfrogs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lowerbound.cost import allowance
from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.family.numerics.chain_mixing import Mixing, mixing
from lowerbound.family.q import Q
from lowerbound.methods.chains.units import Units
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.posterior import History, Restart
from lowerbound.result.verdicts import Verdict
from lowerbound.run.planned import Trace
from lowerbound.run.walking import Standing

CHAINS = 4
ENOUGH, AGREED = 250.0, 1.03  # effective draws of every number and its square, and R-hat
DIVERGED = 0.01  # of trajectories that may diverge
FEWEST_DRAWN = 40  # of every chain, to compare them


@dataclass(frozen=True, eq=False)
class Chains:
    """Draws (c, n, k), and log p at them (c, n); how many trajectories, and of these diverged.

    gradients: of all these trajectories together.
    """

    draws: np.ndarray
    values: np.ndarray
    trajectories: int
    diverged: int
    gradients: int

    @property
    def rows(self) -> np.ndarray:
        """The draws of all chains (c n, k)."""
        return self.draws.reshape(-1, self.draws.shape[2])

    def then(self, more: Chains) -> Chains:
        """The same chains, with more draws at their ends."""
        return Chains(
            np.concatenate([self.draws, more.draws], axis=1),
            np.concatenate([self.values, more.values], axis=1),
            self.trajectories + more.trajectories,
            self.diverged + more.diverged,
            self.gradients + more.gradients,
        )


# A round: from starts (c, k), in units, so many draws of each chain. The number of the round is one
# and more for those that are kept; its random numbers are its own.
Kernel = Callable[[np.ndarray, Units, int, int], Chains]


@dataclass(frozen=True, eq=False)
class Mixed:
    """Chains, and what they say of themselves."""

    chains: Chains
    mixing: Mixing

    @property
    def flaw(self) -> str:
        """Why the draws should not be trusted, where they should not."""
        own = self.chains
        if not self.mixing.flaw and own.diverged > DIVERGED * own.trajectories:
            return f"{own.diverged:,} of {own.trajectories:,} trajectories diverged"
        return self.mixing.flaw

    @property
    def enough(self) -> bool:
        """Whether more draws would tell hardly more."""
        return not self.flaw and self.mixing.rhat <= AGREED and self.mixing.size >= ENOUGH

    def __str__(self) -> str:
        own, chains = self.chains, len(self.chains.draws)
        return (
            f"{chains} chains of {own.trajectories // chains:,} trajectories, {own.diverged:,} "
            f"diverged, {own.gradients / own.trajectories:.0f} gradients each; {self.mixing}"
        )

    def stop(self, last: bool, code: str) -> Stop | None:
        """Why there are no more rounds; None where there are. code: what would make more."""
        over = allowance().over
        if not (self.enough or over or last):
            return None
        if not self.flaw:  # perhaps fewer than asked for, and good all the same
            return Stop(True, str(self))
        if over:
            return Stop(False, allowance().reason, allowance().remedy(code))
        return Stop(False, self.flaw, f"More draws come with {code}.")

    def answer(
        self,
        values: dict[str, np.ndarray],
        bound: tuple[float, float],
        trace: Trace,
        stop: Stop,
        *,
        said: str,
        notes: Sequence[str],
        cure: str,
    ) -> Answer:
        """Draws of all sites, with a bound and its error, and a verdict by the chains.

        said: what has to be known of draws that can be trusted. cure: the code of better ones.
        """
        count = len(next(iter(values.values())))
        q = Q(WeightedDraws(), {"values": values, "weights": np.full(count, 1.0 / count)})
        verdict = Verdict("all", said)
        if self.flaw:
            verdict = Verdict("nothing", self.flaw, cure)
        history = History(trace.values, trace.seconds, step="round")
        restarts = (Restart(bound[0], len(trace.values), str(stop)),)
        elbo, error = bound
        return Answer(q, elbo, history, restarts, error=error, notes=tuple(notes), verdict=verdict)


def mixed(
    chains: Chains,
    name: Callable[[int], str],
    shown: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> Mixed:
    """How well chains agree, on every number and on its square.

    name: that of a number. shown: draws (c, n, k) as they are to be compared.
    """
    draws = shown(chains.draws)
    squares = (draws - draws.mean(axis=(0, 1))) ** 2
    both = np.concatenate([draws, squares], axis=2)
    return Mixed(chains, mixing(both, lambda number: name(number % draws.shape[2])))


def drafted(
    kernel: Kernel, starts: np.ndarray, units: Units, counts: Sequence[int]
) -> tuple[np.ndarray, Units]:
    """Where chains are, and their units, after rounds that are not kept."""
    for number, count in enumerate(counts, 1 - len(counts)):
        found = kernel(starts, units, count, number)
        starts, units = found.draws[:, -1], Units.of(found.rows, units)
    return starts, units


@dataclass(frozen=True, eq=False)
class Rounds:
    """How chains go on: so many draws of each a round, and at most so many rounds.

    judge: how well they agree. code: what would make more draws.
    """

    count: int
    most: int
    judge: Callable[[Chains], Mixed]
    code: str

    def walk(self, kernel: Kernel, starts: np.ndarray, units: Units) -> Iterator[Standing[Mixed]]:
        """The chains after every round; the last has a stop."""
        found: Chains | None = None
        for number in range(1, self.most + 1):
            more = kernel(starts, units, self.count, number)
            found = more if found is None else found.then(more)
            judged = self.judge(found)
            stop = judged.stop(number == self.most, self.code)
            yield Standing(judged, stop=stop)
            if stop is not None:
                return
            starts, units = found.draws[:, -1], Units.of(found.rows, units)

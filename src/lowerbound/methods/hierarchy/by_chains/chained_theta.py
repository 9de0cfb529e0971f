"""Hyperparameters by chains over L(theta): summits, chains from around them, and how well they mix.

Where points of theta do not foresee each other, or are too many numbers for points at all, chains
need no more of L than its slopes. z given theta is integrated out exactly, so that they go over few
numbers; z is drawn given each of their draws.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from lowerbound.errors import NoFiniteStartError
from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.family.numerics.chain_mixing import Mixing, mixing
from lowerbound.family.q import Q
from lowerbound.methods.hierarchy.by_chains.banded_elimination import Eliminated, layout
from lowerbound.methods.hierarchy.by_chains.bridged_evidence import log_evidence
from lowerbound.methods.hierarchy.by_chains.draws_of_all import completed
from lowerbound.methods.hierarchy.by_chains.eased_scales import Eased
from lowerbound.methods.hierarchy.by_chains.mirrored_signs import mirrored, turned_at_random
from lowerbound.methods.hierarchy.by_chains.walks_over_theta import CHAINS, Chains, Slopes, walked
from lowerbound.methods.hierarchy.inner.parabolas import AnySurface
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.standardised import axes_around
from lowerbound.methods.hierarchy.summits.uphill import Evaluated, Summit, climb
from lowerbound.methods.hierarchy.surface import Solved, Surface
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.posterior import History, Restart
from lowerbound.result.verdicts import Verdict
from lowerbound.run.planned import Trace

T = TypeVar("T")

ROUND = 50  # draws of each chain, after which it is looked at how they mix
ENOUGH, AGREED = 250.0, 1.03  # effective draws of every number and its square, and R-hat
MOST_ROUNDS = 20
COMPLETED = 600  # draws of theta, about, for which z is drawn
BRIDGED = 200  # places at which the evidence is found
BELOW = 12.0  # nats, from where on a summit has no mass
COUNTS = 3.0  # nats by which the mass around a summit may be less, for a chain to begin there
WITHIN = 3.0  # sds, where two summits are one
ALIKE = 0.3  # nats between a summit and its mirror image, as climbs leave them
CHEAP = 20_000  # predictors and numbers of z, as chains need thousands of slopes
SHARE = 0.01  # of trajectories that may diverge


@dataclass(frozen=True, eq=False)
class Chained:
    """Chains over the hyperparameters of a surface. signs: those that the data do not tell."""

    surface: AnySurface
    eased: Eased
    slopes: Slopes
    chains: Chains
    signs: tuple[tuple[str, np.ndarray], ...]

    @cached_property
    def mixed(self) -> Mixing:
        """How well the chains agree, on numbers of theta and on their squares."""
        draws, one = self.folded, self.surface.predictors
        centre = draws.mean(axis=(0, 1))
        names = [
            name if one.length(name) == 1 else f"{name}[{number}]"
            for name in one.theta
            for number in range(one.length(name))
        ]
        both = np.concatenate([draws, (draws - centre) ** 2], axis=2)
        return mixing(both, lambda number: names[number % len(names)])

    @property
    def folded(self) -> np.ndarray:
        """The draws (c, n, k) with positive scales, on the side of the first where none is told.

        Chains may cross from one side to the other, which says nothing of how well they mix.
        """
        draws = self.eased.positive(self.chains.draws)
        for _, signs in self.signs:
            way = np.where(signs < 0.0, draws[0, 0], 0.0)
            draws = np.where((draws @ way < 0.0)[..., None], draws * signs, draws)
        return draws

    @property
    def enough(self) -> bool:
        """Whether more draws would tell hardly more."""
        return self.mixed.size >= ENOUGH and self.mixed.rhat <= AGREED and not self.flaw

    @property
    def flaw(self) -> str:
        """Why the draws should not be trusted, where they should not."""
        diverged, count = self.chains.diverged, self.chains.count
        if not self.mixed.flaw and diverged > SHARE * count:
            return f"{diverged:,} of {count:,} trajectories diverged"
        return self.mixed.flaw

    def __str__(self) -> str:
        chains, draws, _ = self.chains.draws.shape
        return f"{chains} chains of {draws} draws, {self.chains.slopes:,} slopes; {self.mixed}"


def can_be_chained(surface: AnySurface) -> bool:
    """Whether chains over theta have the posterior, and slopes cost little.

    z is then Gaussian given theta, along a band, and in one piece, as a series is: of many pieces
    theta is often known up to turns alone, which chains would follow round and round.
    """
    one, pattern = surface.predictors, surface.pattern
    real = not one.straight and all(map(one.is_real, one.z))
    if not (real and one.count + one.size <= CHEAP and one.is_quadratic and pattern.is_exact):
        return False
    entries = np.ones(len(pattern.rows))
    graph = coo_array((entries, (pattern.rows, pattern.columns)), (one.size, one.size))
    labels = connected_components(graph, directed=False)[1]
    return bool(2 * np.bincount(labels).max() > one.size) and layout(surface) is not None


def chained(
    surface: AnySurface, predictors: Predictors, starts: Sequence[np.ndarray], seed: int
) -> Iterator[Chained]:
    """Chains, longer and longer; raises NoFiniteStartError where L is finite nowhere near."""
    eased = Eased.of(surface, predictors, starts[0])
    slopes = _slopes(surface, eased)
    evaluated = Evaluated(_at_one(slopes))
    summits = [_first(evaluated, eased.inward(starts[0]))]
    signs = tuple(mirrored(evaluated.surface, summits[0].top, predictors))
    for start in starts[1:]:
        try:
            other = _first(evaluated, eased.inward(start))
        except NoFiniteStartError:
            continue
        if not any(_is_one(one, other, bool(signs)) for one in summits):
            summits.append(other)
    best = max(one.top.value for one in summits)
    summits = [one for one in summits if one.top.value > best - BELOW]
    axes = [_run(axes_around(evaluated, one)) for one in summits]
    masses = [o.top.value + np.linalg.slogdet(a)[1] for o, a in zip(summits, axes, strict=True)]
    order = [number for number in np.argsort(masses)[::-1] if masses[number] > max(masses) - COUNTS]
    centres = [(summits[number].top.t, axes[number]) for number in order]
    evaluated.known.clear()
    for chains in walked(slopes, centres, seed, ROUND):
        yield Chained(surface, eased, slopes, chains, signs)


def _at_one(slopes: Slopes) -> Surface:
    """The same as a surface of which a climb asks, which has no solution for z."""

    def at(u: np.ndarray, starts: Sequence[Solved], slope: bool) -> Solved | None:
        del starts, slope
        values, found = slopes(np.repeat(u[None], CHAINS, axis=0))  # compiled for so many
        nothing = np.zeros(0)
        if not (math.isfinite(values[0]) and np.isfinite(found[0]).all()):
            return None
        return Solved(u, float(values[0]), found[0], nothing, nothing, nothing)

    return at


def _slopes(surface: AnySurface, eased: Eased) -> Slopes:
    """L and its slopes at several u: compiled where z is eliminated along a band, or one by one."""
    found = layout(surface)
    if found is not None:
        eliminated = Eliminated(surface.predictors, found, np.zeros(surface.predictors.size))
        return lambda u: eased.moved(u, *eliminated(eased.outward(u)))

    def one_by_one(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, slopes = np.full(len(u), np.nan), np.full(u.shape, np.nan)
        for number, place in enumerate(u):
            solved = eased(place, (), True) if np.isfinite(place).all() else None
            if solved is not None and solved.slope is not None:
                values[number], slopes[number] = solved.value, solved.slope
        return values, slopes

    return one_by_one


def _first(evaluated: Evaluated, start: np.ndarray) -> Summit:
    return _run(climb(evaluated, start))


def _run(phase: Generator[object, None, T]) -> T:
    """What a phase returns."""
    while True:
        try:
            next(phase)
        except StopIteration as end:
            found: T = end.value
            return found


def _is_one(one: Summit, other: Summit, symmetric: bool) -> bool:
    """Whether two climbs came to one summit, or to its mirror image where there are such."""
    if symmetric and abs(one.top.value - other.top.value) < ALIKE:
        return True
    way = np.linalg.solve(one.spread, one.top.t - other.top.t)
    return bool(way @ (one.top.t - other.top.t) < WITHIN**2)


def answered(place: Chained, trace: Trace, stop: Stop, seed: int) -> Answer:
    """The draws of all sites, with the evidence and what the chains say of themselves."""
    chains, one = place.chains, place.surface.predictors
    rng = np.random.default_rng(seed)
    some = chains.draws[:, :: max(1, chains.count // COMPLETED)]  # neighbours say much the same
    t = place.eased.outward(some.reshape(-1, some.shape[2]))
    t = turned_at_random(t, list(place.signs), rng)
    values = completed(place.surface, t, seed)
    count = len(next(iter(values.values())))
    weights = np.full(count, 1.0 / count)

    def on_one_side(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, slopes = place.slopes(u)
        return np.where((u == place.eased.positive(u)).all(axis=1), values, -math.inf), slopes

    known = chains.values, place.mixed.size, BRIDGED
    evidence, error = log_evidence(on_one_side, place.folded, *known)
    evidence += math.log(2.0) * len(place.signs)  # of which the chains have seen one side
    notes: tuple[str, ...] = (
        f"{', '.join(one.theta)} by {place}. The other sites exactly, given each draw.",
    )
    said = ""
    if place.signs:
        names = ", ".join(name for name, _ in place.signs)
        said = (
            f"; the signs of {names} are not told by the data, and draws have either: means near "
            "zero say nothing of them"
        )
        notes = (*notes, f"Log p is the same with the signs of {names} changed.")
    verdict = Verdict("all", f"chains over {', '.join(one.theta)} agree: {place.mixed}{said}")
    if place.flaw:
        verdict = Verdict("nothing", place.flaw, "lb.fit(..., method=lb.Integrated())")
    q = Q(WeightedDraws(), {"values": values, "weights": weights})
    history = History(trace.values, trace.seconds, step="round")
    restarts = (Restart(evidence, len(trace.values), str(stop)),)
    return Answer(q, evidence, history, restarts, error=error, notes=notes, verdict=verdict)

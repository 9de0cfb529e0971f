"""Hyperparameters by chains over L(theta): summits, chains from around them, and how well they mix.

Where points of theta do not foresee each other, or are too many numbers for points at all, chains
need no more of L than its slopes. z given theta is integrated out exactly, so that they go over few
numbers; z is drawn given each of their draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from lowerbound.errors import NoFiniteStartError
from lowerbound.methods.chains.leapfrogs import DRAFTS, Leapfrogs, Slopes
from lowerbound.methods.chains.rounds_of_chains import (
    CHAINS,
    Chains,
    Kernel,
    Mixed,
    Rounds,
    drafted,
    mixed,
)
from lowerbound.methods.chains.units import Units
from lowerbound.methods.hierarchy.by_chains.banded_elimination import Eliminated, layout
from lowerbound.methods.hierarchy.by_chains.bridged_evidence import log_evidence
from lowerbound.methods.hierarchy.by_chains.draws_of_all import completed
from lowerbound.methods.hierarchy.by_chains.eased_scales import Eased
from lowerbound.methods.hierarchy.by_chains.mirrored_signs import mirrored, turned_at_random
from lowerbound.methods.hierarchy.inner.parabolas import AnySurface
from lowerbound.methods.hierarchy.places_of_theta import named
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.standardised import axes_around
from lowerbound.methods.hierarchy.summits.uphill import Evaluated, Summit, climb
from lowerbound.methods.hierarchy.surface import Solved, Surface
from lowerbound.result.answer import Answer, Stop
from lowerbound.run.planned import Trace
from lowerbound.run.walking import Standing, ended

ROUND, MOST_ROUNDS = 50, 20  # draws of each chain, after which it is looked at how they mix
SPREADS = 1.0, 0.5, 0.2, 0.05  # of the axes, around a summit, where chains begin
COMPLETED = 600  # draws of theta, about, for which z is drawn
BRIDGED = 200  # places at which the evidence is found
BELOW = 12.0  # nats, from where on a summit has no mass
COUNTS = 3.0  # nats by which the mass around a summit may be less, for a chain to begin there
WITHIN = 3.0  # sds, where two summits are one
ALIKE = 0.3  # nats between a summit and its mirror image, as climbs leave them
CHEAP = 20_000  # predictors and numbers of z, as chains need thousands of slopes


@dataclass(frozen=True, eq=False)
class Course:
    """What chains go over: u, and L with its slopes. signs: those that the data do not tell."""

    surface: AnySurface
    eased: Eased
    slopes: Slopes
    signs: tuple[tuple[str, np.ndarray], ...]

    def judged(self, chains: Chains) -> Mixed:
        """How well the chains agree, on numbers of theta and on their squares."""
        one = self.surface.predictors
        return mixed(chains, lambda number: named(one, number), self.folded)

    def folded(self, draws: np.ndarray) -> np.ndarray:
        """The draws (c, n, k) with positive scales, on the side of the first where none is told.

        Chains may cross from one side to the other, which says nothing of how well they mix.
        """
        draws = self.eased.positive(draws)
        for _, signs in self.signs:
            way = np.where(signs < 0.0, draws[0, 0], 0.0)
            draws = np.where((draws @ way < 0.0)[..., None], draws * signs, draws)
        return draws


@dataclass(frozen=True, eq=False)
class Chained:
    """Chains over the hyperparameters of a surface."""

    course: Course
    mixed: Mixed

    def answer(self, trace: Trace, stop: Stop, seed: int) -> Answer:
        """The draws of all sites, with the evidence and what the chains say of themselves."""
        course, chains, found = self.course, self.mixed.chains, self.mixed
        theta = ", ".join(course.surface.predictors.theta)
        every = max(1, chains.values.size // COMPLETED)  # neighbours say much the same
        some = chains.draws[:, ::every]
        t = course.eased.outward(some.reshape(-1, some.shape[2]))
        t = turned_at_random(t, list(course.signs), np.random.default_rng(seed))

        def on_one_side(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            values, slopes = course.slopes(u)
            return np.where((u == course.eased.positive(u)).all(axis=1), values, -math.inf), slopes

        known = chains.values, found.mixing.size, BRIDGED
        evidence, error = log_evidence(on_one_side, course.folded(chains.draws), *known)
        evidence += math.log(2.0) * len(course.signs)  # of which the chains have seen one side
        notes = [f"{theta} by {found}. The other sites exactly, given each draw."]
        said = f"chains over {theta} agree: {found.mixing}"
        if course.signs:
            names = ", ".join(name for name, _ in course.signs)
            said += (
                f"; the signs of {names} are not told by the data, and draws have either: means "
                "near zero say nothing of them"
            )
            notes.append(f"Log p is the same with the signs of {names} changed.")
        return found.answer(
            completed(course.surface, t, seed),
            (evidence, error),
            trace,
            stop,
            said=said,
            notes=notes,
            cure="lb.fit(..., method=lb.Integrated())",
        )


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
    surface: AnySurface, predictors: Predictors, starts: Sequence[np.ndarray], seed: int, code: str
) -> Iterator[Standing[Chained]]:
    """Chains, longer and longer; raises NoFiniteStartError where L is finite nowhere near.

    code: what would let them go on.
    """
    eased = Eased.of(surface, predictors, starts[0])
    slopes = _slopes(surface, eased)
    evaluated = Evaluated(_at_one(slopes))
    summits = [ended(climb(evaluated, eased.inward(starts[0])))]
    signs = tuple(mirrored(evaluated.surface, summits[0].top, predictors))
    for start in starts[1:]:
        try:
            other = ended(climb(evaluated, eased.inward(start)))
        except NoFiniteStartError:
            continue
        if not any(_is_one(one, other, bool(signs)) for one in summits):
            summits.append(other)
    best = max(one.top.value for one in summits)
    summits = [one for one in summits if one.top.value > best - BELOW]
    axes = [ended(axes_around(evaluated, one)) for one in summits]
    masses = [o.top.value + np.linalg.slogdet(a)[1] for o, a in zip(summits, axes, strict=True)]
    order = [number for number in np.argsort(masses)[::-1] if masses[number] > max(masses) - COUNTS]
    centres = [(summits[number].top.t, axes[number]) for number in order]
    evaluated.known.clear()
    course = Course(surface, eased, slopes, signs)
    rounds = Rounds(ROUND, MOST_ROUNDS, course.judged, code)
    for here in rounds.walk(*begun(slopes, centres, seed)):
        yield Standing(Chained(course, here.place), stop=here.stop)


def begun(
    slopes: Slopes, centres: Sequence[tuple[np.ndarray, np.ndarray]], seed: int
) -> tuple[Kernel, np.ndarray, Units]:
    """What makes rounds, where its chains are after drafts, and their units.

    They begin around summits in turn, each with axes (k, k), so that those which stay at theirs do
    not agree.
    """
    rng = np.random.default_rng(seed)
    chosen = [centres[number % len(centres)] for number in range(CHAINS)]
    k = len(centres[0][0])
    u = np.stack([centre for centre, _ in chosen])
    for spread in SPREADS:  # as far away as all of them have a value
        there = u + spread * np.stack([axes @ rng.normal(size=k) for _, axes in chosen])
        if all(np.isfinite(array).all() for array in slopes(there)):
            u = there
            break
    kernel = Leapfrogs(slopes, 0.9 * k**-0.25, rng)
    return kernel, *drafted(kernel, u, Units(*centres[0]), DRAFTS)


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


def _is_one(one: Summit, other: Summit, symmetric: bool) -> bool:
    """Whether two climbs came to one summit, or to its mirror image where there are such."""
    if symmetric and abs(one.top.value - other.top.value) < ALIKE:
        return True
    way = np.linalg.solve(one.spread, one.top.t - other.top.t)
    return bool(way @ (one.top.t - other.top.t) < WITHIN**2)

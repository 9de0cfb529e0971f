"""Newton's steps over fixed draws with a sparse precision, for many dimensions."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lowerbound.ascent.bordered import diagonal
from lowerbound.ascent.newton_step import Aim, Precision, aim
from lowerbound.bound.draws import draw_seed
from lowerbound.bound.fixed_draws import smooth
from lowerbound.bound.many_draws import many_draws
from lowerbound.bound.restricted import Restricted, restricted
from lowerbound.cost import allowance
from lowerbound.methods.gaussian.climbing.climbs import starts_of
from lowerbound.methods.gaussian.climbing.over_draws import AGREED, COARSE
from lowerbound.methods.gaussian.climbing.starts import WITHIN, at_fault, improper
from lowerbound.methods.gaussian.sparse.curvature import second_derivatives
from lowerbound.methods.gaussian.sparse.sparsity import Sparsity, curvature_work, work
from lowerbound.methods.gaussian.target import Target
from lowerbound.methods.gaussian.unconstrained_methods import GaussianMethod
from lowerbound.run.walking import ended

CONVERGED = "converged"
STAGES = (32, 128, 512)  # draws, until fresh ones agree
MEASURE, DEAR_MEASURE = 128, 64  # fresh draws that measure the answer, at least
CURVED = 4  # one in so many draws has its second derivatives computed
FEW, ENOUGH = 32, 32  # directions that cost little, and the draws for them in any case
DEAR = 1e8  # operations of one step that are felt
WIDTH = 0.1  # of the first draws
DEAR_STARTS, ROUGHLY = 2, 1.0  # starts, and standard deviations, where few draws are dear
RACE, FIRST, TURNS = 8, 2, 25  # draws of the starts, steps of all of them, and of the best
REACH = 3.0  # how far the mean may move at first, in standard deviations, by dimension
_NOISE = 1.0  # standard errors by which the ELBO may seem to fall
_TURN, _STRAIGHT = 0.3, 0.9  # cosines between one step and the next
_LONGEST = 16.0
_NEAR = 0.3  # standard deviations: so near, what is solved for is that nothing moves
_SMALLEST_STEP = 1e-6
_FAR = 1e7  # standard deviations of a proper posterior stay below


@dataclass(frozen=True, eq=False)
class Place:
    """A Gaussian with its averages over some draws, and where its full step leads."""

    loc: np.ndarray  # in the order of the sparsity
    precision: Precision
    ratios: np.ndarray  # log p - log q at the draws, up to what is the same for all Gaussians
    ahead: Aim | None

    @property
    def elbo(self) -> float:
        """The average over the draws."""
        return float(np.mean(self.ratios)) if np.isfinite(self.ratios).all() else -np.inf

    @property
    def error(self) -> float:
        """The largest change of a mean or a scale that the full step would make."""
        return np.inf if self.ahead is None else self.ahead.error


@dataclass(frozen=True, eq=False)
class Course:
    """Newton's steps over fixed draws: where they came to, how far, and why they stopped."""

    place: Place
    first: float  # the error at the start
    steps: int
    reason: str


def measured(surface: Surface, place: Place, size: int, seed: int) -> Restricted:
    """The ELBO over fresh draws."""
    size = max(size, DEAR_MEASURE if surface.dear else MEASURE)
    draws = many_draws(size, len(place.loc), draw_seed(seed, len(STAGES)))
    vectors = surface.vectors(place.loc, place.precision, draws)
    ratios = _ratios(surface.target(vectors)[0], place.precision, draws)
    # The two draws of a pair are not independent.
    return restricted(ratios, lambda draw: at_fault(surface.target, vectors[draw], WITHIN), True)


@dataclass(frozen=True, eq=False)
class Surface:
    """Log p in the order of a sparsity."""

    target: Target
    sparsity: Sparsity

    @property
    def dear(self) -> bool:
        """Whether second derivatives cost much, and much more than gradients."""
        sparsity = self.sparsity
        spent = work(sparsity.border, sparsity.local, sparsity.width)
        spent += curvature_work(self.target, sparsity.count)
        return sparsity.count > FEW and spent > DEAR

    def vectors(self, loc: np.ndarray, precision: Precision, draws: np.ndarray) -> np.ndarray:
        """The points u of some draws."""
        found = np.empty(draws.shape)
        found[:, self.sparsity.order] = precision.points(loc, draws)
        return found

    def at(self, loc: np.ndarray, precision: Precision, draws: np.ndarray) -> Place:
        """The averages of a Gaussian over some draws; nothing is ahead where log p is infinite."""
        vectors = self.vectors(loc, precision, draws)
        values, gradients = self.target(vectors)
        ratios = _ratios(values, precision, draws)
        place = Place(loc, precision, ratios, None)
        slope = smooth(values, gradients).mean(axis=0)[self.sparsity.order]
        if not np.isfinite(ratios).all() or not np.isfinite(slope).all():
            return place
        some = vectors[: max(2 if self.dear else ENOUGH, len(vectors) // CURVED // 2 * 2)]
        sparsity = self.sparsity
        products = second_derivatives(self.target, sparsity.groups, sparsity.directions, some)
        if not np.isfinite(products).all():
            return place
        return replace(place, ahead=aim(precision, slope, sparsity.read(-products)))


def _ratios(values: np.ndarray, precision: Precision, draws: np.ndarray) -> np.ndarray:
    """Log p - log q at some draws."""
    ratios = values + precision.entropy() + 0.5 * np.sum(draws**2, axis=1)
    return np.asarray(ratios - 0.5 * draws.shape[1])


def ascend(
    surface: Surface,
    draws: np.ndarray,
    start: Place,
    tolerance: float,
    limit: int,
    share: float = 0.0,
) -> Generator[Place, None, Course]:
    """Newton's steps over some draws until the next one would be within the tolerance.

    A step is refused when the ELBO falls by more than its noise, for over few draws -H is not
    exactly where the average of log p - log q rises to; a refused step is tried shorter.
    """
    place = surface.at(start.loc, start.precision, draws)
    first, step, reach, settled = place.error, 1.0, REACH * len(place.loc) ** 0.5, False
    goal = max(tolerance, share * min(first, AGREED))
    for number in range(limit):
        if place.error <= goal:
            if settled:
                return Course(place, first, number, CONVERGED)
            step = 1.0  # one more, for a step that was too long may stop where the next would not
        settled = place.error <= goal
        if place.ahead is None:
            # No draw was finite, or none is curved: draws closer to the centre.
            closer = place.precision.matrix.mixed(place.precision.matrix, 0.0)
            tight = Precision.of(type(closer)(*(16.0 * part for part in closer)))
            if tight is None or step < _SMALLEST_STEP:
                return Course(place, first, number, "no step raises the ELBO")
            step *= 0.25
            place = surface.at(place.loc, tight, draws)
            continue
        ahead = place.ahead
        shrunk = step * min(1.0, reach / max(step * ahead.length, 1e-300))
        matrix = place.precision.matrix.mixed(ahead.precision.matrix, step)
        moved = ahead.precision if step == 1.0 else Precision.of(matrix)
        trial = None
        if moved is not None:
            trial = surface.at(place.loc + shrunk * ahead.move, moved, draws)
        if trial is not None and _accepted(place, trial):
            reach = max(reach, 4.0 * shrunk * ahead.length)
            assert trial.ahead is not None
            # Steps that swing from side to side are shortened. Those that go on the same way,
            # as along an exponential, are too short.
            turn = ahead.agreement(trial.ahead)
            most = _LONGEST if turn > _STRAIGHT and trial.error > 0.5 * place.error else 1.0
            longer = 2.0 * step if turn > _TURN else step
            step = max(0.1, 0.5 * step) if turn < -_TURN else min(most, longer)
            place = trial
        else:
            step, reach = 0.25 * min(step, 4.0), max(1.0, 0.25 * shrunk * ahead.length)
            if step < _SMALLEST_STEP:
                return Course(place, first, number, "no step raises the ELBO")
        yield place
        if allowance().over:
            return Course(place, first, number, allowance().reason)
    return Course(place, first, limit, f"{limit} iterations")


def _accepted(before: Place, after: Place) -> bool:
    """Whether the ELBO rises but for its noise, or a place near the optimum is nearer to it."""
    if after.ahead is None:
        return False
    if after.error < min(before.error, _NEAR):
        return True
    change = after.ratios - before.ratios
    slack = 1e-12 * (1.0 + abs(before.elbo))
    return bool(change.mean() >= -_NOISE * change.std() / len(change) ** 0.5 - slack)


def race(
    surface: Surface, method: GaussianMethod, seed: int
) -> Generator[Place, None, list[Course]]:
    """A few steps from every start, then the best one or two until they come to rest."""
    target, sparsity = surface.target, surface.sparsity
    draws = many_draws(RACE // 2 if surface.dear else RACE, target.size, draw_seed(seed, 99))
    flat = Precision.of(diagonal(np.full(target.size, WIDTH**-2), sparsity.width, sparsity.border))
    assert flat is not None
    rows, goal = starts_of(target, method, seed), COARSE
    if surface.dear:
        highest = np.argsort(-target(rows)[0], kind="stable")
        rows, goal = rows[highest[:DEAR_STARTS]], ROUGHLY
    courses: list[Course] = []
    for row in rows:
        start = Place(row[sparsity.order], flat, np.full(len(draws), -np.inf), None)
        courses.append(ended(ascend(surface, draws, start, goal, FIRST)))
        yield best_of(courses).place
    courses.sort(key=lambda course: -course.place.elbo)
    for number, course in enumerate(courses[: 1 if surface.dear else 2]):
        if course.reason != CONVERGED:
            longer = ended(ascend(surface, draws, course.place, goal, TURNS))
            courses[number] = replace(longer, steps=course.steps + longer.steps)
            yield best_of(courses).place
    return courses


def best_of(courses: Sequence[Course]) -> Course:
    """The course that is kept."""
    return max(courses, key=lambda course: course.place.elbo)


def parameters(sparsity: Sparsity, place: Place, rank: str | int) -> dict[str, np.ndarray]:
    """The parameters of the Gaussian on the unconstrained space."""
    order, root = sparsity.order, place.precision.root
    loc = np.empty(len(order))
    loc[order] = place.loc
    if rank == "structured":
        deviations = np.empty(len(order))
        deviations[order] = place.precision.deviations
        return {
            "loc": loc,
            "order": order.astype(np.int32),
            "band": root.band,
            "border": root.border,
            "corner": root.corner,
            "variance": deviations**2,
        }
    inverse = place.precision.points(np.zeros(len(order)), np.eye(len(order)))
    covariance = np.empty((len(order),) * 2)
    covariance[np.ix_(order, order)] = inverse.T @ inverse
    return {"loc": loc, "scale_tril": np.linalg.cholesky(covariance)}


def check_proper(target: Target, sparsity: Sparsity, place: Place) -> None:
    """Raise where a Gaussian has run off."""
    deviations = place.precision.deviations
    far = np.flatnonzero(~(np.maximum(deviations, np.abs(place.loc)) < _FAR))
    if len(far):
        entries = sparsity.order[far[np.argsort(-deviations[far], kind="stable")]]
        raise improper(target, entries[:5].tolist())

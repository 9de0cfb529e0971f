"""The engine of many dimensions with fixed draws: Newton's steps with a sparse precision."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lowerbound.ascent.bordered import diagonal
from lowerbound.ascent.newton_step import Aim, Precision, aim
from lowerbound.bound.fixed_draws import smooth
from lowerbound.bound.many_draws import many_draws
from lowerbound.bound.restricted import Restricted, restricted
from lowerbound.cost import allowance
from lowerbound.methods.gaussian.climbs import GaussianRestart, Solution, Watch, draw_seed
from lowerbound.methods.gaussian.curvature import second_derivatives
from lowerbound.methods.gaussian.engines import AGREED, COARSE, LIMIT, SHARE, starts_of
from lowerbound.methods.gaussian.sparsity import Sparsity, curvature_work, work
from lowerbound.methods.gaussian.starts import WITHIN, at_fault, improper
from lowerbound.methods.gaussian.target import Target
from lowerbound.methods.gaussian.unconstrained_methods import UnconstrainedMethod

STAGES = (32, 128, 512)  # draws, until fresh ones agree
DEAR_LIMIT = 8  # iterations for one set of draws, where second derivatives are dear
MEASURE, DEAR_MEASURE = 128, 64  # fresh draws that measure the answer, at least
CURVED = 4  # one in so many draws has its second derivatives computed
FEW, ENOUGH = 32, 32  # directions that cost little, and the draws for them in any case
DEAR = 2e7  # operations of one step that are felt
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
class Walk:
    """Newton's steps over fixed draws: where they came to, how far, and why they stopped."""

    place: Place
    first: float  # the error at the start
    steps: int
    reason: str


def solve_newton(
    target: Target,
    method: UnconstrainedMethod,
    rank: str | int,
    seed: int,
    watch: Watch,
    sparsity: Sparsity,
    walks: list[Walk] | None = None,
) -> Solution:
    """Newton's steps over few draws from the best start, then over more until fresh ones agree.

    `walks` are those over few draws, where they have been made.
    """
    surface = Surface(target, sparsity)
    walks = walks or race(surface, method, seed)
    best = max(walks, key=lambda walk: walk.place.elbo)
    watch.note(best.place.elbo)
    place, walk = best.place, best
    sizes: tuple[int, ...] = STAGES[:2] if surface.dear else STAGES
    if method.draws is not None:
        sizes = (max(2, method.draws + method.draws % 2),)
    tolerance, size = method.tolerance, sizes[0]
    for stage, size in enumerate(sizes):
        draws = many_draws(size, target.size, draw_seed(seed, stage))
        coarse = AGREED if surface.dear else COARSE
        goal = max(method.tolerance, coarse if stage == 0 and len(sizes) > 1 else 0.0)
        limit = DEAR_LIMIT if surface.dear else LIMIT
        walk = ascend(surface, draws, place, goal, limit, watch, SHARE if stage else 0.0)
        place = walk.place
        if (stage and walk.first <= AGREED) or (surface.dear and walk.reason != "converged"):
            break
        if allowance().over:
            break
    _check_proper(target, sparsity, place)
    converged = place.error <= AGREED
    reason = walk.reason if not converged else (
        f"mean and scale within {max(tolerance, place.error):.2g} standard deviations"
    )  # fmt: skip
    restarts = tuple(GaussianRestart(w.place.elbo, w.steps, w.reason) for w in walks)
    return Solution(
        parameters(sparsity, place, rank),
        size,
        converged,
        reason,
        restarts,
        measured=measured(surface, place, size, seed),
    )


def measured(surface: Surface, place: Place, size: int, seed: int) -> tuple[Restricted, float]:
    """The ELBO over fresh draws, and how far these draws would move q."""
    size = max(size, DEAR_MEASURE if surface.dear else MEASURE)
    draws = many_draws(size, len(place.loc), draw_seed(seed, len(STAGES)))
    fresh = surface.at(place.loc, place.precision, draws)

    def why(draw: int) -> list[str]:
        vector = surface.vectors(place.loc, place.precision, draws[draw : draw + 1])[0]
        return at_fault(surface.target, vector, WITHIN)

    # The two draws of a pair are not independent.
    return restricted(fresh.ratios, why, pairs=True), fresh.error


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
        spent += curvature_work(sparsity, self.target)
        return sum(map(len, sparsity.directions)) > FEW and spent > DEAR

    def vectors(self, loc: np.ndarray, precision: Precision, draws: np.ndarray) -> np.ndarray:
        """The points u of some draws."""
        found = np.empty(draws.shape)
        found[:, self.sparsity.order] = precision.points(loc, draws)
        return found

    def at(self, loc: np.ndarray, precision: Precision, draws: np.ndarray) -> Place:
        """The averages of a Gaussian over some draws; nothing is ahead where log p is infinite."""
        vectors = self.vectors(loc, precision, draws)
        values, gradients = self.target(vectors)
        ratios = values + precision.entropy() + 0.5 * np.sum(draws**2, axis=1)
        ratios = ratios - 0.5 * draws.shape[1]
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


def ascend(
    surface: Surface,
    draws: np.ndarray,
    start: Place,
    tolerance: float,
    limit: int,
    watch: Watch | None = None,
    share: float = 0.0,
) -> Walk:
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
                return Walk(place, first, number, "converged")
            step = 1.0  # one more, for a step that was too long may stop where the next would not
        settled = place.error <= goal
        if place.ahead is None:
            # No draw was finite, or none is curved: draws closer to the centre.
            closer = place.precision.matrix.mixed(place.precision.matrix, 0.0)
            tight = Precision.of(type(closer)(*(16.0 * part for part in closer)))
            if tight is None or step < _SMALLEST_STEP:
                return Walk(place, first, number, "no step raises the ELBO")
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
                return Walk(place, first, number, "no step raises the ELBO")
        if watch is not None:
            watch.note(place.elbo)
        if allowance().over:
            return Walk(place, first, number, allowance().reason)
    return Walk(place, first, limit, f"{limit} iterations")


def _accepted(before: Place, after: Place) -> bool:
    """Whether the ELBO rises but for its noise, or a place near the optimum is nearer to it."""
    if after.ahead is None:
        return False
    if after.error < min(before.error, _NEAR):
        return True
    change = after.ratios - before.ratios
    slack = 1e-12 * (1.0 + abs(before.elbo))
    return bool(change.mean() >= -_NOISE * change.std() / len(change) ** 0.5 - slack)


def race(surface: Surface, method: UnconstrainedMethod, seed: int) -> list[Walk]:
    """A few steps from every start, then the best one or two until they come to rest."""
    target, sparsity = surface.target, surface.sparsity
    draws = many_draws(RACE // 2 if surface.dear else RACE, target.size, draw_seed(seed, 99))
    flat = Precision.of(diagonal(np.full(target.size, WIDTH**-2), sparsity.width, sparsity.border))
    assert flat is not None
    rows, goal = starts_of(target, method, seed), COARSE
    if surface.dear:
        highest = np.argsort(-target(rows)[0], kind="stable")
        rows, goal = rows[highest[:DEAR_STARTS]], ROUGHLY
    walks = []
    for row in rows:
        start = Place(row[sparsity.order], flat, np.full(len(draws), -np.inf), None)
        walks.append(ascend(surface, draws, start, goal, FIRST))
    walks.sort(key=lambda walk: -walk.place.elbo)
    for number, walk in enumerate(walks[: 1 if surface.dear else 2]):
        if walk.reason != "converged":
            longer = ascend(surface, draws, walk.place, goal, TURNS)
            walks[number] = replace(longer, steps=walk.steps + longer.steps)
    return walks


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


def _check_proper(target: Target, sparsity: Sparsity, place: Place) -> None:
    deviations = place.precision.deviations
    far = np.flatnonzero(~(np.maximum(deviations, np.abs(place.loc)) < _FAR))
    if len(far):
        entries = sparsity.order[far[np.argsort(-deviations[far], kind="stable")]]
        raise improper(target, entries[:5].tolist())

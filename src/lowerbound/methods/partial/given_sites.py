"""A Gaussian over some sites and exact factors of the others, planned for a problem: q(g) q(z)."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from numpyro.distributions import biject_to

from lowerbound.ascent import State
from lowerbound.bound.draws import draw_seed
from lowerbound.bound.restricted import Restricted, restricted
from lowerbound.cost import allowance
from lowerbound.errors import ImproperFactorError, NoFiniteBoundError
from lowerbound.family.densities.product import Product
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.family.q import Q
from lowerbound.joint import inputs_of
from lowerbound.methods.coordinate.begin import assignments, check_components, given_values
from lowerbound.methods.coordinate.start import chances
from lowerbound.methods.gaussian.climbing.climbs import Start
from lowerbound.methods.gaussian.climbing.over_draws import AGREED, MOST_STAGES, SHARE, draw_sizes
from lowerbound.methods.gaussian.climbing.starts import WIDTH
from lowerbound.methods.gaussian.reached import table
from lowerbound.methods.gaussian.unconstrained_methods import FULL_BELOW, Gaussian
from lowerbound.methods.partial.given_program import given_sites
from lowerbound.methods.partial.in_turn import (
    SETTLED,
    Alternating,
    Place,
    data_without,
    fixed_draws,
    one_round,
    restarted,
    settled,
)
from lowerbound.model import Model
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.plan import Plan, make_plan, plan_of_gaussian
from lowerbound.result.posterior import History
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.run.check_input import check_observed_variance
from lowerbound.run.planned import Trace
from lowerbound.run.problem import Problem
from lowerbound.run.walking import Standing, Walking

ROUNDS = 500  # for one set of draws
RACE = 5  # rounds after which the lower half of the starts is dropped
RACE_DRAWS = 64
RACED = 0.4  # of what a fit may take: after that the best start goes on alone
COARSE = 1e-6  # relative change of the ELBO at which the first draws have done their part
MEASURE = 1024
SEPARATE = [128, 512]  # draws, where blocks are independent: noise does not grow with their number
WIDEST, MOST_DENSE = 20, 2000  # entries of a block; of u where blocks are kept as one matrix


class Placed(NamedTuple):
    """Where the run stands, and the record of its starts."""

    place: Place
    starts: tuple[Start, ...] = ()


class PartlyGaussian(Walking[Placed]):
    """Rounds of exact updates and of steps of the Gaussian, over few draws, then over more."""

    unit, total = "round", ROUNDS

    def __init__(self, problem: Problem, sites: tuple[str, ...], method: Gaussian) -> None:
        self.problem, self.sites, self.method = problem, sites, method
        check_observed_variance(problem.model)
        given_values(problem.model, method)
        given, self.given = given_sites(problem.model, sites, *problem.call)
        seeded = assignments(given.engine, self.given)
        check_components(given.engine, self.given, seeded)
        inputs = data_without(inputs_of(self.given), given.coordinates.shapes)
        self.turns = Alternating(given, inputs, seeded)
        self.block = block_size(method, given.coordinates)
        self.sizes = draw_sizes(method, self.block or self.turns.size)
        if self.block and method.draws is None:
            self.sizes = SEPARATE
        self.plan = self._plan()

    def walk(self) -> Iterator[Standing[Placed]]:
        """A race of the starts; then rounds of the best until nothing moves."""
        places = yield from self._race()
        starts = tuple(Start(p.elbo, p.rounds, "stopped: below another start") for p in places)
        place, done, seed = places[0], False, self.problem.seed
        for stage, size in enumerate(self.sizes):
            draws = fixed_draws(size, self.turns.size, self.block, draw_seed(seed, stage))
            coarse = stage == 0 and len(self.sizes) > 1
            place, first, aim = restarted(place), math.inf, self.method.tolerance
            for number in range(ROUNDS):
                before = place
                place = one_round(self.turns, draws, place, self.method.tolerance)
                if number == 0:
                    first = place.error
                    # More draws move the answer of the first ones anyway, and fresh ones that of
                    # these.
                    later = SHARE * min(first, AGREED) if stage else 0.0
                    aim = max(aim, AGREED if coarse else later)
                done = settled(before, place, aim, COARSE if coarse else SETTLED)
                yield Standing(Placed(place, starts), place.elbo)
                if done or allowance().over:
                    break
            if (stage and first <= AGREED) or allowance().over:
                break
        yield Standing(Placed(place, starts), stop=self._stop(done))

    def answer(self, place: Placed, trace: Trace, stop: Stop) -> Answer:
        """The Gaussian and the factors, with their ELBO over fresh draws."""
        here, starts = place
        given, model = self.turns.given, self.problem.model
        given.engine.certified()
        _check_proper(self.turns, here.state)
        bound = _measured(self.turns, here, self.problem.seed)
        gaussian = UnconstrainedGaussian(given.coordinates, {})
        parameters = {"gaussian": _gaussian(here), "exact": here.state.naturals}
        return Answer(
            Q(Product(tuple(model.latent), gaussian, given.engine.family), parameters),
            bound.elbo,
            History(trace.values, trace.seconds, step="round"),
            table(starts, bound.elbo, here.rounds, stop),
            error=bound.error,
            notes=bound.notes,
        )

    def _race(self) -> Generator[Standing[Placed], None, list[Place]]:
        """Ascend from several starts, over few draws; the lower half drops out again and again.

        The best comes first.
        """
        size = self.turns.size
        least = RACE_DRAWS if self.block else max(RACE_DRAWS, 2 * size + 2)
        seed = draw_seed(self.problem.seed, MOST_STAGES + 1)
        draws = fixed_draws(least, size, self.block, seed)
        problem, method = self.problem, self.method
        running = begin_places(self.turns, problem.model, method, problem.seed)
        tried = len(running)
        dropped: list[Place] = []
        while True:
            for number, place in enumerate(running):
                running[number] = _some_rounds(self.turns, draws, place, method.tolerance)
                best = max(running[: number + 1], key=_height)
                if np.isfinite(best.elbo):
                    yield Standing(Placed(best))
            running = sorted(running, key=_height, reverse=True)
            if not np.isfinite(running[0].elbo):
                raise NoFiniteBoundError(tried)
            if len(running) == 1:
                return [*running, *dropped]
            kept = len(running) // 2 if allowance().spent < RACED else 1
            running, dropped = running[:kept], [*running[kept:], *dropped]

    def _stop(self, done: bool) -> Stop:
        if done:
            return Stop(True, "ELBO, mean and scale have settled")
        if allowance().over:
            return Stop(False, allowance().reason, allowance().remedy(f"lb.Over({self.sites!r})"))
        elsewhere = f"lb.Over({self.sites!r}, lb.Gaussian(init=...))"
        remedy = f"Loosen tolerance, or start elsewhere with {elsewhere}."
        return Stop(False, f"{ROUNDS} rounds", remedy)

    def _plan(self) -> Plan:
        """Exact rows of the program given the sites, and the rows of the Gaussian."""
        given = self.turns.given
        family = f"Gaussian ({_shape_text(self.block)}, d = {given.coordinates.size})"
        residuals = self.problem.joint.structure.residuals
        whole = plan_of_gaussian(self.problem.model, family, residuals)
        exact = {row.site: row for row in make_plan(self.given, given.engine.joint).rows}
        names = "+".join(given.coordinates.shapes)
        rows = tuple(
            replace(exact[row.site], scope=row.scope)
            if row.site in exact
            else replace(row, block=names)
            for row in whole.rows
        )
        listed = ", ".join(given.coordinates.shapes)
        return replace(whole, method=f"Gaussian of {listed}, exact factors of the rest", rows=rows)


def block_size(method: Gaussian, coordinates: Coordinates) -> int:
    """How many entries of u are dependent under q: 0 for all of them, 1 for none.

    A site of many vectors in plates, too many for a full covariance, has one for each vector.
    """
    size = coordinates.size
    if method.rank == "full" or (method.rank == "auto" and size <= FULL_BELOW):
        return 0
    if method.rank == "diagonal" or len(coordinates.shapes) > 1 or size > MOST_DENSE:
        return 1
    ((name, shape),) = coordinates.shapes.items()
    event = biject_to(coordinates.supports[name]).domain.event_dim
    entries = math.prod(shape[len(shape) - event :])
    return entries if entries <= WIDEST else 1


def _shape_text(block: int) -> str:
    return {0: "full", 1: "diagonal"}.get(block, f"blocks of {block}")


# --------------------------------------------------------------------------------------------------
# Rounds and starts


def _some_rounds(turns: Alternating, draws: np.ndarray, place: Place, tolerance: float) -> Place:
    for _ in range(RACE):
        before, place = place, one_round(turns, draws, place, tolerance)
        if not np.isfinite(place.elbo) or settled(before, place, tolerance, COARSE):
            break
        if allowance().spent > RACED:
            break
    return place


def _height(place: Place) -> float:
    return float(np.nan_to_num(place.elbo, nan=-np.inf))


def begin_places(turns: Alternating, model: Model, method: Gaussian, seed: int) -> list[Place]:
    """The starts: a narrow Gaussian about a point, and the factors given that point."""
    block = block_size(method, turns.given.coordinates) or turns.size
    root = np.stack([np.eye(block) * WIDTH] * (turns.size // block))
    root = root[0] if block == turns.size else root
    values = given_values(model, method)
    own = {n: v for n, v in values.items() if n in turns.given.coordinates.shapes}
    rest = {n: v for n, v in values.items() if n not in own}
    engine = turns.given.engine
    chance = chances(engine, seed, method.starts, "auto", turns.seeded)
    places = []
    for number, loc in enumerate(starting_points(turns, model, method.starts, seed, own)):
        arrays = turns.averages(loc[None])
        one = jax.tree.map(lambda a, n=number: a[n], chance)
        state = turns.first(arrays, one, "auto", rest)
        state, _, _ = turns.sweeps(arrays, state)
        places.append(Place(loc, root, state))
        if allowance().spent > RACED / 2:
            break  # where one start takes long, few are affordable
    return places


def starting_points(
    turns: Alternating, model: Model, count: int, seed: int, given: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Rows u: the centre of the prior, zero, then points of the prior and of U(-1, 1) in turn.

    All have the given values.
    """
    coordinates = turns.given.coordinates
    rng = np.random.default_rng(abs(seed))
    rows = rng.uniform(-1.0, 1.0, (max(count, 2), turns.size))
    normal = rng.standard_normal(rows.shape)
    rows[1], normal[0] = 0.0, 0.0
    prior = turns.prior(model, normal[::2])
    rows[::2] = np.where(np.isfinite(prior), prior, rows[::2])
    for name, value in given.items():
        inverse = biject_to(coordinates.supports[name]).inv
        rows[:, coordinates.part(name)] = np.ravel(inverse(jax.numpy.asarray(value)))
    return rows[:count]


def _gaussian(place: Place) -> dict[str, np.ndarray]:
    """The parameters of the Gaussian, as its family has them."""
    root = place.root
    if root.ndim == 2:
        return {"loc": place.loc, "scale_tril": root}
    count, block, _ = root.shape
    if block == 1:
        return {"loc": place.loc, "scale": root[:, 0, 0]}
    whole = np.einsum("rij,rs->risj", root, np.eye(count)).reshape((count * block,) * 2)
    return {"loc": place.loc, "scale_tril": whole}


def _measured(turns: Alternating, place: Place, seed: int) -> Restricted:
    """The ELBO over fresh draws."""
    count = max(place.draws, MEASURE)
    block = 0 if place.root.ndim == 2 else place.root.shape[-1]
    fresh = fixed_draws(count, turns.size, block, draw_seed(seed, MOST_STAGES))
    values, _ = turns.densities(fresh, place.loc, place.root, place.state.means)
    arrays = turns.fixed()
    family = turns.given.engine.family
    entropy = sum(
        float(family.entropy(place.state.naturals, place.state.means, arrays, number))
        for number in range(len(family.blocks))
    )
    scales = np.diagonal(place.root, axis1=-2, axis2=-1)
    entropy += 0.5 * turns.size * math.log(2 * math.pi) + float(np.log(np.abs(scales)).sum())
    return restricted(values + 0.5 * np.sum(fresh**2, axis=1) + entropy)


def _check_proper(turns: Alternating, state: State) -> None:
    """Every exact factor must be a proper density; name the site whose factor is not."""
    family = turns.given.engine.family
    for block, fine in zip(family.blocks, family.proper(state.naturals), strict=True):
        if not fine:
            raise ImproperFactorError(block.sites)

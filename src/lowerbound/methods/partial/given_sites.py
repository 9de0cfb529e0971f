"""`fit` by a Gaussian over some sites and exact factors of the others: q(g) q(z)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpyro.distributions import biject_to

from lowerbound.ascent import State
from lowerbound.bound.restricted import Restricted, restricted
from lowerbound.compute.engine import derived
from lowerbound.compute.threads import one_thread
from lowerbound.compute.versions import versions
from lowerbound.cost import allowance
from lowerbound.errors import (
    ConvergenceWarning,
    ImproperFactorError,
    NoFiniteBoundError,
)
from lowerbound.family.densities.product import Product
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.joint import inputs_of
from lowerbound.methods.coordinate.begin import assignments, check_components, given_values
from lowerbound.methods.coordinate.start import chances
from lowerbound.methods.gaussian.climbs import Watch, draw_seed
from lowerbound.methods.gaussian.engines import AGREED, MOST_STAGES, SHARE, draw_sizes
from lowerbound.methods.gaussian.starts import WIDTH
from lowerbound.methods.gaussian.target import target_for
from lowerbound.methods.gaussian.wide import wide_for
from lowerbound.methods.gaussian_value import FULL_BELOW, Gaussian
from lowerbound.methods.partial.given_program import given_sites
from lowerbound.methods.partial.in_turn import (
    SETTLED,
    Place,
    Problem,
    data_without,
    fixed_draws,
    one_round,
    restarted,
    settled,
)
from lowerbound.model import Model, trace_model
from lowerbound.result.fitted import Fit, site_records
from lowerbound.result.plan import Plan, make_plan, plan_of_gaussian
from lowerbound.result.posterior import History, Restart
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.run.bar import Bar
from lowerbound.run.check_input import check_observed_variance

ROUNDS = 500  # for one set of draws
RACE = 5  # rounds after which the lower half of the starts is dropped
RACE_DRAWS = 64
RACED = 0.4  # of what a fit may take: after that the best start goes on alone
COARSE = 1e-6  # relative change of the ELBO at which the first draws have done their part
MEASURE = 1024
SEPARATE = [128, 512]  # draws, where blocks are independent: noise does not grow with their number
WIDEST, MOST_DENSE = 20, 2000  # entries of a block; of u where blocks are kept as one matrix


def fit_given_sites(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: Gaussian,
    seed: int,
    progress: bool | None,
) -> Fit:
    """A Gaussian over `method.sites`, and coordinate updates of all other sites."""
    with jax.enable_x64(True), np.errstate(all="ignore"), one_thread():
        model = trace_model(function, args, kwargs)
        check_observed_variance(model)
        plan = explain_given_sites(model, args, kwargs, method)
        given, program = given_sites(model, method.sites, args, kwargs)
        seeded = assignments(given.engine, program)
        check_components(given.engine, program, seeded)
        inputs = data_without(inputs_of(program), given.coordinates.shapes)
        problem = Problem(given, inputs, seeded)
        with Bar(progress, ROUNDS, "Gaussian and exact factors", "round") as bar:
            watch = Watch(bar)
            places = race(problem, model, program, method, seed)
            place, size, converged = _ascend(problem, places[0], method, seed, watch)
        given.engine.certified()
        _check_proper(problem, place.state)
        bound = _measured(problem, place, size, seed)
    reason = "ELBO, mean and scale have settled" if converged else f"{ROUNDS} rounds"
    if not converged:
        remedy = "Loosen tolerance, or start elsewhere with lb.Gaussian(sites=..., init=...)."
        if allowance().over:
            reason = allowance().reason
            remedy = allowance().remedy(f"Gaussian(sites={tuple(method.sites)})")
        warnings.warn(ConvergenceWarning(reason, remedy), stacklevel=3)
    gaussian = UnconstrainedGaussian(given.coordinates, {})
    parameters = {"gaussian": _gaussian(place), "exact": place.state.naturals}
    return Fit(
        elbo=bound.elbo,
        elbo_error=bound.error,
        history=History(np.array(watch.elbo), np.array(watch.seconds), step="round"),
        restarts=tuple(
            Restart(p.elbo, p.rounds, reason if n == 0 else "below another start")
            for n, p in enumerate(places)
        ),
        converged=converged,
        stop_reason=reason,
        plan=replace(plan, notes=(*plan.notes, *bound.notes)),
        method=repr(method),
        seed=seed,
        versions=versions(),
        precision="float64",
        state=State(parameters, ()),  # type: ignore[arg-type]
        family=Product(tuple(model.latent), gaussian, given.engine.family),
        function=model.function,
        args=args,
        kwargs=dict(kwargs),
        sites=site_records(model),
    )


def explain_given_sites(
    model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any], method: Gaussian
) -> Plan:
    """The plan: exact rows of the program given the sites, and the rows of the Gaussian."""
    given, program = given_sites(model, method.sites, args, kwargs)
    size = given.coordinates.size
    shape = _shape_text(block_size(method, given.coordinates))
    residuals = derived(model).structure.residuals
    whole = plan_of_gaussian(model, f"Gaussian ({shape}, d = {size})", residuals)
    exact = {row.site: row for row in make_plan(program, given.engine.joint).rows}
    names = "+".join(given.coordinates.shapes)
    rows = tuple(
        replace(exact[row.site], scope=row.scope)
        if row.site in exact
        else replace(row, block=names)
        for row in whole.rows
    )
    listed = ", ".join(given.coordinates.shapes)
    return replace(whole, method=f"Gaussian of {listed}, exact factors of the rest", rows=rows)


def wide_enough(model: Model) -> bool:
    """Whether one Gaussian of all sites can have a full covariance, or one as good."""
    with np.errstate(all="ignore"), one_thread():
        return wide_for(target_for(model), Gaussian()) is not None


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
# The run


def race(
    problem: Problem, model: Model, program: Model, method: Gaussian, seed: int
) -> list[Place]:
    """Ascend from several starts, over few draws; the lower half drops out again and again.

    The best comes first.
    """
    block = block_size(method, problem.given.coordinates)
    least = RACE_DRAWS if block else max(RACE_DRAWS, 2 * problem.size + 2)
    draws = fixed_draws(least, problem.size, block, draw_seed(seed, MOST_STAGES + 1))
    running = begin_places(problem, model, program, method, seed)
    tried = len(running)
    dropped: list[Place] = []
    while True:
        running = [_some_rounds(problem, draws, place, method.tolerance) for place in running]
        running = sorted(running, key=lambda place: -np.nan_to_num(place.elbo, nan=-np.inf))
        if not np.isfinite(running[0].elbo):
            raise NoFiniteBoundError(tried)
        if len(running) == 1:
            return [*running, *dropped]
        kept = len(running) // 2 if allowance().spent < RACED else 1
        running, dropped = running[:kept], [*running[kept:], *dropped]


def _some_rounds(problem: Problem, draws: np.ndarray, place: Place, tolerance: float) -> Place:
    for _ in range(RACE):
        before, place = place, one_round(problem, draws, place, tolerance)
        if not np.isfinite(place.elbo) or settled(before, place, tolerance, COARSE):
            break
        if allowance().spent > RACED:
            break
    return place


def begin_places(
    problem: Problem, model: Model, program: Model, method: Gaussian, seed: int
) -> list[Place]:
    """The starts: a narrow Gaussian about a point, and the factors given that point."""
    block = block_size(method, problem.given.coordinates) or problem.size
    root = np.stack([np.eye(block) * WIDTH] * (problem.size // block))
    root = root[0] if block == problem.size else root
    values = given_values(model, method)
    own = {n: v for n, v in values.items() if n in problem.given.coordinates.shapes}
    rest = {n: v for n, v in values.items() if n not in own}
    engine = problem.given.engine
    chance = chances(engine, seed, method.starts, "auto", problem.seeded)
    places = []
    for number, loc in enumerate(starting_points(problem, model, method.starts, seed, own)):
        arrays = problem.averages(loc[None])
        one = jax.tree.map(lambda a, n=number: a[n], chance)
        state = problem.first(arrays, one, "auto", rest)
        state, _, _ = problem.sweeps(arrays, state)
        places.append(Place(loc, root, state))
        if allowance().spent > RACED / 2:
            break  # where one start takes long, few are affordable
    return places


def starting_points(
    problem: Problem, model: Model, count: int, seed: int, given: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Rows u: the centre of the prior, zero, then points of the prior and of U(-1, 1) in turn.

    All have the given values.
    """
    coordinates = problem.given.coordinates
    rng = np.random.default_rng(abs(seed))
    rows = rng.uniform(-1.0, 1.0, (max(count, 2), problem.size))
    normal = rng.standard_normal(rows.shape)
    rows[1], normal[0] = 0.0, 0.0
    prior = problem.prior(model, normal[::2])
    rows[::2] = np.where(np.isfinite(prior), prior, rows[::2])
    for name, value in given.items():
        inverse = biject_to(coordinates.supports[name]).inv
        rows[:, coordinates.part(name)] = np.ravel(inverse(jax.numpy.asarray(value)))
    return rows[:count]


def _ascend(
    problem: Problem, place: Place, method: Gaussian, seed: int, watch: Watch
) -> tuple[Place, int, bool]:
    """Rounds until nothing moves, over few draws at first, then more until fresh ones agree."""
    block = block_size(method, problem.given.coordinates)
    sizes = draw_sizes(method.draws, block or problem.size)
    sizes = SEPARATE if block and method.draws is None else sizes
    size, done = sizes[0], False
    for stage, size in enumerate(sizes):
        draws = fixed_draws(size, problem.size, block, draw_seed(seed, stage))
        coarse = stage == 0 and len(sizes) > 1
        place, first, aim = restarted(place), math.inf, method.tolerance
        for number in range(ROUNDS):
            before, place = place, one_round(problem, draws, place, method.tolerance)
            watch.note(place.elbo)
            if number == 0:
                first = place.error
                # More draws move the answer of the first ones anyway, and fresh ones that of these.
                aim = max(aim, AGREED if coarse else SHARE * min(first, AGREED) if stage else 0.0)
            done = settled(before, place, aim, COARSE if coarse else SETTLED)
            if done or allowance().over:
                break
        if (stage and first <= AGREED) or allowance().over:
            break
    return place, size, done


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


def _measured(problem: Problem, place: Place, size: int, seed: int) -> Restricted:
    """The ELBO over fresh draws."""
    count = max(size, MEASURE)
    block = 0 if place.root.ndim == 2 else place.root.shape[-1]
    fresh = fixed_draws(count, problem.size, block, draw_seed(seed, MOST_STAGES))
    values, _ = problem.densities(fresh, place.loc, place.root, place.state.means)
    arrays = problem.fixed()
    family = problem.given.engine.family
    entropy = sum(
        float(family.entropy(place.state.naturals, place.state.means, arrays, number))
        for number in range(len(family.blocks))
    )
    scales = np.diagonal(place.root, axis1=-2, axis2=-1)
    entropy += 0.5 * problem.size * math.log(2 * math.pi) + float(np.log(np.abs(scales)).sum())
    return restricted(values + 0.5 * np.sum(fresh**2, axis=1) + entropy)


def _check_proper(problem: Problem, state: State) -> None:
    """Every exact factor must be a proper density; name the site whose factor is not."""
    family = problem.given.engine.family
    for block, fine in zip(family.blocks, family.proper(state.naturals), strict=True):
        if not fine:
            raise ImproperFactorError(block.sites)

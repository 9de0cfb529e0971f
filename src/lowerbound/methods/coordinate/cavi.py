"""`fit` by coordinate ascent (alg:cavi): trace, derive, start, sweep, and report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lowerbound.ascent import State
from lowerbound.compute.devices import placement
from lowerbound.compute.engine import Arrays, Engine, engine_for
from lowerbound.compute.spread import check_rows_apart, spread_rows
from lowerbound.errors import ArgumentError, ImproperFactorError
from lowerbound.joint import inputs_of
from lowerbound.joint.terms.impossible import is_impossible
from lowerbound.methods.coordinate.answer import make_fit
from lowerbound.methods.coordinate.begin import (
    assignments,
    check_components,
    check_partition,
    given_values,
    precision,
)
from lowerbound.methods.coordinate.loop import Outcome, advance, run
from lowerbound.methods.coordinate.origin import (
    far_from_zero,
    find_origins,
    moved_back,
    with_origins,
)
from lowerbound.methods.coordinate.start import Chance, chances, start, start_kinds
from lowerbound.methods.values import CAVI
from lowerbound.model import Model, trace_model
from lowerbound.result.fitted import Fit
from lowerbound.result.held_out import given_rows, scorer
from lowerbound.result.plan import make_plan
from lowerbound.run.check_input import check_observed_variance
from lowerbound.run.resume import of_program
from lowerbound.store.checkpoint import Keeper


def fit_cavi(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: CAVI,
    seed: int,
    progress: bool | None,
    keep: Keeper | None,
    resumed: Mapping[str, Any] | None,
) -> Fit:
    """Coordinate ascent on a model, from its start or as it was `resumed`."""
    with jax.enable_x64(True):
        traced = trace_model(function, args, kwargs)
        check_partition(method, traced)
        check_observed_variance(traced)
        if keep is not None:
            keep = of_program(keep, traced)
        return run_cavi(traced, args, kwargs, method, seed, progress, keep, resumed)


def run_cavi(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: CAVI,
    seed: int,
    progress: bool | None,
    keep: Keeper | None = None,
    resumed: Mapping[str, Any] | None = None,
) -> Fit:
    """Coordinate ascent (alg:cavi) on a traced model."""
    where = placement(method.devices)
    spread = spread_rows(model, where)
    dtype = precision(method, where)
    centred = far_from_zero(model.arguments.data, dtype)
    origins = find_origins(model, method.blocks, spread) if centred else {}
    engine = engine_for(model, dtype, method.blocks, origins=origins, spread=spread)
    if where is not None:
        check_rows_apart(model, engine.joint)
        progress = progress if where.process == 0 else False
    seeded = assignments(engine, model)
    check_components(engine, model, seeded)
    given = {n: v - origins.get(n, 0) for n, v in given_values(model, method).items()}
    arrays = engine.prepare(with_origins(inputs_of(model), origins))
    states = starts(engine, arrays, seed, method, given, seeded)
    score = None
    if method.monitor is not None:
        held_out = scorer(given_rows(model, method.monitor), engine.family, seed)

        def score(state: State) -> float:
            value = held_out(moved_back(engine.family, state, origins))
            # Processes that round differently must still stop together.
            return value if where is None else float(where.agree(value)[0])

    outcome = run(engine, arrays, states, method, progress, score, keep, resumed)
    engine.certified()
    check_outcome(engine, outcome)
    if centred or dtype == np.float32:
        outcome = replace(outcome, state=moved_back(engine.family, outcome.state, origins))
    how = method.init if isinstance(method.init, str) else "auto"
    kinds = start_kinds(engine, how, given, method.restarts, seeded)
    plan = make_plan(model, engine.joint)
    return make_fit(model, args, kwargs, engine, outcome, plan, method, seed, kinds)


def starts(
    engine: Engine,
    arrays: Arrays,
    seed: int,
    method: CAVI,
    given: Mapping[str, Any],
    seeded: int | None,
) -> State:
    """Starting states of all restarts, compiled together."""
    how = method.init if isinstance(method.init, str) else "auto"
    key = ("start", method.restarts, how, tuple(sorted(given)), seeded)
    kinds = start_kinds(engine, how, given, method.restarts, seeded)
    chance = chances(engine, seed, method.restarts, how, seeded, kinds)
    if key not in engine.compiled:

        def every(arrays: Arrays, chance: Chance, given: Mapping[str, Any]) -> State:
            if method.restarts == 1:
                single = jax.tree.map(lambda a: a[0], chance)
                one = start(engine, arrays, single, how, given, seeded)
                first: State = jax.tree.map(lambda a: a[None], one)
                return first
            each: State = jax.vmap(lambda c: start(engine, arrays, c, how, given, seeded))(chance)
            return each

        engine.compiled[key] = engine.compile(every, arrays, chance, dict(given))
        # The loop compiles at the same time, from the shapes of the states alone.
        advance(engine, arrays, engine.compiled[key].shapes, method.restarts)
    states: State = engine.compiled[key](arrays, chance, dict(given))
    return states


def is_flat(natural: Any) -> bool:
    """Whether a Gaussian that was widened step by step has run off along some direction.

    Its precision, with units taken out, is then singular to rounding.
    """
    precision = -2.0 * np.asarray(natural, float)
    scale = 1.0 / np.sqrt(np.diagonal(precision, axis1=-2, axis2=-1))
    correlations = precision * scale[..., :, None] * scale[..., None, :]
    return bool((np.linalg.eigvalsh(correlations)[..., 0] < 1e-12).any())


def check_outcome(engine: Engine, outcome: Outcome) -> None:
    """Every factor must be a proper density; name the site whose factor is not."""
    curved = {number for summand in engine.joint.summands for number in summand.curved}
    for block, fine in zip(engine.joint.blocks, outcome.proper, strict=True):
        natural = outcome.state.naturals[block.number]
        if not all(np.isfinite(array).all() for array in jax.tree.leaves(natural)):
            break  # no statement about the posterior: the search has failed
        if not fine or (block.number in curved and "xx" in natural and is_flat(natural["xx"])):
            raise ImproperFactorError(block.sites)
    if not np.isfinite(outcome.elbo) or is_impossible(outcome.elbo):
        found = "-inf" if is_impossible(outcome.elbo) else str(outcome.elbo)
        starts = len(outcome.elbos)
        many = f", the best of {starts} starts" if starts > 1 else ""
        raise ArgumentError(
            f"The ELBO is {found} in sweep {outcome.sweeps[outcome.best]}{many}.\n"
            "Expected a finite bound. Try more starts, lb.CAVI(restarts=20), start elsewhere with "
            "lb.CAVI(init={site: value, ...}), or rescale the data to unit variance."
        )

"""`fit`: trace, derive, start, sweep, and report."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lowerbound.errors import ArgumentError, ReservedNameError, TooManyComponentsError
from lowerbound.fit.check_input import check_observed_variance
from lowerbound.fit.engine import Arrays, Engine, engine_for
from lowerbound.fit.loop import Outcome, advance, run
from lowerbound.fit.method import CAVI, as_method
from lowerbound.fit.monitor import held_out_score
from lowerbound.fit.origin import far_from_zero, find_origins, moved_back, with_origins
from lowerbound.fit.plan import check_partition, make_plan
from lowerbound.fit.result import Fit, make_fit
from lowerbound.fit.start import Chance, chances, start
from lowerbound.joint import inputs_of
from lowerbound.model import Model, trace_model
from lowerbound.update import State

RESERVED = ("method", "seed", "progress", "checkpoint")


def fit(
    model: Callable[..., Any],
    *args: Any,
    method: Any = "auto",
    seed: int = 0,
    progress: bool | None = None,
    checkpoint: Any = None,
    **kwargs: Any,
) -> Fit:
    """Fit the variational posterior q(z) of a NumPyro model by the plan that `explain` prints.

    Everything but `method`, `seed`, `progress` and `checkpoint` goes to the model. `progress`
    shows a bar (default: on a terminal). Raises NotConjugateError when a term fits no factor.
    """
    check_reserved(model)
    if checkpoint is not None:
        raise ArgumentError(
            "fit got a checkpoint, which coordinate ascent does not write yet.\n"
            "Expected checkpoint=None. Use fit.save(...) when it has finished."
        )
    chosen = as_method(method)
    with jax.enable_x64(True):
        traced = trace_model(model, args, kwargs)
        check_partition(chosen.blocks, traced)
        check_observed_variance(traced)
        return run_cavi(traced, args, kwargs, chosen, seed, progress)


def check_reserved(model: Callable[..., Any]) -> None:
    """A model argument with a name that `fit` keeps for itself is an error."""
    try:
        names = inspect.signature(model).parameters
    except (TypeError, ValueError):
        return
    bound = model.keywords if isinstance(model, functools.partial) else {}
    for name, parameter in names.items():
        variable = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if name in RESERVED and not variable and name not in bound:
            raise ReservedNameError(name, getattr(model, "__name__", type(model).__name__))


def run_cavi(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: CAVI,
    seed: int,
    progress: bool | None,
) -> Fit:
    """Coordinate ascent (alg:cavi) on a traced model."""
    dtype = precision(method)
    centred = far_from_zero(model.arguments.data, dtype)
    origins = find_origins(model, method.blocks) if centred else {}
    engine = engine_for(model, dtype, method.blocks, origins=origins)
    seeded = assignments(engine, model)
    check_components(engine, model, seeded)
    given = {n: v - origins.get(n, 0) for n, v in _given(model, method).items()}
    arrays = engine.prepare(with_origins(inputs_of(model), origins))
    states = starts(engine, arrays, seed, method, given, seeded)
    score = None
    if method.monitor is not None:
        score = held_out_score(
            model, method.monitor, engine, seed, lambda s: moved_back(engine, s, origins)
        )
    outcome = run(
        engine,
        arrays,
        states,
        method.restarts,
        method.tolerance,
        method.max_sweeps,
        progress,
        score,
    )
    engine.certified()
    check_outcome(engine, outcome)
    if centred or dtype == np.float32:
        outcome = replace(outcome, state=moved_back(engine, outcome.state, origins))
    plan = make_plan(model, engine.joint)
    return make_fit(model, args, kwargs, engine, outcome, plan, method, seed)


def precision(method: CAVI) -> np.dtype[Any]:
    """float64 on CPU and float32 on an accelerator, unless the method says otherwise."""
    if method.precision is not None:
        return np.dtype(method.precision)
    return np.dtype("float64" if jax.default_backend() == "cpu" else "float32")


def assignments(engine: Engine, model: Model) -> int | None:
    """The block of mixture assignments: one discrete variable per row, with components to index."""
    plate = model.data_plate
    discrete = [b for b in engine.joint.blocks if b.kind == "categorical" and not b.sequential]
    if len(discrete) != 1 or plate is None:
        return None
    (block,) = discrete
    rows = int(np.prod(block.batch_shape))
    if rows != plate.size or block.sites[0] not in model.local:
        return None
    meets = [s for s in engine.joint.summands if block.number in s.blocks and len(s.blocks) > 1]
    return block.number if meets else None


def check_components(engine: Engine, model: Model, seeded: int | None) -> None:
    """A mixture needs a row for every component."""
    if seeded is None:
        return
    rows = int(np.prod(engine.joint.blocks[seeded].batch_shape))
    components = engine.joint.blocks[seeded].static["dim"]
    if components > rows:
        static = {
            name: value
            for name, value in zip(model.arguments.names, model.arguments.leaves, strict=True)
            if name is None and value == components
        }
        name = "K" if static else f"Site '{engine.joint.blocks[seeded].sites[0]}'"
        raise TooManyComponentsError(name, components, rows)


def _given(model: Model, method: CAVI) -> dict[str, Any]:
    """The values to start from, checked against the model's sites."""
    if not isinstance(method.init, Mapping):
        return {}
    given = {}
    for name, value in method.init.items():
        if name not in model.latent:
            raise ArgumentError(
                f"CAVI got init for '{name}', which is no latent site of the model.\n"
                f"Expected names among {', '.join(model.latent)}."
            )
        array = np.asarray(value, dtype=float)
        expected = model.latent[name].shape
        try:
            array = np.broadcast_to(array, expected)
        except ValueError:
            raise ArgumentError(
                f"CAVI got init['{name}'] of shape {np.shape(value)}.\n"
                f"Expected the shape of the site, {expected}."
            ) from None
        if not np.isfinite(array).all():
            raise ArgumentError(f"CAVI got init['{name}'] with NaN or infinite entries.\n"
                                "Expected finite values of the site.")  # fmt: skip
        values = model.latent[name].support_values
        if values is not None:
            array = np.argmin(abs(array[..., None] - np.asarray(values)), axis=-1)
        given[name] = array
    return given


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
    chance = chances(engine, seed, method.restarts, how, seeded)
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
        shapes = jax.eval_shape(every, arrays, chance, dict(given))
        advance(engine, arrays, shapes, method.restarts)
    states: State = engine.compiled[key](arrays, chance, dict(given))
    return states


def check_outcome(engine: Engine, outcome: Outcome) -> None:
    """Every factor must be a proper density; name the site whose factor is not."""
    for block, fine in zip(engine.joint.blocks, outcome.proper, strict=True):
        if not fine:
            sites = ", ".join(f"'{site}'" for site in block.sites)
            raise ArgumentError(
                f"The optimal factor of {sites} is improper: the data and the prior leave a "
                f"direction of it undetermined.\nExpected a proper posterior. Give {sites} a "
                "proper prior."
            )
    if not np.isfinite(outcome.elbo):
        raise ArgumentError(
            f"The ELBO is {outcome.elbo} in sweep {outcome.sweeps[outcome.best]}.\n"
            "Expected a finite bound. Rescale the data to unit variance, or start elsewhere with "
            "lb.CAVI(init=...)."
        )

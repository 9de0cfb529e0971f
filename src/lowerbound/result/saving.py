"""Saving and loading fits: arrays and JSON in one file, without the rows of the data."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lowerbound.ascent import State
from lowerbound.errors import NotPlainError, Residual, StorageError
from lowerbound.family.densities.summed import Summed
from lowerbound.family.meanfield import MeanField
from lowerbound.model import trace_model
from lowerbound.result.family_records import (
    family_from,
    family_record,
    noncentred_sites,
    with_program,
)
from lowerbound.result.fitted import Fit
from lowerbound.result.new_rows import new_call
from lowerbound.result.plan import Plan, Row
from lowerbound.result.posterior import History, Restart
from lowerbound.result.saved import Saved, check_model, check_sites, model_record
from lowerbound.rewrite.summing.enumerated import enumerated
from lowerbound.rewrite.trees import tree_from, tree_record
from lowerbound.store.archive import Kind, check_plain, read_archive, write_archive
from lowerbound.version import __version__

KIND = Kind("fit", 1, "fit.save", "Copy it again, or fit and save again.")
_PLAIN = ("elbo", "converged", "stop_reason", "method", "seed", "versions", "precision", "sites")
_LATER: dict[str, Any] = {
    "elbo_error": 0.0,
    "whole": True,
    "plate": None,
    "parameters": {},
    "augment": None,
}  # not in older files


# --------------------------------------------------------------------------------------------------
# Save


def save(fit: Fit, path: str | os.PathLike[str]) -> None:
    """Write a fit to one file, at once or not at all."""
    saved = _saved(fit)
    document = {
        "model": model_record(fit.function),
        "written_by": __version__,
        "plan": {f.name: getattr(fit.plan, f.name) for f in dataclasses.fields(Plan) if f.compare}
        | {"rows": [dataclasses.asdict(row) for row in fit.plan.rows]}
        | {"residuals": [dataclasses.asdict(r) for r in fit.plan.residuals]},
        "history": {f.name: getattr(fit.history, f.name) for f in dataclasses.fields(History)},
        "restarts": [dataclasses.asdict(restart) for restart in fit.restarts],
        "family": family_record(fit.family),
        "naturals": _parameters(fit.state.naturals),
        "means": _parameters(fit.state.means),
        "partition": None if fit.blocks is None else [tuple(block) for block in fit.blocks],
        "saved": {f.name: getattr(saved, f.name) for f in dataclasses.fields(Saved)},
        **{name: getattr(fit, name) for name in (*_PLAIN, *_LATER)},
        "parameters": {n: _held_record(n, tree) for n, tree in fit.parameters.items()},
    }
    write_archive(path, document, KIND)


def _parameters(parameters: Any) -> Any:
    """Those of a mean field as a list of dictionaries, others as they are."""
    return [dict(p) for p in parameters] if isinstance(parameters, tuple) else parameters


def _held_record(name: str, held: Any) -> Any:
    """What a parameter holds: an array as it is, other trees by their parts."""
    return held if isinstance(held, np.ndarray) else {"tree": tree_record(name, held)}


def _held(record: Any) -> Any:
    return tree_from(record["tree"]) if isinstance(record, dict) else record


def _saved(fit: Fit) -> Saved:
    """What to keep of the call: everything but data with one row per row of the data plate."""
    if fit.args is None:
        assert fit.saved is not None
        return fit.saved
    with jax.enable_x64(True):
        model = fit.model()
    terms = fit.elbo_terms
    signature = inspect.signature(fit.function)
    old = signature.bind(*fit.args, **fit.kwargs).arguments
    args, kwargs = new_call(model, fit.args, fit.kwargs, (), {})
    left = signature.bind(*args, **kwargs).arguments
    rows = tuple(n for n, value in old.items() if value is not None and left[n] is None)
    kept, unsaved = {}, []
    for name in (n for n in old if n not in rows):
        try:
            check_plain(old[name])
            kept[name] = old[name]
        except NotPlainError:
            unsaved.append(name)
    return Saved(terms, kept, rows, tuple(unsaved))


# --------------------------------------------------------------------------------------------------
# Load


def load(path: str | os.PathLike[str], model: Callable[..., Any], *args: Any, **kwargs: Any) -> Fit:
    """Read a fit of `model` that `fit.save(path)` wrote.

    The file holds the posterior but not the data. `args` and `kwargs` are the data and settings
    that the fit was made with: give them to use what needs the old rows (deterministic sites,
    replicated data); without them everything else works, on new data too.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> lb.fit(coin, y).save("coin.lb")
    >>> float(lb.load("coin.lb", coin).mean("p").round(3))
    0.667
    """
    document = read_archive(path, KIND)
    try:
        check_model(f"{path} holds a fit", document["model"], model)
        fit = _fit(document, model)
    except StorageError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise KIND.damaged(path, f"its record does not fit together ({error})") from error
    if not args and not kwargs:
        _check_centred(path, fit)
        return fit
    sites = document["sites"]
    with jax.enable_x64(True):
        traced = trace_model(fit.program, args, kwargs)
        shapes = {site: record["shape"] for site, record in sites.items()}
        check_sites(shapes, {site: latent.shape for site, latent in traced.latent.items()})
        family = fit.family
        if noncentred_sites(family):
            given = traced if set(sites) == set(fit.sites) else enumerated(traced).summed()
            family = with_program(family, given)
        if set(sites) != set(fit.sites):
            family = Summed(family, enumerated(traced))
    return dataclasses.replace(fit, args=args, kwargs=kwargs, family=family, sites=sites)


def _check_centred(path: str | os.PathLike[str], fit: Fit) -> None:
    """Non-centred coordinates z = loc + scale * u need the program, and so the data."""
    noncentred = noncentred_sites(fit.family)
    if noncentred:
        names = ", ".join(f"'{name}'" for name in sorted(noncentred))
        raise StorageError(
            f"{path} holds a fit that gives {names} by non-centred coordinates, "
            "z = loc + scale * u, where the model computes loc and scale.\n"
            "Expected the data that the fit was made with: lb.load(path, model, *args, **kwargs)."
        )


def _fit(document: dict[str, Any], model: Callable[..., Any]) -> Fit:
    plan = document["plan"]
    rows = tuple(Row(**row) for row in plan["rows"])
    residuals = tuple(Residual(**residual) for residual in plan["residuals"])
    # Files of version 0.1 hold the blocks of a mean field by themselves.
    record = document.get("family", {"kind": "mean field", "blocks": document.get("blocks")})
    family = family_from(record, document["sites"])
    naturals, means = document["naturals"], document["means"]
    missing = record.get("names", ()) if record["kind"] == "summed" else ()
    sites = {n: site for n, site in document["sites"].items() if n not in missing}
    if isinstance(family, MeanField):
        naturals, means = tuple(naturals), tuple(means)
        _check_state(family, State(naturals, means), document["precision"])
    state = State(naturals, means)
    return Fit(
        history=History(**document["history"]),
        restarts=tuple(Restart(**restart) for restart in document["restarts"]),
        plan=Plan(**{**plan, "rows": rows, "residuals": residuals}),
        state=state,
        family=family,
        function=model,
        args=None,
        kwargs={},
        blocks=document["partition"],
        saved=Saved(**document["saved"]),
        **{name: document[name] for name in _PLAIN if name != "sites"},
        sites=sites,
        **{n: document.get(n, default) for n, default in _LATER.items() if n != "parameters"},
        parameters={n: _held(record) for n, record in document.get("parameters", {}).items()},
    )


def _check_state(family: MeanField, state: State, precision: str) -> None:
    for one, natural, mean in zip(family.families, state.naturals, state.means, strict=True):
        shapes = one.statistic_shapes()
        extras = one.extra_shapes()
        for parameters, expected in ((natural, shapes | extras), (mean, shapes)):
            found = {name: np.shape(array) for name, array in parameters.items()}
            if found != expected:
                raise ValueError(f"{one.name} has parameters {found}, expected {expected}")
    if precision not in ("float32", "float64"):
        raise ValueError(f"precision {precision}")

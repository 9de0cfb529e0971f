"""Saving and loading fits: arrays and JSON in one file, without the rows of the data."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lowerbound.compute.collapsing import collapse
from lowerbound.errors import NotPlainError, Residual, StorageError
from lowerbound.family.completed.collapsed_sites import Collapsed
from lowerbound.family.completed.summed import Summed
from lowerbound.family.family_records import family_from, noncentred_sites, with_program
from lowerbound.family.meanfield import MeanField
from lowerbound.family.q import Q
from lowerbound.family.variational import Variational
from lowerbound.model import Model, trace_model
from lowerbound.model.inputs.leaves import Column
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.fitted import Call, Fit
from lowerbound.result.latent_records import finite_values
from lowerbound.result.plan import Plan, Row
from lowerbound.result.posterior import History, Move, Restart
from lowerbound.result.saved import Saved, check_model, check_sites, model_record
from lowerbound.result.unseen.new_rows import new_call
from lowerbound.result.verdicts import UNKNOWN, Verdict
from lowerbound.rewrite.summing.endless_counts import bounded, unbounded
from lowerbound.rewrite.summing.enumerated import enumerated
from lowerbound.rewrite.trees import tree_from, tree_record
from lowerbound.store.archive import Kind, check_plain, read_archive, write_archive
from lowerbound.version import __version__

KIND = Kind("fit", 1, "fit.save", "Copy it again, or fit and save again.")
_PLAIN = ("elbo", "elbo_error", "converged", "stop_reason", "notes", "precision", "whole", "sites")
_CALL = ("method", "seed", "versions")


# --------------------------------------------------------------------------------------------------
# Save


def save(fit: Fit, path: str | os.PathLike[str]) -> None:
    """Write a fit to one file, at once or not at all."""
    saved, blocks = _saved(fit), fit.answer.blocks
    document = {
        "model": model_record(fit.call.function),
        "written_by": __version__,
        "plan": {f.name: getattr(fit.plan, f.name) for f in dataclasses.fields(Plan) if f.compare}
        | {"rows": [dataclasses.asdict(row) for row in fit.plan.rows]}
        | {"residuals": [dataclasses.asdict(r) for r in fit.plan.residuals]},
        "history": {f.name: getattr(fit.history, f.name) for f in dataclasses.fields(History)}
        | {"moves": [dataclasses.asdict(move) for move in fit.history.moves]},
        "restarts": [dataclasses.asdict(restart) for restart in fit.restarts],
        **fit.q.record(),
        "partition": None if blocks is None else [tuple(block) for block in blocks],
        "plate": fit.answer.plate,
        "taught": fit.answer.taught,
        "augment": fit.answer.augment,
        "verdict": fit.verdict.record(),
        "saved": {f.name: getattr(saved, f.name) for f in dataclasses.fields(Saved)},
        **{name: getattr(fit, name) for name in (*_PLAIN, *_CALL)},
        "parameters": {n: _held_record(n, tree) for n, tree in fit.parameters.items()},
    }
    write_archive(path, document, KIND)


def _held_record(name: str, held: Any) -> Any:
    """What a parameter holds: an array as it is, other trees by their parts."""
    return held if isinstance(held, np.ndarray) else {"tree": tree_record(name, held)}


def _held(record: Any) -> Any:
    return tree_from(record["tree"]) if isinstance(record, dict) else record


def _saved(fit: Fit) -> Saved:
    """What to keep of the call: everything but data with one row per row of the data plate."""
    call = fit.call
    if call.args is None:
        assert fit.saved is not None
        return fit.saved
    with jax.enable_x64(True):
        model = fit.model()
    terms = fit.elbo_terms
    signature = inspect.signature(call.function)
    old = signature.bind(*call.args, **call.kwargs).arguments
    args, kwargs = new_call(model, call.args, call.kwargs, (), {})
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
    replicated data); without them everything else works, on new data too. A stream is as good as
    none: of its rows pass some as arrays.

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
    streamed = any(isinstance(leaf, Column) for leaf in jax.tree.leaves((args, kwargs)))
    if streamed or not (args or kwargs):  # rows that come in batches are not kept by a fit
        _check_centred(path, fit)
        return fit
    sites = document["sites"]
    with jax.enable_x64(True):
        traced = trace_model(fit.program, args, kwargs)
        shapes = {site: record["shape"] for site, record in sites.items()}
        check_sites(shapes, {site: latent.shape for site, latent in traced.latent.items()})
        family = fit.q.family
        apart = set(sites) != set(fit.sites)
        whole = _completed(document, family, traced) if apart else None
        if noncentred_sites(family):
            known = whole.elimination if whole else None
            program = trace_model(known.function, *known.call) if known else traced
            family = with_program(family, program)
        if whole:
            family = dataclasses.replace(whole, inner=family)
    q = dataclasses.replace(fit.q, family=family, values=finite_values(sites))
    answer = dataclasses.replace(fit.answer, q=q)
    call = dataclasses.replace(fit.call, args=args, kwargs=kwargs)
    return dataclasses.replace(fit, answer=answer, call=call, sites=sites)


def _completed(document: dict[str, Any], family: Variational, model: Model) -> Summed | Collapsed:
    """A family from a file with the sites that are integrated out, given the rest.

    Counts without an upper end are summed over to where the fit took them.
    """
    record = document["family"]
    if record["kind"] == "collapsed":
        return Collapsed(family, collapse(model, record["names"]))
    counts = record.get("counts", {})
    known = {name: counts[name] for name in unbounded(model) if name in counts}
    return Summed(family, enumerated(bounded(model, known) if known else model))


def _check_centred(path: str | os.PathLike[str], fit: Fit) -> None:
    """Non-centred coordinates z = loc + scale * u need the program, and so the data."""
    noncentred = noncentred_sites(fit.q.family)
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
    naturals = document["naturals"]
    missing = record.get("names", ()) if record["kind"] in ("summed", "collapsed") else ()
    sites = {n: site for n, site in document["sites"].items() if n not in missing}
    if isinstance(family, MeanField):
        naturals = tuple(naturals)
        _check_naturals(family, naturals, document["precision"])
    answer = Answer(
        Q(family, naturals, finite_values(sites)),
        document["elbo"],
        _history(document["history"]),
        tuple(Restart(**restart) for restart in document["restarts"]),
        document["precision"],
        document.get("elbo_error", 0.0),
        parameters={n: _held(record) for n, record in document.get("parameters", {}).items()},
        notes=tuple(document.get("notes", ())),
        augment=document.get("augment"),
        rows=None if document.get("whole", True) else ((), {}),
        plate=document.get("plate"),
        taught=bool(document.get("taught")),
        blocks=document["partition"],
    )
    return Fit(
        answer,
        Stop.read(document["converged"], document["stop_reason"]),
        Plan(**{**plan, "rows": rows, "residuals": residuals}),
        Call(model, None, {}, *(document[name] for name in _CALL)),
        sites,
        Saved(**document["saved"]),
        Verdict(**document["verdict"]) if "verdict" in document else UNKNOWN,
    )


def _history(record: dict[str, Any]) -> History:
    moves = tuple(
        Move(**{**one, "components": tuple(map(tuple, one["components"]))})
        for one in record.get("moves", ())
    )
    return History(**{**record, "moves": moves})


def _check_naturals(family: MeanField, naturals: Any, precision: str) -> None:
    for one, natural in zip(family.families, naturals, strict=True):
        expected = one.statistic_shapes() | one.extra_shapes()
        found = {name: np.shape(array) for name, array in natural.items()}
        if found != expected:
            raise ValueError(f"{one.name} has parameters {found}, expected {expected}")
    if precision not in ("float32", "float64"):
        raise ValueError(f"precision {precision}")

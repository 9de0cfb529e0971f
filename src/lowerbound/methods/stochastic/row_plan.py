"""Which arguments of a call are rows, and the model on some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowerbound.errors import ArgumentError, ShapeError
from lowerbound.methods.stochastic.batched import ByRows
from lowerbound.model import Model, Plate, trace_model
from lowerbound.model.sites import shared_plates
from lowerbound.model.trace import outline
from lowerbound.source.call import Call


@dataclass(frozen=True)
class RowPlan:
    """The plate of the rows, how many there are, and the arguments that hold one entry a row."""

    plate: str | None
    total: int
    names: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]  # of the latent sites, for all rows


def find_rows(function: Callable[..., Any], call: Call, method: ByRows) -> RowPlan:
    """Decide which arguments are sliced: those as long as the plate of the observations."""
    entries, concrete = outline(function, *call.outline())
    observed = [e for e in entries if e.kind == "observed" and not e.is_factor]
    observed = observed or [e for e in entries if e.is_factor and e.plates]
    plates = [e.plates for e in observed]
    lengths = call.lengths
    name: str | None
    plate, kind = method.plate, method.name
    if plate is not None:
        known = list(dict.fromkeys(p for own in plates for p in own))
        chosen = [p for p in known if p.name == plate]
        if not chosen:
            listed = ", ".join(f"'{p.name}'" for p in known) or "none"
            raise ArgumentError(
                f"{kind} got plate='{plate}', which holds no observed site.\n"
                f"Expected one of the plates of the observations: {listed}."
            )
        size, name = chosen[0].size, chosen[0].name
    else:
        size, name = _only_plate(plates, lengths, observed, kind)
    aligned = tuple(n for n, length in lengths.items() if length == size)
    if not aligned:
        raise ArgumentError(
            f"No argument has one entry for each of the {size} rows of plate '{name}'; leading "
            f"dimensions are {_lengths(lengths)}.\n"
            "Expected data arrays with the rows along their first axis."
        )
    inspected = [n for n in aligned if n in concrete]
    if inspected:
        raise ArgumentError(
            f"The model inspects the values of {', '.join(inspected)} in Python, so every batch of "
            "rows would be another program.\n"
            "Expected operations that JAX can trace; or use method=lb.CAVI()."
        )
    latent = {e.name: e.batch_shape + e.event_shape for e in entries if e.kind == "latent"}
    return RowPlan(name, size, aligned, latent)


def _only_plate(
    plates: Sequence[tuple[Plate, ...]],
    lengths: Mapping[str, int],
    observed: Sequence[Any],
    kind: str,
) -> tuple[int, str | None]:
    shared = shared_plates(plates)
    fitting = [p for p in shared if p.size in lengths.values()]
    if not fitting and not shared:
        # Sites of several plates, none of which holds all: any as long as an argument will do.
        every = dict.fromkeys(p for own in plates for p in own)
        fitting = [p for p in every if p.size in lengths.values()]
    if len(fitting) > 1:
        named = " and ".join(f"'{p.name}' ({p.size})" for p in fitting)
        raise ArgumentError(
            f"{kind} cannot tell which plate holds the rows: {named} could both be the local one.\n"
            f'Say which: lb.{kind}(plate="{fitting[0].name}").'
        )
    if fitting:
        return fitting[0].size, fitting[0].name
    sizes = {e.batch_shape[0] for e in observed if e.batch_shape}
    sizes &= set(lengths.values())
    if len(sizes) != 1:
        raise ArgumentError(
            f"{kind} found no rows: no plate of the observations is as long as an argument; "
            f"leading dimensions are {_lengths(lengths)}.\n"
            "Put the observed sites into a numpyro.plate with one member for each row of the data."
        )
    return sizes.pop(), None


def _lengths(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {length}" for name, length in lengths.items()) or "none"


def trace_batch(
    function: Callable[..., Any], call: Call, plan: RowPlan, rows: Mapping[str, Any]
) -> Model:
    """The model on some rows, which must differ from the whole in the number of rows alone."""
    count = len(next(iter(rows.values())))
    try:
        model = trace_model(function, *call.put(rows), plan.plate)
    except ShapeError as error:
        if count == plan.total:
            raise
        reason = str(error).splitlines()[0]
        raise ArgumentError(
            f"The model fits its {plan.total} rows, but not a batch of {count}: {reason}\n"
            "Expected every size to follow from the data: write "
            f'numpyro.plate("{plan.plate or "rows"}", len({plan.names[0]})).'
        ) from error
    plate = model.data_plate
    if plan.plate is not None and (plate is None or plate.size != count):
        found = "absent" if plate is None else f"of size {plate.size}"
        raise ArgumentError(
            f"On a batch of {count} rows, plate '{plan.plate}' is {found}.\n"
            "Expected one member for each entry along the first axis of the data: write "
            f'numpyro.plate("{plan.plate}", len({plan.names[0]})).'
        )
    for name, site in model.latent.items():
        if name not in model.local and site.shape != plan.shapes[name]:
            raise ArgumentError(
                f"Site '{name}' is outside plate '{plan.plate}', but its shape follows the rows: "
                f"{site.shape} for {count} rows, {plan.shapes[name]} for {plan.total}   "
                f"({site.where})\nPut it into the plate, or use method=lb.CAVI()."
            )
    return model

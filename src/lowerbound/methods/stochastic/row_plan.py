"""Which arguments of a call are rows, and the model on some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowerbound.errors import MinibatchError, ShapeError
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
            raise MinibatchError.no_such_plate(kind, plate, [p.name for p in known])
        size, name = chosen[0].size, chosen[0].name
    else:
        size, name = _only_plate(plates, lengths, observed, kind)
    aligned = tuple(n for n, length in lengths.items() if length == size)
    if not aligned:
        raise MinibatchError.no_argument(size, name, lengths)
    inspected = [n for n in aligned if n in concrete]
    if inspected:
        raise MinibatchError.inspected(inspected)
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
        raise MinibatchError.which_plate(kind, {p.name: p.size for p in fitting})
    if fitting:
        return fitting[0].size, fitting[0].name
    sizes = {e.batch_shape[0] for e in observed if e.batch_shape}
    sizes &= set(lengths.values())
    if len(sizes) != 1:
        raise MinibatchError.no_plate(kind, lengths)
    return sizes.pop(), None


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
        raise MinibatchError.one_size(
            plan.total, count, reason, plan.plate or "rows", plan.names[0]
        ) from error
    plate = model.data_plate
    if plan.plate is not None and (plate is None or plate.size != count):
        size = None if plate is None else plate.size
        raise MinibatchError.plate_size(count, plan.plate, size, plan.names[0])
    for name, site in model.latent.items():
        if name not in model.local and site.shape != plan.shapes[name]:
            shapes = {count: site.shape, plan.total: plan.shapes[name]}
            raise MinibatchError.follows_rows(name, plan.plate, shapes, site.where)
    return model

"""The plan of a program some of whose sites come back exactly given the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lowerbound.model import Model
from lowerbound.result.plan import Plan, Row
from lowerbound.run.problem import Problem


def completed_plan(
    problem: Problem, model: Model, given: Plan, row: Callable[[str, str], Row], note: str
) -> Plan:
    """The plan of a model; `given` is that of the program without some of its sites.

    row: the row of one of them, by its name and scope.
    """
    inside = {known.site: known for known in given.rows}
    rows = []
    for name in model.latent:
        scope = "local" if name in model.local else "global"
        rows.append(replace(inside[name], scope=scope) if name in inside else row(name, scope))
    plate = model.data_plate
    return replace(
        given,
        model=getattr(model.function, "__name__", type(model.function).__name__),
        rows=tuple(rows),
        observed=tuple(model.observed),
        data_plate=f"{plate.name} ({plate.size})" if plate else "",
        residuals=problem.joint.structure.residuals,
        notes=(*given.notes, note),
    )

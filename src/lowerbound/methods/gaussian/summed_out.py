"""Black-box fits of programs with finite discrete sites: these are summed out, exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lowerbound.compute.engine import derived
from lowerbound.family.densities.summed import Summed
from lowerbound.model import Model
from lowerbound.result.fitted import Fit, site_records
from lowerbound.result.plan import Plan, Row
from lowerbound.rewrite.summing.enumerated import enumerated
from lowerbound.rewrite.summing.summation import Summation


def fit_summed(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    run: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Fit],
) -> Fit:
    """Fit q(theta) to the program with z summed out by `run`; then z given theta is exact."""
    summation = enumerated(model)
    fitted = run(summation.function, *summation.call)
    compiled = getattr(fitted.family, "compiled", {})
    return replace(
        fitted,
        family=Summed(fitted.family, summation, compiled),
        plan=plan_summed(summation, fitted.plan),
        function=model.function,
        args=args,
        kwargs=dict(kwargs),
        sites=site_records(model),
    )


def plan_summed(summation: Summation, given: Plan) -> Plan:
    """The plan of a program; `given` is that of the program with z summed out."""
    model = summation.model
    inside = {row.site: row for row in given.rows}
    groups = {site.name: group for group in summation.groups for site in group.sites}
    rows = []
    for name, site in model.latent.items():
        scope = "local" if name in model.local else "global"
        if name in inside:
            rows.append(replace(inside[name], scope=scope))
            continue
        block = "+".join(site.name for site in groups[name].sites)
        rows.append(
            Row(name, site.shape, scope, "Categorical, given the rest", "exact (summed out)",
                block, f"1[{name} = k]", site.where)
        )  # fmt: skip
    plate = model.data_plate
    names = ", ".join(f"'{name}'" for name in summation.names)
    states = ", ".join(dict.fromkeys(group.text for group in summation.groups))
    return replace(
        given,
        model=getattr(model.function, "__name__", type(model.function).__name__),
        rows=tuple(rows),
        observed=tuple(model.observed),
        data_plate=f"{plate.name} ({plate.size})" if plate else "",
        residuals=derived(model).structure.residuals,
        notes=(*given.notes, f"{names} summed out of log p, {states}."),
    )

"""Supports as plain records, for files."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpyro.distributions import constraints
from numpyro.distributions.constraints import Constraint

_NAMED: Final = (
    "real",
    "real_vector",
    "real_matrix",
    "positive",
    "nonnegative",
    "softplus_positive",
    "unit_interval",
    "open_interval",
    "simplex",
    "ordered_vector",
    "positive_ordered_vector",
    "corr_cholesky",
    "corr_matrix",
    "lower_cholesky",
    "scaled_unit_lower_cholesky",
    "positive_definite",
    "l1_ball",
    "sphere",
    "circular",
    "zero_sum",
)
_BOUNDED: Final = {  # constructor -> the attributes that are its arguments
    "interval": ("lower_bound", "upper_bound"),
    "open_interval": ("lower_bound", "upper_bound"),
    "greater_than": ("lower_bound",),
    "greater_than_eq": ("lower_bound",),
    "less_than": ("upper_bound",),
    "less_than_eq": ("upper_bound",),
}


def support_record(support: Constraint) -> dict[str, Any] | None:
    """The support in numbers and names, or None where there is no record of its kind."""
    if isinstance(support, type(constraints.independent(constraints.real, 1))):
        base = support_record(support.base_constraint)
        count = support.reinterpreted_batch_ndims
        return None if base is None else {"name": "independent", "base": base, "count": count}
    for name in _NAMED:
        known = getattr(constraints, name, None)
        if isinstance(known, Constraint) and known == support:
            return {"name": name}
    for name, bounds in _BOUNDED.items():
        example = getattr(constraints, name)(*map(float, range(len(bounds))))
        if type(support) is type(example):
            numbers = [np.asarray(getattr(support, bound), float) for bound in bounds]
            return {"name": name, "bounds": numbers}
    return None


def support_from(record: dict[str, Any]) -> Constraint:
    """The support of a record."""
    name = record["name"]
    if name == "independent":
        return constraints.independent(support_from(record["base"]), int(record["count"]))
    if "bounds" in record and name in _BOUNDED:
        return getattr(constraints, name)(*(_number(bound) for bound in record["bounds"]))
    if name not in _NAMED:
        raise ValueError(f"no support is called {name!r}")
    return getattr(constraints, name)


def _number(bound: Any) -> Any:
    return float(bound) if np.ndim(bound) == 0 else np.asarray(bound)

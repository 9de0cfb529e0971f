"""`explain`: the plan of a fit, printed before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from lowerbound.fit.method import SVI, chosen_method
from lowerbound.fit.plan import Plan, check_partition, make_plan
from lowerbound.fit.svi import explain_svi
from lowerbound.joint import multi_affine
from lowerbound.model import trace_model


def explain(model: Callable[..., Any], *args: Any, method: Any = "auto", **kwargs: Any) -> Plan:
    """Print and return the plan that `fit` would run, without running it.

    For each latent site: the family of its factor, whether its update is exact, the block it
    shares, and the statistics that decide; for a term that fits no factor, the site, the operation
    and the line of the model. For `method=lb.SVI(...)` also the rows, the batches and the steps.
    """
    chosen = chosen_method(method, args, kwargs)
    with jax.enable_x64(True):
        if isinstance(chosen, SVI):
            plan = explain_svi(model, args, kwargs, chosen)
        else:
            traced = trace_model(model, args, kwargs)
            check_partition(chosen, traced)
            plan = make_plan(traced, multi_affine(traced, chosen.blocks))
    print(plan)
    return plan

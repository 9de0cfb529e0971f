"""`explain`: the plan of a fit, printed before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax

from lowerbound.compute.engine import derived
from lowerbound.em import EM
from lowerbound.errors import ParameterSiteError
from lowerbound.ladder.costs import cheaper, work_of
from lowerbound.ladder.rungs import Route, chosen_route
from lowerbound.methods.coordinate.begin import check_partition
from lowerbound.methods.coordinate.variational_em import notes_of, parametrised_model
from lowerbound.methods.gaussian_value import Gaussian
from lowerbound.methods.grid.structured import explain_conditioned
from lowerbound.methods.networks.gradients import explain_gradients
from lowerbound.methods.partial.given_sites import explain_given_sites
from lowerbound.methods.routes.estimated import explain_gaussian
from lowerbound.methods.stochastic.augmented_batches import explain_batches
from lowerbound.methods.values import CAVI, SVI, has_columns
from lowerbound.model import trace_model
from lowerbound.result.plan import Plan, make_plan
from lowerbound.rewrite.augment import augmented
from lowerbound.rewrite.parameters import find_parameters


def explain(model: Callable[..., Any], *args: Any, method: Any = "auto", **kwargs: Any) -> Plan:
    """Print and return the plan that `fit` would run, without running it.

    For each latent site: the family of its factor, whether its update is exact, the block it
    shares, and the statistics that decide; for a term that fits no factor, the site, the operation
    and the line of the model. Where the method is chosen automatically, every rung of the ladder
    and why it was taken or not. For `method=lb.SVI(...)` also the rows, the batches and the steps.

    `coin` is the program in the example of `lb.fit`.

    >>> plan = lb.explain(coin, np.array([1, 0, 1, 1]))
    CAVI for coin: observed y; rows = plate 'tosses (4)'
    <BLANKLINE>
    site  shape   scope   family of q  update  statistics
    ----  ------  ------  -----------  ------  -----------------
    p     scalar  global  Beta         exact   log p, log(1 - p)
    <BLANKLINE>
    -> exact: no term joins two factors, so q is the posterior
    ...
    """
    found = chosen_route(model, method, args, kwargs)
    with jax.enable_x64(True):
        plan = replace(_plan(model, args, kwargs, found.method), ladder=found.lines)
        plan = with_costs(plan, model, found, args, kwargs)
    print(plan)
    if plan.costs:
        print(f"\n{plan.costs}")
    return plan


def with_costs(
    plan: Plan,
    function: Callable[..., Any],
    found: Route,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Plan:
    """The plan with what it is expected to take, where that is known without fitting."""
    model = found.model
    if model is None and not has_columns(args, kwargs):
        try:
            plate = found.method.plate if isinstance(found.method, SVI) else None
            model = trace_model(function, args, kwargs, plate)
        except ParameterSiteError:
            return plan
    if model is None:
        return plan
    work = work_of(model, found.method, args, kwargs)
    if work is None:
        return plan
    return replace(plan, work=work, cheaper=cheaper(model, found.method, work, args, kwargs))


def _plan(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: CAVI | SVI | Gaussian | EM,
) -> Plan:
    if isinstance(method, EM):
        return explain_gradients(function, args, kwargs, method)
    if isinstance(method, CAVI | SVI) and method.augment:
        function = augmented(function, method.augment)
    if isinstance(method, SVI):
        return explain_batches(function, args, kwargs, method)
    try:
        model = trace_model(function, args, kwargs)
    except ParameterSiteError:
        if not isinstance(method, CAVI) or method.condition or method.augment:
            raise  # as `fit` does
        parameters = find_parameters(function, args, kwargs)
        model = parametrised_model(function, parameters, args, kwargs)
        return make_plan(model, derived(model), notes=notes_of(parameters))
    if isinstance(method, Gaussian) and method.sites:
        return explain_given_sites(model, args, kwargs, method)
    if isinstance(method, Gaussian):
        return explain_gaussian(model, method)
    check_partition(method, model)
    if method.condition:
        return explain_conditioned(model, args, kwargs, method)
    return make_plan(model, derived(model, method.blocks))

"""`explain`: the plan of a fit, printed before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from lowerbound.compute.computing import current
from lowerbound.cost import AFFORDABLE, at_most
from lowerbound.ladder.costs import cheaper, expected
from lowerbound.ladder.rungs import chosen
from lowerbound.methods.values import is_auto
from lowerbound.result.plan import Plan
from lowerbound.run.problem import Problem


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
    with at_most(AFFORDABLE) if is_auto(method) else nullcontext():  # as `fit` chooses
        found = chosen(Problem(model, args, kwargs, computing=current()), method)
        plan = found.plan
    work = expected(found)
    if work is not None:
        plan = replace(plan, work=work, cheaper=cheaper(found.problem, found.method, work))
    print(plan)
    if plan.costs:
        print(f"\n{plan.costs}")
    return plan

"""The record of a finished coordinate ascent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lowerbound.compute.engine import Engine
from lowerbound.compute.versions import versions
from lowerbound.methods.coordinate.loop import Outcome
from lowerbound.methods.values import CAVI
from lowerbound.model import Model
from lowerbound.result.fitted import Fit, site_records
from lowerbound.result.plan import Plan
from lowerbound.result.posterior import History, Restart


def make_fit(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    engine: Engine,
    outcome: Outcome,
    plan: Plan,
    method: CAVI,
    seed: int,
    kinds: Sequence[str] = (),
) -> Fit:
    """The record of a finished run; `kinds` say how each restart began."""
    best = outcome.best
    own = outcome.history[: outcome.sweeps[best], best]
    rows = model.data_plate.size if model.data_plate is not None else 0
    return Fit(
        elbo=outcome.elbo,
        history=History(
            own,
            outcome.seconds[: len(own)],
            outcome.monitor,
            rows * np.arange(1, len(own) + 1),
        ),
        restarts=tuple(
            Restart(float(e), int(s), r, kinds[n] if kinds else "")
            for n, (e, s, r) in enumerate(
                zip(outcome.elbos, outcome.sweeps, outcome.reasons, strict=True)
            )
        ),
        converged=outcome.converged,
        stop_reason=outcome.reasons[best],
        plan=plan,
        method=repr(method),
        seed=seed,
        versions=versions(),
        precision=str(engine.dtype),
        state=outcome.state,
        family=engine.family,
        function=model.function,
        args=args,
        kwargs=dict(kwargs),
        sites=site_records(model),
        blocks=method.blocks,
    )

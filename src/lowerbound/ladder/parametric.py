"""Rungs of programs with parameters (`numpyro.param`): exact variational EM, or by gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lowerbound.compute.engine import derived
from lowerbound.errors import UnsupportedModelError
from lowerbound.joint import inputs_of
from lowerbound.ladder.case import Case, Tried, entry
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.methods.coordinate.parameter_bound import moving
from lowerbound.methods.parameters.em_value import EM


def coordinates(case: Case) -> Iterator[Tried]:
    """Every site has a factor given the parameters, and these have an M step."""
    problem = case.problem
    if not problem.has_parameters:
        return
    name, model = "coordinate ascent, parameters maximised", problem.parametrised
    joint = derived(model)
    residuals = joint.structure.residuals
    if residuals:
        yield case.tried(name, f"{entry(residuals[0])} ({residuals[0].where})")
        return
    try:
        moving(joint, problem.parameters, inputs_of(model))
    except UnsupportedModelError as error:
        yield case.tried(name, str(error).splitlines()[0].rstrip("."))
        return
    yield case.tried(name, "every site has an optimal factor given the parameters", CAVI())


def gradients(case: Case) -> Iterator[Tried]:
    """All other programs with parameters."""
    if case.problem.has_parameters:
        size = sum(math.prod(p.shape) for p in case.problem.parameters)
        reason = f"{size} numbers of parameters, by stochastic gradients of the ELBO"
        yield case.tried("gradients, a Gaussian by rows", reason, EM())

"""What a fit by each method takes, before it is done, and the next cheaper method.

The counts of nodes, sweeps and gradients are typical ones, of cold fits of some fifty programs of
many kinds; `python -m benchmarks.costs` compares what they say with what is measured, on these and
on others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import jax

from lowerbound.cost import AFFORDABLE, Alternative, Work
from lowerbound.ladder import factor_work, gaussian_work
from lowerbound.ladder.counted import Counted
from lowerbound.ladder.factor_work import MANY_ROWS
from lowerbound.ladder.rungs import Chosen
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.methods.gaussian.unconstrained_methods import (
    FULL_BELOW,
    Gaussian,
    Laplace,
    UnconstrainedMethod,
)
from lowerbound.methods.grid.given_scalars import Given
from lowerbound.methods.hierarchy.hierarchies import predictors_for
from lowerbound.methods.hierarchy.integrated_value import Integrated
from lowerbound.methods.partial.over import Over
from lowerbound.methods.rewriting.augmenting import Augmented
from lowerbound.methods.rewriting.collapsed_out import Collapsed, collapsed_problem
from lowerbound.methods.rewriting.enumeration import Enumeration
from lowerbound.methods.sampling.trajectories_value import Trajectories
from lowerbound.methods.stochastic.batched import SVI, Memoized
from lowerbound.run.method import Method
from lowerbound.run.problem import Problem


def _of_the_rest(counted: Counted, method: Collapsed) -> Work | None:
    """What the method within takes for the program without the sites that are integrated out."""
    return work_of(collapsed_problem(counted.problem, tuple(method.sites))[1], method.method)


# What each kind of method takes.
_RULES: Final[Mapping[type[Method], Callable[[Counted, Any], Work | None]]] = {
    CAVI: factor_work.ascent,
    Augmented: factor_work.augmented,
    SVI: factor_work.batches,
    Memoized: factor_work.batches,
    Given: factor_work.grid,
    Integrated: factor_work.hierarchy,
    Trajectories: factor_work.chains,
    Over: gaussian_work.partly,
    Collapsed: _of_the_rest,
    Enumeration: factor_work.summed_over,
    UnconstrainedMethod: gaussian_work.gaussian,  # type: ignore[type-abstract]
}


def work_of(problem: Problem, method: Method) -> Work | None:
    """What a cold fit takes; None where that is not known, or the method does not fit."""
    if problem.streams or problem.has_parameters:
        return None
    # Steps until the ELBO rests: nobody knows how many.
    rule = next((rule for kind, rule in _RULES.items() if isinstance(method, kind)), None)
    if rule is None:
        return None
    with jax.enable_x64(True):
        return rule(Counted(problem), method)


def expected(found: Chosen) -> Work | None:
    """What a fit takes that is about to be carried out; on the ladder some methods are limited."""
    work = work_of(found.problem, found.method)
    limited = found.rungs and found.method.limited
    return replace(work, most=AFFORDABLE) if work is not None and limited else work


def cheaper(problem: Problem, method: Method, work: Work) -> Alternative | None:
    """The next method that loses some accuracy and takes less, or None."""
    for other in _below(problem, method):
        found = work_of(problem, other)
        if found is not None and _size(found) < 0.9 * _size(work):
            return Alternative(other.code, found)
    return None


def _below(problem: Problem, method: Method) -> Iterator[Method]:
    if isinstance(method, Given):
        conjugate = not problem.joint.structure.residuals
        yield CAVI() if conjugate and isinstance(method.method, CAVI) else Gaussian()
    elif isinstance(method, Integrated):
        if not predictors_for(problem, tuple(method.sites or ())).theta:
            return  # one solution: nothing takes less
        yield CAVI() if not problem.joint.structure.residuals else Gaussian()
    elif isinstance(method, Trajectories):
        yield Gaussian()
    elif isinstance(method, Collapsed):
        rest = collapsed_problem(problem, tuple(method.sites))[1]
        for other in _below(rest, method.method):
            yield Collapsed(method.sites, other)
    elif isinstance(method, CAVI):
        plate = problem.model.data_plate
        if plate is not None and plate.size > MANY_ROWS:
            yield SVI()
    elif method == Gaussian():
        with jax.enable_x64(True):
            small = Counted(problem).size <= FULL_BELOW
        yield Laplace() if small else Gaussian(rank="diagonal")


def _size(work: Work) -> float:
    """Work in one number, whatever the machine: an operation compiles in about a millisecond."""
    return work.operations + 1e-6 * work.numbers + 3e-8 * work.flops

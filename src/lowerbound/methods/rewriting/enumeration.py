"""Programs whose latent sites are all discrete: the posterior itself, by sums over their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from lowerbound.compiled import Kept, quickly, traced
from lowerbound.errors import ImpossibleDataError, UnsupportedModelError
from lowerbound.errors.wording import quoted
from lowerbound.family.completed.summed import Summed
from lowerbound.family.densities.nothing import Nothing
from lowerbound.family.q import Q
from lowerbound.model import Model
from lowerbound.model.dependence import digest
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.plan import Row, outline
from lowerbound.result.posterior import History, Restart
from lowerbound.rewrite.summing.endless_counts import bounded, unbounded
from lowerbound.rewrite.summing.enumerated import (
    discrete_sites,
    enumerated,
    enumerated_from_zero,
)
from lowerbound.rewrite.summing.summation import Summation
from lowerbound.run.method import Method
from lowerbound.run.planned import Planned, Trace
from lowerbound.run.problem import Problem
from lowerbound.run.walking import Standing, Walking

EDGE = 1e-9  # the mass of the last of them that is neglected
_compiled: Kept[Callable[..., Any]] = Kept(16)  # of equal programs


@dataclass(frozen=True, eq=False, repr=False)
class Enumeration(Method):
    """For programs whose latent sites are all discrete: q(z) = p(z | x), by sums over all values.

    Sites that meet are summed over together, rows and chains of rows by themselves, and the ELBO
    is the log evidence. Counts without an upper end, as of `dist.Poisson`, have so many values that
    the last has a posterior mass below 1e-9.

    >>> lb.Enumeration()
    Enumeration()
    """

    def plan(self, problem: Problem) -> Planned[Any]:
        """The sums over the values of all latent sites."""
        model = problem.model
        rest = [name for name in model.latent if name not in discrete_sites(model)]
        if rest:
            are = "is" if len(rest) == 1 else "are"
            raise UnsupportedModelError(
                f"lb.Enumeration sums over discrete sites alone; {quoted(rest)} {are} continuous.\n"
                "Use method=lb.Gaussian(), which sums discrete sites out of log p beside them."
            )
        return Enumerated(problem, enumerated_from_zero(model))


def can_be_enumerated(model: Model) -> bool:
    """Whether all latent sites are discrete, and can be summed over."""
    if not model.latent or len(discrete_sites(model)) < len(model.latent):
        return False
    try:
        enumerated_from_zero(model)
    except UnsupportedModelError:
        return False
    return True


class Sums(NamedTuple):
    """The sums over all values, and their log."""

    summation: Summation
    log_evidence: float


class Enumerated(Walking[Sums]):
    """A pass over the weights of all values, and another with more of them where counts need it."""

    unit = "pass"
    total = 8

    def __init__(self, problem: Problem, summation: Summation) -> None:
        self.problem, self.summation = problem, summation
        model = problem.model
        groups = {site.name: group for group in summation.groups for site in group.sites}
        rows = [
            Row(
                name,
                site.shape,
                "local" if name in model.local else "global",
                "Categorical" if site.support_values is not None else "Categorical, on 0, 1, ...",
                "exact (summed over)",
                "+".join(member.name for member in groups[name].sites),
                f"1[{name} = k]",
                site.where,
            )
            for name, site in model.latent.items()
        ]
        self.plan = outline(model, "Enumeration", rows)

    def walk(self) -> Iterator[Standing[Sums]]:
        """Sums over more and more values of counts, until the last of them do not matter."""
        summation, counted = self.summation, unbounded(self.problem.model)
        while True:
            log_evidence, last = summed(summation, counted)
            if not np.isfinite(log_evidence):
                raise ImpossibleDataError(tuple(summation.model.latent))
            place = Sums(summation, log_evidence)
            wider = {
                name: len(np.asarray(site.support_values)) * (2 if last[name] > EDGE else 1)
                for name, site in summation.model.latent.items()
                if name in counted
            }
            if all(mass <= EDGE for mass in last.values()):
                stop = Stop(True, "all values are summed over")
                yield Standing(place, log_evidence, stop)
                return
            yield Standing(place, log_evidence)
            try:
                summation = enumerated(bounded(self.problem.model, wider))
            except UnsupportedModelError as error:
                reached = quoted(name for name, mass in last.items() if mass > EDGE)
                why = f"the counts {reached} need more values. {str(error).splitlines()[0]}"
                stop = Stop(False, why, "Bound these counts, or use method=lb.ScoreFunctions().")
                yield Standing(place, log_evidence, stop)
                return

    def answer(self, place: Sums, trace: Trace, stop: Stop) -> Answer:
        """The posterior itself."""
        return Answer(
            Q(Summed(Nothing(), place.summation), {}),
            place.log_evidence,
            History(trace.values, trace.seconds, step="pass"),
            (Restart(place.log_evidence, len(trace.values), str(stop)),),
            exact=stop.converged,
        )


def summed(summation: Summation, counted: tuple[str, ...]) -> tuple[float, dict[str, float]]:
    """The log evidence, and the posterior mass of the last value of some sites.

    It is the sum of the weights in every group, and of the densities that no latent site reaches.
    """
    model = summation.model
    within = {name for g in summation.groups for some in g.by_reach.values() for name in some}

    def sums(data: Any) -> tuple[Any, Any]:
        weights = summation.conditional({}, data)
        totals = [jnp.sum(g.totals(w)) for g, w in zip(summation.groups, weights, strict=True)]
        others = model.run(jax.tree.map(jnp.asarray, summation.first), data)
        totals += [jnp.sum(d.log_prob()) for name, d in others.items() if name not in within]
        masses = summation.probabilities(weights)
        return sum(totals, start=jnp.zeros(())), {n: masses[n][..., -1].max() for n in counted}

    data = model.arguments.data
    with jax.enable_x64(True):
        closed = traced(sums)(data)
        run = _compiled.of(digest(closed), lambda: quickly(jaxpr_as_fun(closed)))
        log_evidence, *last = run(*jax.tree.leaves(data))
    return float(log_evidence), dict(zip(sorted(counted), map(float, last), strict=True))

"""Sites with exact factors given all others, integrated out before another method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from lowerbound.compute.collapsing import collapse
from lowerbound.family.completed.collapsed_sites import Collapse
from lowerbound.family.completed.collapsed_sites import Collapsed as CollapsedDensity
from lowerbound.methods.rewriting.carried import Carried
from lowerbound.methods.rewriting.completed_plan import completed_plan
from lowerbound.result.answer import Answer
from lowerbound.result.plan import Plan, Row, brief
from lowerbound.run.method import CHECKPOINTS, SINGLE, Method
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem


@dataclass(frozen=True, eq=False, repr=False)
class Collapsed(Method):
    """Integrate sites out of log p, exactly, and fit the others by another method.

    Given all other sites theta, the sites z must have factors of a closed form that are independent
    of each other: z ~ Beta(a(theta), b(theta)) with binomial counts, say. Then log p(x, theta) has
    a closed form, and q(theta) p(z | x, theta) loses nothing but what q(theta) does.

    sites: the names of z, e.g. ("theta",). method: what fits the others.

    >>> lb.Collapsed(("theta",), lb.Gaussian())
    Collapsed(('theta',), Gaussian())
    """

    sites: Sequence[str]
    method: Method
    limited: ClassVar[bool] = True

    def __post_init__(self) -> None:
        named = not isinstance(self.sites, str) and all(isinstance(s, str) for s in self.sites)
        self.check(
            ("sites", named and bool(self.sites), 'names of sites, e.g. ("theta",)'),
            ("method", isinstance(self.method, Method), "a method such as lb.Gaussian()"),
        )

    @property
    def abilities(self) -> frozenset[str]:
        """Checkpoints and single precision, where the method within has them."""
        return self.method.abilities & {CHECKPOINTS, SINGLE}

    def plan(self, problem: Problem) -> Planned[Any]:
        """The plan of the program without the sites."""
        found, rest = collapsed_problem(problem, tuple(self.sites))
        inner = self.method.plan(rest)

        def back(answer: Answer) -> Answer:
            q = answer.q
            return replace(answer, q=replace(q, family=CollapsedDensity(q.family, found)))

        return Carried(problem, inner, plan_collapsed(problem, found, inner.plan), back)


def collapsed_problem(problem: Problem, sites: tuple[str, ...]) -> tuple[Collapse, Problem]:
    """How some sites are integrated out, and the problem of the program without them."""

    def find() -> tuple[Collapse, Problem]:
        found = collapse(problem.model, sites)
        return found, problem.of(found.function, *found.call)

    return problem.once(("collapsed", *sites), find)


def plan_collapsed(problem: Problem, found: Collapse, given: Plan) -> Plan:
    """The plan of a program; `given` is that of the program with some sites integrated out."""
    model = problem.model

    def row(name: str, scope: str) -> Row:
        site, block = model.latent[name], found.family.block_of(name)
        family = found.family.families[block.number].name
        return Row(name, site.shape, scope, f"{family}, given the rest", "exact (integrated out)",
                   "+".join(block.sites), block.family.text(block, name), site.where)  # fmt: skip

    names = brief(", ".join(f"'{name}'" for name in found.names))
    note = f"{names} integrated out of log p in closed form, and exact given the rest."
    return completed_plan(problem, model, given, row, note)

"""Augmentation around a method: auxiliary sites that make updates exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from lowerbound.bound.augmentation import augmentation_gap
from lowerbound.compute.engine import engine_for
from lowerbound.errors import ArgumentError
from lowerbound.family.meanfield import MeanField
from lowerbound.methods.rewriting.carried import Carried
from lowerbound.result.answer import Answer
from lowerbound.rewrite.augment import augmented, auxiliary_of
from lowerbound.run.method import Method
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem

NOTE = "The ELBO is that of the augmented program."


@dataclass(frozen=True, eq=False, repr=False)
class Augmented(Method):
    """Fit the program with the densities of some sites augmented, by another method.

    choices: how, by site, e.g. {"y": "polya-gamma"}; "none" leaves a site as it is.
    method: what fits the augmented program, such as lb.CAVI() or lb.SVI().

    >>> lb.Augmented({"y": "polya-gamma"}, lb.CAVI())
    Augmented({'y': 'polya-gamma'}, CAVI())
    """

    choices: Mapping[str, str]
    method: Method

    def __post_init__(self) -> None:
        self.check(
            (
                "choices",
                isinstance(self.choices, Mapping),
                'a dict from sites to augmentations, e.g. {"y": "polya-gamma"}',
            ),
            ("method", isinstance(self.method, Method), "a method such as lb.CAVI()"),
        )

    @property
    def abilities(self) -> frozenset[str]:
        """Those of the method within."""
        return self.method.abilities

    def abilities_for(self, problem: Problem) -> frozenset[str]:
        """Those of the method within."""
        return self.method.abilities_for(problem)

    def plan(self, problem: Problem) -> Planned[Any]:
        """The plan of the augmented program."""
        choices = dict(self.choices)
        inner = self.method.plan(augmented_problem(problem, choices))
        plan = replace(inner.plan, notes=(*inner.plan.notes, NOTE))

        def back(answer: Answer) -> Answer:
            notes = (*answer.notes, *_gap(problem, inner, answer))
            return replace(answer, augment={**choices, **(answer.augment or {})}, notes=notes)

        own = {n: one for n, one in inner.records.items() if auxiliary_of(n) not in choices}
        return Carried(problem, inner, plan, back, own)


def augmented_problem(problem: Problem, choices: Mapping[str, str]) -> Problem:
    """The problem of the augmented program."""

    def find() -> Problem:
        return problem.of(augmented(problem.function, dict(choices)))

    return problem.once(("augmented", *choices.items()), find)


def _gap(problem: Problem, inner: Planned[Any], answer: Answer) -> tuple[str, ...]:
    """What the augmentation costs, where auxiliary sites have factors of their own."""
    family, naturals = answer.q.family, answer.q.parameters
    if not isinstance(family, MeanField) or answer.rows is not None or answer.parameters:
        return ()
    with jax.enable_x64(True):
        try:
            engine = engine_for(inner.program, np.dtype(float))
            gap = augmentation_gap(
                problem.model.without_data(),
                inner.program,
                family,
                naturals,
                compiled=engine.compiled,
            )
        except ArgumentError:  # an auxiliary site shares a factor with others: no estimate
            return ()
    return (
        f"The ELBO of the same q(z) in the original program is {gap.nats:.3g} +- "
        f"{gap.standard_error:.1g} nats higher.",
    )

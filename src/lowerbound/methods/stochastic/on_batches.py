"""What steps and visits on batches share: the plan, the start, the score and the answer."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import jax

from lowerbound.ascent import State
from lowerbound.errors import ArgumentError, NotConjugateError
from lowerbound.family.q import Q
from lowerbound.methods.coordinate.progress import host
from lowerbound.methods.rewriting.augmenting import Augmented
from lowerbound.methods.stochastic.batch_start import first_state
from lowerbound.methods.stochastic.batched import ByRows
from lowerbound.methods.stochastic.lap import Total, elbo_terms
from lowerbound.methods.stochastic.minibatch import Minibatch, with_masks
from lowerbound.methods.stochastic.opened import Reading, Setting, read_rows, set_up
from lowerbound.methods.stochastic.row_plan import trace_batch
from lowerbound.methods.stochastic.shared_factors import Before
from lowerbound.model import Model
from lowerbound.result.answer import Answer, Stop, in_order
from lowerbound.result.latent_records import site_records
from lowerbound.result.plan import make_plan
from lowerbound.result.posterior import History, Restart
from lowerbound.result.unseen.held_out import given_rows, scorer
from lowerbound.rewrite.augment import augmented, decided, possible
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem

S = TypeVar("S")


class OnBatches(Planned[S]):
    """Global factors from batches of rows; `before` takes the place of the prior."""

    def __init__(
        self, problem: Problem, reading: Reading, method: Any, before: Before | None = None
    ) -> None:
        self.problem, self.reading, self.before = problem, reading, before
        self.method = method
        notes = [
            f"{method.name} {self.how()}.",
            f"Sliced by rows: {', '.join(reading.plan.names)}.",
        ]
        if reading.batches.held_out:
            rows = f"{reading.batches.held_out:,} rows are held out"
            notes.append(f"{rows}, to {self.purpose} their log predictive.")
        total = reading.plan.total
        self.plan = make_plan(reading.model, reading.joint, method.name, total, notes)
        if reading.residuals:
            refusal = NotConjugateError(reading.residuals)
            self.refusal = refusal.of_batches(method.name, problem.streams)
        if reading.where is not None:
            self.quiet = reading.where.process != 0
            self.lockstep = reading.where.processes > 1

    purpose = "stop by"

    @abstractmethod
    def how(self) -> str:
        """How the method goes through the rows, in words."""

    @property
    def program(self) -> Model:
        """The program on its first batch."""
        return self.reading.model

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """What a fit keeps of the global sites."""
        records = site_records(self.reading.model)
        return {name: one for name, one in records.items() if one["scope"] == "global"}

    @cached_property
    def setting(self) -> Setting:
        """The model on its first batch, compiled on first use."""
        return set_up(self.problem, self.reading, self.method, self.before)

    def first_state(self) -> State:
        """The global factors before anything is learned from these rows."""
        if self.before is not None:
            shared = self.setting.batch.shared.family
            naturals = tuple(self.before.natural(block) for block in shared.blocks)
            return State(naturals, shared.means(naturals))
        return first_state(self.setting, self.method, self.problem.seed)

    # -- held-out rows ----------------------------------------------------------------------------

    @property
    def judged(self) -> bool:
        """Whether rows are held out, or given, to judge the factors by."""
        monitor = self.method.monitor
        return bool(self.reading.batches.held_out) or not isinstance(monitor, str | None)

    @cached_property
    def score(self) -> Callable[[State], float] | None:
        """The average log predictive of the rows held out, as a function of the global factors."""
        if not self.judged:
            return None
        reading, batch, where = self.reading, self.setting.batch, self.reading.where
        if reading.batches.held_out:
            rows = reading.batches.held_out_rows()
            held_out = trace_batch(self.problem.function, reading.call, reading.plan, rows)
        else:
            held_out = given_rows(reading.model, self.method.monitor)
        average = scorer(held_out, batch.shared.family, self.problem.seed)

        def score(state: State) -> float:
            value = average(batch.moved_back(state))
            # Processes that round differently must still stop together.
            return value if where is None else float(where.agree(value)[0])

        return score

    # -- the answer -------------------------------------------------------------------------------

    def checked(self, batch: Minibatch, state: State) -> State:
        """The global factors in the host's memory, certified and proper."""
        batch.rows.engine.certified()
        found: State = host(state)
        shared = batch.shared.family
        for block, proper in zip(shared.blocks, shared.proper(found.naturals), strict=True):
            if not proper:
                sites = ", ".join(f"'{site}'" for site in block.sites)
                raise ArgumentError(
                    f"The factor of {sites} is improper after the last step.\nExpected a proper "
                    f"posterior. Give {sites} a proper prior, or take larger batches."
                )
        return found

    def answer(self, state: State, total: Total, history: History, done: int, stop: Stop) -> Answer:
        """Global factors with their bound, and the batch that the model was traced on."""
        batch, model = self.setting.batch, self.reading.model
        terms = elbo_terms(total, state)
        elbo = sum(terms.values())
        return Answer(
            Q(batch.shared.family, batch.moved_back(state).naturals),
            elbo,
            history,
            (Restart(elbo, done, str(stop)),),
            str(batch.rows.engine.dtype),
            total.error,
            in_order(model, terms),
            rows=model.arguments.call(with_masks(model, model.arguments.data)),
            plate=self.reading.plan.plate,
            total=self.reading.plan.total,
            blocks=self.method.blocks,
        )


def planned_on_batches(
    problem: Problem, method: ByRows, kind: Callable[..., Planned[Any]]
) -> Planned[Any]:
    """A plan of this kind; of the augmented program where batches need that to add up."""
    with jax.enable_x64(True):
        reading = read_rows(problem, method)
        choices = augmentation(problem, method, reading) if reading.residuals else None
        if choices is None:
            return kind(problem, reading, method)
        planned = Augmented(choices, method).plan(problem)
    first = reading.residuals[0]
    verb = "enters" if len(first.latents) == 1 else "enter"
    latents = ", ".join(f"'{name}'" for name in first.latents)
    reason = f"{latents} {verb} '{first.site}' through {first.operation}"
    line = f"augment={choices}: chosen by the plan, because {reason}."
    planned.plan = replace(planned.plan, notes=(*planned.plan.notes, line))
    return planned


def augmentation(problem: Problem, method: ByRows, reading: Reading) -> dict[str, str] | None:
    """The first augmentations, of the sites that need one, under which every update is exact."""
    kinds = {site.name: site.distribution for site in reading.model.sites}
    sites = list(dict.fromkeys(residual.site for residual in reading.residuals))
    if decided(problem.function).intersection(sites):
        return None
    for names in itertools.product(*(possible(kinds[site]) for site in sites)):
        choices = dict(zip(sites, names, strict=True))
        try:
            other = read_rows(problem.of(augmented(problem.function, choices)), method)
        except (ArgumentError, NotConjugateError):
            continue
        if not other.residuals:
            return choices
    return None

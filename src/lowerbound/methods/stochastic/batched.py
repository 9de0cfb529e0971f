"""The method values of minibatches: natural gradients from some rows, and memoised statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lowerbound.methods.coordinate.cavi import start_rules
from lowerbound.run.method import (
    CHECKPOINTS,
    COUNT,
    DEVICES,
    SINGLE,
    STREAMS,
    Method,
    Rule,
    Settings,
    is_count,
    is_size,
)
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem

ABILITIES = frozenset({CHECKPOINTS, DEVICES, SINGLE, STREAMS})


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Details(Settings):
    """Settings of `lb.SVI` that are seldom changed.

    tolerance: stop when the relative gain of `monitor` (or of the noisy ELBO) over four
        evaluations is below it; by default 1e-4, or 0 where `steps` are given, which runs them all.
    sampling: "epochs" draws rows without replacement, pass after pass; "uniform" as in the paper.
    average: return an average of the late iterates instead of the last.
    blocks, init: as for `lb.CAVI`; `init` is found on the first batch.

    >>> lb.SVI(details=lb.Details(average=True))
    SVI(details=Details(average=True))
    """

    tolerance: float | None = None
    sampling: str = "epochs"
    average: bool = False
    blocks: Sequence[Sequence[str]] | None = None
    init: str | Mapping[str, Any] = "auto"

    def __post_init__(self) -> None:
        self.check(
            (
                "tolerance",
                self.tolerance is None or is_size(self.tolerance),
                "a number of at least 0",
            ),
            ("sampling", self.sampling in ("epochs", "uniform"), '"epochs" or "uniform"'),
            ("average", isinstance(self.average, bool), "True or False"),
            *start_rules(self.init, self.blocks),
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SVI(Method):
    """Stochastic variational inference (alg:svi): natural gradients from minibatches of rows.

    batch_size: rows per step; by default 8192, or all where there are fewer.
    steps: stop after this many; by default when `monitor` has settled, and then take full steps on
        all rows, as far as the run has read as many.
    delay, forgetting: step t = 0, 1, ... is (t + delay)^-forgetting, with forgetting in (0.5, 1];
        forgetting="adaptive" takes the step from the noise of the gradients.
    plate: the plate of the rows, where several could be it.
    monitor: rows set aside to stop by their average log predictive: "auto" (up to 1000), their
        number, None, or other held-out arguments of the model.
    details: lb.Details(tolerance=, sampling=, average=, blocks=, init=), seldom changed.

    >>> fit = lb.fit(coin, y, method=lb.SVI(batch_size=4, steps=40, forgetting=0.7))
    >>> fit.stop_reason
    'stopped: ran the 40 steps'
    """

    batch_size: int | None = None
    steps: int | None = None
    delay: float = 1.0
    forgetting: float | str = "adaptive"
    plate: str | None = None
    monitor: Any = "auto"
    details: Details = field(default_factory=Details)
    can: ClassVar[frozenset[str]] = ABILITIES

    def __post_init__(self) -> None:
        adaptive = self.forgetting == "adaptive"
        self.check(
            ("steps", self.steps is None or is_count(self.steps), COUNT),
            ("delay", is_size(self.delay) and self.delay > 0, "a number above 0"),
            (
                "forgetting",
                adaptive or (is_size(self.forgetting) and 0.5 < float(self.forgetting) <= 1.0),
                'a number above 0.5 and up to 1, or "adaptive": only then do the steps (t + delay)'
                "^-forgetting sum to infinity and their squares do not (Robbins and Monro)",
            ),
            ("details", isinstance(self.details, Details), "lb.Details(...)"),
            *_row_rules(self.batch_size, self.monitor, '"auto", '),
        )

    @property
    def least_gain(self) -> float:
        """The relative gain below which a run has settled."""
        if self.details.tolerance is not None:
            return self.details.tolerance
        return 0.0 if self.steps is not None else 1e-4

    @property
    def sampling(self) -> str:
        """How rows are drawn."""
        return self.details.sampling

    @property
    def blocks(self) -> Sequence[Sequence[str]] | None:
        """The partition of q."""
        return self.details.blocks

    @property
    def init(self) -> str | Mapping[str, Any]:
        """Where the factors start."""
        return self.details.init

    def plan(self, problem: Problem) -> Planned[Any]:
        """Steps on batches of rows; augmented where batches need it to add up."""
        from lowerbound.methods.stochastic.stepping import planned_steps

        return planned_steps(problem, self)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Memoized(Method):
    """Memoised coordinate ascent (Hughes and Sudderth 2013): full steps, batch by batch.

    The expected statistics of every batch are kept, and the bound never falls.

    batch_size: rows of a batch; by default 8192, or all where there are fewer.
    visits: stop after this many batches; by default when the ELBO has settled.
    tolerance: stop when the relative gain of the ELBO in one pass is below it; by default 1e-8, or
        0 where `visits` are given.
    plate: the plate of the rows, where several could be it.
    monitor: rows to set aside for a held-out log predictive in the history: their number, None, or
        other held-out arguments of the model.
    blocks, init: as for `lb.CAVI`; `init` is found on the first batch.

    >>> fit = lb.fit(coin, y, method=lb.Memoized(batch_size=2))
    >>> round(float(fit.mean("p")), 2)
    0.67
    """

    batch_size: int | None = None
    visits: int | None = None
    tolerance: float | None = None
    plate: str | None = None
    monitor: Any = None
    blocks: Sequence[Sequence[str]] | None = None
    init: str | Mapping[str, Any] = "auto"
    can: ClassVar[frozenset[str]] = ABILITIES

    def __post_init__(self) -> None:
        self.check(
            ("visits", self.visits is None or is_count(self.visits), COUNT),
            (
                "tolerance",
                self.tolerance is None or is_size(self.tolerance),
                "a number of at least 0",
            ),
            *_row_rules(self.batch_size, self.monitor),
            *start_rules(self.init, self.blocks),
        )

    @property
    def least_gain(self) -> float:
        """The relative gain of a pass below which a run has settled."""
        if self.tolerance is not None:
            return self.tolerance
        return 0.0 if self.visits is not None else 1e-8

    @property
    def sampling(self) -> str:
        """How rows are drawn: all of them, pass after pass."""
        return "epochs"

    def plan(self, problem: Problem) -> Planned[Any]:
        """Visits to batches of rows; augmented where batches need it to add up."""
        from lowerbound.methods.stochastic.visiting import planned_visits

        return planned_visits(problem, self)


ByRows = SVI | Memoized


def _row_rules(batch_size: Any, monitor: Any, more: str = "") -> tuple[Rule, ...]:
    return (
        ("batch_size", batch_size is None or is_count(batch_size), COUNT),
        (
            "monitor",
            not isinstance(monitor, str) or (bool(more) and monitor == "auto"),
            f"{more}a number of rows, None, or held-out arguments of the model",
        ),
        (
            "monitor",
            not isinstance(monitor, int) or is_count(monitor),
            "at least 1 row, or None for no held-out rows",
        ),
    )

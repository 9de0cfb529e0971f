"""Fits on batches of rows are judged by some of the rows, and by all where that can be afforded.

log p(x, z) = log p(z) + sum over rows of log p(x_i | z). With the rows in parts of equal size, each
part's sum counted as often as there are parts of all rows, the average over parts is log p itself;
the average over some of them is an estimate, whose error the parts tell by how they differ. Where
the posterior is hangs on the slope at the mean of q, which one point of every part tells, so that
comes from all parts that can be had; how wide it is, some of them tell. All this is of the global
sites: discrete sites of the rows are summed out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from numpyro.primitives import Messenger

from lowerbound.errors import UnjudgedError
from lowerbound.methods.gaussian.target import Target, target_for
from lowerbound.methods.stochastic.row_plan import find_rows, trace_batch
from lowerbound.model import Model, trace_model
from lowerbound.model.program import Message
from lowerbound.result.evidence import Evidence, Finding, Off
from lowerbound.result.fitted import Fit
from lowerbound.result.unseen.new_rows import row_axes
from lowerbound.result.verdicts import Drawn
from lowerbound.rewrite.summing.enumerated import discrete_sites, enumerated
from lowerbound.source import open_call
from lowerbound.source.call import ArraySource
from lowerbound.trust.against import Against, auxiliary_sites, marginal_of
from lowerbound.trust.proposals import matched

PARTS, MOST_ROWS = 16, 8192  # parts at least, and rows in one at most
POINTS, LEAST_POINTS = 4096, 512  # of log p that a verdict needs, about, and that will do
LEAST_ROWS = 500  # in one part, where larger ones would leave too little time for points
FEWEST = 4  # parts that tell how parts differ
CENTRE = 256  # draws of q that its mean is taken from
SLOPES = 2.0  # the part of the time that goes into slopes is one over this

Call = tuple[tuple[Any, ...], Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class PartsTarget(Target):
    """The average of log p over parts of the rows, each standing for all of them.

    parts: the data of each, `size` rows. total: the rows that there are. slopes: the gradient of
    more parts at `centre`, those of `parts` first.
    """

    parts: tuple[dict[str, Any], ...] = ()
    size: int = 0
    total: int = 0
    centre: np.ndarray | None = None
    slopes: np.ndarray | None = None

    @property
    def rows(self) -> int:
        """The rows that the slope at the centre is of."""
        count = len(self.parts) if self.slopes is None else len(self.slopes)
        return min(self.size * count, self.total)

    @property
    def everywhere(self) -> bool:
        """Where some rows stand for all, or a slope for theirs, it is log p near q alone."""
        return False

    @property
    def left_over(self) -> float:
        """The share of the rows that it does not know of: parts of one size may leave a few."""
        return 1.0 - self.rows / self.total

    def __call__(self, vectors: np.ndarray, few: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Values and gradients at the rows of `vectors`."""
        values, gradients = np.zeros(len(vectors)), np.zeros(vectors.shape)
        for value, gradient in (part(vectors, few) for part in self.each):
            values += value / len(self.parts)
            gradients += gradient / len(self.parts)
        if self.slopes is None:
            return values, gradients
        pull = self.slopes.mean(axis=0) - self.slopes[: len(self.parts)].mean(axis=0)
        return values + (vectors - self.centre) @ pull, gradients + pull

    @cached_property
    def each(self) -> tuple[Target, ...]:
        """The target of every part."""
        own = {f.name: getattr(self, f.name) for f in fields(Target)}
        return tuple(Target(**{**own, "arguments": part, "data": part}) for part in self.parts)

    def seconds(self, points: float) -> float:
        """What values and gradients at so many points take."""
        return len(self.parts) * super().seconds(points)

    @property
    def ordinary(self) -> float:
        """Seconds of a value with its gradient on an ordinary core."""
        return len(self.parts) * super().ordinary


class _Counted(Messenger):  # type: ignore[misc]
    """Observed sites of rows count several times."""

    def __init__(self, fn: Any, names: Collection[str], times: float) -> None:
        super().__init__(fn)
        self.names, self.times = frozenset(names), times

    def process_message(self, msg: Message) -> None:
        """Multiply the scale."""
        if msg["type"] == "sample" and msg["name"] in self.names:
            msg["scale"] = self.times if msg["scale"] is None else msg["scale"] * self.times


def against_rows(fit: Fit, call: Call | None, seconds: float) -> Against:
    """The density of the global sites by rows of a call, as many as the seconds allow.

    Without a call, the rows that the fit has kept stand for all.
    """
    if fit.answer.taught:
        raise UnjudgedError("its prior is what earlier rows have taught, and these are not kept")
    if call is None:
        if not fit.has_data or fit.answer.total is None:
            raise UnjudgedError("the fit keeps no rows; pass some to lb.check(fit, rows=...)")
        assert fit.call.args is not None
        call = fit.call.args, fit.call.kwargs
    with jax.enable_x64(True):
        family, parameters = marginal_of(fit, auxiliary_sites(fit))
        target, rows = _target(fit, call, fit.answer.total, seconds)
        judge = Against(target, family, parameters)
        centre = judge.places(fit.seed, CENTRE).mean(axis=0)
        return replace(judge, target=_sloped(target, centre, rows, seconds))


def _sloped(target: PartsTarget, centre: np.ndarray, rows: Rows, seconds: float) -> PartsTarget:
    """The target with the slope at the centre of as many parts as some of the time allows."""
    (one, *_) = target.each
    affordable = int(seconds / SLOPES / (one.batch * one.ordinary))
    count = min(max(affordable, len(target.parts)), rows.count)
    slopes = [part(centre[None], True)[1] for part in target.each]
    for number in range(len(target.parts), count):
        own = _arguments(target, rows.part(number))
        slopes.append(replace(one, arguments=own, data=own)(centre[None], True)[1])
    return replace(target, centre=centre, slopes=np.concatenate(slopes))


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a source in parts of equal size, in random order."""

    source: ArraySource
    order: np.ndarray
    size: int

    @property
    def count(self) -> int:
        """The number of parts."""
        return len(self.order) // self.size

    def part(self, number: int) -> dict[str, Any]:
        """The rows of one part."""
        own = self.order[number * self.size : (number + 1) * self.size]
        return self.source.take(np.sort(own))


def _target(fit: Fit, call: Call, total: int | None, seconds: float) -> tuple[PartsTarget, Rows]:
    """Log p by rows of a call, of which there are so many in all where the call has not all."""
    opened = open_call(fit.original, *call)
    method: Any = SimpleNamespace(plate=fit.answer.plate, name="check")
    plan = find_rows(fit.original, opened, method)
    source = opened.source(plan.names)
    if opened.masked:
        raise UnjudgedError("some entries of the rows are missing")
    if not isinstance(source, ArraySource):
        raise UnjudgedError("the rows are a stream; pass some of them to lb.check(fit, rows=...)")
    total = max(source.total, total or 0)
    order = np.random.default_rng(fit.seed).permutation(source.total)

    def of_size(size: int) -> tuple[Rows, Target]:
        rows = Rows(source, order, size)
        first = trace_batch(fit.original, opened, plan, rows.part(0))
        return rows, target_for(_global(first, total / size))

    rows, target = of_size(_size(source.total))
    affordable = seconds / (FEWEST * LEAST_POINTS * target.ordinary)
    smaller = max(int(affordable * rows.size), LEAST_ROWS)
    if smaller < rows.size:
        rows, target = of_size(smaller)
    few = min(FEWEST, rows.count)
    used = int(np.clip(seconds / (POINTS * target.ordinary), few, rows.count))
    own = {f.name: getattr(target, f.name) for f in fields(Target)}
    parts = tuple(_arguments(target, rows.part(number)) for number in range(used))
    return PartsTarget(**own, parts=parts, size=rows.size, total=total), rows


def _size(total: int) -> int:
    """Rows of a part: parts are enough, not too large, and leave as few rows over as can be."""
    fewest = max(PARTS, math.ceil(total / MOST_ROWS))
    sizes = {max(total // count, 1) for count in range(fewest, 2 * fewest + 1)}
    return min(sizes, key=lambda size: (total % size, -size))


def _global(model: Model, times: float) -> Model:
    """The program of some rows without sites of their own, each row counted so many times."""
    discrete, axes = discrete_sites(model), row_axes(model)
    own = [name for name in model.local if name not in discrete]
    if own:
        raise UnjudgedError(f"rows have continuous sites of their own ('{own[0]}')")
    shared = [name for name in discrete if name not in model.local]
    if shared:
        raise UnjudgedError(f"the discrete site '{shared[0]}' belongs to all rows together")
    function: Callable[..., Any] = model.function
    call = model.arguments.call(model.arguments.data)
    if discrete:
        summation = enumerated(model)
        function, call = summation.function, summation.call
    summed = trace_model(function, *call)
    names = [n for n in summed.observed if n in axes or n not in model.observed]
    return trace_model(_Counted(function, names, times), *call)


def _arguments(target: Target, rows: dict[str, Any]) -> dict[str, Any]:
    """The data of a target with other rows in their place."""
    if any(name not in target.arguments for name in rows):
        raise UnjudgedError("the rows are no arguments of the program by themselves")
    return {
        name: np.asarray(rows[name], array.dtype) if name in rows else array
        for name, array in target.arguments.items()
    }


def by_rows(evidence: Evidence, judge: Against, drawn: Drawn) -> Evidence:
    """The evidence with what it does not know because it is of some rows alone."""
    target = judge.target
    if not isinstance(target, PartsTarget) or target.slopes is None:
        return evidence
    used, left = target.size * len(target.parts), target.left_over
    place = matched(drawn)
    root = np.linalg.cholesky(np.cov(drawn.vectors.T)) if place is None else place[1]
    # The posterior of some rows is away from that of all by its covariance times their slopes.
    moves = (target.slopes - target.slopes.mean(axis=0)) @ root @ root.T
    sds = np.sqrt((root**2).sum(axis=1))
    noise = np.sqrt(moves.var(axis=0, ddof=1) * left / len(moves)) / sds
    wide = 1.0 / math.sqrt(used) if used < target.total - target.size else 0.0

    def less_known(one: Off) -> Off:
        away = float(noise[judge.coordinates.part(one.site)].max())
        away = math.hypot(away, wide * abs(one.shift))
        return replace(
            one,
            shift_error=math.hypot(one.shift_error, away),
            spread_error=math.hypot(one.spread_error, wide),
        )

    rows = f"all {target.total:,} rows" if not left else f"{target.rows:,} of {target.total:,} rows"
    text = f"Means are told by {rows}, to {noise.max():.2f} posterior sds, and sds by {used:,}."
    found = (*evidence.findings, Finding("rows", text, value=1.0 - left))
    off = tuple(less_known(one) for one in evidence.off)
    return replace(evidence, off=off, findings=found, gap=evidence.gap if not wide else math.nan)

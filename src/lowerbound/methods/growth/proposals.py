"""Which components to merge, to delete, to split and to put in order.

A proposal is tried by itself, from where the fit stands. Those that raise the ELBO and do not touch
each other are then made together, where that is better than the best of them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jax import Array

from lowerbound.ascent import State
from lowerbound.methods.growth.partition import HELD, TRIAL, Partition, Seen
from lowerbound.result.posterior import Move

PATIENCE = 4  # proposals of one kind in a row that fail, before the rest are left
GAIN = 0.1  # nats: optima that differ by less are one
COARSE = 1e-6  # relative change of the ELBO in a sweep, below which moves are worth a try

Components = tuple[int, ...]
Built = Callable[[list[Components]], Array]  # the responsibilities that some changes lead to


class Step(NamedTuple):
    """Where a change leads."""

    state: State
    elbo: float
    move: Move


@dataclass(frozen=True, eq=False)
class Standpoint:
    """Where a fit stands: its factors, and their ELBO after some sweep."""

    partition: Partition
    state: State
    elbo: float
    sweep: int

    @cached_property
    def seen(self) -> Seen:
        """What the responsibilities say of the components."""
        return self.partition.seen(self.state)

    def merged(self, uniforms: np.ndarray) -> Step | None:
        """The rows of components in others."""
        return self._of("merge", _pairs(self.seen), self._joined)

    def deleted(self, uniforms: np.ndarray) -> Step | None:
        """The rows of components in whichever of the others suit them."""
        return self._of("delete", _dispensable(self.seen), self._without)

    def ordered(self, uniforms: np.ndarray) -> Step | None:
        """The same components, the largest first."""
        return self._of("order", _disorder(self.seen), self._permuted)

    def split(self, uniforms: np.ndarray) -> Step | None:
        """All components at once shared with empty ones; each is then tried."""
        K = self.partition.components
        free = np.flatnonzero(self.seen.rows < HELD)
        pairs = list(zip(_by_size(self.seen).tolist(), free.tolist(), strict=False))
        if not pairs:
            return None
        halves, others = np.full((2, K // 2), K)  # K has no column: no pair
        halves[: len(pairs)], others[: len(pairs)] = zip(*pairs, strict=True)
        parted, gained = self.partition.parted(
            self.state, halves, others, uniforms[:, : len(halves)]
        )
        likely = [pairs[p] for p in np.argsort(-gained[: len(pairs)])]

        def some(changes: list[Components]) -> Array:
            return self.partition.of(self.state, parted, np.isin(np.arange(K), changes))

        return self._of("split", likely, some)

    def _of(self, kind: str, candidates: Iterable[Components], built: Built) -> Step | None:
        """The candidates that gain, together or the best of them; the likeliest come first."""
        gaining: list[tuple[float, Components, Step]] = []
        failures = 0
        for one in candidates:
            step = self._tried(kind, [one], built)
            failures = 0 if step else failures + 1
            if step:
                gaining.append((step.move.gain, one, step))
            if failures == PATIENCE:
                break
        if not gaining:
            return None
        gaining.sort(key=lambda each: -each[0])
        apart: list[Components] = []
        for _, one, _ in gaining:
            if not set(one) & {k for other in apart for k in other}:
                apart.append(one)
        best = gaining[0][2]
        both = self._tried(kind, apart, built) if len(apart) > 1 else None
        return both if both and both.move.gain > best.move.gain else best

    def _tried(self, kind: str, changes: list[Components], built: Built) -> Step | None:
        """Where some changes lead, if the ELBO is higher there."""
        state, elbo = self.partition.tried(self.state, built(changes))
        gain = elbo - self.elbo
        plain = TRIAL * COARSE * abs(self.elbo)  # what sweeps alone might have brought
        if not gain > max(GAIN, plain):  # also where it is no number
            return None
        return Step(state, elbo, Move(kind, tuple(changes), gain, self.sweep))

    # -- the responsibilities of each kind -------------------------------------------------------

    def _joined(self, changes: list[Components]) -> Array:
        into = np.arange(self.partition.components)
        for k, other in changes:
            into[k] = other
        return self.partition.joined(self.state, into, np.ones(len(into), bool))

    def _without(self, changes: list[Components]) -> Array:
        into = np.arange(self.partition.components)
        return self.partition.joined(self.state, into, ~np.isin(into, changes))

    def _permuted(self, changes: list[Components]) -> Array:
        (order,) = changes
        into = np.empty(len(order), int)
        into[list(order)] = np.arange(len(order))
        return self.partition.joined(self.state, into, np.ones(len(into), bool))


def _by_size(seen: Seen) -> np.ndarray:
    """The components with rows, the largest first."""
    order = np.argsort(-seen.rows, kind="stable")
    return order[seen.rows[order] >= HELD]


def _pairs(seen: Seen) -> list[Components]:
    """Each component with the one that explains its rows best, those that lose least first."""
    used = _by_size(seen)
    if len(used) < 2:
        return []
    loss = np.where(np.eye(len(used), dtype=bool), np.inf, seen.loss[np.ix_(used, used)])
    best: dict[frozenset[int], tuple[float, int, int]] = {}
    for k, other in enumerate(loss.argmin(1)):
        pair = frozenset((int(used[k]), int(used[other])))
        best[pair] = min(best.get(pair, (np.inf, 0, 0)), (loss[k, other], used[k], used[other]))
    return [(int(k), int(other)) for _, k, other in sorted(best.values())]


def _dispensable(seen: Seen) -> list[Components]:
    """Components by what their rows lose where these go to the best of the others."""
    used = _by_size(seen)
    return [(int(k),) for k in used[np.argsort(seen.spread[used])]] if len(used) > 1 else []


def _disorder(seen: Seen) -> list[Components]:
    """All components, the largest first, where they are not so: sticks prefer it."""
    order = np.argsort(-np.where(seen.rows < HELD, 0.0, seen.rows), kind="stable")
    return [tuple(order.tolist())] if (order != np.arange(len(order))).any() else []


KINDS: tuple[Callable[[Standpoint, np.ndarray], Step | None], ...] = (
    Standpoint.merged,
    Standpoint.deleted,
    Standpoint.ordered,
    Standpoint.split,
)

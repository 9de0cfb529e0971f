"""What a run of coordinate ascent has come to, and what a checkpoint keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from lowerbound.ascent import State
from lowerbound.compute.spread import fetch
from lowerbound.errors import StorageError

Numbers = Array | np.ndarray
CHUNK = 64
RUNNING, CONVERGED, FELL, NOT_FINITE = range(4)


class Carry(NamedTuple):
    """Everything that a chunk of sweeps carries; leading axis = restarts."""

    state: State
    elbo: Numbers
    status: Numbers
    sweeps: Numbers


def first_carry(states: State, restarts: int) -> Carry:
    """What the first chunk starts from; `states` may be shapes only."""
    zeros = np.zeros((restarts,), int)
    return Carry(states, np.full((restarts,), -np.inf), zeros, zeros)


def next_check(sweep: int) -> int:
    """The sweep after which to look at the score again: 1, 3, 7, ..., 63, 127, 191, ..."""
    return sweep + min(sweep + 1, CHUNK)


@dataclass(frozen=True)
class Progress:
    """What a run has come to: all that a checkpoint holds."""

    carry: Carry
    proper: Numbers  # (restarts, blocks)
    history: np.ndarray  # (sweeps, restarts)
    seconds: np.ndarray
    scores: np.ndarray
    check: int  # the sweep after which to look at the score

    @classmethod
    def first(cls, states: State, restarts: int) -> Progress:
        """Before the first sweep."""
        none, proper = np.zeros(0), np.zeros((restarts, 0), bool)
        carry = first_carry(states, restarts)
        return cls(carry, proper, np.zeros((0, restarts)), none, none, next_check(0))

    @classmethod
    def restored(cls, document: Mapping[str, Any], like: Progress) -> Progress:
        """As it was when `document` was written, for a run that would start `like` this."""
        own = dict(document)
        try:
            state = State(own.pop("naturals"), own.pop("means"))
            carry = Carry(state, *(own.pop(name) for name in Carry._fields[1:]))
            if _outline(carry) != _outline(host(like.carry)):
                raise ValueError("its arrays have other shapes")
            return cls(carry, **own)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(
                f"The checkpoint does not fit the model: {error}.\n"
                "Expected the model that the run was started with. Undo the change, or start again "
                "in an empty folder."
            ) from error

    def document(self) -> dict[str, Any]:
        """Arrays and plain values."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        carry = host(own.pop("carry"))
        rest = dict(zip(Carry._fields[1:], carry[1:], strict=True))
        naturals, means = carry.state.naturals, carry.state.means
        return {**own, **rest, "proper": host(self.proper), "naturals": naturals, "means": means}

    @property
    def done(self) -> int:
        """The number of sweeps."""
        return len(self.history)

    @property
    def elbo(self) -> float:
        """The best ELBO of all restarts."""
        return float(np.max(np.asarray(self.carry.elbo)))

    def over(self, max_sweeps: int) -> bool:
        """Whether every restart has a reason to stop."""
        return self.done >= max_sweeps or bool((np.asarray(self.carry.status) != RUNNING).all())


def host(tree: Any) -> Any:
    """The arrays of a tree in the host's memory."""
    return fetch(tree)


def _outline(tree: Any) -> tuple[Any, list[Any]]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(np.shape(leaf), np.dtype(leaf.dtype)) for leaf in leaves]

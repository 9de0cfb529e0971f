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
    change: Numbers  # of the ELBO in the last sweep, relative
    status: Numbers
    sweeps: Numbers


def first_carry(states: State, restarts: int) -> Carry:
    """What the first chunk starts from; `states` may be shapes only."""
    zeros = np.zeros((restarts,), int)
    return Carry(states, np.full((restarts,), -np.inf), np.zeros(restarts), zeros, zeros)


def next_check(sweep: int) -> int:
    """The sweep after which to look at the score again: 1, 3, 7, ..., 63, 127, 191, ..."""
    return sweep + min(sweep + 1, CHUNK)


@dataclass(frozen=True)
class Progress:
    """What a run has come to: all that a checkpoint holds."""

    carry: Carry
    proper: Numbers  # (restarts, blocks)
    scores: np.ndarray  # held-out values, one per check; empty without monitor
    check: int  # the sweep after which to look at the score

    @classmethod
    def first(cls, states: State, restarts: int) -> Progress:
        """Before the first sweep."""
        proper = np.zeros((restarts, 0), bool)
        return cls(first_carry(states, restarts), proper, np.zeros(0), next_check(0))

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
        """The number of sweeps: that of the restart which swept longest."""
        return int(np.max(np.asarray(self.carry.sweeps)))

    @property
    def elbo(self) -> float:
        """The best ELBO of all restarts."""
        return float(np.max(np.asarray(self.carry.elbo)))

    @property
    def status(self) -> np.ndarray:
        """The status of each restart."""
        return np.asarray(self.carry.status)

    @property
    def running(self) -> bool:
        """Whether some restart has no reason to stop."""
        return bool((self.status == RUNNING).any())

    @property
    def best(self) -> int:
        """The restart of the highest ELBO."""
        elbos = np.asarray(self.carry.elbo)
        return int(np.argmax(np.where(np.isfinite(elbos), elbos, -np.inf)))


def host(tree: Any) -> Any:
    """The arrays of a tree in the host's memory."""
    return fetch(tree)


def _outline(tree: Any) -> tuple[Any, list[Any]]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(np.shape(leaf), np.dtype(leaf.dtype)) for leaf in leaves]

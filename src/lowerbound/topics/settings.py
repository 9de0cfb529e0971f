"""What a run is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["svi", "cavi", "collapsed"]


@dataclass(frozen=True)
class Setting:
    """One run: which inference, in what steps, and when to stop."""

    topics: int
    inference: Kind
    batch_size: int
    passes: int  # at most
    tolerance: float  # gain that counts: nats per held-out token, or of the ELBO by its size (cavi)
    delay: float
    forgetting: float
    seed: int
    learn_document: bool
    learn_topic: bool
    sweeps: bool  # collapsed: go on with phi of all entries in memory
    why: str  # the reason for the inference, in words

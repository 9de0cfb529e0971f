"""What a run is asked to do, checked, and what "auto" chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Inference = Literal["svi", "cavi", "collapsed"]

STORED_BYTES: Final = 4 * 2**30  # of phi, that collapsed sweeps may keep in memory
SHORT: Final = 200  # tokens a document, below which leaving its own token out is worth its price


@dataclass(frozen=True)
class Setting:
    """One run: which inference, in what steps, and when to stop."""

    topics: int
    inference: Inference
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

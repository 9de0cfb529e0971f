"""What is kept of a run's looks, and what they decide."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from lowerbound.result.posterior import History
from lowerbound.run.planned import Trace
from lowerbound.topics.inference import Look
from lowerbound.topics.looks.quality import top_words
from lowerbound.topics.settings import Setting
from lowerbound.topics.snapshots import WORDS, Snapshots, no_snapshots

PATIENCE: Final = 3  # looks without a gain


@dataclass(eq=False)
class Watch:
    """Decides from looks when a run has settled, and when priors may be learned."""

    setting: Setting
    scores: list[float] = field(default_factory=list)  # since priors last changed their regime
    judged: bool = True  # by documents held out; else by the ELBO

    def settled(self) -> str | None:
        """Why nothing more is to be gained; None while there is."""
        tolerance = self.setting.tolerance
        if self.setting.inference == "cavi" and not self.judged:
            if len(self.scores) > 1:
                gain = self.scores[-1] - self.scores[-2]
                if gain <= tolerance * abs(self.scores[-1]):
                    return f"the ELBO gained less than {tolerance:g} of its size in a sweep"
            return None
        if len(self.scores) <= PATIENCE:
            return None
        gain = max(self.scores[-PATIENCE:]) - max(self.scores[:-PATIENCE])
        what, unit, size = "held-out score", "nats per token", 1.0
        if not self.judged:
            what, unit, size = "ELBO of batches", "of its size", abs(self.scores[-1])
        if gain < tolerance * size:
            return f"the {what} gained less than {tolerance:g} {unit} in {PATIENCE} looks"
        return None


def progress_text(look: Look, score: float) -> str:
    """What the bar shows."""
    if np.isfinite(score):
        return f"held out {score:.4f} nats/token"
    return f"ELBO {look.elbo:.6g}" if np.isfinite(look.elbo) else ""


@dataclass(frozen=True, eq=False)
class Trail:
    """What is kept of the looks, beside their ELBO and seconds."""

    held_out: np.ndarray  # NaN where nothing was judged
    documents: np.ndarray
    snapshots: Snapshots

    @classmethod
    def of(cls, topics: int, vocabulary: int) -> Trail:
        """Of no look yet."""
        shots = no_snapshots(topics, min(WORDS, vocabulary))
        return cls(np.zeros(0), np.zeros(0, int), shots)

    def with_look(self, look: Look, score: float, topics: np.ndarray) -> Trail:
        """And one more."""
        shares, words = topics.sum(axis=0), self.snapshots.words.shape[2]
        return Trail(
            np.append(self.held_out, score),
            np.append(self.documents, look.documents),
            self.snapshots.with_one(
                look.documents, shares / shares.sum(), top_words(topics.T, words), score
            ),
        )

    def history(self, trace: Trace) -> History:
        """As the fit keeps it."""
        held_out = self.held_out if np.isfinite(self.held_out).any() else np.zeros(0)
        return History(trace.values, trace.seconds, held_out, self.documents, "nats per token")

"""What is kept of a run's looks, and what they decide."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from lowerbound.result.posterior import History
from lowerbound.topics.inference import Look
from lowerbound.topics.inference_steps import Engine
from lowerbound.topics.looks.quality import top_words
from lowerbound.topics.settings import Setting
from lowerbound.topics.snapshots import WORDS, Snapshots, no_snapshots
from lowerbound.topics.standing import Progress, Standing

TRAILED: Final = ("elbo", "seconds", "held_out", "documents")
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


@dataclass(eq=False)
class Trail:
    """What is kept of the looks."""

    topics: int
    vocabulary: int
    elbo: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    held_out: list[float] = field(default_factory=list)
    documents: list[int] = field(default_factory=list)
    snapshots: Snapshots | None = None

    def add(self, look: Look, score: float, seconds: float, engine: Engine) -> None:
        """Keep a look."""
        self.elbo.append(look.elbo)
        self.seconds.append(seconds)
        self.held_out.append(score)
        self.documents.append(look.documents)
        words = min(WORDS, self.vocabulary)
        topics = engine.fetch(look.topics)
        if self.snapshots is None:
            self.snapshots = no_snapshots(self.topics, words)
        shares = topics.sum(axis=0)
        self.snapshots = self.snapshots.with_one(
            look.documents, shares / shares.sum(), top_words(topics.T, words), score
        )

    def progress(
        self, now: Standing, before: Standing | None, scores: list[float], seconds: float
    ) -> Progress:
        """What a checkpoint keeps of the run."""
        assert self.snapshots is not None
        arrays = {name: np.asarray(getattr(self, name)) for name in TRAILED}
        return Progress(now, before, scores, arrays, self.snapshots, seconds)

    @staticmethod
    def restored(empty: Trail, held: Progress) -> Trail:
        """The looks of a checkpoint."""
        lists = {name: held.trail[name].tolist() for name in TRAILED}
        return replace(empty, snapshots=held.snapshots, **lists)

    def history(self) -> History:
        """As the fit keeps it."""
        scores = np.asarray(self.held_out)
        held_out = scores if np.isfinite(scores).any() else np.zeros(0)
        return History(
            np.asarray(self.elbo),
            np.asarray(self.seconds),
            held_out,
            np.asarray(self.documents),
            "nats per token",
        )

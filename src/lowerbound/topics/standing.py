"""Where a run stands, in one file: a fit that was killed goes on from its last whole pass."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lowerbound.errors import StorageError
from lowerbound.store.archive import Kind, read_archive, write_archive
from lowerbound.store.checkpoint import Checkpoint, Keeper
from lowerbound.topics.corpus import Corpus
from lowerbound.topics.inference import Look
from lowerbound.topics.inference_steps import Engine
from lowerbound.topics.looks.watch import Trail
from lowerbound.topics.priors import Priors
from lowerbound.topics.settings import Setting
from lowerbound.topics.snapshots import Snapshots

KIND = Kind(
    "topics checkpoint", 2, "LatentDirichletAllocation().fit(checkpoint=...)",
    "Delete the file to start anew.",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Standing:
    """A look at which priors it was taken, and what was decided before it."""

    look: Look
    priors: Priors
    score: float


@dataclass(frozen=True, eq=False)
class Progress:
    """All that a run needs to go on as though it had not been interrupted."""

    trail: Trail
    now: Standing | None = None
    before: Standing | None = None  # the last look before priors were learned
    scores: tuple[float, ...] = ()  # since priors last changed their regime

    def document(self, engine: Engine) -> dict[str, Any]:
        """Arrays and plain values."""
        return {
            "now": None if self.now is None else _plain(self.now, engine),
            "before": None if self.before is None else _plain(self.before, engine),
            "scores": np.asarray(self.scores, float),
            "held_out": self.trail.held_out,
            "documents": self.trail.documents,
            "snapshots": asdict(self.trail.snapshots),
        }

    @classmethod
    def restored(cls, document: Mapping[str, Any], engine: Engine) -> Progress:
        """As it was when `document` was written."""
        shots = Snapshots(**document["snapshots"])
        trail = Trail(document["held_out"], document["documents"], shots)
        now, before = (
            None if document[name] is None else _standing(document[name], engine)
            for name in ("now", "before")
        )
        return cls(trail, now, before, tuple(document["scores"].tolist()))


class OneFile(Keeper):
    """Keeps the last whole pass of a run in one file, for the next fit with the same settings."""

    def write(self, step: int, document: Mapping[str, Any]) -> None:
        """Put the file in its place, at once or not at all."""
        write_archive(self.directory, {"run": self.record, "progress": document}, KIND)

    def read(self) -> Mapping[str, Any] | None:
        """What the file holds, if it is of this run; None where there is none."""
        if not self.directory.exists():
            return None
        document = read_archive(self.directory, KIND)
        if set(document) != {"run", "progress"}:
            raise KIND.damaged(self.directory, "its record does not fit together")
        found: Mapping[str, Any] = document["run"]
        other = [name for name, value in self.record.items() if found.get(name) != value]
        if other:
            told = ", ".join(f"{n} {found.get(n)!r} (now {self.record[n]!r})" for n in other)
            raise StorageError(
                f"{self.directory} holds the checkpoint of another fit, with {told}.\n"
                "Expected the settings and the corpus that it was made with. Delete the file to "
                "start anew, or name another."
            )
        progress: Mapping[str, Any] = document["progress"]
        return progress

    def remove(self) -> None:
        """A finished run leaves nothing to go on from."""
        self.directory.unlink(missing_ok=True)


def keeper(
    path: Any, setting: Setting, corpus: Corpus, priors: Priors, validation: tuple[float, int]
) -> OneFile:
    """The checkpoint of a run of this setting, with these priors, on this corpus."""
    record = {n: v for n, v in asdict(setting).items() if n != "why"}
    record |= {
        "validation": list(validation),
        "vocabulary": corpus.vocabulary,
        "documents": corpus.count,
        "digest of priors": _digest(priors.document, priors.topic),
    }
    held = corpus.held
    if held is not None:
        record["digest of documents"] = _digest(held.starts, held.words, held.counts)
    return OneFile(Checkpoint(Path(path), every=1), record=record)


def _digest(*arrays: np.ndarray) -> int:
    found = 0
    for array in arrays:
        found = zlib.crc32(np.ascontiguousarray(array).data, found)
    return found


def _plain(standing: Standing, engine: Engine) -> dict[str, Any]:
    look, priors = standing.look, standing.priors
    numbers = {
        "documents": look.documents, "steps": look.steps, "passes": look.passes,
        "elbo": look.elbo, "score": standing.score,
    }  # fmt: skip
    return {
        "topics": engine.fetch(look.topics),
        "gamma": look.gamma,
        "document_prior": priors.document,
        "topic_prior": priors.topic,
        **{name: np.asarray(value) for name, value in numbers.items()},
    }


def _standing(found: dict[str, Any], engine: Engine) -> Standing:
    look = Look(
        topics=engine.place(np.asarray(found["topics"])),
        documents=int(found["documents"]),
        passes=float(found["passes"]),
        elbo=float(found["elbo"]),
        gamma=np.asarray(found["gamma"]),
        steps=int(found["steps"]),
    )
    priors = Priors(np.asarray(found["document_prior"]), np.asarray(found["topic_prior"]))
    return Standing(look, priors, float(found["score"]))

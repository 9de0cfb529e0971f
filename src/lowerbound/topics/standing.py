"""Where a run stands, in one file: a fit that was killed goes on from its last whole pass."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lowerbound.errors import StorageError
from lowerbound.store.archive import Kind, read_archive, write_archive
from lowerbound.topics.corpus import Corpus
from lowerbound.topics.inference import Look
from lowerbound.topics.inference_steps import Engine
from lowerbound.topics.priors import Priors
from lowerbound.topics.settings import Setting
from lowerbound.topics.snapshots import Snapshots

KIND = Kind(
    "topics checkpoint", 1, "LatentDirichletAllocation(checkpoint=...)",
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

    now: Standing
    before: Standing | None  # the last look before priors were learned
    scores: list[float]
    trail: dict[str, np.ndarray]
    snapshots: Snapshots
    seconds: float


@dataclass(frozen=True)
class Keeper:
    """Writes and reads the checkpoint of one run."""

    path: Path
    record: dict[str, Any]  # what tells this run from others

    def write(self, progress: Progress, engine: Engine) -> None:
        """Put the file in its place, at once or not at all."""
        document = {
            "run": self.record,
            "now": _plain(progress.now, engine),
            "before": None if progress.before is None else _plain(progress.before, engine),
            "scores": np.asarray(progress.scores, float),
            "trail": progress.trail,
            "snapshots": asdict(progress.snapshots),
            "seconds": np.asarray(progress.seconds),
        }
        write_archive(self.path, document, KIND)

    def read(self, engine: Engine) -> Progress | None:
        """What the file holds; None where there is none."""
        if not self.path.exists():
            return None
        document = read_archive(self.path, KIND)
        try:
            self._check(document["run"])
            before = document["before"]
            return Progress(
                now=_standing(document["now"], engine),
                before=None if before is None else _standing(before, engine),
                scores=np.asarray(document["scores"]).tolist(),
                trail={n: np.asarray(a) for n, a in document["trail"].items()},
                snapshots=Snapshots(**document["snapshots"]),
                seconds=float(document["seconds"]),
            )
        except (LookupError, TypeError, AttributeError) as error:
            raise KIND.damaged(self.path, f"its record does not fit together ({error})") from error

    def remove(self) -> None:
        """A finished run leaves nothing to go on from."""
        self.path.unlink(missing_ok=True)

    def _check(self, found: dict[str, Any]) -> None:
        other = [name for name, value in self.record.items() if found.get(name) != value]
        if other:
            told = ", ".join(f"{n} {found.get(n)!r} (now {self.record[n]!r})" for n in other)
            raise StorageError(
                f"{self.path} holds the checkpoint of another fit, with {told}.\n"
                "Expected the settings and the corpus that it was made with. Delete the file to "
                "start anew, or name another."
            )


def keeper(
    path: Any, setting: Setting, corpus: Corpus, priors: Priors, validation: tuple[float, int]
) -> Keeper:
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
    return Keeper(Path(path), record)


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

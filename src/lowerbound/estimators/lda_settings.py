"""The settings of latent Dirichlet allocation, checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.errors import ArgumentError, SettingError
from lowerbound.topics.choice import KINDS
from lowerbound.topics.corpus import Corpus
from lowerbound.topics.inference_steps import Engine

if TYPE_CHECKING:
    from lowerbound.estimators.lda import LatentDirichletAllocation


def learns(prior: Any) -> bool:
    """Whether a prior is to be learned."""
    return isinstance(prior, str) and prior == "learn"


def _number(value: Any) -> float:
    """A number as it is, anything else as NaN, which is in no range."""
    return float(value) if isinstance(value, int | float | np.number) else float("nan")


def engine_precision(engine: Engine) -> str:
    """The precision an engine runs in."""
    return str(getattr(engine, "precision", "float32"))


def check_prior(name: str, value: Any, size: int, what: str, one: bool = False) -> np.ndarray:
    """A Dirichlet's parameter as an array; `one`: a single number stays single."""
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        array = np.asarray(np.nan)
    expected = f'a positive number, one for each of the {size} {what}, or "learn"'
    if array.ndim > 1 or (array.ndim == 1 and len(array) != size):
        raise ArgumentError(f"{name} has shape {array.shape}.\nExpected {expected}.")
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise SettingError("", name, value, expected)
    if array.ndim == 0:
        return np.full(1 if one else size, float(array))
    return array


def check_topics(topics: int, corpus: Corpus) -> None:
    """More topics than words cannot differ."""
    if topics > corpus.vocabulary:
        raise ArgumentError(
            f"n_components={topics}, but the vocabulary has {corpus.vocabulary} words.\n"
            "Expected at most one topic for each word."
        )


def check_settings(lda: LatentDirichletAllocation) -> None:
    """Every setting, before anything is read."""
    check_count("n_components", lda.n_components)
    check_count("random_state", lda.random_state, least=0)
    if lda.n_jobs != -1:  # all cores, as None
        check_count("n_jobs", lda.n_jobs, optional=True)
    asked = lda.inference
    if not (isinstance(asked, Inference) or (isinstance(asked, str) and asked in KINDS)):
        raise SettingError("", "inference", asked, f"{_KINDS}, or an Inference")


def check_count(
    name: str, value: Any, *, least: int = 1, optional: bool = False, caller: str = ""
) -> None:
    """A whole number, or nothing where it is optional."""
    if value is None and optional:
        return
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        expected = f"a whole number of at least {least}{', or None' if optional else ''}"
        raise SettingError(caller, name, value, expected)


_KINDS = f"one of {', '.join(map(repr, KINDS))}"


@dataclass(frozen=True)
class Inference:
    """How topics are learned: a kind, its steps, and when it stops. None is what suits the kind.

    kind: "svi" and "cavi" are the paper's mean field; "collapsed" integrates the proportions and
    topics out (CVB0), which is more accurate on short documents; "auto" chooses by the shape of
    the corpus. batch_size: documents a step. max_passes: over the corpus, at most. tolerance: the
    gain that counts, nats per held-out token, or of the ELBO by its size in coordinate ascent.
    delay, forgetting: the steps are (t + delay)^-forgetting (alg:svi). validation_fraction: the
    documents held out (at most 2,000) to decide when to stop and whether learned priors are kept;
    0 to learn from all.

    >>> from lowerbound.estimators import Inference, LatentDirichletAllocation
    >>> LatentDirichletAllocation(20, inference=Inference("svi", max_passes=5))
    LatentDirichletAllocation(n_components=20, inference=Inference(kind='svi', max_passes=5))
    """

    kind: str = "auto"
    batch_size: int | None = None
    max_passes: int | None = None
    tolerance: float | None = None
    delay: float | None = None
    forgetting: float | None = None
    validation_fraction: float = 0.05

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size, optional=True, caller="Inference")
        check_count("max_passes", self.max_passes, optional=True, caller="Inference")
        rules = {
            "kind": (self.kind in KINDS, _KINDS),
            "forgetting": (
                self.forgetting is None or 0.5 < _number(self.forgetting) <= 1,
                "a number in (0.5, 1]: only then do the steps sum to infinity while their squares "
                "do not",
            ),
            "delay": (
                self.delay is None or 1 <= _number(self.delay) < np.inf,
                "a number of at least 1",
            ),
            "validation_fraction": (
                0 <= _number(self.validation_fraction) < 1,
                "a number in [0, 1)",
            ),
            "tolerance": (
                self.tolerance is None or _number(self.tolerance) >= 0,
                "a number of at least 0",
            ),
        }
        for name, (valid, expected) in rules.items():
            if not valid:
                raise SettingError("Inference", name, getattr(self, name), expected)

    @classmethod
    def of(cls, asked: str | Inference) -> Inference:
        """The value itself, or that of the defaults of a kind."""
        return cls(asked) if isinstance(asked, str) else asked

    def __repr__(self) -> str:
        held = [(f.name, getattr(self, f.name), f.default) for f in fields(self)]
        return f"Inference({', '.join(f'{n}={v!r}' for n, v, default in held if v != default)})"

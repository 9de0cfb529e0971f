"""The settings of latent Dirichlet allocation, checked before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.errors import ArgumentError, SettingError
from lowerbound.topics.choice import INFERENCES
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
    whole = {
        "n_components": (lda.n_components, 1),
        "batch_size": (lda.batch_size, 1),
        "max_passes": (lda.max_passes, 1),
        "total_documents": (lda.total_documents, 1),
        "n_jobs": (None if lda.n_jobs == -1 else lda.n_jobs, 1),  # -1: all cores, as None
        "random_state": (lda.random_state, 0),
    }
    for name, (value, least) in whole.items():
        optional = name in ("batch_size", "max_passes", "n_jobs")
        if value is None and optional:
            continue
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            expected = f"a whole number of at least {least}{', or None' if optional else ''}"
            raise SettingError("", name, value, expected)
    rules = {
        "inference": (lda.inference in INFERENCES, f"one of {', '.join(map(repr, INFERENCES))}"),
        "precision": (
            lda.precision in (None, "float32", "float64"),
            '"float32", "float64" or None',
        ),
        "forgetting": (
            lda.forgetting is None or 0.5 < _number(lda.forgetting) <= 1,
            "a number in (0.5, 1]: only then do the steps sum to infinity while their squares do "
            "not",
        ),
        "delay": (
            lda.delay is None or 1 <= _number(lda.delay) < np.inf,
            "a number of at least 1",
        ),
        "validation_fraction": (0 <= _number(lda.validation_fraction) < 1, "a number in [0, 1)"),
        "tolerance": (
            lda.tolerance is None or _number(lda.tolerance) >= 0,
            "a number of at least 0",
        ),
    }
    for name, (valid, expected) in rules.items():
        if not valid:
            raise SettingError("", name, getattr(lda, name), expected)

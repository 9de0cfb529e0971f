"""The settings of latent Dirichlet allocation, checked before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.errors import ArgumentError
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
    if array.ndim > 1 or (array.ndim == 1 and len(array) != size):
        raise ArgumentError(
            f"{name} has shape {array.shape}.\nExpected a positive number, one for each of the "
            f'{size} {what}, or "learn".'
        )
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise ArgumentError(
            f"{name}={value!r}.\nExpected a positive number, one for each of the {size} {what}, or "
            '"learn".'
        )
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
            raise ArgumentError(
                f"{name}={value!r}.\nExpected a whole number of at least {least}"
                f"{', or None' if optional else ''}."
            )
    if lda.inference not in INFERENCES:
        raise ArgumentError(
            f"inference={lda.inference!r}.\nExpected one of {', '.join(map(repr, INFERENCES))}."
        )
    if lda.precision not in (None, "float32", "float64"):
        raise ArgumentError(f'precision={lda.precision!r}.\nExpected "float32", "float64" or None.')
    if lda.forgetting is not None and not 0.5 < _number(lda.forgetting) <= 1:
        raise ArgumentError(
            f"forgetting={lda.forgetting!r}.\nExpected a number in (0.5, 1]: only then do the "
            "steps sum to infinity while their squares do not."
        )
    if lda.delay is not None and not 1 <= _number(lda.delay) < np.inf:
        raise ArgumentError(f"delay={lda.delay!r}.\nExpected a number of at least 1.")
    if not 0 <= _number(lda.validation_fraction) < 1:
        raise ArgumentError(
            f"validation_fraction={lda.validation_fraction!r}.\nExpected a number in [0, 1)."
        )
    if lda.tolerance is not None and not _number(lda.tolerance) >= 0:
        raise ArgumentError(f"tolerance={lda.tolerance!r}.\nExpected a number of at least 0.")

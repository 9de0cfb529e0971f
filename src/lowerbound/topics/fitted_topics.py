"""What pictures and exports need of a fitted topic model, whoever fitted it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lowerbound.errors import EmptyDocumentsWarning, UnfittedModelError
from lowerbound.topics.snapshots import Snapshots

if TYPE_CHECKING:
    from lowerbound.topics.corpus import Corpus


class TopicModel(Protocol):
    """Topics q(beta_k) = Dirichlet(components_[k]), and how they were reached."""

    @property
    def components_(self) -> np.ndarray:
        """Lambda, one row per topic (K, V)."""

    @property
    def topic_weights_(self) -> np.ndarray:
        """The expected share of tokens of each topic (K,)."""

    @property
    def words_(self) -> np.ndarray | None:
        """The names of the words (V,), where they have names."""

    @property
    def snapshots_(self) -> Snapshots:
        """The topics during training."""

    def transform(self, X: Any) -> np.ndarray:
        """E[theta_d] of each document (D, K)."""


def check_fitted(where: str, model: object, *names: str) -> None:
    """Raise an UnfittedModelError unless the model has topics and these attributes."""
    for name in ("components_", "topic_weights_", *names):
        if not hasattr(model, name):
            raise UnfittedModelError(where, type(model).__name__, name)


def word_names(model: TopicModel) -> np.ndarray:
    """The words (V,) as text; "word 17" where they have no names."""
    words = getattr(model, "words_", None)
    if words is None:
        words = [f"word {number}" for number in range(model.components_.shape[1])]
    return np.asarray(words, dtype=object)


def opened(model: TopicModel, X: Any) -> Corpus:
    """Documents in any form that the model's fit accepts, over the model's vocabulary."""
    from lowerbound.topics.corpus import open_corpus

    names = getattr(model, "words_", None)
    return open_corpus(X, features=model.components_.shape[1], names=names)


@contextmanager
def empty_documents_accepted() -> Iterator[None]:
    """No warning of documents without words, where what becomes of them is plain to see."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyDocumentsWarning)
        yield

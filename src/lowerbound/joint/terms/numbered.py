"""Labels by number: terms that differ only in what their labels are called have one key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lowerbound.joint.terms.indices import Index, Label, labels_of


class Numbered:
    """Names index expressions by the order in which their labels are met, `labels` first."""

    def __init__(self, array_key: Callable[[Any], object], labels: Iterable[Label] = ()) -> None:
        self.array_key = array_key
        self.number = {label: i for i, label in enumerate(labels)}

    def __call__(self, index: Index) -> object:
        """The number of a label; the array and the numbers of an index by an array."""
        for label in labels_of(index):
            self.number.setdefault(label, len(self.number))
        if isinstance(index, Label):
            return self.number[index]
        return (self.array_key(index.array), tuple(self.number[label] for label in index.labels))

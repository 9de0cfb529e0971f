"""What equal programs share: of the last few that were asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

V = TypeVar("V")


class Kept(OrderedDict[Hashable, V]):
    """Values by their keys, of which the `most` that were asked for last are kept.

    >>> squares = Kept[int](2)
    >>> [squares.of(n, lambda n=n: n * n) for n in (2, 3, 2, 4)], list(squares)
    ([4, 9, 4, 16], [2, 4])
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def of(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key, made where there is none."""
        if key not in self:
            self[key] = make()
        self.move_to_end(key)
        while len(self) > self.most:
            self.popitem(last=False)
        return self[key]

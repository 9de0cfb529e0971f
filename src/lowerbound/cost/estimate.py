"""What a piece of work takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Seconds of work on this machine, and megabytes that are held at once.

    >>> print(Cost(2.34, 512.7))
    about 2.3 s and 510 MB
    """

    seconds: float
    megabytes: float

    def __str__(self) -> str:
        return f"about {_two_digits(self.seconds)} s and {_two_digits(self.megabytes)} MB"

    def ratio(self, seconds: float) -> float:
        """How many times longer something took than was expected; below 1 where less."""
        return seconds / self.seconds


def _two_digits(number: float) -> str:
    return f"{float(f'{number:.2g}'):,.10g}"

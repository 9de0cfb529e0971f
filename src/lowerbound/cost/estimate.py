"""What a piece of work takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

USUAL: Final = 3.0  # times an estimate is off at most, of nine fits in ten, where it is not loose


@dataclass(frozen=True)
class Cost:
    """Seconds of work on this machine, and megabytes that are held at once.

    within: how loose the seconds are. Nine fits in ten take at least `seconds / within` and at most
    `seconds * within`: these two are printed where they are further apart than usual.

    >>> print(Cost(2.34, 512.7))
    about 2.3 s and 510 MB
    >>> print(Cost(8.0, 512.7, within=5.0))
    1.6 to 40 s and about 510 MB
    """

    seconds: float
    megabytes: float
    within: float = USUAL

    def __str__(self) -> str:
        megabytes = f"{_two_digits(self.megabytes)} MB"
        if self.within <= USUAL:
            return f"about {_two_digits(self.seconds)} s and {megabytes}"
        least, most = self.range
        return f"{_two_digits(least)} to {_two_digits(most)} s and about {megabytes}"

    @property
    def range(self) -> tuple[float, float]:
        """The seconds between which nine fits in ten are; `seconds` is their geometric mean."""
        return self.seconds / self.within, self.seconds * self.within

    def ratio(self, seconds: float) -> float:
        """How many times longer something took than was expected; below 1 where less."""
        return seconds / self.seconds


def _two_digits(number: float) -> str:
    return f"{float(f'{number:.2g}'):,.10g}"

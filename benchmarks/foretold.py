"""Costs that were foretold beside those that were measured, and how many are right to a factor."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.timing import verdict

FACTOR, SHARE = 3.0, 0.9  # the target: within this factor, for this share of the programs


def is_near(found: float, expected: float) -> bool:
    """Whether an estimate is right to the factor."""
    return 1 / FACTOR <= found / expected <= FACTOR


@dataclass(frozen=True)
class Foretold:
    """One program: what was expected, and what its cold fit took.

    Seconds are those of the processor, so that other work on the machine disturbs less. Where they
    are said to be loose, nine of ten are to be in the range that is printed.
    """

    program: str
    method: str = ""
    expected: float = math.nan
    seconds: float = math.nan
    megabytes_expected: float = math.nan
    megabytes: float = math.nan
    reason: str = ""
    within: float = FACTOR  # how loose the seconds are said to be

    @property
    def is_aside(self) -> bool:
        """Whether it is of the half, by its name, to be kept aside when constants are set."""
        return bool(zlib.crc32(self.program.encode()) % 2)

    @property
    def is_known(self) -> bool:
        """Whether there is something to compare."""
        return math.isfinite(self.seconds) and math.isfinite(self.expected)

    def __str__(self) -> str:
        numbers = (self.expected, self.seconds, self.seconds / self.expected)
        text = f"{self.program[:46]:46s} {self.method[:30]:30s}"
        text += "".join(f"{x:9.2f}" for x in numbers)
        aside = "aside" if self.is_aside else ""
        return f"{text}{self.megabytes_expected:9.0f}{self.megabytes:9.0f} {aside:5s} {self.reason}"


HEADING = f"{'program':46s} {'method':30s}" + "".join(
    f"{h:>9s}" for h in ("expected", "seconds", "ratio", "MB exp.", "MB")
)


def summary(source: str, rows: Sequence[Foretold]) -> str:
    """The shares that are right, of all programs and of the half kept aside; each miss by name."""
    known = [row for row in rows if row.is_known]
    lines = [f"{source}: {len(known)} programs with a cost that was foretold, of {len(rows)}"]
    return "\n".join([*lines, *_lines(known)])


def _lines(known: Sequence[Foretold]) -> Iterator[str]:
    if not known:
        return
    for what, pairs in (
        ("seconds", [(row, row.seconds, row.expected) for row in known]),
        ("megabytes", [(row, row.megabytes, row.megabytes_expected) for row in known]),
    ):
        ratios = [found / expected for _, found, expected in pairs]
        near = [is_near(found, expected) for _, found, expected in pairs]
        aside = [right for right, (row, *_) in zip(near, pairs, strict=True) if row.is_aside]
        misses = [
            f"{row.program} ({ratio:.1f})"
            for right, ratio, (row, *_) in zip(near, ratios, pairs, strict=True)
            if not right
        ]
        yield (
            f"  {what}: median ratio {np.median(ratios):.2f}; within a factor of {FACTOR:g}: "
            f"{sum(near)} of {len(near)}, {sum(aside)} of the {len(aside)} kept aside   "
            f"{verdict(float(np.mean(near)), SHARE, at_most=False)}"
        )
        yield f"    outside: {', '.join(misses) or 'none'}"
    loose = [row for row in known if row.within > FACTOR]
    held = sum(1 / row.within <= row.seconds / row.expected <= row.within for row in loose)
    if loose:
        yield f"  seconds in the range that is printed: {held} of {len(loose)} that are loose"

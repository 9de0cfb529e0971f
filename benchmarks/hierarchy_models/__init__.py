"""Mixed models as different people write them, with simulated data, small enough for NUTS.

`apart`, `unseen` and `withheld` were written first and left alone while the rest was mended.
"""

from __future__ import annotations

from importlib import import_module

from benchmarks.stress_models.program import Program

KINDS = (
    *("counts", "choices", "measures", "curves", "classics", "dialects", "fields", "shares"),
    *("around", "shrinkage"),
    *("apart", "unseen", "withheld"),
)


def programs(kinds: tuple[str, ...] = KINDS) -> dict[str, Program]:
    """Every program by its name."""
    found: dict[str, Program] = {}
    for kind in kinds:
        found |= import_module(f"benchmarks.hierarchy_models.{kind}").PROGRAMS
    return found

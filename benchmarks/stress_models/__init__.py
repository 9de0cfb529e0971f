"""Programs of the kinds that collections of Stan models hold, with data simulated from them.

They are written as people port them: flat priors, half-Cauchy scales, plates, scans, sums over
discrete variables, factors. `load(name)` gives a `Program`; no part of the library knows a name.
"""

from __future__ import annotations

from importlib import import_module

from benchmarks.stress_models.program import Program

KINDS = (
    "radon",
    "growth",
    "regressions",
    "classes",
    "rates",
    "mixed",
    "series",
    "processes",
    "mixtures",
    "dynamics",
)


def programs() -> dict[str, Program]:
    """Every program by its name."""
    found: dict[str, Program] = {}
    for kind in KINDS:
        found |= import_module(f"benchmarks.stress_models.{kind}").PROGRAMS
    return found


def load(name: str) -> Program:
    """The program of that name."""
    return programs()[name]

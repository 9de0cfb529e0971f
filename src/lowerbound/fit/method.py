"""Methods are values: what to run, with which settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowerbound.errors import ArgumentError
from lowerbound.fit.start import STARTS


@dataclass(frozen=True, eq=False)
class CAVI:
    """Coordinate ascent variational inference (alg:cavi): exact updates, all data, step 1.

    restarts: independent starts, run together in one compiled batch; the best ELBO is kept.
    tolerance: stop when the relative change of the ELBO (or of `monitor`) in a sweep is below it;
        0 runs to `max_sweeps`.
    max_sweeps: stop after this many sweeps.
    blocks: groups of latent sites that share one factor, e.g. [("beta", "tau"), ("alpha",)]; sites
        not named are grouped by structure.
    init: "auto", "k-means++", "rows", "random", "prior", or a dict of site values to start from.
    monitor: held-out arguments of the model; stop by their average log predictive instead.
    precision: "float64" or "float32"; by default float64 on CPU and float32 on an accelerator.
    """

    restarts: int = 1
    tolerance: float = 1e-8
    max_sweeps: int = 2000
    blocks: Sequence[Sequence[str]] | None = None
    init: str | Mapping[str, Any] = "auto"
    monitor: Any = None
    precision: str | None = None

    def __post_init__(self) -> None:
        names = ", ".join(f'"{name}"' for name in STARTS)
        blocks = self.blocks or ()
        sites = [site for block in blocks for site in block]
        for name, valid, expected in (
            ("restarts", _count(self.restarts), "an integer of at least 1"),
            ("max_sweeps", _count(self.max_sweeps), "an integer of at least 1"),
            (
                "tolerance",
                _size(self.tolerance),
                "a number of at least 0",
            ),
            (
                "init",
                isinstance(self.init, Mapping) or self.init in STARTS,
                f"one of {names}, or a dict of site values",
            ),
            (
                "precision",
                self.precision in (None, "float32", "float64"),
                '"float32", "float64" or None',
            ),
            (
                "blocks",
                not any(isinstance(block, str) for block in (self.blocks, *blocks)),
                'a list of tuples of site names, e.g. [("beta", "tau"), ("alpha",)]',
            ),
            ("blocks", len(set(sites)) == len(sites), "every site in one block at most"),
        ):
            if not valid:
                found = getattr(self, name)
                raise ArgumentError(f"CAVI got {name}={found!r}.\nExpected {expected}.")

    def __repr__(self) -> str:
        changed = {
            name: getattr(self, name)
            for name, f in self.__dataclass_fields__.items()
            if name not in ("monitor", "init") and getattr(self, name) != f.default
        }
        if isinstance(self.init, Mapping):
            changed["init"] = f"<values of {', '.join(self.init)}>"
        elif self.init != "auto":
            changed["init"] = self.init
        if self.monitor is not None:
            changed["monitor"] = "<held-out data>"
        return f"CAVI({', '.join(f'{k}={v!r}' for k, v in changed.items())})"


def _size(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def as_method(method: Any) -> CAVI:
    """A method value from a value or its shorthand."""
    if isinstance(method, CAVI):
        return method
    if isinstance(method, str) and method.lower() in ("auto", "cavi"):
        return CAVI()
    if isinstance(method, type) and issubclass(method, CAVI):
        return method()
    raise ArgumentError(
        f'fit got method={method!r}.\nExpected "auto", "cavi" or a method value such as '
        "lb.CAVI(restarts=10)."
    )

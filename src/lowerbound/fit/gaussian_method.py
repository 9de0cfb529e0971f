"""The method value of black-box Gaussians."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowerbound.errors import ArgumentError

RANKS = ("auto", "full", "diagonal")
ENGINES = ("auto", "fixed", "match", "stochastic")
FULL_BELOW = 200  # the largest dimension that "auto" gives a full covariance
LOW_RANK = 20
FIXED_BELOW = 1000  # the largest dimension that "auto" fits with fixed draws


@dataclass(frozen=True, eq=False)
class Gaussian:
    """A Gaussian on the unconstrained space, for models that no exact update covers.

    rank: "full" covariance, "diagonal", or a number r: diagonal plus a factor of r columns;
        "auto" is full up to 200 dimensions, then 20.
    draws: how many fixed draws; by default 256, then 1024 and more until fresh draws agree.
    engine: "fixed" maximises the ELBO of fixed quasi-Monte Carlo draws, deterministically;
        "match" fits the score of log p (batch and match); "stochastic" follows noisy gradients
        with steps of Adam. "auto" is fixed for full and diagonal covariances, else stochastic.
    starts: from how many points the ascent begins, and as many again when fewer than half of these
        come to the best place; the best ELBO is kept.
    tolerance: stop when mean and scale are within this many standard deviations of the optimum, or
        within a tenth of what they moved by with the last draws, where that is more.
    init: "auto" starts at the median of the prior, at zero and around them; or a dict of site
        values.
    precision: "float64" or "float32" of the log density; by default float64 on CPU and float32 on
        an accelerator.
    condition: one to three scalar sites theta to put on a grid, e.g. ("sigma",): q(theta)
        q(z | theta) with a Gaussian q(z | theta) at every node.
    """

    rank: str | int = "auto"
    draws: int | None = None
    engine: str = "auto"
    starts: int = 8
    tolerance: float = 1e-3
    init: str | Mapping[str, Any] = "auto"
    precision: str | None = None
    condition: Sequence[str] = ()

    def __post_init__(self) -> None:
        names = ", ".join(f'"{name}"' for name in ENGINES)
        low_rank = _count(self.rank)
        rules = (
            (
                "rank",
                low_rank or self.rank in RANKS,
                '"auto", "full", "diagonal", or a rank of at least 1',
            ),
            (
                "draws",
                self.draws is None or _count(self.draws),
                "an integer of at least 1, or None",
            ),
            ("engine", self.engine in ENGINES, f"one of {names}"),
            (
                "engine",
                not (low_rank and self.engine in ("fixed", "match")),
                'engine="stochastic" or "auto" for a low rank: the others need rank="full" or '
                '"diagonal"',
            ),
            (
                "engine",
                not (self.engine == "match" and self.rank == "diagonal"),
                'rank="full" or "auto" for engine="match"',
            ),
            ("starts", _count(self.starts), "an integer of at least 1"),
            (
                "condition",
                not isinstance(self.condition, str) and len(self.condition) <= 3,
                'a tuple of up to three site names, e.g. ("sigma",)',
            ),
            (
                "tolerance",
                isinstance(self.tolerance, int | float)
                and not isinstance(self.tolerance, bool)
                and self.tolerance > 0,
                "a number above 0",
            ),
            (
                "init",
                isinstance(self.init, Mapping) or self.init == "auto",
                '"auto" or a dict of site values',
            ),
            (
                "precision",
                self.precision in (None, "float32", "float64"),
                '"float32", "float64" or None',
            ),
        )
        for name, valid, expected in rules:
            if not valid:
                found = getattr(self, name)
                raise ArgumentError(f"Gaussian got {name}={found!r}.\nExpected {expected}.")

    def chosen_rank(self, dimension: int) -> str | int:
        """The rank, with "auto" decided."""
        if self.rank != "auto":
            return self.rank
        if self.engine in ("fixed", "match"):
            return "full"
        return "full" if dimension <= FULL_BELOW else LOW_RANK

    def chosen_engine(self, dimension: int) -> str:
        """The engine, with "auto" decided."""
        if self.engine != "auto":
            return self.engine
        low_rank = isinstance(self.chosen_rank(dimension), int)
        return "stochastic" if low_rank or dimension > FIXED_BELOW else "fixed"

    def __repr__(self) -> str:
        changed = {
            name: getattr(self, name)
            for name, f in self.__dataclass_fields__.items()
            if name != "init" and getattr(self, name) != f.default
        }
        if isinstance(self.init, Mapping):
            changed["init"] = f"<values of {', '.join(self.init)}>"
        return f"Gaussian({', '.join(f'{k}={v!r}' for k, v in changed.items())})"


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1

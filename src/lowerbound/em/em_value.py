"""The method value of variational EM by gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lowerbound.errors import SettingError

RANKS = ("auto", "full", "diagonal")


@dataclass(frozen=True, eq=False, kw_only=True)
class EM:
    """Parameters (`numpyro.param`) by gradients of the ELBO, with a Gaussian q by rows.

    For programs that coordinate ascent does not cover: networks, and any likelihood. Every row of
    the data plate has a Gaussian of its own on the unconstrained space, without an encoder, and
    the other latent sites have one together. lb.CAVI() is the exact one, where there is one.

    rank: "full" covariances (of a row, and of what the rows share), "diagonal", or "auto": full up
        to 10 numbers a row and 100 shared ones.
    draws: how many a step takes, in pairs; by default 8, or 2 where an evaluation is dear.
    batch_size: rows of a step; by default all, or what is quick.
    steps: at most so many; by default what is affordable, and where all rows fit into a step, the
        maximum over fixed draws at the end.
    tolerance: steps get shorter, and end, when the ELBO gains relatively less than this.
    init: a dict of values of parameters and of latent sites to start from.
    """

    rank: str = "auto"
    draws: int | None = None
    batch_size: int | None = None
    steps: int | None = None
    tolerance: float = 1e-4
    init: str | Mapping[str, Any] = "auto"

    def __post_init__(self) -> None:
        count, size = "an integer of at least 1, or None", self.tolerance
        number = isinstance(size, int | float) and not isinstance(size, bool)
        rules = (
            ("rank", self.rank in RANKS, '"auto", "full" or "diagonal"'),
            ("draws", _count(self.draws), count),
            ("batch_size", _count(self.batch_size), count),
            ("steps", _count(self.steps), count),
            ("tolerance", number and size >= 0, "a number of at least 0"),
            (
                "init",
                isinstance(self.init, Mapping) or self.init == "auto",
                '"auto" or a dict of values of parameters and sites',
            ),
        )
        for name, valid, expected in rules:
            if not valid:
                raise SettingError("EM", name, getattr(self, name), expected)

    @property
    def given(self) -> dict[str, Any]:
        """The values to start from."""
        return dict(self.init) if isinstance(self.init, Mapping) else {}

    def __repr__(self) -> str:
        changed = {
            name: getattr(self, name)
            for name, f in self.__dataclass_fields__.items()
            if name != "init" and getattr(self, name) != f.default
        }
        if self.given:
            changed["init"] = f"<values of {', '.join(self.given)}>"
        return f"EM({', '.join(f'{k}={v!r}' for k, v in changed.items())})"


def _count(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)

"""The method value of black-box Gaussians."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowerbound.errors import SettingError

RANKS = ("auto", "full", "diagonal", "structured")
ENGINES = ("auto", "fixed", "match", "stochastic", "laplace", "delta", "score")
FULL_OR_DIAGONAL = ("fixed", "match", "laplace", "delta")
FULL_BELOW = 200  # the largest dimension that "auto" gives a full covariance
LOW_RANK = 20
FULL_BY_NEWTON = 1000  # the same, where the second derivatives of log p are affordable
FIXED_BELOW = 1000  # the largest dimension that "auto" fits with fixed draws


@dataclass(frozen=True, eq=False)
class Gaussian:
    """A Gaussian on the unconstrained space, for models that no exact update covers.

    rank: "full" covariance, "diagonal", or a number r: diagonal plus a factor of r columns;
        "structured" has the zeros in its precision that the second derivatives of log p have, as
        the best full covariance does: for units that are independent given globals, and for Markov
        chains. "auto" is full up to 200 dimensions, then structured where that saves most of the
        work, full up to 1000, else 20.
    draws: how many fixed draws; by default 256, then 1024 and more until fresh draws agree.
    engine: "fixed" maximises the ELBO of fixed quasi-Monte Carlo draws, deterministically;
        "match" fits the score of log p (batch and match); "stochastic" follows noisy gradients
        with steps of Adam. "laplace" is the mode with the inverse of minus the Hessian there, and
        "delta" the mean that is best for an ELBO of second order; neither draws. "score" is for
        discrete sites that cannot be summed out: a probability for each value of each entry, from
        draws, beside the Gaussian. "auto" is fixed for full and diagonal covariances, else
        stochastic; score where discrete sites need it.
    starts: from how many points the ascent begins, and as many again when fewer than half of these
        come to the best place; the best ELBO is kept.
    tolerance: stop when mean and scale are within this many standard deviations of the optimum, or
        within a tenth of what they moved by with the last draws, where that is more.
    init: "auto" starts at the median of the prior, at zero and around them; or a dict of site
        values.
    precision: "float64" or "float32" of the log density; by default float64 on CPU and float32 on
        an accelerator.
    noncentred: the sites of location and scale, e.g. ("theta",), that have coordinates u with
        theta = loc + scale * u; "auto" tries these, and some between u and theta, for sites with a
        latent scale, and keeps what raises the ELBO (up to 200 dimensions, or with a given rank
        1000; not for "laplace" and "delta").
    condition: one to three scalar sites theta to put on a grid, e.g. ("sigma",): q(theta)
        q(z | theta) with a Gaussian q(z | theta) at every node.
    sites: the sites that the Gaussian covers, e.g. ("eta",), where all others have exact updates
        given these: q(eta) q(z). By default it covers all continuous sites.
    """

    rank: str | int = "auto"
    draws: int | None = None
    engine: str = "auto"
    starts: int = 8
    tolerance: float = 1e-3
    init: str | Mapping[str, Any] = "auto"
    precision: str | None = None
    condition: Sequence[str] = ()
    noncentred: str | Sequence[str] = "auto"
    sites: Sequence[str] = ()

    def __post_init__(self) -> None:
        names = ", ".join(f'"{name}"' for name in ENGINES)
        low_rank = _count(self.rank)
        rules = (
            (
                "rank",
                low_rank or self.rank in RANKS,
                '"auto", "full", "diagonal", "structured", or a rank of at least 1',
            ),
            (
                "draws",
                self.draws is None or _count(self.draws),
                "an integer of at least 1, or None",
            ),
            ("engine", self.engine in ENGINES, f"one of {names}"),
            (
                "engine",
                not (low_rank and self.engine in FULL_OR_DIAGONAL),
                'engine="stochastic" or "auto" for a low rank: the others need rank="full" or '
                '"diagonal"',
            ),
            (
                "engine",
                self.rank != "structured" or self.engine in ("auto", "fixed"),
                'engine="fixed" or "auto" for rank="structured"',
            ),
            (
                "rank",
                not (self.rank == "structured" and self.condition),
                'rank="auto" with condition=',
            ),
            (
                "engine",
                not (self.engine == "match" and self.rank == "diagonal"),
                'rank="full" or "auto" for engine="match"',
            ),
            (
                "engine",
                not (self.condition and self.engine in ("laplace", "delta", "score")),
                'engine="auto" with condition=',
            ),
            (
                "precision",
                not (self.engine == "score" and self.precision == "float32"),
                'precision="float64" or None for engine="score"',
            ),
            ("starts", _count(self.starts), "an integer of at least 1"),
            (
                "condition",
                not isinstance(self.condition, str) and len(self.condition) <= 3,
                'a tuple of up to three site names, e.g. ("sigma",)',
            ),
            (
                "noncentred",
                self.noncentred == "auto"
                if isinstance(self.noncentred, str)
                else not (self.noncentred and (self.condition or self.sites)),
                '"auto" or a tuple of site names, e.g. ("theta",), without condition= and sites=',
            ),
            ("sites", not isinstance(self.sites, str), 'a tuple of site names, e.g. ("eta",)'),
            (
                "sites",
                not self.sites
                or (
                    self.rank in RANKS
                    and self.rank != "structured"
                    and self.engine in ("auto", "fixed")
                    and self.precision != "float32"
                    and not self.condition
                ),
                'rank="full" or "diagonal", engine="fixed", double precision and no condition '
                "with sites",
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
                raise SettingError("Gaussian", name, found, expected)

    def by_newton(self, dimension: int) -> bool:
        """Whether Newton's steps by second derivatives are for such a posterior, if affordable."""
        if self.condition or self.sites or self.engine not in ("auto", "fixed"):
            return False
        most = FULL_BY_NEWTON if self.rank == "full" else math.inf
        wide = self.rank in ("auto", "full") and FULL_BELOW < dimension <= most
        return self.rank == "structured" or wide

    def chosen_rank(self, dimension: int, wide: str | None = None) -> str | int:
        """The rank, with "auto" decided; `wide` is what Newton's steps can afford."""
        if self.rank != "auto":
            return self.rank
        if wide is not None:
            return wide
        if self.engine in FULL_OR_DIAGONAL:
            return "full"
        return "full" if dimension <= FULL_BELOW else LOW_RANK

    def chosen_engine(self, dimension: int, wide: str | None = None) -> str:
        """The engine, with "auto" decided; `wide` is what Newton's steps can afford."""
        if self.engine != "auto":
            return self.engine
        if wide is not None:
            return "fixed"
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

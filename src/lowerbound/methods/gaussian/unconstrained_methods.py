"""The method values of Gaussians on the unconstrained space: one class for each algorithm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lowerbound.bound.divergences import Divergence, Fisher, Local
from lowerbound.run.method import COUNT, SINGLE, Method, is_count, is_size
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem

RANKS = ("auto", "full", "diagonal", "structured")
FULL_BELOW = 200  # the largest dimension that "auto" gives a full covariance
LOW_RANK = 20
FULL_BY_NEWTON = 1000  # the same, where the second derivatives of log p are affordable
FIXED_BELOW = 1000  # the largest dimension that "auto" fits with fixed draws


@dataclass(frozen=True, eq=False, repr=False)
class UnconstrainedMethod(Method):
    """What Gaussians on the unconstrained space have in common: see `Gaussian`."""

    starts: int = 8
    tolerance: float = 1e-3
    init: str | Mapping[str, Any] = "auto"
    noncentred: str | Sequence[str] = "auto"

    can: ClassVar[frozenset[str]] = frozenset({SINGLE})
    limited: ClassVar[bool] = True
    engine: ClassVar[str] = "auto"  # the algorithm; "auto" is decided by the dimension
    ranks: ClassVar[tuple[str, ...]] = RANKS
    low_ranks: ClassVar[bool] = True  # whether a number of columns is a rank
    rank: ClassVar[Any] = "auto"
    draws: ClassVar[Any] = None

    def __post_init__(self) -> None:
        listed = ", ".join(f'"{name}"' for name in self.ranks)
        number = " or a rank of at least 1" if self.low_ranks else ""
        named = isinstance(self.noncentred, str)
        self.check(
            (
                "rank",
                self.rank in self.ranks or (self.low_ranks and is_count(self.rank)),
                f"{listed}{number}",
            ),
            ("draws", self.draws is None or is_count(self.draws), f"{COUNT}, or None"),
            ("starts", is_count(self.starts), COUNT),
            ("tolerance", is_size(self.tolerance) and self.tolerance > 0, "a number above 0"),
            (
                "init",
                isinstance(self.init, Mapping) or self.init == "auto",
                '"auto" or a dict of site values',
            ),
            (
                "noncentred",
                self.noncentred == "auto" or not named,
                '"auto" or a tuple of site names, e.g. ("theta",)',
            ),
        )

    def plan(self, problem: Problem) -> Planned[Any]:
        """A Gaussian over all continuous sites; discrete ones are summed out."""
        from lowerbound.methods.gaussian.planning import planned_gaussian

        return planned_gaussian(problem, self)

    def by_newton(self, dimension: int) -> bool:
        """Whether Newton's steps by second derivatives are for such a posterior, if affordable."""
        if self.engine != "auto":
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
        return "full" if dimension <= FULL_BELOW or not self.low_ranks else LOW_RANK

    def chosen_engine(self, dimension: int, wide: str | None = None) -> str:
        """The algorithm, with "auto" decided; `wide` is what Newton's steps can afford."""
        if self.engine != "auto":
            return self.engine
        if wide is not None:
            return "fixed"
        low_rank = isinstance(self.chosen_rank(dimension), int)
        return "stochastic" if low_rank or dimension > FIXED_BELOW else "fixed"


@dataclass(frozen=True, eq=False, repr=False)
class Gaussian(UnconstrainedMethod):
    """A Gaussian on the unconstrained space, for models that no exact update covers.

    The ELBO of fixed quasi-Monte Carlo draws is maximised, deterministically; a low rank follows
    noisy gradients instead.

    rank: "full" covariance, "diagonal", or a number r: diagonal plus a factor of r columns;
        "structured" has the zeros in its precision that the second derivatives of log p have, as
        the best full covariance does: for units that are independent given globals, and for Markov
        chains. "auto" is full up to 200 dimensions, then structured where that saves most of the
        work, full up to 1000, else 20.
    draws: how many fixed draws; by default 256, then 1024 and more until fresh draws agree.
    starts: from how many points the ascent begins, and as many again when fewer than half of these
        come to the best place; the best ELBO is kept.
    tolerance: stop when mean and scale are within this many standard deviations of the optimum, or
        within a tenth of what they moved by with the last draws, where that is more.
    init: "auto" starts at the median of the prior, at zero and around them; or a dict of site
        values.
    noncentred: the sites of location and scale, e.g. ("theta",), that have coordinates u with
        theta = loc + scale * u; "auto" tries these, and some between u and theta, for sites with a
        latent scale, and keeps what raises the ELBO (up to 200 dimensions, or with a given rank
        1000).
    """

    rank: str | int = "auto"  # type: ignore[misc]
    draws: int | None = None  # type: ignore[misc]


@dataclass(frozen=True, eq=False, repr=False)
class StochasticGaussian(UnconstrainedMethod):
    """A Gaussian on the unconstrained space by noisy gradients, with steps of Adam.

    rank: "full", "diagonal", or a number of columns beside the diagonal; "auto" is full up to 200
        dimensions, then 20. draws: how many a step takes. The others are those of `Gaussian`.
    """

    rank: str | int = "auto"  # type: ignore[misc]
    draws: int | None = None  # type: ignore[misc]
    engine: ClassVar[str] = "stochastic"
    ranks: ClassVar[tuple[str, ...]] = ("auto", "full", "diagonal")


@dataclass(frozen=True, eq=False, repr=False)
class ScoreMatching(UnconstrainedMethod):
    """A Gaussian with a full covariance whose score is that of log p over draws (batch and match).

    draws: how many fixed draws. The other settings are those of `Gaussian`.
    """

    draws: int | None = None  # type: ignore[misc]
    engine: ClassVar[str] = "match"
    rank: ClassVar[Any] = "full"
    low_ranks: ClassVar[bool] = False
    divergence: ClassVar[Divergence] = Fisher()


@dataclass(frozen=True, eq=False, repr=False)
class Laplace(UnconstrainedMethod):
    """The mode of log p, with the inverse of minus the Hessian there; no draws.

    rank: "full" or "diagonal". The other settings are those of `Gaussian`; "auto" of `noncentred`
    leaves sites as they are.
    """

    rank: str = "full"  # type: ignore[misc]
    engine: ClassVar[str] = "laplace"
    ranks: ClassVar[tuple[str, ...]] = ("full", "diagonal")
    low_ranks: ClassVar[bool] = False
    divergence: ClassVar[Divergence] = Local()


@dataclass(frozen=True, eq=False, repr=False)
class Delta(Laplace):
    """The mean that is best for an ELBO of second order, with the curvature there; no draws.

    Settings are those of `Laplace`.
    """

    engine: ClassVar[str] = "delta"

"""The method values of Gaussians on the unconstrained space: one class for each algorithm."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lowerbound.bound.divergences import Divergence, Fisher, Local
from lowerbound.methods.rewriting.summed_out import summed_out
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.summing.enumerated import discrete_sites
from lowerbound.run.check_input import check_observed_variance
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
    """What methods on the unconstrained space have in common: see `Gaussian`."""

    starts: int = 8
    tolerance: float = 1e-3
    init: str | Mapping[str, Any] = "auto"

    limited: ClassVar[bool] = True
    ranks: ClassVar[tuple[str, ...]] = RANKS
    low_ranks: ClassVar[bool] = True  # whether a number of columns is a rank
    rank: ClassVar[Any] = "auto"
    draws: ClassVar[Any] = None

    def __post_init__(self) -> None:
        listed = ", ".join(f'"{name}"' for name in self.ranks)
        number = " or a rank of at least 1" if self.low_ranks else ""
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
        )

    def chosen_rank(self, dimension: int) -> str | int:
        """The rank, with "auto" decided by the dimension."""
        if self.rank != "auto":
            return self.rank  # type: ignore[no-any-return]
        return "full" if dimension <= FULL_BELOW else LOW_RANK


@dataclass(frozen=True, eq=False, repr=False)
class GaussianMethod(UnconstrainedMethod):
    """A Gaussian over all continuous sites, by some algorithm."""

    noncentred: str | Sequence[str] = "auto"

    can: ClassVar[frozenset[str]] = frozenset({SINGLE})

    def __post_init__(self) -> None:
        super().__post_init__()
        named = isinstance(self.noncentred, str)
        self.check(
            (
                "noncentred",
                self.noncentred == "auto" or not named,
                '"auto" or a tuple of site names, e.g. ("theta",)',
            ),
        )

    def plan(self, problem: Problem) -> Planned[Any]:
        """The algorithm; discrete sites are summed out before it."""
        check_observed_variance(problem.model)
        if discrete_sites(problem.model):
            return summed_out(problem, self)
        return self.ascent(problem)

    @abstractmethod
    def ascent(self, problem: Problem) -> Planned[Any]:
        """The algorithm, for continuous sites."""


@dataclass(frozen=True, eq=False, repr=False)
class Gaussian(GaussianMethod):
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
        latent scale, and for sparse Dirichlet, Beta and Gamma sites coordinates in which such laws
        are Gaussian; it keeps what raises the ELBO (up to 200 dimensions, or with a given rank
        1000).

    >>> fit = lb.fit(coin, y, method=lb.Gaussian())
    >>> round(float(fit.mean("p")), 1)
    0.7
    """

    rank: str | int = "auto"  # type: ignore[misc]
    draws: int | None = None  # type: ignore[misc]

    def ascent(self, problem: Problem) -> Planned[Any]:
        """Newton's steps for many numbers where they pay; else fixed draws, or noisy gradients."""
        from lowerbound.methods.gaussian.fixed_stages import FixedAscent
        from lowerbound.methods.gaussian.noisy import NoisyAscent
        from lowerbound.methods.gaussian.sparse.newton_ascent import planned_wide

        size = dimension(problem)
        wide = self.is_wide(size)
        newton = planned_wide(problem, self) if wide else None
        if newton is not None:
            return newton
        rank = self.chosen_rank(size)
        kind = NoisyAscent if isinstance(rank, int) or size > FIXED_BELOW else FixedAscent
        return kind(problem, self, rank, compares=not wide)

    def is_wide(self, size: int) -> bool:
        """Whether Newton's steps by second derivatives are for such a posterior, if affordable."""
        if self.rank == "structured":
            return True
        most = FULL_BY_NEWTON if self.rank == "full" else math.inf
        return self.rank in ("auto", "full") and FULL_BELOW < size <= most


@dataclass(frozen=True, eq=False, repr=False)
class StochasticGaussian(GaussianMethod):
    """A Gaussian on the unconstrained space by noisy gradients, with steps of Adam.

    rank: "full", "diagonal", or a number of columns beside the diagonal; "auto" is full up to 200
        dimensions, then 20. draws: how many a step takes. The others are those of `Gaussian`.

    >>> fit = lb.fit(coin, y, method=lb.StochasticGaussian())
    >>> round(float(fit.mean("p")), 1)
    0.7
    """

    rank: str | int = "auto"  # type: ignore[misc]
    draws: int | None = None  # type: ignore[misc]
    ranks: ClassVar[tuple[str, ...]] = ("auto", "full", "diagonal")

    def ascent(self, problem: Problem) -> Planned[Any]:
        """Noisy gradients."""
        from lowerbound.methods.gaussian.noisy import NoisyAscent

        return NoisyAscent(problem, self, self.chosen_rank(dimension(problem)))


@dataclass(frozen=True, eq=False, repr=False)
class ScoreMatching(GaussianMethod):
    """A Gaussian with a full covariance whose score is that of log p over draws (batch and match).

    draws: how many fixed draws. The other settings are those of `Gaussian`.

    >>> fit = lb.fit(coin, y, method=lb.ScoreMatching())
    >>> round(float(fit.mean("p")), 1)
    0.7
    """

    draws: int | None = None  # type: ignore[misc]
    rank: ClassVar[Any] = "full"
    low_ranks: ClassVar[bool] = False
    divergence: ClassVar[Divergence] = Fisher()

    def ascent(self, problem: Problem) -> Planned[Any]:
        """Scores that are matched."""
        from lowerbound.methods.gaussian.score_matching import MatchingAscent

        return MatchingAscent(problem, self)


@dataclass(frozen=True, eq=False, repr=False)
class Laplace(GaussianMethod):
    """The mode of log p, with the inverse of minus the Hessian there; no draws.

    rank: "full" or "diagonal". The other settings are those of `Gaussian`; "auto" of `noncentred`
    leaves sites as they are.

    >>> fit = lb.fit(coin, y, method=lb.Laplace())
    >>> round(float(fit.mean("p")), 1)
    0.6
    """

    rank: str = "full"  # type: ignore[misc]
    ranks: ClassVar[tuple[str, ...]] = ("full", "diagonal")
    low_ranks: ClassVar[bool] = False
    divergence: ClassVar[Divergence] = Local()

    def ascent(self, problem: Problem) -> Planned[Any]:
        """Steps to the mode."""
        from lowerbound.methods.gaussian.laplace import ModeAscent

        return ModeAscent(problem, self, self.rank)


@dataclass(frozen=True, eq=False, repr=False)
class Delta(Laplace):
    """The mean that is best for an ELBO of second order, with the curvature there; no draws.

    Settings are those of `Laplace`.

    >>> fit = lb.fit(coin, y, method=lb.Delta())
    >>> round(float(fit.mean("p")), 1)
    0.7
    """

    def ascent(self, problem: Problem) -> Planned[Any]:
        """Steps to the mode, and on."""
        from lowerbound.methods.gaussian.laplace import DeltaAscent

        return DeltaAscent(problem, self, self.rank)


def dimension(problem: Problem) -> int:
    """The numbers of all sites on the unconstrained space."""
    return problem.once("dimension", lambda: Coordinates.of(problem.model).size)

"""The sets that latent values live in, which decide what functions may act on them.

A domain is a record of what is true of its members. A family takes sites of the domains that it
names: one of those below, or one of its own, which the family's file then states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpyro.distributions import constraints

if TYPE_CHECKING:
    from lowerbound.joint.latents import Latent

Point = Callable[["Latent", np.random.Generator, float], np.ndarray]


def anywhere(latent: Latent, rng: np.random.Generator, moved: float) -> np.ndarray:
    """A random point of the real line."""
    return rng.normal(size=latent.shape)


def above_zero(latent: Latent, rng: np.random.Generator, moved: float) -> np.ndarray:
    """A random positive point; `moved` moves its logarithm."""
    return np.exp(moved + rng.normal(size=latent.shape))


@dataclass(frozen=True, eq=False)
class Domain:
    """A set of latent values: the supports that are it, and what is true of its members.

    `point(latent, rng, moved)` is a random member, at which a derivation is compared with the
    program; of a discrete site, its number.
    """

    name: str
    point: Point = anywhere
    supports: tuple[Any, ...] = ()  # NumPyro's constraints that say it
    laws: tuple[str, ...] = ()  # names of distributions whose values live here, whatever they say
    event_dim: int = 0  # the trailing axes of one member
    scalar: bool = False  # a member is one number, of which any function may be taken
    positive: bool = False  # logarithms and all powers are defined
    complemented: bool = False  # 1 - z is a member if z is
    sums_to_one: bool = False  # over the last axis
    whole: bool = False  # members are integers

    def __repr__(self) -> str:
        return repr(self.name)  # terms are put in order by their text

    def says(self, support: Any) -> bool:
        """Whether a support is this domain."""
        return any(type(support) is type(known) for known in self.supports)


def _unit(latent: Latent, rng: np.random.Generator, moved: float) -> np.ndarray:
    return rng.uniform(0.05, 0.95, size=latent.shape)


def _between(latent: Latent, rng: np.random.Generator, moved: float) -> np.ndarray:
    lower, upper = latent.lower, latent.upper
    if np.isfinite(lower) and np.isfinite(upper):
        return lower + (upper - lower) * rng.uniform(0.05, 0.95, size=latent.shape)
    away = np.exp(rng.normal(size=latent.shape))
    return lower + away if np.isfinite(lower) else upper - away


def _proportions(latent: Latent, rng: np.random.Generator, moved: float) -> np.ndarray:
    return rng.dirichlet(np.ones(latent.shape[-1]), size=latent.shape[:-1])


def _definite(latent: Latent, rng: np.random.Generator, moved: float) -> np.ndarray:
    root = rng.normal(size=latent.shape)
    return root @ np.swapaxes(root, -1, -2) + np.eye(latent.shape[-1])


def _number(latent: Latent, rng: np.random.Generator, moved: float) -> np.ndarray:
    return rng.integers(len(np.asarray(latent.support_values)), size=latent.shape)


def _count(latent: Latent, rng: np.random.Generator, moved: float) -> np.ndarray:
    return rng.poisson(2.0, size=latent.shape) * 1.0


REAL: Final = Domain(
    "real",
    supports=(constraints.real, constraints.real_vector, constraints.real_matrix),
    scalar=True,
)
POSITIVE: Final = Domain(
    "positive",
    above_zero,
    supports=(constraints.positive, constraints.nonnegative),
    scalar=True,
    positive=True,
)
UNIT: Final = Domain(
    "unit",
    _unit,
    supports=(constraints.unit_interval,),
    scalar=True,
    positive=True,
    complemented=True,
)
INTERVAL: Final = Domain("interval", _between, scalar=True)  # any other interval of the line
SIMPLEX: Final = Domain(
    "simplex",
    _proportions,
    supports=(constraints.simplex,),
    event_dim=1,
    positive=True,
    sums_to_one=True,
)
MATRIX: Final = Domain("matrix", _definite, supports=(constraints.positive_definite,), event_dim=2)
DISCRETE: Final = Domain("discrete", _number, whole=True)  # finitely many values, which are listed
COUNT: Final = Domain(
    "count",
    _count,
    supports=(constraints.nonnegative_integer,),
    whole=True,
)
OTHER: Final = Domain("other")  # of which nothing is known

"""The table of families: adding one is one file and one line here.

Of two families that take single sites of a domain, the first whose statistics the terms are does.
"""

from __future__ import annotations

from typing import Any

from lowerbound.errors import ArgumentError
from lowerbound.family.exponential import ExponentialFamily
from lowerbound.family.factors.discrete import Categorical, Multinomial, Poisson
from lowerbound.family.factors.free import Free
from lowerbound.family.factors.gaussian import MultivariateNormal, Normal
from lowerbound.family.factors.geometric import Geometric
from lowerbound.family.factors.markov import MarkovChain
from lowerbound.family.factors.normal_gamma import NormalGamma
from lowerbound.family.factors.normal_wishart import NormalWishart
from lowerbound.family.factors.polya_gamma import InverseGaussian, Point, PolyaGamma
from lowerbound.family.factors.precision import Gamma, Wishart
from lowerbound.family.factors.simplex import Beta, Dirichlet
from lowerbound.family.factors.truncated_normal import TruncatedNormal
from lowerbound.joint.blocks.kind import FAMILIES, Kind

__all__ = ["FAMILIES", "family_of", "kind_named"]

LISTED: tuple[type[ExponentialFamily], ...] = (
    Normal,
    MultivariateNormal,
    Gamma,
    Beta,
    Dirichlet,
    Categorical,
    MarkovChain,
    Wishart,
    NormalGamma,
    NormalWishart,
    TruncatedNormal,
    Multinomial,
    Poisson,
    Geometric,
    Free,
    PolyaGamma,
    InverseGaussian,
    Point,
)
FAMILIES.update({family.kind: family for family in LISTED})


def kind_named(kind: str) -> type[Kind]:
    """The family of a name, as files have it."""
    if kind not in FAMILIES:
        raise ArgumentError(
            f"Expected a block kind among {', '.join(FAMILIES)}; found {kind!r}.\n"
            "A family of your own has to be in lowerbound.family.FAMILIES first."
        )
    return FAMILIES[kind]


def family_of(kind: str, batch_shape: tuple[int, ...], **static: Any) -> ExponentialFamily:
    """The family of a block kind, for a batch of independent copies.

    >>> family_of("gamma", (3,), power=-1.0)
    Gamma(batch_shape=(3,), power=-1.0)
    """
    family: Any = kind_named(kind)
    made: ExponentialFamily = family(tuple(batch_shape), **static)
    return made

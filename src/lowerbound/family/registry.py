"""The table of block kinds: adding a family is one file and one line here."""

from __future__ import annotations

from typing import Any

from lowerbound.errors import ArgumentError
from lowerbound.family.exponential import ExponentialFamily
from lowerbound.family.factors.discrete import Categorical, Multinomial, Poisson
from lowerbound.family.factors.free import Free
from lowerbound.family.factors.gaussian import MultivariateNormal, Normal, TruncatedNormal
from lowerbound.family.factors.joint_blocks import NormalGamma, NormalWishart
from lowerbound.family.factors.polya_gamma import InverseGaussian, Point, PolyaGamma
from lowerbound.family.factors.precision import Gamma, Wishart
from lowerbound.family.factors.simplex import Beta, Dirichlet

__all__ = ["FAMILIES", "family_of"]

FAMILIES: dict[str, type[ExponentialFamily]] = {
    "normal": Normal,
    "gaussian": MultivariateNormal,
    "gamma": Gamma,
    "beta": Beta,
    "dirichlet": Dirichlet,
    "categorical": Categorical,
    "wishart": Wishart,
    "normal_gamma": NormalGamma,
    "normal_wishart": NormalWishart,
    "truncated_normal": TruncatedNormal,
    "multinomial": Multinomial,
    "poisson": Poisson,
    "free": Free,
    "polya_gamma": PolyaGamma,
    "inverse_gaussian": InverseGaussian,
    "point": Point,
}


def family_of(kind: str, batch_shape: tuple[int, ...], **static: Any) -> ExponentialFamily:
    """The family of a block kind, for a batch of independent copies.

    >>> family_of("gamma", (3,), power=-1.0)
    Gamma(batch_shape=(3,), power=-1.0)
    """
    if kind not in FAMILIES:
        raise ArgumentError(f"Expected a block kind among {', '.join(FAMILIES)}; found {kind!r}.")
    return FAMILIES[kind](tuple(batch_shape), **static)

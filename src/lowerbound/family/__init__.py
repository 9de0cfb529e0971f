"""Section 4 of the paper, "Variational inference with exponential families" (sec:ef): q(z; lambda).

A family is a frozen record of shapes; its methods are pure functions of dictionaries of arrays.
Given natural parameters it yields A, mean = grad A, entropy, KL, draws and NumPyro marginals.
All constants are kept, and nothing is NaN inside the domain that `in_domain` reports.
"""

from lowerbound.family.discrete import Categorical, Multinomial, Poisson
from lowerbound.family.exponential import ExponentialFamily, Mean, Natural, Values
from lowerbound.family.free import Free
from lowerbound.family.gaussian import MultivariateNormal, Normal, TruncatedNormal
from lowerbound.family.joint_blocks import NormalGamma, NormalWishart
from lowerbound.family.precision import Gamma, Wishart
from lowerbound.family.registry import FAMILIES, family_of
from lowerbound.family.simplex import Beta, Dirichlet

__all__ = [
    "FAMILIES",
    "Beta",
    "Categorical",
    "Dirichlet",
    "ExponentialFamily",
    "Free",
    "Gamma",
    "Mean",
    "Multinomial",
    "MultivariateNormal",
    "Natural",
    "Normal",
    "NormalGamma",
    "NormalWishart",
    "Poisson",
    "TruncatedNormal",
    "Values",
    "Wishart",
    "family_of",
]

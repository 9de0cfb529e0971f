"""Section 4 of the paper, "Variational inference with exponential families" (sec:ef): q(z; lambda).

A family is a frozen record of shapes; its methods are pure functions of dictionaries of arrays.
Given natural parameters it yields A, mean = grad A, entropy, KL, draws and NumPyro marginals.
All constants are kept, and nothing is NaN inside the domain that `in_domain` reports.
"""

from lowerbound.family.exponential import ExponentialFamily, Mean, Natural, Values
from lowerbound.family.factors.discrete import Categorical, Multinomial, Poisson
from lowerbound.family.factors.free import Free
from lowerbound.family.factors.gaussian import MultivariateNormal, Normal
from lowerbound.family.factors.geometric import Geometric
from lowerbound.family.factors.markov import MarkovChain
from lowerbound.family.factors.normal_gamma import NormalGamma
from lowerbound.family.factors.normal_wishart import NormalWishart
from lowerbound.family.factors.precision import Gamma, Wishart
from lowerbound.family.factors.simplex import Beta, Dirichlet
from lowerbound.family.factors.truncated_normal import TruncatedNormal
from lowerbound.family.registry import FAMILIES, family_of

__all__ = [
    "FAMILIES",
    "Beta",
    "Categorical",
    "Dirichlet",
    "ExponentialFamily",
    "Free",
    "Gamma",
    "Geometric",
    "MarkovChain",
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

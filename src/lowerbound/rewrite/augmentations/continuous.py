"""Scale mixtures of normals, Pólya-Gamma weights, and half-Cauchy scales."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from lowerbound.errors import AugmentationError
from lowerbound.rewrite.augmentations.given import (
    LaplaceGivenWeight,
    LogitsGivenWeight,
    RootInverseGamma,
)
from lowerbound.rewrite.augmentations.site import Chosen
from lowerbound.rewrite.augmentations.weights import LevyWeight, PolyaGamma


def student(site: Chosen) -> Distribution:
    """Student-t: w ~ Gamma(df/2, df/2) and y ~ Normal(loc, scale / sqrt(w))."""
    law = site.law
    df = law.df if isinstance(law, dist.StudentT) else 1.0  # Cauchy
    weight = site.auxiliary("weight", dist.Gamma(df / 2, df / 2))
    return dist.Normal(law.loc, law.scale / jnp.sqrt(weight))


def laplace(site: Chosen) -> Distribution:
    """Laplace: given a Lévy weight w, y has the kernel of Normal(loc, scale / sqrt(w))."""
    weight = site.auxiliary("weight", LevyWeight())
    return LaplaceGivenWeight(site.law.loc, site.law.scale, weight)


def half_student(site: Chosen) -> Distribution:
    """A half-t scale z as u ~ Gamma(1/2, 1/scale^2), z^-2 ~ Gamma(df/2, df u).

    The half-Cauchy law has df = 1 (Wand et al. 2011, with the inverse of their auxiliary).
    """
    df: Array | float
    if isinstance(site.law, dist.HalfCauchy):
        df, scale = 1.0, site.law.scale
    else:
        df, scale = _folded(site)
    rate = site.auxiliary("rate", dist.Gamma(0.5, scale**-2.0))
    return RootInverseGamma(df / 2, df * rate)


def _folded(site: Chosen) -> tuple[Array | float, Array]:
    inside = site.law.base_dist
    centre = getattr(inside, "loc", None)
    known = centre is not None and not isinstance(centre, jax.core.Tracer)
    if not isinstance(inside, dist.StudentT | dist.Cauchy) or not known or np.any(centre != 0):
        raise AugmentationError.of_site(
            site.name,
            site.where,
            f"is a FoldedDistribution of {type(inside).__name__}",
            "a StudentT or Cauchy law that is folded at loc = 0",
        )
    return (inside.df if isinstance(inside, dist.StudentT) else 1.0), inside.scale


def polya_gamma(site: Chosen) -> Distribution:
    """Logits a: w ~ PG(n, 0), and log p(y | w) is quadratic in a.

    n is 1 for a Bernoulli site, its count for a binomial one, y + r for a negative binomial one.
    """
    law = site.law
    total: Array | float = 1.0
    if isinstance(law, dist.BinomialLogits):
        total = law.total_count * 1.0
    elif isinstance(law, dist.NegativeBinomialLogits):
        if site.value is None:
            reason = "its weight is PG(y + r, 0), which needs y"
            raise AugmentationError.latent(site.name, site.where, type(law).__name__, reason)
        total = site.value + law.total_count * 1.0
    weight = site.auxiliary("omega", PolyaGamma(total))
    return LogitsGivenWeight(law, weight, total)

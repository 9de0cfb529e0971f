"""Truncated normal latents behind a probit probability (Albert & Chib 1993)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from lowerbound.errors import AugmentationError
from lowerbound.rewrite.augmentations.behind import Node, elementwise_sources, replay
from lowerbound.rewrite.augmentations.site import Chosen

POINTS = np.linspace(-2.0, 2.0, 33)


def truncated_normal(site: Chosen) -> Distribution:
    """Probabilities Phi(a) as z ~ Normal(a, 1) and y = 1[z > 0]."""
    if site.value is None:
        raise AugmentationError.latent(
            site.name, site.where, "BernoulliProbs", "y cuts the normal latent"
        )
    predictor = probit_predictor(site.behind("probs"))
    if predictor is None:
        raise AugmentationError.of_site(
            site.name,
            site.where,
            "is a BernoulliProbs whose probability is not seen to be Phi(a)",
            "probs = jax.scipy.stats.norm.cdf(a) of latent sites. For Bernoulli(logits=a), take "
            f"'polya-gamma'; else leave '{site.name}' out of augment",
        )
    latent = site.auxiliary("latent", dist.Normal(predictor, 1.0))
    return dist.Delta((latent > 0).astype(jnp.result_type(site.value)))


def probit_predictor(probability: Node) -> Array | None:
    """The array a with probability = Phi(a), or None where it is no such function."""
    from scipy.special import ndtr, ndtri

    for source in elementwise_sources(probability):
        if not np.issubdtype(source.dtype, np.floating):
            continue
        found = replay(source, probability, POINTS.astype(source.dtype))
        if found is None:
            continue
        inside = (found > 1e-6) & (found < 1 - 1e-6)
        if inside.sum() < 3:
            continue
        slope, level = np.polyfit(POINTS[inside], ndtri(found[inside]), 1)
        slope, level = _plain(slope), _plain(level)
        tolerance = 1e-12 if source.dtype == np.float64 else 1e-6
        if slope and np.allclose(found, ndtr(slope * POINTS + level), rtol=0.0, atol=tolerance):
            shifted: Array = source.value * slope + level if level else source.value * slope
            return shifted
    return None


def _plain(number: float) -> float:
    """Square roots of small fractions exactly, where a fit has them to rounding."""
    square = np.round(2 * number**2) / 2
    exact = np.sign(number) * np.sqrt(square)
    return float(exact if abs(exact - number) < 1e-5 else number)

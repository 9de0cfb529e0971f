"""Where numbers are and how wide: means and sds, and quantiles of those that have no sd."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from benchmarks.posteriordb_peers import mean_and_sd, moments
from lowerbound.methods.sampling.heavy_tails import without_sd

DRAWS = 4_000  # of a fit, for its quantiles
ABOUT_A_SD = 0.159, 0.841  # the quantiles of a normal law one sd from its middle

Found = dict[str, tuple[Any, Any]]


def heavy(draws: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """The sites, (S, ...) each, whose tails are so heavy that an sd of draws means nothing."""
    return without_sd({s: d for s, d in draws.items() if np.issubdtype(d.dtype, np.floating)})


def middle_and_width(draws: Mapping[str, Any]) -> Found:
    """The medians of sites, and half of what lies between the quantiles about them."""
    found: Found = {}
    for site, values in draws.items():
        low, high = np.quantile(values, ABOUT_A_SD, axis=0)
        found[site] = np.median(values, axis=0), (high - low) / 2
    return found


def of_draws(draws: Mapping[str, np.ndarray], by_quantiles: Collection[str]) -> Found:
    """Of all sites, some of them by quantiles."""
    heavy = {s: d for s, d in draws.items() if s in by_quantiles}
    return mean_and_sd({s: d for s, d in draws.items() if s not in heavy}) | middle_and_width(heavy)


def of_fit(fit: Any, by_quantiles: Collection[str], sites: set[str]) -> Found:
    """Of the sites of a fit, some of them by quantiles of its draws."""
    found: Found = moments(fit, sites - set(by_quantiles))
    if wanted := sites & set(by_quantiles):
        draws = fit.sample(DRAWS, seed=0)
        found |= middle_and_width({s: np.asarray(draws[s]) for s in wanted if s in draws})
    return found

"""What a fit shows of itself, at no cost: its restarts, empty components, bounds, narrow scales."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpyro.distributions import constraints

from lowerbound.family.meanfield import MeanField
from lowerbound.result.evidence import Evidence, Finding
from lowerbound.result.fitted import Fit
from lowerbound.result.verdicts import Drawn
from lowerbound.trust.against import Against
from lowerbound.trust.estimates import SURE
from lowerbound.trust.optima.fixed_points import SAME

EMPTY = 0.5  # rows, below which a component has died
MOST_STATES = 1000  # of a site whose components are counted
EDGE, LEANS = 0.01, 0.25  # the part of an interval next to a bound, and the share of q in it
LOOSE = 0.7  # sd of the log of a positive number that is not kept away from zero: a factor of two
SHRUNK = 0.1  # log ratio below which mean field has made a scale narrow


def findings(fit: Fit, judge: Against, drawn: Drawn, evidence: Evidence) -> tuple[Finding, ...]:
    """All that is worth a line."""
    return (
        *_restarts(fit),
        *_components(fit),
        *_bounds(judge, drawn),
        *_scales(fit, judge, evidence),
    )


def _restarts(fit: Fit) -> Iterator[Finding]:
    """How many starts came to this optimum, and how far below the others ended."""
    elbos = sorted((one.elbo for one in fit.restarts if math.isfinite(one.elbo)), reverse=True)
    if len(elbos) < 2:
        return
    alike = sum(elbos[0] - elbo < SAME for elbo in elbos)
    text = f"{alike} of {len(fit.restarts)} starts came to this ELBO, labels apart"
    if alike < len(elbos):
        text += f"; the next is {elbos[0] - elbos[alike]:.1f} nats below, "
        text += f"the last {elbos[0] - elbos[-1]:.1f}"
    yield Finding("restarts", f"{text}.", value=elbos[0] - elbos[-1])


def _components(fit: Fit) -> Iterator[Finding]:
    """Values of discrete sites of the rows that hold less than half a row."""
    family = fit.q.family
    if not isinstance(family, MeanField):
        return
    for block, natural in zip(family.blocks, fit.q.parameters, strict=True):
        for site in block.sites:
            states = fit.sites.get(site, {}).get("support_values")
            if states is None or len(natural) != 1 or len(states) > MOST_STATES:
                continue
            (logits,) = (np.asarray(array, float) for array in natural.values())
            if logits.ndim < 2 or logits.shape[-1] != len(states) or block.sequential:
                continue
            shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
            shares = shares / shares.sum(axis=-1, keepdims=True)
            counts = shares.reshape(-1, len(states)).sum(axis=0)
            dead = np.flatnonzero(counts < EMPTY)
            if len(dead) and len(shares) > len(states):
                named = ", ".join(str(states[k]) for k in dead[:5])
                named += f" and {len(dead) - 5:,} more" if len(dead) > 5 else ""
                text = f"{len(dead)} of {len(states)} components of '{site}' hold no row: {named}."
                yield Finding("component", text, site, float(len(dead)))


def _bounds(judge: Against, drawn: Drawn) -> Iterator[Finding]:
    """Sites that lean on a bound of their support, or reach towards zero."""
    coordinates = judge.coordinates
    bounded: dict[str, tuple[float, float]] = {}
    for site in coordinates.shapes:
        support: Any = coordinates.supports.get(site)
        while hasattr(support, "base_constraint"):
            support = support.base_constraint
        if support is constraints.positive:
            logs = drawn.vectors[:, coordinates.part(site)]
            if site in coordinates.warped:
                logs = np.log(judge.values(drawn.vectors)[site].reshape(logs.shape))
            spread = logs.std(axis=0)
            if spread.size and spread.max() > LOOSE:
                text = f"'{site}' is not kept away from 0: the sd of its log is {spread.max():.1f}."
                yield Finding("boundary", text, site, float(spread.max()))
        elif hasattr(support, "lower_bound") and hasattr(support, "upper_bound"):
            ends = np.asarray(support.lower_bound), np.asarray(support.upper_bound)
            if ends[0].ndim == ends[1].ndim == 0:
                bounded[site] = (float(ends[0]), float(ends[1]))
    if not bounded:
        return
    values = judge.values(drawn.vectors)
    for site, (low, high) in bounded.items():
        x = values[site].reshape(len(values[site]), -1)
        for bound, near in (
            (low, x < low + EDGE * (high - low)),
            (high, x > high - EDGE * (high - low)),
        ):
            share = float(near.mean(axis=0).max())
            if share > LEANS:
                text = f"'{site}' leans on its bound {bound:g}, with {share:.0%} of q next to it."
                yield Finding("boundary", text, site, share)


def _scales(fit: Fit, judge: Against, evidence: Evidence) -> Iterator[Finding]:
    """Positive sites that a product of factors has made narrow."""
    if not isinstance(fit.q.family, MeanField):
        return
    for one in evidence.off:
        support: Any = judge.coordinates.supports.get(one.site)
        while hasattr(support, "base_constraint"):
            support = support.base_constraint
        narrow = one.spread < -SHRUNK and one.spread < -SURE * one.spread_error
        if support is constraints.positive and narrow:
            ratio = math.exp(one.spread)
            text = f"Mean field has made '{one.site}' narrow: {ratio:.2f} times the true sd."
            yield Finding("scale", text, one.site, ratio)

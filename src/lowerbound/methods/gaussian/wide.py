"""Gaussians of more than 200 numbers: which covariance pays, and in which coordinates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowerbound.errors import NoStructureError, ZeroDensityError
from lowerbound.methods.gaussian.centring import (
    MARGIN,
    Choice,
    Trial,
    as_named,
    outcome,
    settled,
    sites_to_try,
    with_centring,
)
from lowerbound.methods.gaussian.engines import starts_of
from lowerbound.methods.gaussian.sparse_newton import Surface, Walk, measured, race
from lowerbound.methods.gaussian.sparsity import Sparsity, affordable, dense, pays, sparsity_of
from lowerbound.methods.gaussian.target import Target, target_for
from lowerbound.methods.gaussian.unconstrained_methods import FULL_BY_NEWTON, UnconstrainedMethod
from lowerbound.model import Model
from lowerbound.rewrite.noncentred import centring_name

DRAWS = 128  # fresh draws that compare two places
SURE = 2.0  # standard errors by which the others must be better
PROBES = 2  # points at which the sparsity of the second derivatives is looked at


@dataclass(frozen=True, eq=False)
class Wide:
    """A covariance that Newton's steps can afford, and the sparsity of its precision."""

    rank: str
    sparsity: Sparsity

    @property
    def notes(self) -> tuple[str, ...]:
        """What `explain` says of it."""
        if self.rank != "structured":
            return ()
        return (
            f"Structured covariance: {self.sparsity}. Its precision has the zeros of the second "
            "derivatives of log p, as that of the best full covariance has.",
        )


def wide_for(target: Target, method: UnconstrainedMethod, seed: int = 0) -> Wide | None:
    """The covariance for a method that leaves it open; None where none is affordable."""
    full = Wide("full", dense(target))
    if method.rank == "full":
        return full if affordable(full.sparsity, target) else None
    points = starts_of(target, method, seed)[-PROBES:]
    sparsity = sparsity_of(target, points)
    if method.rank == "structured":
        if not sparsity.local:
            raise NoStructureError(target.size)
        return Wide("structured", sparsity)
    if pays(sparsity, target):
        return Wide("structured", sparsity)
    if target.size <= FULL_BY_NEWTON and affordable(full.sparsity, target):
        return full
    return None


def choose_wide(
    model: Model, method: UnconstrainedMethod, dtype: np.dtype[Any], seed: int
) -> tuple[Choice, Wide | None, list[Walk] | None]:
    """The coordinates that the method names, or those of the larger ELBO of two: z or u.

    With them come the covariance that is affordable, and the walks of the trial if there was one.
    """
    names = sites_to_try(model, method)
    plain = as_named(model, method, dtype)
    plain.target.prepare()
    wide = wide_for(plain.target, method, seed)
    if not names or wide is None or Surface(plain.target, wide.sparsity).dear:
        return plain, wide, None
    target = target_for(model, dtype, names, {centring_name(n): np.zeros(()) for n in names})
    own = with_centring(target, dict.fromkeys(names, 0.0))
    own.prepare()
    walks, elbo, error = _walked(plain.target, wide, method, seed)
    centred = Trial(dict.fromkeys(names, 1.0), [], elbo)
    other = wide_for(own, method, seed)
    if other is None:
        return plain, wide, walks
    others, elbo, noise = _walked(own, other, method, seed)
    noncentred = Trial(dict.fromkeys(names, 0.0), [], elbo)
    trials = (centred, noncentred)
    least = MARGIN + SURE * float(np.hypot(error, noise))
    if not noncentred.elbo > centred.elbo + least:
        return replace(plain, trials=trials, notes=(outcome(trials, centred),)), wide, walks
    chosen = replace(settled(model, target, trials, noncentred), climbs=None)
    return chosen, other, others


def _walked(
    target: Target, wide: Wide, method: UnconstrainedMethod, seed: int
) -> tuple[list[Walk], float, float]:
    """The walks over few draws, and the ELBO where the best ended with its standard error."""
    surface = Surface(target, wide.sparsity)
    walks = race(surface, method, seed)
    place = max(walks, key=lambda walk: walk.place.elbo).place
    try:
        bound, _ = measured(surface, place, DRAWS, seed)
    except ZeroDensityError:
        return walks, -np.inf, 0.0
    return walks, bound.elbo, bound.error

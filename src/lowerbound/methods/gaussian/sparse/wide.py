"""Gaussians of more than 200 numbers: which covariance pays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lowerbound.compute.threads import one_thread
from lowerbound.errors import NoStructureError
from lowerbound.methods.gaussian.centring import named_sites
from lowerbound.methods.gaussian.climbing.climbs import starts_of
from lowerbound.methods.gaussian.sparse.sparsity import (
    NoCurvatureError,
    Sparsity,
    affordable,
    dense,
    full_work,
    sparsity_of,
    work_that_pays,
)
from lowerbound.methods.gaussian.target import Target, target_for
from lowerbound.methods.gaussian.unconstrained_methods import FULL_BY_NEWTON, Gaussian
from lowerbound.run.problem import Problem

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


def wide_problem(problem: Problem, method: Gaussian) -> tuple[Target, Wide | None]:
    """Log p in the coordinates that a method names, and the covariance for it."""

    def find() -> tuple[Target, Wide | None]:
        model, dtype = problem.model, problem.computing.dtype()
        with np.errstate(all="ignore"), one_thread():
            target = target_for(model, dtype, named_sites(model, method))
            target.prepare()
            return target, wide_for(target, method)

    return problem.once(("wide", method), find)


def wide_for(target: Target, method: Gaussian) -> Wide | None:
    """The covariance for a method that leaves it open; None where none is affordable."""
    size = target.size
    if method.rank != "full":
        asked = method.rank == "structured"
        most = full_work(size) if asked else work_that_pays(size)
        try:
            sparsity = sparsity_of(target, starts_of(target, method, 0)[-PROBES:], most)
        except NoCurvatureError as error:
            if asked:
                raise NoStructureError(size) from error
            return None
        if asked and sparsity is None:
            raise NoStructureError(size)
        if sparsity is not None and (asked or affordable(target, sparsity.count)):
            return Wide("structured", sparsity)
    if size <= FULL_BY_NEWTON and affordable(target, size):
        return Wide("full", dense(target))
    return None

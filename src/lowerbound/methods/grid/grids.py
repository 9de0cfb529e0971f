"""A grid over scalars with the rest given them, planned for a problem."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.compute.engine import derived
from lowerbound.compute.threads import one_thread
from lowerbound.errors import LostPosteriorError, LowerboundError
from lowerbound.family.q import Q
from lowerbound.methods.coordinate.begin import given_values
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.methods.gaussian.climbing.climbs import begin_climbs, best_of
from lowerbound.methods.gaussian.target import target_for
from lowerbound.methods.gaussian.unconstrained_methods import Gaussian
from lowerbound.methods.grid.conditional import (
    Solver,
    exact_solver,
    point_solver,
    problem_given,
    transforms_of,
)
from lowerbound.methods.grid.conditioning import BUDGET, Gridded, refinements
from lowerbound.methods.grid.gaussian_inner import gaussian_solver
from lowerbound.methods.rewriting.summed_out import summed_out
from lowerbound.model import Model
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.plan import Plan, make_plan, plan_of_gaussian, plan_on_grid
from lowerbound.result.posterior import History, Restart
from lowerbound.rewrite.summing.enumerated import discrete_sites
from lowerbound.run.check_input import check_observed_variance
from lowerbound.run.method import Method
from lowerbound.run.planned import Planned, Trace
from lowerbound.run.problem import Problem
from lowerbound.run.walking import Standing, Walking, ended


def planned_grid(problem: Problem, sites: tuple[str, ...], method: Method) -> Planned[Any]:
    """A grid over `sites`; discrete sites are summed out before Gaussians."""
    from lowerbound.methods.grid.given_scalars import Given

    model = problem.model
    transforms_of(model, sites)
    check_observed_variance(model)
    given_values(model, method)
    if isinstance(method, Gaussian):
        if discrete_sites(model):
            return summed_out(problem, Given(sites, method))
        return GaussianGrids(problem, sites, method)
    assert isinstance(method, CAVI)
    return ExactGrids(problem, sites, method)


class Grids(Walking[Gridded]):
    """Refinements of a grid."""

    unit, total = "round", 7

    problem: Problem
    sites: tuple[str, ...]
    method: Any
    budget = BUDGET  # nodes

    def answer(self, place: Gridded, trace: Trace, stop: Stop) -> Answer:
        """The mixture over the nodes."""
        place.profile.solver.finish()
        elbo = float(trace.values[-1])
        history = History(trace.values, trace.seconds, step="round")
        restarts = (Restart(elbo, len(trace.values), str(stop)),)
        q = Q(place.family, place.parameters())
        return Answer(q, elbo, history, restarts, exact=stop.converged and self.exact)

    @property
    def exact(self) -> bool:
        """Whether q is the posterior of the rest at every node."""
        return False

    @property
    def given(self) -> Model:
        """The program with the sites observed."""
        return problem_given(self.problem, self.sites)


class ExactGrids(Grids):
    """Coordinate ascent at every node; log p itself where no site is left."""

    def __init__(self, problem: Problem, sites: tuple[str, ...], method: CAVI) -> None:
        self.problem, self.sites, self.method = problem, sites, method
        rest, self.closed = None, True  # where nothing is left
        if len(sites) < len(problem.model.latent):
            with jax.enable_x64(True):
                joint = derived(self.given)
                rest, self.closed = make_plan(self.given, joint), joint.structure.is_posterior
        self.plan = plan_on_grid(problem.model, rest, sites)

    @property
    def exact(self) -> bool:
        """Whether one factor of a closed form has all the rest, or nothing is left."""
        return self.closed

    def solver(self) -> Solver:
        """What solves the rest."""
        model, sites = self.problem.model, self.sites
        if len(sites) == len(model.latent):
            return point_solver(model)
        return exact_solver(self.given, sites, transforms_of(model, sites), self.problem.seed)

    def walk(self) -> Iterator[Standing[Gridded]]:
        """From where the method says, or a scan; from a mode where that finds nothing."""
        model, init = self.problem.model, self.method.init
        given = init if isinstance(init, Mapping) else {}
        start = dict(given) if set(self.sites) <= set(given) else None
        try:
            yield from refinements(model, self.sites, self.solver(), start, self.budget)
        except LostPosteriorError:
            # Scans along one scalar at a time miss a ridge across them; gradients do not.
            mode = None if start else _mode(model, self.sites, self.problem.seed)
            if mode is None:
                raise
            yield from refinements(model, self.sites, self.solver(), mode, self.budget)


class GaussianGrids(Grids):
    """A Gaussian of the rest at every node, all from one start."""

    def __init__(self, problem: Problem, sites: tuple[str, ...], method: Gaussian) -> None:
        self.problem, self.sites, self.method = problem, sites, method
        self.plan = self._plan()

    def walk(self) -> Iterator[Standing[Gridded]]:
        """From a mode of all sites together."""
        model, method = self.problem.model, self.method
        target = target_for(model)
        target.prepare()
        climbs = ended(begin_climbs(target, method, self.problem.seed, False, again=False))
        loc = np.asarray(best_of(climbs).state.loc)
        coordinates = target.coordinates
        values = coordinates.constrain(jnp.asarray(loc), target.data)
        rest = [n for n in coordinates.shapes if n not in self.sites]
        start = np.concatenate([loc[coordinates.part(name)] for name in rest])
        centre = np.concatenate([loc[coordinates.part(name)] for name in self.sites])
        solver = gaussian_solver(self.given, self.sites, method.draws, start, centre)
        first = {name: np.asarray(values[name]) for name in self.sites}
        yield from refinements(model, self.sites, solver, first, self.budget)

    def _plan(self) -> Plan:
        model = self.problem.model
        rest = [n for n in model.latent if n not in self.sites]
        size = sum(math.prod(model.latent[n].shape) for n in rest)
        whole = plan_of_gaussian(model, f"Gaussian (full, d = {size})", ())
        given = replace(whole, rows=tuple(row for row in whole.rows if row.site in rest))
        plan = plan_on_grid(model, given, self.sites)
        residuals = self.problem.joint.structure.residuals
        return replace(plan, method=f"Gaussian given {', '.join(self.sites)}", residuals=residuals)


def _mode(model: Model, sites: tuple[str, ...], seed: int) -> dict[str, Any] | None:
    """The values of some sites near a mode of all of them, by gradients; None if none is found."""
    if discrete_sites(model):
        return None
    try:
        with np.errstate(all="ignore"), one_thread():
            target = target_for(model)
            climbs = ended(begin_climbs(target, Gaussian(), seed, False, again=False))
            loc = np.asarray(best_of(climbs).state.loc)
            values = target.coordinates.constrain(jnp.asarray(loc), target.data)
    except LowerboundError:
        return None
    return {site: np.asarray(values[site]) for site in sites}

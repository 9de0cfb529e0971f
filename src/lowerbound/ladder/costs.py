"""What a fit by each method takes: typical counts of nodes, sweeps and gradients, and their work.

The constants are those of cold fits of some fifty programs of many kinds; `python -m
benchmarks.costs` compares what they say with what is measured, on these and on others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import jax
import numpy as np

from lowerbound.compiled import equations
from lowerbound.compute.engine import QUICK_BELOW, derived
from lowerbound.cost import AFFORDABLE, Alternative, Work, limits, numbers_computed
from lowerbound.errors import UnsupportedModelError
from lowerbound.joint import Block
from lowerbound.joint.derive import trace_program
from lowerbound.joint.multiaffine import Structure
from lowerbound.ladder.rungs import Chosen
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.methods.gaussian.climbing.over_draws import draw_sizes
from lowerbound.methods.gaussian.sparse.sparse_newton import Surface
from lowerbound.methods.gaussian.sparse.sparsity import work as factor_work
from lowerbound.methods.gaussian.target import Counts, counts_of
from lowerbound.methods.gaussian.unconstrained_methods import (
    FIXED_BELOW,
    FULL_BELOW,
    Gaussian,
    Laplace,
    UnconstrainedMethod,
)
from lowerbound.methods.grid.conditional import problem_given
from lowerbound.methods.grid.gaussian_inner import DRAWS
from lowerbound.methods.grid.given_scalars import Given
from lowerbound.methods.hierarchy.hierarchies import predictors_for, surface_for
from lowerbound.methods.hierarchy.integrated_value import Integrated
from lowerbound.methods.partial.over import Over
from lowerbound.methods.rewriting.augmenting import Augmented, augmented_problem
from lowerbound.methods.rewriting.enumeration import Enumeration
from lowerbound.methods.rewriting.summed_out import summed_problem
from lowerbound.methods.score.score_value import ScoreFunctions
from lowerbound.methods.stochastic.batched import SVI, Memoized
from lowerbound.run.method import Method
from lowerbound.run.problem import Problem

# Nodes at which a grid of one to three scalars is solved, the search for it included.
NODES: Final = {1: 265, 2: 700, 3: 1700}
SWEEPS, CURVED_SWEEPS, EXACT_SWEEPS = 60, 10, 2
STARTED, FIRST, SECOND = 15, 15, 8  # iterations of the starts, and over the draws of two stages
QUADRATURE = 160  # numbers for a row of data: 32 nodes, and five steps at each
LINE = 3000  # numbers of a quadrature on the line: panels, and rounds that place them
KINDS = 4  # sweeps that starts of several kinds take as long to compile as
# The log density that judges what is not exact: operations beside its own, and those by which
# discrete sites are summed out of it; how often its own are compiled; draws of q it is taken at.
JUDGED, SUMMED_OUT, COMPILED, JUDGED_AT = 300, 1500, 1, (64, 512)
IN_ANY_CASE = 2e8  # numbers that more than the least of these draws may take
SWEPT = 6  # numbers of a sweep for each of the program
NODE = 60_000  # numbers that the solution of a node costs at least
LAPACK, OUTER = 90, 8  # flops for size^3 of a node's factor, and size^2 of a draw
GRADIENT, UNOPTIMISED = 0.8, 4.5  # numbers of a gradient for one of log p, by its compilation
PRODUCT = 0.2  # numbers that a product within linear algebra counts for
FEW, MOST_STEPS = 6, 6  # dimensions that a Gaussian fits soon; most steps against those it takes
GRID_STEPS = 4  # of a Gaussian at a node, from the solution of another
ROUNDS = 500  # sweeps between the steps of a Gaussian of other sites
DERIVED, SHORT = 5, 50  # operations for one of a long program, and those of a short one
HELD = 0.4  # numbers of a point that are alive, for each that is computed
NOISY = 40_000  # gradients of noisy steps: forty windows, and those that find the rate
# Newton's steps for many numbers, their points, and those with second derivatives: cheap, and dear.
WIDE, DEAR = (150, 4500, 2000), (45, 2000, 400)
OPTIMISED = 4.0  # the time of a compilation that optimises, to that of a quick one
BATCH_STEPS = 400  # of minibatches
CLIMBED, ALONG, POINTS = 10, 10, 16  # solutions up to the mode; for each number, along and around
SOLVED = 5_000_000  # numbers that one of them takes at least, with its part of the surrogate
NEWTON, QUADRATURE_NODES = 6, 12  # steps of a solution that is no parabola's, and its nodes
TERM, PAIR = 10, 25  # numbers for a term at a node, and for a pair of coefficients of a predictor
DRAWN = 16  # draws of a step of score functions, and their steps
SCORE_STEPS = 2000


def work_of(problem: Problem, method: Method) -> Work | None:
    """What a cold fit takes; None where that is not known, or the method does not fit."""
    if problem.streams or problem.has_parameters:
        return None
    # Steps until the ELBO rests: nobody knows how many.
    rule = next((rule for kind, rule in _RULES.items() if isinstance(method, kind)), None)
    if rule is None:
        return None
    with jax.enable_x64(True):
        return rule(_Program(problem), method)


def expected(found: Chosen) -> Work | None:
    """What a fit takes that is about to be carried out; on the ladder some methods are limited."""
    work = work_of(found.problem, found.method)
    limited = found.rungs and found.method.limited
    return replace(work, most=AFFORDABLE) if work is not None and limited else work


def cheaper(problem: Problem, method: Method, work: Work) -> Alternative | None:
    """The next method that loses some accuracy and takes less, or None."""
    for other in _below(problem, method):
        found = work_of(problem, other)
        if found is not None and _size(found) < 0.9 * _size(work):
            return Alternative(other.code, found)
    return None


def _below(problem: Problem, method: Method) -> Iterator[Method]:
    if isinstance(method, Given):
        conjugate = not problem.joint.structure.residuals
        yield CAVI() if conjugate and isinstance(method.method, CAVI) else Gaussian()
    elif isinstance(method, Integrated):
        yield CAVI() if not problem.joint.structure.residuals else Gaussian()
    elif isinstance(method, CAVI):
        plate = problem.model.data_plate
        if plate is not None and plate.size > MANY_ROWS:
            yield SVI()
    elif method == Gaussian():
        small = _Program(problem).size <= FULL_BELOW
        yield Laplace() if small else Gaussian(rank="diagonal")


MANY_ROWS = 8192


def _size(work: Work) -> float:
    """Work in one number, whatever the machine: an operation compiles in about a millisecond."""
    return work.operations + 1e-6 * work.numbers + 3e-8 * work.flops


class _Program:
    """A problem with the counts that its work depends on."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        model = self.model = problem.model
        jaxpr = trace_program(model).jaxpr.jaxpr
        self.operations, self.numbers = equations(jaxpr), numbers_computed(jaxpr)
        self.data = sum(int(np.size(a)) for a in model.arguments.data.values())
        discrete = [s for s in model.latent.values() if s.support_values is not None]
        self.states = math.prod(len(np.asarray(s.support_values)) for s in discrete)
        real = [s for s in model.latent.values() if s.support_values is None]
        self.size = sum(math.prod(s.shape) for s in real)
        self.rows = max((math.prod(s.shape) for s in model.observed.values()), default=0)

    def ascent(self, method: CAVI) -> Work | None:
        """Coordinate ascent, where it fits."""
        structure = self.problem.derived(method.blocks).structure
        return None if structure.residuals else self.sweeps(structure, method.restarts)

    def augmented(self, method: Augmented) -> Work | None:
        """Coordinate ascent on the augmented program."""
        inner = method.method
        if not isinstance(inner, CAVI):
            return None
        return _Program(augmented_problem(self.problem, dict(method.choices))).ascent(inner)

    @property
    def derived(self) -> float:
        """Operations for those that are read, matched and certified one by one."""
        return DERIVED * max(self.operations - SHORT, 0)

    def sweeps(self, structure: Structure, starts: int) -> Work:
        """Coordinate ascent, of some starts together."""
        curved = any(summand.curved for summand in structure.summands)
        alone = all(len(summand.blocks) <= 1 for summand in structure.summands)
        free = [block for block in structure.blocks if block.family.free_form]
        # Starts of several kinds are a program of several times the updates of a sweep.
        compiled = 50 * len(structure.summands) + 300 * curved + 100 * len(free) + self.derived
        compiled = 220 + compiled * (KINDS if starts > 1 else 1)
        sweeps = (CURVED_SWEEPS if curved else EXACT_SWEEPS) if alone else SWEEPS
        each = SWEPT * (self.numbers + self.data) * self.states + NODE
        each += QUADRATURE * self.rows * curved
        each += LINE * sum(math.prod(block.batch_shape) for block in free)
        large = self.data + self.size > QUICK_BELOW
        bytes_held = 8.0 * 3 * starts * (self.numbers * self.states + self.data + self.size)
        compiled *= OPTIMISED if large else 1.0
        factors = LAPACK * sum(map(_cubed, structure.blocks))
        work = Work(compiled, starts * sweeps * each, starts * sweeps * factors, bytes_held)
        return self.judged(work) if curved or not alone else work

    def judged(self, work: Work) -> Work:
        """The work of a fit, and that of log p at draws of q, which says how near q is."""
        if not self.size:
            return work  # there is no density of discrete sites alone
        operations = JUDGED + SUMMED_OUT * (self.states > 1) + COMPILED * self.operations
        each = self.numbers * self.states * (1 if self.numbers > QUICK_BELOW else UNOPTIMISED)
        fewest, most = (draws * each for draws in JUDGED_AT)
        numbers = max(fewest, min(most, IN_ANY_CASE))
        return replace(
            work, operations=work.operations + operations, numbers=work.numbers + numbers
        )

    def grid(self, method: Given) -> Work:
        """Scalars on a grid, and the rest at every node."""
        sites = tuple(method.sites)
        if isinstance(method.method, Gaussian):
            return self._on_grid(method.method, sites)
        nodes, size = NODES[len(sites)], self.size - len(sites)
        if len(sites) == len(self.model.latent):
            return Work(280 + self.operations, nodes * (3 * self.numbers + NODE))
        structure = derived(problem_given(self.problem, sites)).structure
        curved = any(summand.curved for summand in structure.summands)
        steps = CURVED_SWEEPS if curved else 1
        compiled = 400 + 15 * len(structure.summands) + 650 * curved + self.derived
        each = NODE + QUADRATURE * self.rows * curved
        flops = nodes * steps * LAPACK * float(size) ** 3
        kept = 8.0 * 3 * nodes * float(size) ** 2
        work = Work(compiled, nodes * steps * each, flops, kept + 8.0 * 3 * self.data)
        return self.judged(work) if curved else work

    def hierarchy(self, method: Integrated) -> Work:
        """Hyperparameters integrated: solutions of a sparse Gaussian at points of them."""
        found = predictors_for(self.problem, tuple(method.sites or ()))
        surface = surface_for(self.problem, found)
        points = method.points or POINTS * found.dimension
        solved = CLIMBED + ALONG * found.dimension + points
        steps = 1 if found.is_quadratic else NEWTON
        nodes = 2 if found.is_quadratic else QUADRATURE_NODES
        pairs = surface.gram.pairs
        each = SOLVED + steps * (nodes * TERM * found.count + PAIR * pairs)
        flops = solved * steps * float(surface.pattern.dense) ** 3
        held = 8.0 * (points * surface.numbers + 4 * pairs + 6 * found.count)
        work = Work(900.0 + 3 * self.operations, solved * each, flops, held)
        return work if found.is_quadratic else self.judged(work)

    def partly(self, method: Over) -> Work:
        """A Gaussian of some sites, with sweeps over the others in every round of its steps."""
        size = sum(math.prod(self.model.latent[name].shape) for name in method.sites)
        work = self._climbed(method.method, size)
        return replace(work, flops=work.flops + ROUNDS * LAPACK * float(self.size - size) ** 3)

    @cached_property
    def continuous(self) -> Problem:
        """The problem that a Gaussian is fitted to: discrete sites are summed out of it."""
        return self.problem if self.states == 1 else summed_problem(self.problem)[1]

    @cached_property
    def density(self) -> Counts:
        """What log p on the unconstrained space costs; as it is where discrete sites stay."""
        try:
            return counts_of(self.continuous.model)
        except UnsupportedModelError:
            return Counts(self.operations, self.numbers, self.size, self.data)

    @property
    def gradient(self) -> float:
        """The numbers that log p and its gradient at a point are worth."""
        found = self.density
        computed = found.numbers + PRODUCT * found.products
        return computed * (UNOPTIMISED if found.is_quick else GRADIENT)

    @property
    def climbing(self) -> float:
        """The operations that are compiled for a log density and its gradient, several times."""
        found = self.density
        return (600.0 + 3.0 * found.operations) * (1.0 if found.is_quick else 1.5)

    def gaussian(self, method: UnconstrainedMethod) -> Work:
        """A Gaussian on the unconstrained space."""
        if isinstance(method, ScoreFunctions):
            steps = SCORE_STEPS * DRAWN
            numbers = float(self.numbers * self.states)
            return Work(1500 + 9 * self.operations, steps * (numbers + NODE))
        size = self.density.size
        if isinstance(method, Gaussian) and method.is_wide(size):
            return self._wide(method)
        noisy = isinstance(method.rank, int) or size > FIXED_BELOW
        return self._gradients(NOISY, 0) if noisy else self._climbed(method, size)

    def _climbed(self, method: UnconstrainedMethod, size: int) -> Work:
        """A Gaussian of so many numbers, over fixed draws."""
        gradients = self._started(method, size)
        if not isinstance(method, Laplace):
            first, second, *_ = [*draw_sizes(method, size), 0]
            gradients += FIRST * first + SECOND * second
            # Posteriors of many numbers are further from a Gaussian: more steps, up to the limits.
            gradients *= float(np.clip(size / FEW, 1.0, MOST_STEPS))
        return self._gradients(gradients, size)

    def _on_grid(self, method: Gaussian, sites: Sequence[str]) -> Work:
        """A Gaussian at every node of a grid over some sites."""
        rest = self.density.size - len(sites)
        gradients = NODES[len(sites)] * GRID_STEPS * max(DRAWS, 4 * rest)
        work = self._gradients(gradients + self._started(method, self.density.size), rest)
        return replace(work, operations=work.operations + 600)

    @staticmethod
    def _started(method: UnconstrainedMethod, size: int) -> float:
        """The gradients of all starts."""
        return float(method.starts * 2 * size * STARTED)

    def _gradients(self, count: float, size: int) -> Work:
        """So many gradients of log p, and what steps of a Gaussian make of them."""
        flops = count * OUTER * float(size) ** 2
        return Work(self.climbing, count * self.gradient + 5e7, flops, self.batch_bytes)

    @property
    def batch_bytes(self) -> float:
        """The bytes of a batch of points with their gradients, which is at most what is free."""
        return min(8.0 * HELD * self.density.batch * self.density.numbers, limits().budget)

    def _wide(self, method: Gaussian) -> Work:
        """A Gaussian of many numbers: by second derivatives where that pays, else by noise."""
        # Only a plan looks at the second derivatives: what is cheaper is not worth a look.
        target, wide = self.continuous.known(("wide", method)) or (None, None)
        if target is None or wide is None:
            return self._gradients(NOISY, 0)
        sparsity = wide.sparsity
        steps, points, curved = DEAR if Surface(target, sparsity).dear else WIDE
        directions = sum(map(len, sparsity.directions))
        work = self._gradients(points + curved * directions, 0)
        numbers = work.numbers + steps * NODE * sparsity.size
        factor = factor_work(sparsity.border, sparsity.local, sparsity.width)
        held = 8.0 * directions * sparsity.size + self.batch_bytes
        return Work(1.5 * work.operations, numbers, steps * factor, held)

    def summed_over(self, _: Enumeration) -> Work:
        """Every density in every state, once, and the probabilities of the states."""
        return Work(300.0 + 4 * self.operations, 4.0 * self.numbers * self.states)

    def batches(self, method: SVI | Memoized) -> Work:
        """Minibatches: steps over some of the rows."""
        structure = derived(self.model).structure
        plate = self.model.data_plate
        rows = plate.size if plate is not None else 1
        share = min(method.batch_size or MANY_ROWS, rows) / max(rows, 1)
        wanted = method.steps if isinstance(method, SVI) else method.visits
        steps = wanted or BATCH_STEPS
        each = SWEPT * (self.numbers + self.data) * self.states * share + NODE
        compiled = 600 + 100 * len(structure.summands)
        return Work(compiled, steps * each, 0.0, 8.0 * 3 * share * self.data)


def _cubed(block: Block) -> float:
    """The numbers of a Gaussian factor cubed, for every one that a block holds."""
    size = int(block.static.get("dim", 1)) if block.is_vector else 1
    return math.prod(block.batch_shape) * float(size) ** 3 if size > 1 else 0.0


# What each kind of method takes.
_RULES: Final[Mapping[type[Method], Callable[[_Program, Any], Work | None]]] = {
    CAVI: _Program.ascent,
    Augmented: _Program.augmented,
    SVI: _Program.batches,
    Memoized: _Program.batches,
    Given: _Program.grid,
    Integrated: _Program.hierarchy,
    Over: _Program.partly,
    Enumeration: _Program.summed_over,
    UnconstrainedMethod: _Program.gaussian,  # type: ignore[type-abstract]
}

"""What fits with exact factors take: sweeps, grids of scalars, hierarchies, minibatches."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from lowerbound.compute.engine import QUICK_BELOW, derived
from lowerbound.cost import Work
from lowerbound.joint import Block
from lowerbound.joint.multiaffine import Structure
from lowerbound.joint.terms.indices import Label, unique
from lowerbound.ladder.counted import Counted
from lowerbound.ladder.gaussian_work import LAPACK, NODE, NODES, on_grid
from lowerbound.methods.chains.rounds_of_chains import CHAINS
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.methods.gaussian.unconstrained_methods import Gaussian
from lowerbound.methods.grid.conditional import problem_given
from lowerbound.methods.grid.given_scalars import Given
from lowerbound.methods.hierarchy.by_chains.banded_elimination import layout
from lowerbound.methods.hierarchy.by_chains.chained_theta import COMPLETED
from lowerbound.methods.hierarchy.hierarchies import Hierarchy, predictors_for, surface_for
from lowerbound.methods.hierarchy.inner.parabolas import AnySurface
from lowerbound.methods.hierarchy.integrated_value import Integrated
from lowerbound.methods.hierarchy.missed.remainders import MOST as MOST_LEFT
from lowerbound.methods.hierarchy.missed.remainders import POINTS as VALUES
from lowerbound.methods.rewriting.augmenting import Augmented, augmented_problem
from lowerbound.methods.rewriting.enumeration import Enumeration
from lowerbound.methods.sampling.sampled import FIRST, WARM, sampled_predictors
from lowerbound.methods.sampling.trajectories_value import Trajectories
from lowerbound.methods.stochastic.batched import SVI, Memoized

SWEEPS, CURVED_SWEEPS, EXACT_SWEEPS = 60, 10, 2
QUADRATURE = 160  # numbers for a row of data: 32 nodes, and five steps at each
LINE = 3000  # numbers of a quadrature on the line: panels, and rounds that place them
KINDS = 4  # sweeps that starts of several kinds take as long to compile as
CHAIN = 2500  # operations of the sums along a path, forwards and backwards, and their gradients
SUMMED_PATH = 6000  # of a verdict that sums paths out of a program: it runs in windows of states
WRITTEN = 4  # times that a log density is written into what a grid compiles
CONTRACTED = 2  # times that what the data are contracted by is
COARSE, COMPARED = 3, 700  # scalars of a grid that is compared with the posterior; operations
SAMPLED = 450  # operations of draws of factors that are not Gaussian, by rejection
# Numbers of a sweep for each of an array that a term reads; as well where data say at which
# position, or along a path; and for a product of its arrays.
SCATTERED, PASSED_ALONG, MULTIPLIED = 10, 15, 0.1
OPTIMISED = 4.0  # the time of a compilation that optimises, to that of a quick one
BATCH_STEPS = 400  # of minibatches
MANY_ROWS: Final = 8192
# Solutions for each number of theta: up to the mode, along axes, in tails and from other starts; of
# dear ones without these two. And those at points around it, so many at most where the meaning of z
# does not move with theta; where it does, more than the fewest are often needed.
ALONG, ALONG_DEAR, POINTS, MOST_POINTS, ONWARD = 25, 14, 16, 96, 1.2
SOLVED, STEP = 3_000_000, 1_500_000  # numbers that one of them takes at least, and a step of it
NEWTON, QUADRATURE_NODES = 5, 12  # steps of a solution that is no parabola's, and its nodes
# Where predictors meet in a term a solution may take 3 steps, or all that there may be with each of
# them halved, and what it comes to may be given up.
MEETING, SLOW_TO_MEET = 10, 8.0
MADE = 150  # numbers for the square of z's, of increments that are made of levels
# Of chains: operations of what is compiled, times that slopes are asked for, and numbers of a pass
# over one block, and over its products.
ELIMINATED, CALLS, PASSED, CUBED = 3000.0, 5000, 25_000, 50
LOOKED_AT = 3000  # places where it is seen what a Gaussian leaves of terms that meet, for a theta
SAMPLER, GRADIENTS = 6000, 20  # operations of NUTS, optimised; gradients of a trajectory
DIFFERENTIATED, SQUARES, NUMBERS = 3, 10, 100  # of log p; of P, for each pair of z; for a number
TERM, PAIR = 10, 25  # numbers for a term at a node, and for a pair of coefficients of a predictor


def ascent(counted: Counted, method: CAVI) -> Work | None:
    """Coordinate ascent, where it fits."""
    return _sweeps(counted, method, counted)


def augmented(counted: Counted, method: Augmented) -> Work | None:
    """Coordinate ascent on the augmented program."""
    inner = method.method
    if not isinstance(inner, CAVI):
        return None
    rewritten = Counted(augmented_problem(counted.problem, dict(method.choices)))
    return _sweeps(rewritten, inner, counted)


def _sweeps(counted: Counted, method: CAVI, asked: Counted) -> Work | None:
    """Coordinate ascent, of some starts together; a verdict asks log p of the program as given."""
    structure, starts = counted.problem.derived(method.blocks).structure, method.restarts
    if structure.residuals:
        return None
    curved = any(summand.curved for summand in structure.summands)
    alone = all(len(summand.blocks) <= 1 for summand in structure.summands)
    free = [block for block in structure.blocks if block.family.free_form]
    # Starts of several kinds are a program of several times the updates of a sweep.
    compiled = 50 * len(structure.summands) + 300 * curved + 100 * len(free) + counted.derived
    chains = CHAIN * sum(block.family.along for block in structure.blocks)
    compiled = 220 + compiled * (KINDS if starts > 1 else 1) + chains
    sweeps = (CURVED_SWEEPS if curved else EXACT_SWEEPS) if alone else SWEEPS
    each = _read(structure) + NODE + QUADRATURE * counted.rows * curved
    each += LINE * sum(math.prod(block.batch_shape) for block in free)
    large = counted.data + counted.size > QUICK_BELOW
    alive = _held(structure) + counted.numbers + counted.data + counted.size
    compiled *= OPTIMISED if large else 1.0
    factors = LAPACK * sum(map(_cubed, structure.blocks))
    work = Work(compiled, starts * sweeps * each, starts * sweeps * factors, 24.0 * starts * alive)
    if curved:
        return asked.judged(work)
    drawn = SAMPLED + SUMMED_PATH * bool(chains)
    return work if alone else asked.judged(replace(work, operations=compiled + drawn))


def _read(structure: Structure) -> float:
    """Numbers that a sweep reads and multiplies, by the axes of the arrays of every term."""
    total = 0.0
    for summand in structure.summands:
        along = any(structure.blocks[number].family.along for number in summand.blocks)
        each = PASSED_ALONG if along else SCATTERED if summand.gathers else 1
        total += each * sum(map(_size, summand.axes)) + MULTIPLIED * _size(unique(summand.axes))
    return total


def _held(structure: Structure) -> float:
    """Numbers of the arrays that a sweep reads."""
    return sum(_size(labels) for summand in structure.summands for labels in summand.axes)


def _size(labels: Iterable[Label]) -> int:
    return math.prod(label.size for label in labels)


def grid(counted: Counted, method: Given) -> Work:
    """Scalars on a grid, and the rest at every node."""
    sites = tuple(method.sites)
    if isinstance(method.method, Gaussian):
        return on_grid(counted, method.method, sites)
    nodes, size = NODES[len(sites)], counted.size - len(sites)
    # The more scalars, the coarser their grid: that of three is compared with the posterior.
    judged = COMPARED * (len(sites) >= COARSE)
    if len(sites) == len(counted.model.latent):
        written = 280.0 + WRITTEN * counted.operations + judged
        return Work(written, nodes * (3 * counted.numbers + NODE))
    joint = derived(problem_given(counted.problem, sites))
    structure = joint.structure
    curved = any(summand.curved for summand in structure.summands)
    steps = CURVED_SWEEPS if curved else 1
    compiled = 400.0 + 15 * len(structure.summands) + 650 * curved + counted.derived + judged
    compiled += CHAIN * sum(block.family.along for block in structure.blocks)
    compiled += CONTRACTED * joint.operations
    each = NODE + QUADRATURE * counted.rows * curved
    flops = nodes * steps * LAPACK * float(size) ** 3
    kept = 8.0 * 3 * nodes * float(size) ** 2
    work = Work(compiled, nodes * steps * each, flops, kept + 8.0 * 3 * counted.data)
    return counted.judged(work) if curved else work


def hierarchy(counted: Counted, method: Integrated) -> Work:
    """Hyperparameters integrated: solutions of a sparse Gaussian at points of them."""
    found = predictors_for(counted.problem, tuple(method.sites or ()))
    surface = surface_for(counted.problem, found)
    planned = Hierarchy(counted.problem, method) if found.theta else None
    if planned is not None and planned.chained_at_once:
        return _chains(surface)
    solved, points = solutions(planned, method) if planned is not None else (1.0, 1.0)
    nodes, steps, within = QUADRATURE_NODES, NEWTON, 1.0
    term, left = TERM * found.count, 0.0
    if found.meet:  # the whole program is run at every node, and for what a Gaussian leaves of it
        term, nodes = 2 * counted.numbers, found.nodes
        steps, within = MEETING, SLOW_TO_MEET
        left = LOOKED_AT * term * (VALUES if found.theta else 1) * (found.size <= MOST_LEFT)
    if found.is_quadratic:
        nodes, steps = 2, 1
    if found.back is not None:  # at every point increments are made of levels
        left += solved * MADE * float(found.size) ** 2
    pairs = surface.gram.pairs
    each = SOLVED + steps * (STEP + nodes * term + PAIR * pairs)
    flops = solved * steps * float(surface.pattern.dense) ** 3
    held = 8.0 * (points * surface.numbers + 4 * pairs + 6 * found.count)
    # What is compiled is the program in plain terms, with its loops opened.
    operations = max(counted.operations, len(found.parts.flat.operations))
    work = Work(900.0 + 3 * operations, solved * each + left, flops, held, within=within)
    return work if found.is_quadratic else counted.judged(work)


def solutions(planned: Hierarchy, method: Integrated) -> tuple[float, float]:
    """How many solutions an integration over points takes, and at how many points of them."""
    size = planned.predictors.dimension
    around = max(min(POINTS * size, MOST_POINTS), ONWARD * planned.fewest)
    points = float(method.points or around)
    return (ALONG if planned.is_cheap else ALONG_DEAR) * size + points, points


def _chains(surface: AnySurface) -> Work:
    """Hyperparameters by chains: slopes of several at once, z eliminated along a band."""
    found, one = layout(surface), surface.predictors
    operations = ELIMINATED + 3.0 * len(one.parts.flat.operations)
    held = 8.0 * COMPLETED * 4 * one.size
    drawn = COMPLETED * SOLVED
    if found is None:
        return Work(operations, CALLS * CHAINS * SOLVED + drawn, 0.0, held)
    each = found.blocks * (PASSED + CUBED * float(found.width) ** 3)
    return Work(operations, CALLS * each + drawn, 0.0, held)


def chains(counted: Counted, method: Trajectories) -> Work:
    """Trajectories of a few chains, whose program is compiled with the gradient of log p in it."""
    found = sampled_predictors(counted.problem)
    rounds = WARM + FIRST + WARM + method.draws / CHAINS
    gradients = CHAINS * rounds * GRADIENTS
    size = found.size + found.dimension
    each = DIFFERENTIATED * counted.numbers + SQUARES * float(found.size) ** 2 + NUMBERS * size
    if not found.is_quadratic:  # the factor of the precision is differentiated too
        each += SQUARES * float(found.size) ** 2
    return Work(SAMPLER + WRITTEN * counted.operations, gradients * each)


def summed_over(counted: Counted, _: Enumeration) -> Work:
    """Every density in every state, once, and the probabilities of the states."""
    return Work(300.0 + 4 * counted.operations, 4.0 * counted.numbers * counted.states)


def batches(counted: Counted, method: SVI | Memoized) -> Work:
    """Minibatches: steps over some of the rows."""
    structure = derived(counted.model).structure
    plate = counted.model.data_plate
    rows = plate.size if plate is not None else 1
    share = min(method.batch_size or MANY_ROWS, rows) / max(rows, 1)
    wanted = method.steps if isinstance(method, SVI) else method.visits
    steps = wanted or BATCH_STEPS
    each = _read(structure) * share + NODE
    compiled = 600 + 100 * len(structure.summands)
    return Work(compiled, steps * each, 0.0, 8.0 * 3 * share * counted.data)


def _cubed(block: Block) -> float:
    """The numbers of a Gaussian factor cubed, for every one that a block holds."""
    size = int(block.static.get("dim", 1)) if block.is_vector else 1
    return math.prod(block.batch_shape) * float(size) ** 3 if size > 1 else 0.0

"""What a fit by each method takes: typical counts of nodes, sweeps and gradients, and their work.

The constants are those of cold fits of some fifty programs of many kinds; `python -m
benchmarks.costs` compares what they say with what is measured, on these and on others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from lowerbound.compiled import equations
from lowerbound.compute.engine import QUICK_BELOW, derived
from lowerbound.cost import Alternative, Work, numbers_computed
from lowerbound.em import EM
from lowerbound.joint.derive import trace_program
from lowerbound.joint.multiaffine import Structure
from lowerbound.methods.gaussian.engines import draw_sizes
from lowerbound.methods.gaussian.target import QUICK_BELOW as QUICK_DENSITY
from lowerbound.methods.gaussian_value import FULL_BELOW, Gaussian
from lowerbound.methods.grid.conditional import conditioned
from lowerbound.methods.grid.gaussian_inner import DRAWS
from lowerbound.methods.values import CAVI, SVI
from lowerbound.model import Model

Method = CAVI | SVI | Gaussian | EM

# Nodes at which a grid of one to three scalars is solved, the search for it included.
NODES: Final = {1: 265, 2: 700, 3: 1700}
SWEEPS, CURVED_SWEEPS, EXACT_SWEEPS = 60, 10, 2
STARTED, FIRST, SECOND = 15, 15, 8  # iterations of the starts, and over the draws of two stages
QUADRATURE = 160  # numbers for a row of data: 32 nodes, and five steps at each
SWEPT = 6  # numbers of a sweep for each of the program
NODE = 60_000  # numbers that the solution of a node costs at least
LAPACK, OUTER = 90, 75  # flops for size^3 of a node's factor, and size^2 of a draw
OPTIMISED = 4.0  # the time of a compilation that optimises, to that of a quick one
BATCH_STEPS = 400  # of minibatches
DRAWN = 16  # draws of a step of score functions, and their steps
SCORE_STEPS = 2000


def work_of(
    model: Model, method: Method, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Work | None:
    """What a cold fit of a traced model takes; None where the method does not fit the model."""
    if isinstance(method, EM):  # steps until the ELBO rests: nobody knows how many
        return None
    program = _Program(model)
    if isinstance(method, SVI):
        return program.batches(method)
    if isinstance(method, Gaussian):
        return program.gaussian(method)
    if method.condition:
        return program.grid(method.condition, args, kwargs)
    structure = derived(model, method.blocks).structure
    return None if structure.residuals and not method.augment else program.sweeps(structure)


def cheaper(
    model: Model, method: Method, work: Work, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Alternative | None:
    """The next method that loses some accuracy and takes less, or None."""
    for other in _below(model, method):
        found = work_of(model, other, args, kwargs)
        if found is not None and _size(found) < 0.9 * _size(work):
            return Alternative(f"lb.{other!r}", found)
    return None


def _below(model: Model, method: Method) -> Iterator[Method]:
    if isinstance(method, SVI | EM):
        return
    if method.condition:
        conjugate = not derived(model).structure.residuals
        yield CAVI() if conjugate and isinstance(method, CAVI) else Gaussian()
    elif isinstance(method, CAVI):
        plate = model.data_plate
        if plate is not None and plate.size > MANY_ROWS and not method.augment:
            yield SVI()
    elif method.engine == "auto" and method.rank == "auto" and not method.sites:
        small = _Program(model).size <= FULL_BELOW
        yield Gaussian(engine="laplace") if small else Gaussian(rank="diagonal")


MANY_ROWS = 8192


def _size(work: Work) -> float:
    """Work in one number, whatever the machine: an operation compiles in about a millisecond."""
    return work.operations + 1e-6 * work.numbers + 3e-8 * work.flops


class _Program:
    """A model with the counts that its work depends on."""

    def __init__(self, model: Model) -> None:
        self.model = model
        jaxpr = trace_program(model).jaxpr.jaxpr
        self.operations, self.numbers = equations(jaxpr), numbers_computed(jaxpr)
        self.data = sum(int(np.size(a)) for a in model.arguments.data.values())
        discrete = [s for s in model.latent.values() if s.support_values is not None]
        self.states = math.prod(len(np.asarray(s.support_values)) for s in discrete)
        real = [s for s in model.latent.values() if s.support_values is None]
        self.size = sum(math.prod(s.shape) for s in real)
        self.rows = max((math.prod(s.shape) for s in model.observed.values()), default=0)

    def sweeps(self, structure: Structure) -> Work:
        """Coordinate ascent."""
        curved = any(summand.curved for summand in structure.summands)
        alone = all(len(summand.blocks) <= 1 for summand in structure.summands)
        free = sum(block.family.free_form for block in structure.blocks)
        compiled = 220 + 50 * len(structure.summands) + 300 * curved + 100 * free
        sweeps = (CURVED_SWEEPS if curved else EXACT_SWEEPS) if alone else SWEEPS
        each = SWEPT * (self.numbers + self.data) * self.states + NODE
        each += QUADRATURE * self.rows * curved
        large = self.data + self.size > QUICK_BELOW
        bytes_held = 8.0 * 3 * (self.numbers * self.states + self.data + self.size)
        return Work(compiled * (OPTIMISED if large else 1.0), sweeps * each, 0.0, bytes_held)

    def grid(self, sites: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Work:
        """Scalars on a grid, and exact updates of the rest at every node."""
        nodes, size = NODES[len(sites)], self.size - len(sites)
        if len(sites) == len(self.model.latent):
            return Work(200 + self.operations, nodes * (3 * self.numbers + NODE))
        structure = derived(conditioned(self.model, sites, args, kwargs)).structure
        curved = any(summand.curved for summand in structure.summands)
        steps = CURVED_SWEEPS if curved else 1
        compiled = 400 + 15 * len(structure.summands) + 650 * curved
        each = NODE + QUADRATURE * self.rows * curved
        flops = nodes * steps * LAPACK * float(size) ** 3
        kept = 8.0 * 3 * nodes * float(size) ** 2
        return Work(compiled, nodes * steps * each, flops, kept + 8.0 * 3 * self.data)

    def gaussian(self, method: Gaussian) -> Work:
        """A Gaussian on the unconstrained space, or at every node of a grid."""
        numbers, size = float(self.numbers * self.states), self.size
        if method.engine == "score":
            steps = SCORE_STEPS * DRAWN
            return Work(1500 + 9 * self.operations, steps * (numbers + NODE))
        rest = size - len(method.condition)
        compiled = 700.0 + 9 * self.operations
        compiled *= 1.5 if numbers > QUICK_DENSITY else 1.0
        gradients = float(method.starts * 2 * size * STARTED)
        if method.condition:
            draws = max(DRAWS, 4 * rest)
            gradients += NODES[len(method.condition)] * CURVED_SWEEPS * draws
            compiled += 600
        elif method.engine not in ("laplace", "delta"):
            first, second, *_ = [*draw_sizes(method.draws, size), 0]
            gradients += FIRST * first + SECOND * second
        flops = gradients * OUTER * float(rest) ** 2
        return Work(compiled, gradients * numbers + 5e7, flops, 8.0 * 64 * 3 * numbers)

    def batches(self, method: SVI) -> Work:
        """Minibatches: steps over some of the rows."""
        structure = derived(self.model).structure
        plate = self.model.data_plate
        rows = plate.size if plate is not None else 1
        share = min(method.batch_size or MANY_ROWS, rows) / max(rows, 1)
        steps = method.steps or BATCH_STEPS
        each = SWEPT * (self.numbers + self.data) * self.states * share + NODE
        compiled = 600 + 100 * len(structure.summands)
        return Work(compiled, steps * each, 0.0, 8.0 * 3 * share * self.data)

"""What Gaussians on the unconstrained space take: gradients of log p, and the steps they make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from lowerbound.cost import Work
from lowerbound.ladder.counted import Counted
from lowerbound.ladder.exactly import MANY_ROWS
from lowerbound.ladder.exchangeable import exchangeable
from lowerbound.methods.gaussian.centring import MOST_TRIED, sites_to_try
from lowerbound.methods.gaussian.climbing.climbs import MOST_PLACES, RACE
from lowerbound.methods.gaussian.climbing.over_draws import draw_sizes
from lowerbound.methods.gaussian.climbing.starts import LIMIT as START_LIMIT
from lowerbound.methods.gaussian.fixed_stages import limit
from lowerbound.methods.gaussian.reached import MEASURE
from lowerbound.methods.gaussian.sparse.sparse_newton import Surface
from lowerbound.methods.gaussian.sparse.sparsity import work as factor_work
from lowerbound.methods.gaussian.unconstrained_methods import (
    FIXED_BELOW,
    Gaussian,
    GaussianMethod,
    Laplace,
    UnconstrainedMethod,
)
from lowerbound.methods.gaussian.warping import sites_to_warp
from lowerbound.methods.grid.gaussian_inner import DRAWS
from lowerbound.methods.partial.over import Over
from lowerbound.methods.score.score_value import ScoreFunctions

# Nodes at which a grid of one to three scalars is solved, the search for it included.
NODES: Final = {1: 265, 2: 700, 3: 1700}
NODE = 60_000  # numbers that the solution of a node costs at least
LAPACK, OUTER = 90, 8  # flops for size^3 of a node's factor, and size^2 of a draw
STARTED = 16  # iterations of a start
STEPS = (4, 5, 6)  # iterations over the draws of three stages
LAST_AT = 150  # numbers from which on the last stage is always gone through
TRIED = 16  # iterations over the first draws, in coordinates that are tried
REACHED = 0.6  # of all iterations that there may be, where components can be exchanged
GRADIENT, UNOPTIMISED = 0.8, 4.5  # numbers of a gradient for one of log p, by its compilation
IN_ANY_CASE = 5e7  # numbers that an ascent takes beside its gradients
PRODUCT = 0.2  # numbers that a product within linear algebra counts for
GRID_STEPS = 4  # of a Gaussian at a node, from the solution of another
ROUNDS = 500  # sweeps between the steps of a Gaussian of other sites
VERDICT = 1.2  # all points for those of the fit: the rest say how near it is
WORTH_A_LOOK = 3e9  # numbers of all iterations; with less, an estimate is right to a factor anyway
NOISY = 40_000  # gradients of noisy steps: forty windows, and those that find the rate
# Newton's steps for many numbers, their points, and those with second derivatives: cheap, and dear.
WIDE, DEAR = (150, 4500, 2000), (45, 2000, 400)
SCORE_STEPS, SCORE_DRAWS = 2000, 16  # steps of score functions, and the draws of each


def gaussian(counted: Counted, method: UnconstrainedMethod) -> Work:
    """A Gaussian on the unconstrained space."""
    if isinstance(method, ScoreFunctions):
        numbers = float(counted.numbers * counted.states)
        steps = SCORE_STEPS * SCORE_DRAWS
        return Work(1500 + 9 * counted.operations, steps * (numbers + NODE))
    size = counted.density.size
    if isinstance(method, Gaussian) and method.is_wide(size):
        return _wide(counted, method)
    noisy = isinstance(method.rank, int) or size > FIXED_BELOW
    return _gradients(counted, NOISY, 0) if noisy else _climbed(counted, method, size)


def partly(counted: Counted, method: Over) -> Work:
    """A Gaussian of some sites, with sweeps over the others in every round of its steps."""
    size = sum(math.prod(counted.model.latent[name].shape) for name in method.sites)
    work = _climbed(counted, method.method, size)
    return replace(work, flops=work.flops + ROUNDS * LAPACK * float(counted.size - size) ** 3)


def on_grid(counted: Counted, method: Gaussian, sites: Sequence[str]) -> Work:
    """A Gaussian at every node of a grid over some sites."""
    rest = counted.density.size - len(sites)
    gradients = NODES[len(sites)] * GRID_STEPS * max(DRAWS, 4 * rest)
    work = _gradients(counted, gradients + _started(method, counted.density.size), rest)
    return replace(work, operations=work.operations + 600)


def _climbed(counted: Counted, method: UnconstrainedMethod, size: int) -> Work:
    """A Gaussian of so many numbers, over fixed draws."""
    if isinstance(method, Laplace):
        return _gradients(counted, _started(method, size), size)
    few, most = few_points(counted, method, size), most_points(counted, method, size)
    if counted.states > 1 and counted.rows >= MANY_ROWS * size:
        return _gradients(counted, few, size)  # near a Gaussian, which its verdict sees at once
    barely = _gradients(counted, VERDICT * most, size)
    looked = counted.continuous if barely.numbers >= WORTH_A_LOOK else None
    if looked is not None and exchangeable(looked.model):
        return barely
    # How curved log p is, nobody knows beforehand: as far from the one as from the other.
    work = _gradients(counted, VERDICT * min(math.sqrt(few * most), most), size)
    return work if looked is None else replace(work, within=math.sqrt(most / few))


def few_points(counted: Counted, method: UnconstrainedMethod, size: int) -> float:
    """The points of an ascent that comes to rest in few iterations, as most do."""
    sizes = draw_sizes(method, size)
    shares = (1.0, 1.0, min(size / LAST_AT, 1.0))
    staged = sum(map(math.prod, zip(sizes, STEPS, shares, strict=False)))
    tried: tuple[str, ...] = ()
    whole = counted.continuous
    if isinstance(method, GaussianMethod) and size <= MOST_TRIED and whole is not None:
        tried = sites_to_try(whole.model, method, method.chosen_rank(size) == "full")
        tried += sites_to_warp(whole.model) if method.noncentred == "auto" else ()
    return _started(method, size) + staged + TRIED * sizes[0] * bool(tried) + MEASURE


def most_points(counted: Counted, method: UnconstrainedMethod, size: int) -> float:
    """The points of one whose starts disagree and which creeps: most of what its limits allow."""
    first, second, *_ = [*draw_sizes(method, size), 0]
    starts = 2 * (method.starts * 2 * size * START_LIMIT + MOST_PLACES * RACE * first)
    staged = sum(
        draws * limit(counted.density.numbers, draws) for draws in (first, second) if draws
    )
    return REACHED * (starts + staged)


def _started(method: UnconstrainedMethod, size: int) -> float:
    """The gradients of all starts."""
    return float(method.starts * 2 * size * STARTED)


def _gradients(counted: Counted, count: float, size: int) -> Work:
    """So many gradients of log p, and what steps of a Gaussian make of them."""
    found = counted.density
    each = UNOPTIMISED if found.is_quick else GRADIENT
    each *= found.numbers + PRODUCT * found.products
    # A log density and its gradient are compiled several times.
    operations = (600.0 + 3.0 * found.operations) * (1.0 if found.is_quick else 1.5)
    flops = count * OUTER * float(size) ** 2
    return Work(operations, count * each + IN_ANY_CASE, flops, counted.batch_bytes)


def _wide(counted: Counted, method: Gaussian) -> Work:
    """A Gaussian of many numbers: by second derivatives where that pays, else by noise."""
    # Only a plan looks at the second derivatives: what is cheaper is not worth a look.
    found = None if counted.continuous is None else counted.continuous.known(("wide", method))
    target, wide = found or (None, None)
    if target is None or wide is None:
        return _gradients(counted, NOISY, 0)
    sparsity = wide.sparsity
    steps, points, curved = DEAR if Surface(target, sparsity).dear else WIDE
    directions = sum(map(len, sparsity.directions))
    work = _gradients(counted, points + curved * directions, 0)
    numbers = work.numbers + steps * NODE * sparsity.size
    factor = factor_work(sparsity.border, sparsity.local, sparsity.width)
    held = 8.0 * directions * sparsity.size + counted.batch_bytes
    return Work(1.5 * work.operations, numbers, steps * factor, held)

"""Natural-gradient ascent of a Gaussian on a bound with fixed draws.

The step of the one update, in the coordinates where q is standard normal: with slope b and
curvature M (bound.estimated), the precision moves from I to (1 - step) I + step M, the mean along
M^-1 b. First derivatives of log p are all it needs; for a quadratic log p one full step is exact.
The formulas serve the host (NumPy arrays) and compiled functions (JAX arrays) alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lowerbound.bound.estimated import Estimate, Numbers, averaged, module_of, points

RUNNING, CONVERGED, SETTLED, STALLED = range(4)
_LEAST, _MOST = 0.1, 10.0  # how much one step may change a precision
_REACH = 3.0  # how far the mean may move at first, in standard deviations of q, by dimension
_ARMIJO = 1e-3
_SMALLEST_STEP = 1e-7


class Ascent(NamedTuple):
    """The state of an ascent: the Gaussian accepted last, and the one to try next."""

    loc: Numbers
    root: Numbers  # lower triangular C; the covariance is C C'
    found: Estimate
    error: Numbers  # distance from stationarity
    trial_loc: Numbers
    trial_root: Numbers
    step: Numbers
    reach: Numbers  # the farthest that the mean may move
    length: Numbers  # how far it moves in the trial
    gain: Numbers  # first-order gain of the ELBO that the trial promises
    status: Numbers


def begin(loc: Numbers, root: Numbers) -> Ascent:
    """Before the first evaluation, which is at N(loc, root root') itself."""
    xp = module_of(loc)
    one = xp.ones((), loc.dtype)
    nothing = Estimate(-xp.inf * one, xp.zeros_like(loc), xp.zeros_like(root), 0 * one)
    reach = one * _REACH * len(loc) ** 0.5
    status = xp.full((), RUNNING)
    return Ascent(loc, root, nothing, xp.inf * one, loc, root, one, reach, 0 * one, 0 * one, status)


def advance(
    state: Ascent, found: Estimate, tolerance: float | Array, diagonal: bool = False
) -> Ascent:
    """Accept or refuse the trial, whose averages are `found`, and choose the next one.

    A trial is refused when the ELBO does not rise as promised, or is not finite. Converged: slope
    and curvature are within `tolerance` of 0 and I, in units of standard deviations of q.
    """
    xp = module_of(state.loc)
    before = state.found.elbo
    begun = xp.isfinite(before)
    slack = 1e-13 * (1.0 + xp.abs(xp.where(begun, before, 0.0)))
    enough = ~begun | (found.elbo >= before + _ARMIJO * state.gain - slack)
    accepted = xp.isfinite(found.elbo) & enough
    kept = Estimate(*(xp.where(accepted, n, o) for n, o in zip(found, state.found, strict=True)))
    loc = xp.where(accepted, state.trial_loc, state.loc)
    root = xp.where(accepted, state.trial_root, state.root)
    nowhere = ~xp.isfinite(kept.elbo)
    error = xp.where(nowhere, xp.inf, distance(kept, diagonal))
    # The best step of the parabola through the promised slope and the change that came of it: a
    # full step that only oscillates gains nothing, and is halved.
    short = xp.maximum(state.gain - (found.elbo - before), 1e-300)
    parabola = xp.where(begun & xp.isfinite(found.elbo), 0.5 * state.gain / short, 0.0)
    ratio = xp.where(accepted, xp.clip(parabola, 0.5, 2.0), xp.clip(parabola, 0.1, 0.5))
    step = xp.minimum(1.0, xp.where(begun, ratio, xp.where(accepted, 1.0, 0.5)) * state.step)
    # Far from the optimum, where the scale is right and the mean is not, the reach grows.
    longer = xp.maximum(state.reach, 4.0 * state.length)
    shorter = xp.maximum(1.0, 0.25 * state.length)
    reach = xp.where(accepted, longer, shorter)
    still = accepted & begun & (state.step >= 0.5) & (found.elbo - before <= 10 * slack)
    status = xp.where(step < _SMALLEST_STEP, STALLED, RUNNING)
    status = xp.where(still, SETTLED, status)
    status = xp.where(error <= tolerance, CONVERGED, status)
    next_loc, next_root, length, gain = trial(kept, loc, root, step, reach, diagonal)
    # Before any draw was finite, try draws closer to the centre.
    return Ascent(
        loc,
        root,
        kept,
        error,
        xp.where(nowhere, loc, next_loc),
        xp.where(nowhere, 0.25 * state.trial_root, next_root),
        step,
        reach,
        length,
        gain,
        status,
    )


def distance(found: Estimate, diagonal: bool) -> Numbers:
    """How far from stationary: the error of mean or scale, in standard deviations, at most."""
    xp = module_of(found.slope)
    excess = xp.tril(found.curvature - xp.eye(len(found.slope)))
    if diagonal:
        excess = xp.diagonal(excess)
    return xp.maximum(xp.max(xp.abs(found.slope)), xp.max(xp.abs(excess)))


def trial(
    found: Estimate,
    loc: Numbers,
    root: Numbers,
    step: Numbers,
    reach: Numbers,
    diagonal: bool,
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """The next Gaussian to try, how far its mean moves, and the gain that the gradient promises."""
    xp = module_of(loc)
    eye = xp.eye(len(loc))
    # The lower triangle is the gradient of the ELBO in a lower triangular root.
    lower = xp.tril(found.curvature)
    values, vectors = xp.linalg.eigh(lower + xp.tril(lower, -1).T)
    values = xp.clip(values, _LEAST, _MOST)
    move = vectors @ ((vectors.T @ found.slope) / values)
    length = xp.sqrt(xp.sum(move**2))
    shrink = step * xp.minimum(1.0, reach / xp.maximum(step * length, 1e-300))
    if diagonal:
        target = xp.diag(xp.clip(xp.diagonal(lower), _LEAST, _MOST))
        factor = xp.diag(1.0 / xp.sqrt(1.0 + step * (xp.diagonal(target) - 1.0)))
        lower = xp.diag(xp.diagonal(lower))
    else:
        target = (vectors * values) @ vectors.T
        factor = xp.linalg.cholesky((vectors / (1.0 + step * (values - 1.0))) @ vectors.T)
    change = xp.tril(eye - target, -1) + 0.5 * xp.diag(xp.diagonal(eye - target))
    gain = shrink * (found.slope @ move) + step * xp.sum((eye - lower) * change)
    return loc + root @ (shrink * move), root @ factor, shrink * length, xp.maximum(gain, 0.0)


def ascend(
    function: Callable[[Array], tuple[Array, Array]],
    draws: Array,
    loc: Array,
    root: Array,
    tolerance: float | Array,
    limit: int,
) -> Ascent:
    """The whole ascent as one traceable loop; `function` gives log p and its gradient at x."""

    def running(carry: tuple[Array, Ascent]) -> Array:
        iteration, state = carry
        going: Array = (state.status == RUNNING) & (iteration < limit)
        return going

    def body(carry: tuple[Array, Ascent]) -> tuple[Array, Ascent]:
        iteration, state = carry
        values, gradients = jax.vmap(function)(points(draws, state.trial_loc, state.trial_root))
        found = averaged(draws, values, gradients, state.trial_root)
        return iteration + 1, advance(state, found, tolerance)

    start = (jnp.zeros((), int), begin(loc, root))
    _, final = jax.lax.while_loop(running, body, start)
    return final

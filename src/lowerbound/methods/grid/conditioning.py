"""Structured VI by conditioning: q(theta) q(z | theta), theta a few scalars on an adaptive grid.

The ELBO of the whole is log of the integral of exp(ELBO given theta), which no other q with the
same factors of z exceeds: it is never below mean field's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np

from lowerbound.cost import allowance
from lowerbound.errors import ArgumentError
from lowerbound.family.densities.conditioned import Conditioned
from lowerbound.family.numerics.long_tails import with_easing
from lowerbound.methods.grid.beyond import nodes_beyond
from lowerbound.methods.grid.conditional import Solver, transforms_of
from lowerbound.methods.grid.lattice import APART, UNEVEN, Lattice, filled, lattice_for, refined
from lowerbound.methods.grid.profile import Profile
from lowerbound.model import Model
from lowerbound.model.prior_points import improper_sites
from lowerbound.result.answer import Stop
from lowerbound.run.walking import Standing

BUDGET = 4000  # nodes
REFINEMENTS = 6
GAIN = 4.0  # by which half the spacing lessens the difference of even and odd nodes, at least
NEARLY = 0.1  # nats: where a density is smooth, its square is the error of the sum
ROUNDED = {1: 16, 2: 8, 3: 4}  # what the nodes along an axis are a multiple of


@dataclass(frozen=True, eq=False)
class Gridded:
    """Where a grid stands: its nodes, with a solution of the rest at each."""

    sites: tuple[str, ...]
    profile: Profile
    lattice: Lattice

    @property
    def family(self) -> Conditioned:
        """The family of q(theta) q(z | theta)."""
        solver, transforms = self.profile.solver, self.profile.transforms
        return Conditioned(self.sites, tuple(transforms), solver.family, solver.compiled)

    def parameters(self) -> dict[str, Any]:
        """The parameters of q in that family."""
        return _parameters(self.profile, self.lattice)


def refinements(
    model: Model,
    sites: Sequence[str],
    solver: Solver,
    start: Mapping[str, Any] | None = None,
    budget: int = BUDGET,
) -> Iterator[Standing[Gridded]]:
    """Grids over `sites`, each finer than the last, until even and odd nodes agree.

    `solver` is that of the rest given the sites. `start` are values of the sites near which the
    posterior is looked for, instead of a scan over many scales.
    """
    transforms = transforms_of(model, sites)
    profile = Profile(solver, sites, transforms, improper_sites(model.latent))
    lattice = lattice_for(profile, _unconstrained(sites, transforms, start))
    if (tails := lattice.long_tails(profile)) is not None:
        transforms = (with_easing(transforms[0], *tails),)
        profile = Profile(solver, sites, transforms, profile.improper)
        lattice = lattice_for(profile, np.zeros(1))
    seen: list[np.ndarray] = []
    while True:
        lattice = filled(profile, lattice, budget)
        beyond = () if seen else nodes_beyond(profile, lattice)
        lattice = filled(profile, lattice, budget, beyond) if beyond else lattice
        elbo = lattice.log_total(profile)
        seen.append(lattice.uneven(profile))
        # Half the spacing takes twice the nodes.
        room = lattice.complete and 2 * len(lattice.known) <= budget
        wanted = UNEVEN[len(sites)] if room or not _is_smooth(seen) else NEARLY
        smooth = bool(seen[-1].max() < wanted)
        last = not room or len(seen) > REFINEMENTS or allowance().over
        here = Gridded(tuple(sites), profile, lattice)
        if smooth or last or (_at_an_edge(seen) and lattice.apart(profile) < APART):
            yield Standing(here, elbo, _stop(here, float(seen[-1].max()), smooth, room, budget))
            return
        yield Standing(here, elbo)
        lattice = refined(lattice, int(np.argmax(seen[-1])))


def _stop(here: Gridded, worst: float, smooth: bool, room: bool, budget: int) -> Stop:
    """Why the grid is fine enough, or gets no finer."""
    lattice, count = here.lattice, len(here.lattice.known)
    apart = lattice.apart(here.profile)
    if lattice.complete and smooth:
        return Stop(True, f"even and odd nodes of {count} agree to {worst:.1e} nats")
    if lattice.complete and apart < APART:
        return Stop(
            True,
            f"means and sds by even and odd nodes of {count} agree to {apart:.2g} sds (their "
            f"masses to {worst:.1e} nats)",
        )
    reason = f"reached the budget of {budget} nodes"
    if lattice.complete:
        reason = f"even and odd nodes of {count} differ by {worst:.1e} nats"
        reason += "" if room else f", and half their spacing exceeds the budget of {budget} nodes"
    remedy = (
        "Means and sds of all sites rest on a grid that is too coarse for the posterior of "
        f"{', '.join(here.sites)}. Condition on fewer of them, or give them tighter priors."
    )
    if allowance().over:
        reason = f"{allowance().reason}, after {count} nodes"
        remedy += " " + allowance().remedy(f"lb.Given({here.sites})")
    return Stop(False, reason, remedy)


def _at_an_edge(seen: Sequence[np.ndarray]) -> bool:
    """Whether half the spacing brought even and odd nodes hardly nearer to each other.

    Where a density is smooth, their difference vanishes faster than any power of the spacing.
    """
    return len(seen) > 1 and bool(seen[-1].max() > seen[-2].max() / GAIN)


def _is_smooth(seen: Sequence[np.ndarray]) -> bool:
    """Whether half the spacing has paid along each axis that was refined, and one was."""
    gains = [(now[np.argmax(then)], then.max() / GAIN) for then, now in pairwise(seen)]
    return bool(gains) and all(now < wanted for now, wanted in gains)


def _unconstrained(
    sites: Sequence[str], transforms: Sequence[Any], start: Mapping[str, Any] | None
) -> np.ndarray | None:
    """The point of the given values on the unconstrained space."""
    if start is None:
        return None
    point = np.asarray(
        [
            float(transform.inv(jnp.asarray(start[site], float)))
            for site, transform in zip(sites, transforms, strict=True)
        ]
    )
    if not np.isfinite(point).all():
        site = sites[int(np.argmin(np.isfinite(point)))]
        raise ArgumentError(
            f"The start of '{site}' is {start[site]}.\nExpected a value inside its support."
        )
    return point


def _parameters(profile: Profile, lattice: Lattice) -> dict[str, Any]:
    """The parameters of the density: the box around the lattice, gaps continued from the nodes.

    The box around a curved lattice may have twenty times its nodes: solutions are kept once.
    """
    nodes = np.asarray(list(lattice.known))
    numbers = np.asarray(list(lattice.known.values()))
    first, last = nodes.min(axis=0), nodes.max(axis=0)
    # Rounded up, so that fits of other data mostly have grids of the same shape: a gap costs
    # nothing, and what is compiled for one shape serves them all.
    unit = ROUNDED[nodes.shape[1]]
    shape = tuple(int(-(-n // unit) * unit) for n in last - first + 1)
    place = tuple((nodes - first).T)
    values = np.full(shape, np.nan)
    values[place] = profile.values[numbers]
    top = profile.values[numbers].max()
    values[np.isneginf(values)] = np.nan
    values = continued(values, top)
    solved = np.full(shape, -1)
    solved[place] = np.where(np.isfinite(profile.values[numbers]), numbers, -1)
    flat = solved.ravel()
    gaps = np.flatnonzero(flat < 0)
    if len(gaps):
        index = np.stack(np.unravel_index(gaps, shape), axis=1) + first
        flat[gaps] = profile.nearest(lattice.points(index))
    log_weights = values - top
    log_weights -= np.log(np.exp(log_weights).sum())
    used, which = np.unique(flat, return_inverse=True)
    return {
        "origin": lattice.origin,
        "axes": lattice.axes,
        "first": lattice.spacing * first,
        "spacing": lattice.spacing,
        "log_weights": log_weights,
        "solved": which.ravel(),
        "inner": profile.solution(np.pad(used, (0, _rounded(len(used)) - len(used)), "edge")),
    }


def _rounded(count: int) -> int:
    """The count or a little more, one of few sizes, for the same reason as above."""
    unit = 1 << max(count.bit_length() - 3, 0)
    return -(-count // unit) * unit


def continued(values: np.ndarray, top: float) -> np.ndarray:
    """The values with gaps (NaN) continued in straight lines from inside, far below `top`.

    An interpolation of the log density then has no cliff to ring at.
    """
    values = values.copy()
    ceiling, floor = np.nanmin(values), top - 100.0
    while np.isnan(values).any():
        guesses = []
        for axis in range(values.ndim):
            for step in (1, -1):
                near, far = (_shifted(values, axis, step * by) for by in (1, 2))
                guesses.append(np.where(np.isnan(far), near, 2 * near - far))
        stacked = np.stack(guesses)
        known = ~np.isnan(stacked)
        guess = np.where(known, stacked, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        gaps = np.isnan(values) & known.any(axis=0)
        values[gaps] = np.clip(guess[gaps], floor, max(ceiling, floor))
    return values


def _shifted(values: np.ndarray, axis: int, by: int) -> np.ndarray:
    """The values `by` places on along an axis; NaN from beyond the ends."""
    moved = np.full(values.shape, np.nan)
    count = values.shape[axis]
    if abs(by) >= count:
        return moved
    take = [slice(None)] * values.ndim
    put = [slice(None)] * values.ndim
    take[axis] = slice(max(by, 0), count + min(by, 0))
    put[axis] = slice(max(-by, 0), count + min(-by, 0))
    moved[tuple(put)] = values[tuple(take)]
    return moved

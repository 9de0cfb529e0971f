"""Hamiltonian trajectories from draws of q, in the coordinates where q is standard.

That q is near makes them short: chains begin where the posterior is, and the metric is known but
for what q has missed. A factor that can be integrated out exactly is (`largest_factor`): the chains
go over what is left, and its sites are drawn given that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import jaxpr_as_fun

from lowerbound.compiled import jit, partial_results_are_asked_for, quickly
from lowerbound.compute.bounded_loops import has_open_loops
from lowerbound.compute.collapsing import largest_factor
from lowerbound.cost import allowance
from lowerbound.errors import FewWeightsError, UncorrectableError
from lowerbound.family.completed.collapsed_sites import Collapsed
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian, covariance
from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.family.numerics.chain_mixing import mixing
from lowerbound.methods.chains.rounds_of_chains import CHAINS, FEWEST_DRAWN, Mixed
from lowerbound.methods.chains.trajectories import WARM, Density, Nuts, trajectories
from lowerbound.methods.chains.units import MATRIX, Units
from lowerbound.methods.gaussian.target import Target, is_quick, target_for
from lowerbound.model import trace_model
from lowerbound.rewrite.noncentred import centring
from lowerbound.run.bar import Bar
from lowerbound.trust.against import Against
from lowerbound.trust.corrections.improved import Improved
from lowerbound.trust.corrections.suited import suited
from lowerbound.trust.optima.summits import SEARCHED, Optima, other_summits
from lowerbound.trust.weighing import weighted

STARTS = 1000  # draws of q that starts are taken from, and its covariance where it has no formula
DENSE = 200  # numbers up to which the metric adapts as a matrix
FEW, THIN = 3, 4  # numbers up to which trajectories are short, and are taken in fours


@dataclass(frozen=True, eq=False)
class _Course:
    """What the chains go over: a density, in the units of q.

    vectors: draws of q. values: all continuous sites at rows of vectors. text: what is peculiar.
    """

    density: Density
    data: Any
    vectors: np.ndarray
    units: Units
    owner: Callable[[int], str]
    values: Callable[[np.ndarray], dict[str, np.ndarray]]
    compiled: dict[object, Any]
    quick: bool
    forward: bool = False
    text: str = ""
    placed: Callable[[Mapping[str, Array]], np.ndarray] = field(kw_only=True)


def by_trajectories(
    view: Against, draws: int, seed: int, progress: bool | None = None, *, optima: Optima = ()
) -> Improved:
    """Chains of NUTS over all continuous sites of the program, or over what is left of them.

    `optima` are where other starts have converged: half of the chains begin at those that count, so
    that chains which stay where they are do not agree. Where time is limited, chains that would
    take longer are not begun, and those that do end with the draws that they have.
    """
    kept = math.ceil(draws / CHAINS)
    values = view.family.sample(view.parameters, jax.random.key(seed), (STARTS,))
    course = _collapsed(view, values, seed) or _whole(view, values)
    size = len(course.units.loc)
    thin = THIN if size <= FEW else 1
    key = ("nuts", course.units.root.ndim, course.text[:12])
    if key not in course.compiled:
        run = trajectories(course.density, size <= DENSE, course.forward, thin)
        course.compiled[key] = (quickly if course.quick else jit)(run)
    starts = course.vectors[:: max(len(course.vectors) // CHAINS, 1)][:CHAINS]
    elsewhere = _elsewhere(view, optima, seed)
    if elsewhere is not None:
        others = course.placed(elsewhere)[: CHAINS // 2]
        starts = np.concatenate([starts[: CHAINS - len(others)], others])
    run = course.compiled[key]
    kernel = Nuts(run, course.data, jax.random.key(seed + 1), size <= DENSE, thin)
    if allowance().left < math.inf:
        longer = kernel.foreseen(starts, course.units, kept)
        if longer > allowance().left:
            reason = f"it would take {longer:,.0f} s, where {allowance().left:,.0f} s are left"
            raise UncorrectableError("nuts", reason, "Ask for it by itself, without a limit.")
    with Bar(progress, WARM + kept, "NUTS", "draw") as bar:
        partial = partial_results_are_asked_for()
        kernel = replace(kernel, seen=bar.update, partial=partial)
        chains = kernel(starts, course.units, kept, 1)
    if (made := chains.draws.shape[1]) < FEWEST_DRAWN:
        reason = f"time was over when chains had made {made} draws"
        raise UncorrectableError("nuts", reason, "Ask for it by itself, without a limit.")
    found, count = Mixed(chains, mixing(chains.draws, course.owner)), CHAINS * made
    fewer = "" if made == kept else f"; ended after {made:,} of {kept:,} draws of each"
    return Improved(
        WeightedDraws(),
        {"values": course.values(chains.rows), "weights": np.full(count, 1.0 / count)},
        f"from q, after {thin * WARM} trajectories of each: {found}{course.text}{fewer}",
        reason=f"chains of NUTS agree: {found.mixing}",
        flaw=found.flaw,
        remedy="Ask for more draws=, or write the program with other coordinates (non-centred).",
        before={name: np.asarray(array) for name, array in values.items()},
    )


def _elsewhere(view: Against, optima: Optima, seed: int) -> Mapping[str, Array] | None:
    """The sites at other modes that count; None where there is no such."""
    if not optima:
        return None
    drawn = view.drawn(STARTS, seed)
    mass = weighted({}, drawn.vectors, drawn.log_ratios).log_mean
    modes = other_summits(view, drawn, mass, SEARCHED, optima)
    if not modes:
        return None
    values = view.values(np.stack([one.vector for one in modes]))
    return {name: jnp.asarray(array) for name, array in values.items()}


def _collapsed(view: Against, values: Mapping[str, Array], seed: int) -> _Course | None:
    """The course over what is left without the largest factor; None where there is no such."""
    if isinstance(view.family, UnconstrainedGaussian) and view.coordinates.noncentred:
        return None
    found = largest_factor(view.coordinates.program())
    if found is None:
        return None
    whole = Collapsed(view.family, found)
    left = replace(view, target=target_for(trace_model(found.function, *found.call)))
    target = left.target
    vectors = np.asarray(left.placed(dict(values))[0])
    vectors = vectors[np.isfinite(vectors).all(axis=1)]

    def every(rows: np.ndarray) -> dict[str, np.ndarray]:
        theta = {name: jnp.asarray(array) for name, array in left.values(rows).items()}
        drawn = whole.completed(theta, jax.random.key(seed + 2), len(rows))
        return {name: np.asarray(array) for name, array in drawn.items()}

    sites = ", ".join(f"'{site}'" for site in found.names)
    return _Course(
        _density(target),
        target.arguments,
        vectors,
        Units.of(vectors),
        left.coordinates.owner,
        every,
        target.compiled,
        is_quick(target.closed.jaxpr),
        has_open_loops(target.closed),
        text=f"; {sites} integrated out, and drawn given the rest",
        placed=lambda values: np.asarray(left.placed(dict(values))[0]),
    )


def _density(target: Target) -> Density:
    """Log p at one vector, as a function of the data too."""

    def density(vector: Array, data: Any) -> Array:
        return jnp.asarray(jaxpr_as_fun(target.closed)(vector, *jax.tree.leaves(data))[0])

    return density


def _whole(view: Against, values: Mapping[str, Array]) -> _Course:
    """The course over all continuous sites."""
    view = suited(view, values)
    target = view.target
    vectors = np.asarray(view.placed(dict(values))[0])
    log_p, gradients = target(vectors)
    fine = np.isfinite(log_p) & np.isfinite(gradients).all(axis=1)
    if fine.sum() < CHAINS:
        raise FewWeightsError(int(fine.sum()), len(vectors), CHAINS)
    vectors = vectors[fine]
    family = view.family
    if isinstance(family, UnconstrainedGaussian) and target.size <= MATRIX:
        root = np.linalg.cholesky(np.asarray(covariance(view.parameters), float))
        units = Units(np.asarray(view.parameters["loc"], float), root)
    else:
        units = Units.of(vectors)

    return _Course(
        _density(target),
        target.arguments,
        vectors,
        units,
        view.coordinates.owner,
        view.values,
        target.compiled,
        is_quick(target.closed.jaxpr),
        has_open_loops(target.closed),
        _coordinates(view),
        placed=lambda values: np.asarray(view.placed(dict(values))[0]),
    )


def _coordinates(view: Against) -> str:
    """Which sites were moved by other coordinates than their own."""
    noncentred = sorted(view.coordinates.noncentred)
    if not noncentred:
        return ""
    named = [f"'{n}' {float(centring(n, view.target.data)):.2f}" for n in noncentred]
    return f"; non-centred coordinates, centring {', '.join(named)}"

"""Where a Gaussian starts: the median of the prior, zero, and points around both, raced.

Every start climbs with the 2d points of a cubature rule for draws: an approximate mode with its
curvature, found from gradients alone and whatever the scales of the coordinates.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lowerbound.ascent.gaussian_step import CONVERGED, RUNNING, SETTLED, Ascent, begin
from lowerbound.bound.draws import cubature
from lowerbound.compiled.host import FITS, lightly
from lowerbound.cost import allowance
from lowerbound.errors import ImproperPosteriorError, NoFiniteStartError
from lowerbound.methods.gaussian.climbing.together import (
    JOINED,
    LEFT_BEHIND,
    Climb,
    side_by_side,
    stopped,
)
from lowerbound.methods.gaussian.target import Target
from lowerbound.model.prior_points import improper_sites

LIMIT = 60  # iterations of a start
TOLERANCE = 0.05
WIDTH = 0.1  # of the first draws
ONE_MODE = 1.0  # nats between starts of one mode
_FAR_BELOW, _STEPS = 2.0, 50.0  # nats; steps like the next that would not reach the others
_SETTLING, _NEAR = 1.0, 0.5  # deviations: from the optimum, and between starts that have joined
WITHIN = "at a draw of q"
_MORE = 120  # points that are looked at when no start is finite


def improper(target: Target, entries: Sequence[int]) -> ImproperPosteriorError:
    """The error of entries of u along which q runs off: improper, where a prior is."""
    coordinates = target.coordinates
    names = [coordinates.owner(int(entry)) for entry in entries]
    flat = improper_sites(coordinates.program().latent)
    return ImproperPosteriorError(names, any(name.split("[")[0] in flat for name in names))


def climb(
    target: Target, locs: np.ndarray, diagonal: bool, known: float = -np.inf
) -> Generator[list[Ascent], None, list[Climb]]:
    """Ascend from all starts, with the points of all of them evaluated together.

    `known` is the ELBO of an earlier start that has come to rest. Where a point is so dear that
    some steps of all starts are not to be had, only the first of them are taken.
    """
    root = np.eye(target.size) * WIDTH / np.sqrt(target.size)
    some = target.seconds(_SOME_STEPS * 2 * target.size)
    share = _SPENT * allowance().left / max(some, 1e-9)
    locs = locs[: int(np.clip(share, 1, len(locs)))]
    partners: dict[int, int] = {}
    climbs = yield from side_by_side(
        lambda vectors, owners: target(vectors),
        cubature(target.size, 0),
        [begin(loc, root) for loc in locs],
        TOLERANCE,
        LIMIT,
        diagonal,
        lambda states: _affordable(_without_joined(_without_hopeless(states, known), partners)),
    )
    # The last to join are the first to follow, for their partners may have joined others since.
    for number in reversed(partners):
        state = climbs[partners[number]].state
        climbs[number] = replace(climbs[number], state=stopped(state, JOINED))
    return climbs


def _without_hopeless(states: list[Ascent], known: float) -> list[Ascent]:
    """Stop the starts that creep along far below one that has come to rest."""
    done = [s.elbo for s in states if s.status in (CONVERGED, SETTLED)]
    goal = max([*done, known]) - _FAR_BELOW
    return [
        stopped(s, LEFT_BEHIND) if s.status == RUNNING and s.elbo + _STEPS * s.gain < goal else s
        for s in states
    ]


def _affordable(states: list[Ascent]) -> list[Ascent]:
    """The best start alone, once all of them have spent much of what the fit may take."""
    if allowance().spent < _SPENT:
        return states
    running = [i for i, state in enumerate(states) if state.status == RUNNING]
    best = max(running, key=lambda i: states[i].elbo, default=-1)
    return [stopped(s, LEFT_BEHIND) if i in running and i != best else s
            for i, s in enumerate(states)]  # fmt: skip


_SPENT, _SOME_STEPS = 0.3, 5  # of the allowance, and steps of all starts within it


def _without_joined(states: list[Ascent], partners: dict[int, int]) -> list[Ascent]:
    """Stop the starts that have come to where a better one is: both would end in one place."""
    order = sorted(range(len(states)), key=lambda i: -states[i].elbo)
    kept: list[int] = []
    states = list(states)
    for i in order:
        one = states[i]
        if one.status not in (RUNNING, CONVERGED, SETTLED):
            continue
        near = [k for k in kept if _near(one, states[k])] if one.status == RUNNING else []
        if near:
            states[i], partners[i] = stopped(one, JOINED), near[0]
        elif float(one.error) < _SETTLING:
            kept.append(i)
    return states


def _near(one: Ascent, other: Ascent) -> bool:
    """Whether two Gaussians nearly agree, in the coordinates where the other is standard."""
    if not one.elbo > other.elbo - ONE_MODE:
        return False
    change = np.linalg.solve(other.root, np.column_stack([one.root, one.loc - other.loc]))
    change[:, :-1] -= np.eye(len(one.loc))
    return bool(np.abs(change).max() < _NEAR)


def starting_points(
    target: Target,
    starts: int,
    seed: int | Sequence[int],
    given: Mapping[str, Any] | None,
    centred: bool = True,
) -> np.ndarray:
    """Rows u: the median of the prior, zero, then draws of the prior and of U(-2, 2) in turn.

    With values `given` for some sites, all rows have these; not `centred`, the first two rows are
    draws like the others.
    """
    rng = np.random.default_rng(seed)
    count = max(starts, 2)
    normal = rng.standard_normal((count, target.size))
    if centred:
        normal[0] = 0.0
    rows = _from_prior(target, normal)
    uniform = rng.uniform(-2.0, 2.0, (count, target.size))
    if centred:
        uniform[1] = 0.0
    rows[1::2] = uniform[1::2]
    rows = np.where(np.isfinite(rows), rows, uniform)[:starts]
    if given:
        rows = _with_given(target, rows, given)
    return rows


def finite_rows(target: Target, rows: np.ndarray, fine: np.ndarray, seed: int) -> np.ndarray:
    """The starting points that are `fine`, where log p is finite; others, where there is none.

    Raises NoFiniteStartError, which names the site at fault, when none of these is finite either.
    """
    if fine.any():
        return np.asarray(rows[fine])
    rng = np.random.default_rng(seed)
    scales = np.repeat([0.1, 0.5, 2.0, 5.0], _MORE // 4)[:, None]
    more = rng.uniform(-1.0, 1.0, (len(scales), target.size)) * scales
    more[::2] += rows[0]
    fine = _finite(target, more)
    if not fine.any():
        tried = len(rows) + len(more)
        if np.isfinite(target(np.concatenate([rows, more]))[0]).any():
            raise NoFiniteStartError(tried, _NO_SLOPE, "gradient of the log density")
        raise NoFiniteStartError(tried, at_fault(target, rows[0], "at the median of the prior"))
    return np.asarray(more[fine][: len(rows)])


_NO_SLOPE = (
    "The log density itself is finite at some of them. A branch that is not taken has a slope all "
    "the same: jnp.where(x > 0, jnp.log(x), 0.0) needs a positive number inside the logarithm too.",
)


def _finite(target: Target, rows: np.ndarray) -> np.ndarray:
    values, gradients = target(rows)
    fine: np.ndarray = np.isfinite(values) & np.isfinite(gradients).all(axis=1)
    return fine


def _from_prior(target: Target, normal: np.ndarray) -> np.ndarray:
    key = ("prior", len(normal))
    if key not in target.compiled:

        def prior(normal: Any, data: Any) -> Any:
            return jax.vmap(lambda one: target.coordinates.prior(one, data))(normal)

        target.compiled[key] = lightly(prior, FITS)
    return np.array(target.compiled[key](normal, target.data), float)


def _with_given(target: Target, rows: np.ndarray, given: Mapping[str, Any]) -> np.ndarray:
    key = ("given", len(rows), tuple(sorted(given)))
    if key not in target.compiled:

        def replaced(rows: Any, values: Any, data: Any) -> Any:
            def one(row: Any) -> Any:
                known = target.coordinates.constrain(row, data)
                return target.coordinates.unconstrain({**known, **values}, data)

            return jax.vmap(one)(rows)

        target.compiled[key] = lightly(replaced, FITS)
    values = {name: np.asarray(value, float) for name, value in given.items()}
    return np.array(target.compiled[key](rows, values, target.data), float)


def at_fault(target: Target, row: np.ndarray, where: str) -> list[str]:
    """The sites whose log density is not finite at a point, and the parameters they have there."""
    model = target.coordinates.program()
    values = target.coordinates.constrain(jax.numpy.asarray(row), target.data)
    lines = []
    for name, density in model.run(values, target.data).items():
        total = float(np.sum(np.asarray(density.log_prob())))
        if np.isfinite(total):
            continue
        site = {site.name: site for site in model.sites}[name]
        inputs = ", ".join(
            f"{parameter}={_shown(getattr(density.distribution, parameter, None))}"
            for parameter in density.distribution.arg_constraints
        )
        lines.append(
            f"Site '{name}' has log density {total} {where}: "
            f"{type(density.distribution).__name__}({inputs})   ({site.where})"
        )
    return lines


def _shown(parameter: Any) -> str:
    array = np.asarray(parameter)
    if array.dtype.kind not in "fiub" or array.size == 0:
        return str(parameter)
    low, high = array.min(), array.max()
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def flat_entries(target: Target, state: Ascent) -> list[int]:
    """The entries of u along which q grows without end, the main ones; none when q is proper."""
    lower = np.tril(np.asarray(state.found.curvature))
    values, vectors = np.linalg.eigh(lower + np.tril(lower, -1).T)
    direction = np.asarray(state.root) @ vectors[:, 0]
    main = int(np.argmax(np.abs(direction)))
    # A scale of e^500 has run off to infinity; a regression coefficient of 500 has not.
    away = _FAR if target.coordinates.is_real(main) else _FAR_TRANSFORMED
    far = max(float(np.linalg.norm(direction)), float(np.abs(state.loc[main])))
    if values[0] > _FLAT or not far > away:
        return []
    share = np.abs(direction) / np.abs(direction).max()
    return [int(i) for i in np.argsort(-share) if share[i] > 0.1][:5]


_FLAT, _FAR, _FAR_TRANSFORMED = 0.05, 1e7, 500.0

"""Steps for discrete latent sites that cannot be summed out: q(z) q(u) from draws.

Every entry of a discrete site has a factor of its own, the continuous sites have one Gaussian on
the unconstrained space. Counts without an upper end get as many values as q needs.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to

from lowerbound.ascent.adam import start
from lowerbound.ascent.few_draws import log_q, parts
from lowerbound.bound.draws import draw_seed
from lowerbound.bound.restricted import Restricted, restricted
from lowerbound.compiled import jit, quickly
from lowerbound.compiled.host import FITS, lightly
from lowerbound.errors import NoFiniteStartError
from lowerbound.family.densities.unconstrained import covariance
from lowerbound.methods.coordinate.begin import given_values
from lowerbound.methods.gaussian.climbing.climbs import Start
from lowerbound.methods.score.finite_program import (
    ScoreProgram,
    score_program,
)
from lowerbound.methods.score.logit_gradients import draw_cells
from lowerbound.methods.score.score_value import ScoreFunctions
from lowerbound.methods.score.windows import Ascending, Parameters, point, window
from lowerbound.result.answer import Stop
from lowerbound.rewrite.summing.endless_counts import counts_for
from lowerbound.rewrite.summing.finite import Finite

FIRST_STEPS, STEPS, LAST_STEPS = 40, 100, 500  # of a start, of a window, averaged at the end
FIRST_RATE, LEAST_RATE, FALL = 0.3, 5e-3, 0.4  # the rate falls each time that the ELBO rests
WINDOWS = 200
LOCAL_DRAWS, SCORE_DRAWS = 8, 32  # of a step, at most
LOCAL_WORK = 1e5  # numbers computed in a step: local expectations do with two draws if they must
MOST_WORK = 1e7  # numbers computed in a step that tries every value of every entry
MEASURE, BATCH = 4096, 64  # fresh draws that measure the answer, and how many at once
QUICK_BELOW = 1e5  # numbers computed in a step; programs of more are optimised
EDGE = 1e-6  # probability of the last eighth of the values of a count that asks for more
ELSEWHERE = "Loosen tolerance, or start elsewhere with lb.ScoreFunctions(init=...)."
_WIDTH, _FACTOR = 0.1, 0.1
_EVEN, _GIVEN = 0.01, 4.0  # logits: noise that breaks ties, and of the values given


def draws_of(program: ScoreProgram, method: ScoreFunctions) -> tuple[bool, int]:
    """Whether every value of every entry is tried, and the draws of a step."""
    one = program.flips * program.work
    local = 2 * one <= MOST_WORK
    if method.draws is not None:
        return local, max(method.draws + method.draws % 2, 2)
    if not local:
        return local, SCORE_DRAWS
    return local, 2 * int(np.clip(LOCAL_WORK // (2 * one), 1, LOCAL_DRAWS // 2))


def plain(program: ScoreProgram, average: Parameters, full: bool) -> dict[str, Any]:
    """The parameters of the family, as NumPy arrays."""
    logits = {
        site.name: np.asarray(site.entries(average.logits[site.name], rest=1))
        for site in program.discrete
    }
    gaussian = {name: np.asarray(a, float) for name, a in parts(average.free).items()}
    if full and "factor" in gaussian:
        root = np.linalg.cholesky(np.asarray(covariance(gaussian)))
        gaussian = {"loc": gaussian["loc"], "scale_tril": root}
    return {"logits": logits, "gaussian": gaussian}


# -- the ascent -----------------------------------------------------------------------------------


def started(
    program: ScoreProgram, method: ScoreFunctions, seed: int
) -> Generator[tuple[Ascending, float], None, tuple[Ascending, float, tuple[Start, ...]]]:
    """The best of several starts after one window each, its ELBO, and the record of all."""
    run, key = _program(program, method), jax.random.key(draw_seed(seed, 0))
    found: list[tuple[float, Ascending]] = []
    for number, place in enumerate(_starting_points(program, method, seed)):
        own = jax.random.fold_in(key, number)
        state, elbo = run(start(place), own, FIRST_RATE, FIRST_STEPS, program.data)
        found.append((float(np.nan_to_num(float(elbo), nan=-np.inf)), state))
        best = max(found, key=lambda one: one[0])
        if best[0] > -np.inf:
            yield best[1], np.nan
    if best[0] == -np.inf:
        raise NoFiniteStartError(len(found), [])
    starts = tuple(Start(elbo, FIRST_STEPS, "stopped: below another start") for elbo, _ in found)
    return best[1], best[0], starts


def ascended(
    program: ScoreProgram, method: ScoreFunctions, state: Ascending, seed: int
) -> Generator[tuple[Ascending, float], None, tuple[Ascending, Stop]]:
    """Windows of steps until the ELBO rests at the smallest rate."""
    run, key = _program(program, method), jax.random.key(draw_seed(seed, 1))
    size = program.coordinates.size + sum(s.cells * len(s.values) for s in program.discrete)
    rate, best, resting = FIRST_RATE, -np.inf, 0
    for number in range(WINDOWS):
        own = jax.random.fold_in(key, number)
        state, value = run(state, own, rate, STEPS, program.data)
        elbo = float(value)
        yield state, elbo
        resting = resting + 1 if elbo - best < method.tolerance * size**0.5 else 0
        best = max(best, elbo)
        if resting < 2:
            continue
        if rate <= LEAST_RATE:
            last = jax.random.fold_in(key, WINDOWS)
            state, value = run(state, last, rate, LAST_STEPS, program.data)
            yield state, float(value)
            return state, Stop(True, "the ELBO rests at the smallest step")
        rate, resting, best = max(FALL * rate, LEAST_RATE), 0, elbo
    return state, Stop(False, f"{WINDOWS * STEPS} steps", ELSEWHERE)


def _program(program: ScoreProgram, method: ScoreFunctions) -> Any:
    """One window of steps, compiled."""
    local, draws = draws_of(program, method)
    key = ("window", local, draws)
    if key not in program.compiled:

        def run(state: Ascending, key: Any, rate: Any, steps: Any, data: Mapping[str, Any]) -> Any:
            return window(program, local, state, key, rate, steps, data, draws)

        small = draws * program.work * (program.flips if local else 1) <= QUICK_BELOW
        program.compiled[key] = quickly(run) if small else jit(run)
    return program.compiled[key]


# -- starts ---------------------------------------------------------------------------------------


def _starting_points(program: ScoreProgram, method: ScoreFunctions, seed: int) -> list[Parameters]:
    """The median of the prior with even probabilities; then draws around both."""
    rng = np.random.default_rng(abs(seed))
    given = given_values(program.model, method)
    normal = rng.standard_normal((method.starts, program.coordinates.size))
    normal[0] = 0.0
    rows = _from_prior(program, normal)
    rows = np.where(np.isfinite(rows), rows, rng.uniform(-2.0, 2.0, rows.shape))
    for name, support in program.coordinates.supports.items():
        if name in given:
            free = np.asarray(biject_to(support).inv(jnp.asarray(given[name])))
            rows[:, program.coordinates.part(name)] = free.ravel()
    starts = []
    for number, row in enumerate(rows):
        logits = {}
        for site in program.discrete:
            shape = (*site.rows, site.cells, len(site.values))
            first = rng.standard_normal(shape) * (1.0 if number else _EVEN)
            if site.name in given:
                chosen = np.clip(given[site.name].astype(int), 0, len(site.values) - 1)
                first += _GIVEN * _cells(site, np.eye(len(site.values))[chosen])
            logits[site.name] = jnp.asarray(first)
        starts.append(Parameters(logits, _free(method, row, rng)))
    return starts


def _from_prior(program: ScoreProgram, normal: np.ndarray) -> np.ndarray:
    """Rows u that the prior makes likely; its median where the numbers are zero."""
    if not program.coordinates.size:
        return normal
    key = ("prior", len(normal))
    if key not in program.compiled:

        def prior(normal: Any, data: Mapping[str, Any]) -> Any:
            return jax.vmap(lambda one: program.coordinates.prior(one, data))(normal)

        program.compiled[key] = lightly(prior, FITS)
    return np.array(program.compiled[key](normal, program.data), float)


def _cells(site: Finite, entries: np.ndarray) -> np.ndarray:
    """Numbers (*shape, values), by entry, in the order of cells, (*rows, cells, values)."""
    order = np.asarray(site.entries(jnp.arange(np.prod(site.shape)).reshape(*site.rows, -1)))
    found = np.empty((order.size, entries.shape[-1]))
    found[order.ravel()] = entries.reshape(order.size, -1)
    return found.reshape((*site.rows, site.cells, -1))


def _free(method: ScoreFunctions, row: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    size, rank = len(row), method.chosen_rank(len(row))
    free = {"loc": jnp.asarray(row), "log_scale": jnp.full(row.shape, np.log(_WIDTH))}
    columns = 0 if rank == "diagonal" or size < 2 else size if rank == "full" else int(rank)
    if columns:
        columns = min(columns, size)
        noise = rng.standard_normal((size, columns)) / columns**0.5
        free["factor"] = jnp.asarray(_FACTOR * noise)
    return free


# -- counts ---------------------------------------------------------------------------------------


def at_edge(program: ScoreProgram, logits: Mapping[str, Any]) -> dict[str, float]:
    """The counts for which q has mass among the largest values there are, and how much."""
    found: dict[str, float] = {}
    for site in program.discrete:
        if program.model.latent[site.name].support_values is None:
            p = np.asarray(jax.nn.softmax(logits[site.name]))
            mass = float(p[..., -(len(site.values) // 8) :].sum(axis=-1).max())
            found |= {site.name: mass} if mass > EDGE else {}
    return found


def widened(program: ScoreProgram, now: Parameters) -> ScoreProgram | None:
    """The program with more values for the counts that reach the edge."""
    edges, counts = at_edge(program, now.logits), {}
    for site in program.discrete:
        if program.model.latent[site.name].support_values is None:
            factor = 1 if site.name not in edges else 2 if edges[site.name] < 0.5 else 8
            counts[site.name] = counts_for(factor * len(site.values) - 1)
    if all(counts[s.name] == len(s.values) for s in program.discrete if s.name in counts):
        return None
    return score_program(program.model, counts)


# -- the bound ------------------------------------------------------------------------------------


def scaled(q: Parameters, width: float) -> Parameters:
    """The same with the scale of the Gaussian multiplied."""
    return q._replace(free={**q.free, "log_scale": q.free["log_scale"] + np.log(width)})


def _drawn(q: Parameters, key: Any) -> tuple[Any, Any]:
    """One draw of q: the cells of the discrete sites, and u."""
    width = len(q.free["loc"]) + (q.free["factor"].shape[1] if "factor" in q.free else 0)
    keys = jax.random.split(key)
    cells = {name: array[0] for name, array in draw_cells(q.logits, keys[0], 1).items()}
    return cells, point(q.free, jax.random.normal(keys[1], (width,)))


def _at_fault(program: ScoreProgram, q: Parameters, key: Any) -> list[str]:
    """The sites whose log density is not finite at a draw of q."""
    totals = {n: float(t.sum()) for n, t in program.terms(*_drawn(q, key), program.data).items()}
    return [f"Site '{n}' has log density {t} at a draw of q." for n, t in totals.items()
            if not np.isfinite(t)]  # fmt: skip


def measured(program: ScoreProgram, average: Parameters, seed: int) -> Restricted:
    """The ELBO over fresh draws."""
    if "measure" not in program.compiled:

        def ratios(q: Parameters, keys: Any, data: Mapping[str, Any]) -> Any:
            def one(key: Any) -> Any:
                cells, vector = _drawn(q, key)
                terms = program.terms(cells, vector, data)
                value = sum(jnp.sum(t) for t in terms.values()) - log_q(q.free, vector)
                for name, logits in q.logits.items():
                    log_p = jax.nn.log_softmax(logits)
                    value -= jnp.sum(jnp.take_along_axis(log_p, cells[name][..., None], -1))
                return value

            return jax.lax.map(one, keys, batch_size=BATCH)

        program.compiled["measure"] = quickly(ratios)
    keys = jax.random.split(jax.random.key(draw_seed(seed, 2)), MEASURE)
    found = np.asarray(program.compiled["measure"](average, keys, program.data))
    return restricted(found, lambda draw: _at_fault(program, average, keys[draw]))

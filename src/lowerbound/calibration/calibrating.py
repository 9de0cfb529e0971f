"""`calibrate`: a method tried on data that the model itself makes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.api import RESERVED, check_reserved
from lowerbound.api import fit as fit_one
from lowerbound.calibration.calibrated import DENSITY, Calibration, concluded
from lowerbound.calibration.ranks import uniform_ranks
from lowerbound.calibration.simulated import Simulated, simulated
from lowerbound.compiled import heard, jit
from lowerbound.compute.computing import current, without_verdicts
from lowerbound.cost import mapped
from lowerbound.errors import (
    FailedSimulationsError,
    LowerboundError,
    LowerboundWarning,
    SettingError,
    UnknownSiteError,
)
from lowerbound.errors.wording import entry_of, first_line
from lowerbound.ladder.rungs import chosen
from lowerbound.model import Model, trace_model
from lowerbound.model.inputs.arguments import split_arguments
from lowerbound.result.answer import Stop
from lowerbound.result.fitted import Fit
from lowerbound.rewrite.observing import OBSERVATIONS
from lowerbound.run.loop import followed
from lowerbound.run.planned import Info, Stepped
from lowerbound.run.problem import Problem

FEWEST = 20  # simulations
EVERY = 50  # elements of a site up to which each is ranked; of larger ones one at random
GIVEN_UP = 10  # data sets that fail, without one that does not

Values = Mapping[str, Any]


def calibrate(
    model: Callable[..., Any],
    *args: Any,
    simulations: int = 200,
    sites: Sequence[str] | None = None,
    draws: int = 99,
    method: Any = "auto",
    seed: int = 0,
    progress: bool | None = None,
    **kwargs: Any,
) -> Calibration:
    """Whether a method is right about a model, on average over data that the model makes.

    Simulation-based calibration (Talts et al. 2018; Yao et al. 2018): parameters are drawn from the
    prior and data from the model, each data set is fitted by `method`, as `lb.fit` would, and the
    parameters are ranked among `draws` draws of q. If q is the posterior, the ranks are uniform.
    They lean to one side where q is biased, and pile up at both ends where it is too narrow. Three
    exact tests a quantity look for that; together they fail a method that is right in 1% of all
    studies. So does the rank of log p(x, z), which sees a q that does not listen to the data.

    args, kwargs: those of the model. Their observations have the right shapes, and their values do
    not matter; what is missing there is missing in every data set.
    sites: latent or deterministic sites, each element of which is ranked. By default all latent
    ones; of those in the data plate, and of large ones, one element at random in each data set.
    Discrete sites are ranked with ties broken at random.

    Data sets have one shape, so that all fits run what the first has compiled. Within
    `lb.interruptible()` Ctrl-C returns what there is. `lb.plot.calibration(found)` draws the ranks.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> found = lb.calibrate(coin, y, simulations=50, method=lb.Laplace())
    >>> found.simulations, found.quantities[0].name
    (50, 'p')
    """
    check_reserved(model, (*RESERVED, "simulations", "sites", "draws"), "calibrate")
    for name, value, fewest in (("simulations", simulations, FEWEST), ("draws", draws, 9)):
        if not isinstance(value, int) or isinstance(value, bool) or value < fewest:
            raise SettingError("calibrate", name, value, f"an integer of at least {fewest}")
    with heard(), without_verdicts():
        problem = Problem(model, args, kwargs, seed, current())
        given = problem.model  # raises where the program has parameters
        wanted = _wanted(given, sites)
        data = simulated(given, simulations, seed)
        chosen(problem, method)  # raises what is wrong with the call
        fits = _Fits((args, kwargs), data, wanted, draws, method, seed)
        course = followed(fits, progress)
    found = course.state
    if not found.ranks:
        raise FailedSimulationsError(len(found.failed), simulations, found.failed[0])
    if len(found.failed) > len(found.ranks):
        raise FailedSimulationsError(len(found.failed), simulations, found.failed[0])
    ranks = {name: np.array([one[name] for one in found.ranks]) for name in found.ranks[0]}
    notes = (*fits.notes, *_unconverged(found))
    name = getattr(model, "__name__", type(model).__name__)
    text = course.stop.text
    return Calibration(
        name, found.method, concluded(ranks), ranks, draws, text, found.failed, notes
    )


def _wanted(model: Model, sites: Sequence[str] | None) -> dict[str, bool]:
    """The sites that are ranked, and whether each of their elements is."""
    if sites is None:
        local = set(model.local)
        return {
            name: name not in local and int(np.prod(site.shape)) <= EVERY
            for name, site in model.latent.items()
        }
    known = {**model.latent, **model.deterministic}
    if isinstance(sites, str) or not sites:
        raise SettingError("calibrate", "sites", sites, "a sequence of names, or None")
    for name in sites:
        if name not in known:
            which = "is neither a latent nor a deterministic site"
            raise UnknownSiteError("calibrate got sites with", name, tuple(known), which)
    return dict.fromkeys(sites, True)


def _unconverged(found: _Found) -> tuple[str, ...]:
    if not found.unconverged:
        return ()
    return (f"{found.unconverged} of {len(found.ranks)} fits did not converge.",)


# --------------------------------------------------------------------------------------------------
# One fit after the other


@dataclass(frozen=True)
class _Found:
    """The ranks of the data sets that were fitted, by quantity, and what the others raised."""

    ranks: tuple[dict[str, float], ...] = ()
    failed: tuple[str, ...] = ()
    unconverged: int = 0
    method: str = ""


@dataclass(eq=False)
class _Fits(Stepped[_Found]):
    """Fits of simulated data, as steps of the loop that carries out every plan."""

    given: tuple[tuple[Any, ...], Mapping[str, Any]]
    data: Simulated
    wanted: Mapping[str, bool]
    draws: int
    method: Any
    seed: int
    notes: tuple[str, ...] = ()
    compiled: dict[str, Any] = field(default_factory=dict)

    unit = "fit"
    pace = (1, 16)

    @property
    def total(self) -> int:  # type: ignore[override]
        """The number of data sets."""
        return len(next(iter(self.data.observed.values())))

    @property
    def title(self) -> str:
        """What the bar calls it."""
        return "calibrate"

    def init(self) -> _Found:
        """No fit."""
        return _Found()

    def step(self, state: _Found, until: int) -> tuple[_Found, Info]:
        """Some fits."""
        done = len(state.ranks) + len(state.failed)
        until, stop = min(until, self.total), None
        for number in range(done, until):
            fit = self._fit(number)
            if isinstance(fit, str):
                state = _Found(state.ranks, (*state.failed, fit), state.unconverged, state.method)
            elif fit.stop.interrupted:
                stop = Stop(False, f"interrupted after fit {number} of {self.total}")
                break
            else:
                unconverged = state.unconverged + (not fit.converged)
                ranks = (*state.ranks, self._ranks(fit, number))
                state = _Found(ranks, state.failed, unconverged, fit.method)
            if len(state.failed) == GIVEN_UP and not state.ranks:
                stop = Stop(False, "no data set could be fitted")
                break
        done = len(state.ranks) + len(state.failed)
        if stop is None and done == self.total:
            stop = Stop(True, f"{self.total} simulations")
        return state, Info(done, np.zeros(0), "", stop)

    def _fit(self, number: int) -> Fit | str:
        """The fit of one data set, or what it raised."""
        args, kwargs = self.data.call(number, *self.given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LowerboundWarning)  # the ranks tell
            try:
                return fit_one(
                    self.data.program,
                    *args,
                    method=self.method,
                    seed=self.seed + number,
                    progress=False,
                    **kwargs,
                )
            except LowerboundError as error:
                return first_line(error)

    def _ranks(self, fit: Fit, number: int) -> dict[str, float]:
        """The rank of what generated the data, by quantity."""
        rng = np.random.default_rng([self.seed, number])
        truth, found = self.data.truth(number), {}
        drawn = self._drawn(fit, number)
        densities = None
        if set(self.data.model.latent) <= set(drawn):  # else there are global sites alone
            derived = self._derived(fit, drawn, truth, number)
            densities = derived.pop(DENSITY, None)
            drawn |= {name: array[1:] for name, array in derived.items()}
        for name, every in self.wanted.items():
            if name not in drawn:
                continue
            u = uniform_ranks(truth[name], drawn[name], rng)
            if every:
                for index in np.ndindex(u.shape):
                    found[entry_of(name, index)] = float(u[index])
            else:
                found[f"{name}[any]"] = float(rng.choice(u.ravel()))
        if densities is not None:
            found[DENSITY] = float(uniform_ranks(densities[0], densities[1:], rng))
        return found

    def _drawn(self, fit: Fit, number: int) -> dict[str, np.ndarray]:
        """Draws of q."""
        with jax.enable_x64(True):
            key = jax.random.key(self.seed + number)
            drawn = fit.own_sites(fit.latent_draws(self.draws, key))
            return {name: np.asarray(array) for name, array in drawn.items()}

    def _derived(
        self, fit: Fit, drawn: Values, truth: Values, number: int
    ) -> dict[str, np.ndarray]:
        """Log p(x, z) and deterministic sites, of the truth and then of the draws."""
        call, program = self.data.call(number, *self.given), self.data.program
        with jax.enable_x64(True):
            if "model" not in self.compiled:
                self.compiled["model"] = model = trace_model(program, *call)
                self.compiled["derived"] = jit(_derived_sites(model, tuple(self.wanted)))
            seen = self.compiled["model"].concrete
            if any(n in self.data.arguments.values() or n.startswith(OBSERVATIONS) for n in seen):
                return {}  # another data set is another program
            values = {
                n: jnp.asarray(np.concatenate([np.asarray(truth[n])[None], drawn[n]]))
                for n in self.data.model.latent
            }
            data = split_arguments(program, *call).data
            found = self.compiled["derived"](values, dict(data))
            return {name: np.asarray(array) for name, array in found.items()}


def _derived_sites(model: Model, wanted: Sequence[str]) -> Callable[..., Any]:
    """Log p(x, z), and the deterministic sites among some, as a function of draws and data."""
    named = any(name in model.deterministic for name in wanted)

    def one(values: Values, data: Values) -> dict[str, Any]:
        density = sum(each.log_prob().sum() for each in model.run(values, data).values())
        found = {DENSITY: density}
        if named:
            every = model.deterministic_values(values, data)
            found |= {name: every[name] for name in wanted if name in every}
        return found

    return lambda values, data: mapped(lambda v: one(v, data), values, what="one draw")

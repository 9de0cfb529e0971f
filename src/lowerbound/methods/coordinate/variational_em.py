"""Variational EM: q(z) by coordinate ascent, parameters by maximising the same ELBO.

The parameters of a program (`numpyro.param`) are data of its derivation, so the ELBO is a function
of both: a sweep of alg:cavi is the E step, and the M step maximises E_q[log p(x, z; theta)].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.compute.engine import derived, engine_for
from lowerbound.errors import (
    ArgumentError,
    NotConjugateError,
    SettingError,
    UnknownSiteError,
)
from lowerbound.family.q import Q
from lowerbound.joint import inputs_of
from lowerbound.methods.coordinate.alternate import UNBOUNDED, Carry, advance, starts
from lowerbound.methods.coordinate.begin import (
    assignments,
    check_components,
    check_partition,
    given_values,
)
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.methods.coordinate.chunks import tell_fall
from lowerbound.methods.coordinate.parameter_bound import Ascent, Space, moving
from lowerbound.methods.coordinate.progress import CHUNK, CONVERGED, FELL, RUNNING, host
from lowerbound.methods.coordinate.sweeping import (
    Start,
    at_the_limit,
    broken,
    check_bound,
    check_factors,
    history_of,
)
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.plan import make_plan
from lowerbound.result.posterior import Restart
from lowerbound.rewrite.parameters import Parameters, at_values
from lowerbound.run.check_input import check_observed_variance
from lowerbound.run.method import Method
from lowerbound.run.planned import Info, Planned, Trace
from lowerbound.run.problem import Problem


@dataclass(frozen=True, eq=False)
class Alternation:
    """Where restarts stand, one after the other: those that are over, and those that are not."""

    ended: tuple[Carry, ...]
    waiting: tuple[Carry, ...]  # the first of them is under way

    @property
    def begun(self) -> tuple[Carry, ...]:
        """All that have swept."""
        return (*self.ended, *(carry for carry in self.waiting[:1] if int(carry.sweeps)))

    @property
    def done(self) -> int:
        """The sweeps of all of them."""
        return sum(int(carry.sweeps) for carry in self.begun)

    @property
    def best(self) -> int:
        """The restart of the highest ELBO.

        Where a parameter runs away the bound is no lower bound of anything: another restart wins.
        """
        return int(np.argmax([
            float(c.elbo) if np.isfinite(c.elbo) and c.status != UNBOUNDED else -np.inf
            for c in self.begun
        ]))  # fmt: skip


class Maximising(Planned[Alternation]):
    """Sweeps over the factors and the parameters, until every restart has a reason to stop.

    Restarts differ in where q starts, and in the parameters that start at functions of a key.
    """

    unit = "sweep"

    def __init__(self, problem: Problem, method: CAVI) -> None:
        check_settings(method)
        given = dict(method.init) if isinstance(method.init, Mapping) else {}
        self.parameters = problem.parameters.started(given)
        self.model = at_values(problem.parametrised, self.parameters.initial)
        rest = {name: v for name, v in given.items() if name not in self.parameters.sites}
        check_given(method, given, (*self.parameters.sites, *self.model.latent))
        self.given, self.problem = given, problem
        self.method = replace(method, init=rest or "auto") if given else method
        check_partition(self.method, self.model)
        given_values(self.model, self.method)
        check_observed_variance(self.model)
        joint = derived(self.model, method.blocks)
        self.plan = make_plan(self.model, joint, notes=notes_of(self.parameters))
        if joint.structure.residuals:
            self.refusal = NotConjugateError(joint.structure.residuals)
        else:
            moving(joint, self.parameters, inputs_of(self.model))
        self.total, self.pace = method.max_sweeps * method.restarts, (8, CHUNK)

    @cached_property
    def inputs(self) -> dict[str, jax.Array]:
        """The data, with the parameters as they start."""
        return {name: jnp.asarray(array) for name, array in inputs_of(self.model).items()}

    @cached_property
    def ascent(self) -> Ascent:
        """The ELBO as a function of q and of the parameters."""
        engine = engine_for(self.model, np.dtype(float), self.method.blocks)
        found = moving(engine.joint, self.parameters, self.inputs)
        return Ascent(engine, Space(self.parameters), found)

    # -- the run ----------------------------------------------------------------------------------

    def init(self) -> Alternation:
        """All restarts before their first sweep."""
        problem, engine = self.problem, self.ascent.engine
        seeded = assignments(engine, self.model)
        check_components(engine, self.model, seeded)
        how = Start.of(self.method, given_values(self.model, self.method), seeded)
        others = [
            replace(problem, seed=problem.seed + number).parameters.started(self.given)
            for number in range(1, self.method.restarts)
        ]
        spaces = [Space(one) for one in (self.parameters, *others)]
        return Alternation((), starts(self.ascent, self.inputs, spaces, how, problem.seed))

    def step(self, state: Alternation, until: int) -> tuple[Alternation, Info]:
        """A chunk of sweeps of the restart under way; where it ends changes no number."""
        most, old = self.method.max_sweeps, state.waiting[0]
        limit = min(until - state.done, most - int(old.sweeps))
        sweeps = advance(self.ascent, self.inputs, old)
        carry, bounds = host(
            sweeps(self.inputs, old, np.asarray(limit), np.asarray(self.method.tolerance, float))
        )
        values = bounds[: int(carry.sweeps) - int(old.sweeps)]
        if carry.status == FELL:
            before = values[-2] if len(values) > 1 else old.elbo
            tell_fall(float(before), float(carry.elbo), int(carry.sweeps))
        over = carry.status != RUNNING or int(carry.sweeps) == most
        rest = state.waiting[1:]
        new = Alternation((*state.ended, carry), rest) if over else replace(
            state, waiting=(carry, *rest)
        )  # fmt: skip
        stop = None if new.waiting else self._reason(new.ended[new.best])
        return new, Info(new.done, values, f"ELBO {carry.elbo:.6g}", stop)

    def _reason(self, end: Carry) -> Stop:
        """Why a restart stopped."""
        sweep = int(end.sweeps)
        if end.status == CONVERGED:
            return Stop(
                True,
                f"relative change {max(float(end.change), 0.0):.1e} of the ELBO in the last three "
                f"sweeps, at sweep {sweep}, is within the tolerance {self.method.tolerance:g}",
            )
        if end.status == UNBOUNDED:
            return Stop(False, f"a parameter has run away in sweep {sweep}")
        return broken(int(end.status), sweep) or at_the_limit(self.method)

    def finish(self, state: Alternation, trace: Trace, stop: Stop) -> Answer:
        """The factors and the parameters of the best restart."""
        ascent, ends, best = self.ascent, state.begun, state.best
        engine, end = ascent.engine, ends[best]
        if end.status == UNBOUNDED:
            raise self._runaway(end)
        engine.certified()
        check_factors(engine, end.state, np.asarray(engine.family.proper(end.state.naturals)))
        check_bound(float(end.elbo), len(ends), int(end.sweeps))
        flat = ascent.check_maximum(self.inputs, end.vector, end.state)
        sweeps = [int(one.sweeps) for one in ends]
        reasons = [*map(self._reason, state.ended), stop][: len(ends)]  # one may be under way
        return Answer(
            Q(engine.family, end.state.naturals),
            float(end.elbo),
            replace(
                history_of(self.model, trace, sum(sweeps[:best]), sweeps[best]),
                starts=side_by_side(trace.values, sweeps),
            ),
            tuple(
                Restart(float(one.elbo), count, str(why))
                for one, count, why in zip(ends, sweeps, reasons, strict=True)
            ),
            parameters=self.parameters.trees(self._values(end)),
            notes=() if flat is None else (FLAT.format(flat),),
            blocks=self.method.blocks,
        )

    def _values(self, end: Carry) -> dict[str, np.ndarray]:
        """The parameters that a restart has found."""
        values = self.ascent.space.values(jnp.asarray(end.vector))
        return {name: np.asarray(value) for name, value in values.items()}

    def _runaway(self, end: Carry) -> ArgumentError:
        name = self.ascent.space.owner(int(end.culprit))
        found = np.array2string(self._values(end)[name], threshold=6, edgeitems=2, precision=6)
        return ArgumentError(
            f"The ELBO has no maximum in the parameter '{name}': it has run away to {found} in "
            f"sweep {int(end.sweeps)}.\n"
            f"Expected data that determine it. Give '{name}' a prior with numpyro.sample, bound it "
            "with constraint=dist.constraints.interval(...), or start it elsewhere."
        )


def side_by_side(values: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """Values of runs one after the other, (sum,), as one column a run, with no number after it.

    >>> side_by_side(np.array([1.0, 2.0, 3.0]), [2, 1])
    array([[ 1.,  3.],
           [ 2., nan]])
    """
    found = np.full((max(lengths), len(lengths)), np.nan)
    for number, run in enumerate(np.split(values, np.cumsum(lengths)[:-1])):
        found[: len(run), number] = run
    return found


FLAT = "The ELBO is flat along a direction of '{}': other values are as good."


def notes_of(parameters: Parameters) -> tuple[str, ...]:
    """What a plan says of the parameters."""
    sizes = {p.name: int(np.prod(p.shape)) for p in parameters}
    sites = {
        site: [name for name in names if name in sizes]
        for site, names in parameters.layout.names.items()
    }
    listed = ", ".join(
        f"'{site}'" if len(own) == 1 else f"'{site}' ({len(own)} arrays)"
        for site, own in sites.items()
        if own
    )
    count = sum(sizes.values())
    numbers = "1 number" if count == 1 else f"{count} numbers"
    notes = [
        f"Parameters {listed}: maximised with the ELBO (variational EM), {numbers} without "
        "uncertainty."
    ]
    state = ", ".join(f"'{name}'" for name in parameters.layout.state())
    if state:
        notes.append(f"State {state} (running averages, say) stays as it starts.")
    return tuple(notes)


def check_given(method: Method, given: Mapping[str, Any], names: Sequence[str]) -> None:
    """Starting values are of parameters and latent sites."""
    unknown = [name for name in given if name not in names]
    if unknown:
        which = "is no parameter and no latent site"
        raise UnknownSiteError(f"{method.name} got init for", unknown[0], tuple(names), which)


def check_settings(method: CAVI) -> None:
    """The setting that variational EM does not have."""
    if method.monitor is not None:
        raise SettingError(
            "CAVI",
            "monitor",
            method.monitor,
            "monitor=None: variational EM runs without it. Give the parameters priors with "
            "numpyro.sample, or fix them with numpyro.handlers.substitute",
            " for a model with numpyro.param sites",
        )

"""Variational EM: q(z) by coordinate ascent, parameters by maximising the same ELBO.

The parameters of a program (`numpyro.param`) are data of its derivation, so the ELBO is a function
of both: a sweep of alg:cavi is the E step, and the M step maximises E_q[log p(x, z; theta)].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.ascent import State
from lowerbound.compute.engine import Engine, engine_for
from lowerbound.errors import ArgumentError, NoLatentSiteError, UnsupportedModelError
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import inputs_of
from lowerbound.methods.coordinate.alternate import alternate, starts
from lowerbound.methods.coordinate.begin import check_partition
from lowerbound.methods.coordinate.cavi import check_outcome
from lowerbound.methods.coordinate.loop import Outcome
from lowerbound.methods.coordinate.parameter_bound import Ascent, Space
from lowerbound.methods.values import CAVI
from lowerbound.model import Model, trace_model
from lowerbound.rewrite.parameters import (
    Parameters,
    as_argument,
    find_parameters,
    parameter_inputs,
    parameter_name,
    parametrised,
)
from lowerbound.rewrite.trees import with_values
from lowerbound.run.check_input import check_observed_variance


@dataclass(frozen=True, eq=False)
class Maximised:
    """A finished variational EM: q(z), and the parameters that maximise its ELBO.

    `model` is the program with the parameters as data, at their final values; `program` is the
    user's program with the parameters fixed at these.
    """

    model: Model
    program: Callable[..., Any]
    engine: Engine
    outcome: Outcome
    parameters: dict[str, Any]  # arrays, and trees of them, as `numpyro.param` has them
    notes: tuple[str, ...] = ()  # what the plan says of them

    @property
    def state(self) -> State:
        """The variational parameters."""
        return self.outcome.state

    @property
    def family(self) -> MeanField:
        """The mean-field family of q."""
        return self.engine.family

    @property
    def elbo(self) -> float:
        """The ELBO at q and the parameters."""
        return self.outcome.elbo

    @property
    def history(self) -> np.ndarray:
        """The ELBO after each sweep of the best restart."""
        best = self.outcome.best
        return self.outcome.history[: self.outcome.sweeps[best], best]

    @property
    def seconds(self) -> np.ndarray:
        """The time at the end of each sweep."""
        return self.outcome.seconds[: len(self.history)]

    @property
    def converged(self) -> bool:
        """Whether the ELBO has settled."""
        return self.outcome.converged

    @property
    def stop_reason(self) -> str:
        """Why the run stopped."""
        return self.outcome.reasons[self.outcome.best]


def run_em(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: CAVI,
    seed: int = 0,
    progress: bool | None = None,
) -> Maximised:
    """Coordinate ascent on q(z) and on the parameters of a program, until the ELBO settles.

    Restarts differ in where q starts, and in the parameters that start at functions of a key.
    Raises NotConjugateError when a term fits no factor.
    """
    check_method(method)
    with jax.enable_x64(True):
        every = [
            _given(find_parameters(function, args, kwargs, seed + number), method)
            for number in range(method.restarts)
        ]
        parameters, spaces = every[0], [Space(one) for one in every]
        model = parametrised_model(function, parameters, args, kwargs)
        method = _without(method, parameters.sites)
        check_partition(method, model)
        check_observed_variance(model)
        engine = engine_for(model, np.dtype(float), method.blocks)
        inputs = {name: jnp.asarray(array) for name, array in inputs_of(model).items()}
        ascent = Ascent.of(engine, spaces[0], inputs)
        carries = starts(ascent, model, inputs, spaces, method, seed)
        outcome, vector = alternate(ascent, inputs, carries, method, progress)
        engine.certified()
        check_outcome(engine, outcome)
        flat = ascent.check_maximum(inputs, vector, outcome.state)
        values = ascent.space.values(jnp.asarray(vector))
        final = {name: np.asarray(value) for name, value in values.items()}
        data = {name: np.asarray(array) for name, array in parameter_inputs(final).items()}
    model = replace(model, arguments=model.arguments.replace(data))
    held = parameters.trees(final)
    fixed = with_values(function, held)
    return Maximised(model, fixed, engine, outcome, held, notes_of(parameters, flat))


def notes_of(parameters: Parameters, flat: str | None = None) -> tuple[str, ...]:
    """What the plan says of the parameters; `flat` is one that has other values as good."""
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
    if flat is not None:
        notes.append(f"The ELBO is flat along a direction of '{flat}': other values are as good.")
    return tuple(notes)


def check_method(method: CAVI) -> None:
    """Settings that variational EM does not have."""
    for name, none in (("devices", None), ("monitor", None), ("condition", ()), ("augment", None)):
        found = getattr(method, name, none)
        if found != none and found:
            raise ArgumentError(
                f"CAVI got {name}={found!r} for a model with numpyro.param sites.\n"
                f"Expected {name}={none!r}: variational EM runs without it. Give the parameters "
                "priors with numpyro.sample, or fix them with numpyro.handlers.substitute."
            )
    if method.precision == "float32":
        raise ArgumentError(
            "CAVI got precision='float32' for a model with numpyro.param sites.\n"
            "Expected float64, in which parameters are maximised. Drop precision."
        )


def _given(parameters: Parameters, method: CAVI) -> Parameters:
    """The parameters, started at the values that the method gives."""
    if not parameters:
        raise ArgumentError(
            "The model has no numpyro.param to maximise.\nExpected at least one. Use lb.fit."
        )
    return parameters.started(method.init if isinstance(method.init, Mapping) else {})


def _without(method: CAVI, names: Sequence[str]) -> CAVI:
    """The method without starting values of parameters."""
    if not isinstance(method.init, Mapping):
        return method
    rest = {name: value for name, value in method.init.items() if name not in names}
    return replace(method, init=rest or "auto")


def check_ascent(model: Model, parameters: Parameters) -> None:
    """Raise where coordinate ascent has no M step: a parameter decides a support or a mask."""
    engine = engine_for(model, np.dtype(float))
    Ascent.of(engine, Space(parameters), inputs_of(model))


def parametrised_model(
    function: Callable[..., Any],
    parameters: Parameters,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Model:
    """The model whose data include the parameters, at their starting values."""
    program = parametrised(function, parameters)
    names = {parameter_name(p.name): p for p in parameters}
    try:
        model = trace_model(program, (as_argument(parameters), *args), kwargs)
    except NoLatentSiteError:
        listed = ", ".join(f"'{p.name}'" for p in parameters)
        raise ArgumentError(
            f"The model has parameters, {listed}, but no latent site: there is no posterior.\n"
            "Expected at least one numpyro.sample without obs. Give a parameter a prior with "
            "numpyro.sample; for maximum likelihood alone, hand numpyro.infer.util.log_density to "
            "an optimiser."
        ) from None
    for name in model.concrete:
        if name in names:
            raise UnsupportedModelError(
                f"The program inspects the values of its arguments and of the parameter "
                f"'{names[name].name}'   ({names[name].where}).\n"
                "Expected parameters to enter by operations that JAX can trace: compute what "
                "Python needs of the data beforehand, and pass it as an argument."
            )
    # The rows are those of the user's data, whatever the shapes of the parameters.
    own = {n: a for n, a in model.arguments.data.items() if n not in names}
    plate = replace(model, arguments=replace(model.arguments, data=own)).data_plate
    return replace(model, plate=plate.name if plate else None)

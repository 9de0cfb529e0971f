"""Parameters from the prior and data from the model, many times in one compiled program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Literal
from jax.tree_util import tree_unflatten

from lowerbound.compiled import jit, traced
from lowerbound.cost import mapped
from lowerbound.errors import NoLatentSiteError, NoObservedSiteError, NotGenerativeError
from lowerbound.errors.wording import first_line
from lowerbound.model import Model
from lowerbound.model.dependence import dependence
from lowerbound.model.inputs.arguments import named_leaves
from lowerbound.model.program import WITHOUT_DRAWS, PriorDraw, execute
from lowerbound.result.unseen.new_rows import Unobserved
from lowerbound.rewrite.observing import observing

Values = Mapping[str, Array]


Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Simulated:
    """Draws of all sites, each with a leading axis of simulations.

    latent: what generated the data, deterministic sites included. observed: the data. arguments:
    observed site -> the argument whose values it observes as they are. A site that observes a
    function of its arguments has none; its data are then an argument of their own (`observing`).
    """

    latent: dict[str, np.ndarray]
    observed: dict[str, np.ndarray]
    arguments: dict[str, str]
    model: Model

    @property
    def program(self) -> Callable[..., Any]:
        """The program that takes the data sets."""
        function = self.model.function
        return function if self._whole else observing(function)

    @property
    def _whole(self) -> bool:
        return len(self.arguments) == len(self.observed)

    def call(self, number: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """The arguments with one data set in the place of the data."""
        new = self._data(number)
        own = {argument: new.pop(site) for site, argument in self.arguments.items()}
        flat, structure, _ = named_leaves(self.model.function, args, kwargs)
        leaves = [own.get(name, leaf) for name, leaf in flat]
        placed, named = tree_unflatten(structure, leaves)
        return (placed if self._whole else (new, *placed)), named

    def _data(self, number: int) -> dict[str, np.ndarray]:
        """Entries are missing where they are in the data that were given."""
        found = {}
        for name, array in self.observed.items():
            values, missing = array[number], self.model.observed[name].missing
            if missing is not None:
                mask = missing.reshape(missing.shape + (1,) * (values.ndim - missing.ndim))
                values = np.ma.MaskedArray(values, mask=np.broadcast_to(mask, values.shape))
            found[name] = values
        return found

    def truth(self, number: int) -> dict[str, np.ndarray]:
        """The values that generated it."""
        return {name: array[number] for name, array in self.latent.items()}


def simulated(model: Model, simulations: int, seed: int) -> Simulated:
    """So many draws of parameters and data. Raises NotGenerativeError where there are none."""
    arguments = _checked(model)
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), simulations)

        def every(keys: Array) -> dict[str, Array]:
            found: dict[str, Array] = mapped(
                lambda key: _run(model, model.arguments.data, key), keys, what="one data set"
            )
            return found

        drawn = {name: np.asarray(array) for name, array in jit(every)(keys).items()}
    observed = {n: a for n, a in drawn.items() if n in model.observed}
    for site, argument in arguments.items():
        observed[site] = observed[site].astype(model.arguments.data[argument].dtype)
    latent = {n: a for n, a in drawn.items() if n not in observed}
    return Simulated(latent, observed, arguments, model)


def _run(model: Model, data: Mapping[str, Any], key: Array) -> dict[str, Array]:
    """All sites of one run of the program, those that are observed drawn as well."""
    inputs = {**data, **model.arguments.seen(model.concrete)}
    args, kwargs = model.arguments.call(inputs)
    with model.sight.mode():
        messages = execute(model.function, args, kwargs, PriorDraw(key, exact=True), Unobserved())
    found = {}
    for name, message in messages.items():
        if message["type"] == "deterministic":
            found[name] = jnp.asarray(message["value"])
        elif message["type"] == "sample" and name not in _factors(model):
            if message["is_observed"]:
                raise NotGenerativeError(
                    f"site '{name}' stays observed: it is inside a scan   "
                    f"({model.observed[name].where})",
                    "Write the scan so that it samples where its observations are None",
                )
            found[name] = message["value"]
    return found


def _factors(model: Model) -> list[str]:
    return [name for name, site in model.observed.items() if site.is_factor]


def _checked(model: Model) -> dict[str, str]:
    """Parameters have a prior, and data a law that does not know them.

    Returns the sites that observe an argument as it is, which no other does.
    """
    if not model.latent:
        raise NoLatentSiteError(tuple(model.observed))
    for name, site in model.latent.items():
        if site.distribution == "ImproperUniform":
            raise NotGenerativeError(
                f"site '{name}' has a flat prior, which cannot be drawn from   ({site.where})",
                "Give it a proper prior",
            )
    for name in _factors(model):
        raise NotGenerativeError(
            f"'{name}' is a numpyro.factor, from which no data can be drawn   "
            f"({model.observed[name].where})",
            "Write it as a numpyro.sample with obs=",
        )
    if not model.observed:
        raise NoObservedSiteError(tuple(model.latent), model.arguments.none)
    with jax.enable_x64(True):
        try:
            used = _arguments_of_draws(model)
        except WITHOUT_DRAWS as error:
            raise NotGenerativeError(
                f"the program cannot be drawn from ({first_line(error)})",
                "Give every distribution a sample method",
            ) from error
        made_of, as_it_is = _arguments_of_data(model)
    for name, arguments in made_of.items():
        both = sorted(arguments & used)
        if both:
            raise NotGenerativeError(
                f"'{both[0]}' is observed by site '{name}', and what the program draws depends "
                f"on it   ({model.observed[name].where})",
                f"Let the program take nothing but the shape of '{both[0]}' from it",
            )
    times = Counter(name for arguments in made_of.values() for name in arguments)
    return {site: argument for site, argument in as_it_is.items() if times[argument] == 1}


def _arguments_of_draws(model: Model) -> set[str]:
    """The data arguments on whose values the draws of the program depend."""
    names = [n for n in model.arguments.data if n not in model.concrete]

    def program(data: list[Any], key: Array) -> dict[str, Array]:
        found = _run(model, dict(zip(names, data, strict=True)), key)
        return {n: a for n, a in found.items() if n not in model.deterministic}

    data = [model.arguments.data[name] for name in names]
    closed = traced(program)(data, jax.random.key(0))
    reached = frozenset[int]().union(*dependence(closed.jaxpr))
    return {name for i, name in enumerate(names) if i in reached}


def _arguments_of_data(model: Model) -> tuple[dict[str, set[str]], dict[str, str]]:
    """For each observed site the arguments that its values are made of, and the one they are."""
    names = [n for n in model.arguments.data if n not in model.concrete]
    latents = jax.eval_shape(model.draw, jax.random.key(0))

    def program(data: list[Any], latents: Values) -> list[Array]:
        densities = model.run(latents, dict(zip(names, data, strict=True)))
        return [densities[name].value for name in model.observed]

    jaxpr = traced(program)([model.arguments.data[n] for n in names], latents).jaxpr
    made_of = {
        site: {names[i] for i in inputs if i < len(names)}
        for site, inputs in zip(model.observed, dependence(jaxpr), strict=True)
    }
    places = dict(zip(jaxpr.invars, names, strict=False))
    as_it_is = {
        site: places[atom]
        for site, atom in zip(model.observed, jaxpr.outvars, strict=True)
        if not isinstance(atom, Literal) and atom in places
    }
    return made_of, as_it_is

"""Programs without some of their latent sites: what depends on these, and how it is left out."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpyro
from jax import Array
from numpyro import handlers
from numpyro.primitives import Messenger

from lowerbound.compiled import traced
from lowerbound.model.dependence import dependence
from lowerbound.model.program import MaskMissing, Message
from lowerbound.model.sites import Model

Named = Mapping[str, Any]  # values of sites, or data
Parents = dict[str, frozenset[str]]


def parents_among(model: Model, names: Sequence[str]) -> Parents:
    """Those of some latent sites that the density (or value) of each site depends on."""
    latents = jax.eval_shape(model.draw, jax.random.key(0))

    def outputs(latents: Mapping[str, Array], data: Mapping[str, Array]) -> dict[str, Array]:
        densities = {n: d.log_prob() for n, d in model.run(latents, data).items()}
        return {**densities, **model.deterministic_values(latents, data)}

    closed, shapes = traced(outputs, return_shape=True)(latents, model.arguments.data)
    inputs = sorted(latents)  # the order of a flattened dict; the data come after
    found = dict(zip(sorted(shapes), dependence(closed.jaxpr), strict=True))
    parents = {
        site: frozenset(inputs[i] for i in positions if i < len(inputs) and inputs[i] in names)
        for site, positions in found.items()
    }
    return parents | {name: parents[name] | {name} for name in names}  # a uniform prior has none


class Without(Messenger):  # type: ignore[misc]
    """Hides sites, and takes the densities of others out."""

    def __init__(self, hidden: tuple[str, ...], moved: tuple[str, ...]) -> None:
        super().__init__()
        self.hidden, self.moved = hidden, moved

    def process_message(self, msg: Message) -> None:
        """Stop a hidden site here; leave a moved one its support alone."""
        if msg["type"] not in ("sample", "deterministic"):
            return
        if msg["name"] in self.hidden:
            msg["stop"] = True
        elif msg["name"] in self.moved:
            msg["fn"] = msg["fn"].mask(False)


class Elimination(ABC):
    """A program of which some sites z are integrated out, exactly, and come back given the rest.

    `hidden` are the sites that the program without z does not have: z, and what is observed or
    computed given z; `moved` the latent sites whose prior depends on z. Subclasses are frozen
    dataclasses.
    """

    model: Model
    hidden: tuple[str, ...]
    moved: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The sites z, in the order of the program."""
        return tuple(name for name in self.model.latent if name in self.hidden)

    @property
    def rest(self) -> tuple[str, ...]:
        """The latent sites theta that are left."""
        return tuple(name for name in self.model.latent if name not in self.hidden)

    @property
    @abstractmethod
    def outline(self) -> str:
        """What equal programs that draw z, or average over it, have in common beside densities."""

    @property
    def function(self) -> Callable[..., Any]:
        """The program with log density log p(x, theta), z integrated out."""
        original = self.model.function

        @functools.wraps(original)
        def program(*args: Any, **kwargs: Any) -> Any:
            with (
                handlers.trace() as messages,
                Without(self.hidden, self.moved),
                MaskMissing(self.model.missing),
                handlers.substitute(data=self.inside()),
            ):
                result = original(*args, **kwargs)
            theta = {name: messages[name]["value"] for name in self.rest}
            with handlers.block():
                found = self.factors(theta, args, kwargs)
            for name, log_density in found.items():
                numpyro.factor(name, log_density)
            return result

        return program

    @property
    @abstractmethod
    def call(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of that program: missing entries are filled, and masked inside."""

    @abstractmethod
    def inside(self) -> dict[str, Array]:
        """Values of z while that program runs: any, as nothing that stays reads them."""

    @abstractmethod
    def factors(self, theta: Named, args: tuple[Any, ...], kwargs: Named) -> dict[str, Array]:
        """By name, the log densities that stand in that program for what is hidden and moved."""

    @abstractmethod
    def conditional(self, latents: Named, data: Named) -> Any:
        """What p(z | x, theta) is made of, as a tree of arrays; traceable."""

    @abstractmethod
    def draw(self, conditional: Any, key: Array) -> dict[str, Array]:
        """A draw of z from p(z | x, theta); discrete sites as indices of their values."""

    @abstractmethod
    def log_prob(self, conditional: Any, latents: Named, values: Named, data: Named) -> Array:
        """Log p(z | x, theta), z as `draw` gives it."""

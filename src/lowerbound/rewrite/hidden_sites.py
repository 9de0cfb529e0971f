"""Programs without some of their latent sites: what depends on these, and how it is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
from jax import Array
from numpyro.primitives import Messenger

from lowerbound.compiled import traced
from lowerbound.model.dependence import dependence
from lowerbound.model.program import Message
from lowerbound.model.sites import Model

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

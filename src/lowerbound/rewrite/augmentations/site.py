"""A sample site that is about to be rewritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpyro
from jax import Array
from numpyro.distributions import Distribution

from lowerbound.model.density import broadcast_batch, strip
from lowerbound.rewrite.augmentations.behind import Node, Past


@dataclass(frozen=True)
class Chosen:
    """A sample site: its innermost law, and the shape of independent copies of it.

    `shape` is the batch shape followed by the `reinterpreted` dimensions that `to_event` declares;
    `value` is the observation, None for a latent site.
    """

    name: str
    law: Distribution
    mask: Any
    shape: tuple[int, ...]
    reinterpreted: int
    value: Any
    where: str
    past: Past

    @classmethod
    def of(cls, message: dict[str, Any], where: str, past: Past) -> Chosen:
        """The site of a sample message, with wrappers taken off its law."""
        fn, value = message["fn"], message["value"]
        inside = strip(fn)
        batch = tuple(fn.batch_shape) if value is None else broadcast_batch(message, where)
        shape = batch + tuple(fn.event_shape)[: inside.reinterpreted]
        return cls(
            message["name"],
            inside.base,
            inside.mask,
            shape,
            inside.reinterpreted,
            value,
            where,
            past,
        )

    def behind(self, parameter: str) -> Node:
        """What a parameter of the law was computed from."""
        return self.past.parameter(self.name, parameter)

    def auxiliary(self, what: str, law: Distribution, *trailing: int) -> Array:
        """A latent site "name:what" in the same plates; `trailing` are dimensions of its own."""
        whole = law.expand((*self.shape, *trailing)).to_event(self.reinterpreted + len(trailing))
        drawn: Array = numpyro.sample(f"{self.name}:{what}", whole)
        return drawn

    def with_law(self, law: Distribution) -> Distribution:
        """The given law in the wrappers of the site's own."""
        whole = law.expand(self.shape)
        whole = whole if self.mask is None else whole.mask(self.mask)
        return whole.to_event(self.reinterpreted) if self.reinterpreted else whole

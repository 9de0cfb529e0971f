"""Entries of latent sites that a mask leaves without a density, and that nothing reads.

`obs_mask=` imputes a site of full length, of which only the entries that are not observed count;
padded rows are masked with their latent values. The posterior of such an entry is improper and of
no interest. Its own prior in place of none changes no other posterior, nor the evidence, since it
integrates to one whatever its parameters are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.primitives import Messenger

from lowerbound.compiled.host import lightly
from lowerbound.model.density import strip
from lowerbound.model.dependence import evaluator

if TYPE_CHECKING:
    from lowerbound.model.record import Entry, Record
    from lowerbound.model.sites import Model

__all__ = ["spare_sites", "without_masks"]

PAIRS = 4  # of draws, between which the entries are exchanged
MAXIMISED = "parameters"  # the argument of programs whose parameters are data


def without_masks(
    function: Callable[..., Any], spare: Collection[str], known: Collection[str]
) -> Callable[..., Any]:
    """The program, with no mask of its spare sites; `known` are all of its sites."""

    @functools.wraps(function)
    def program(*args: Any, **kwargs: Any) -> Any:
        with _Whole(spare, known):
            return function(*args, **kwargs)

    return program


def spare_sites(found: Record, model: Model) -> tuple[str, ...]:
    """Continuous sites with a mask, of whose masked entries log p is no function.

    They are exchanged between draws of the prior, which log p must not notice at all. A density
    that is raised to a power does not integrate to one, and a mask that moves is none of these.
    """
    chosen = [
        entry
        for entry in found.entries
        if entry.kind == "latent"
        and entry.mask is not None
        and entry.scale is None
        and found.is_settled(entry.mask, (MAXIMISED,))
        and _is_continuous(found, entry)
    ]
    if not chosen:
        return ()
    data = [model.arguments.data[name] for name in found.names]
    outputs = [entry.mask for entry in chosen if entry.mask is not None]
    masks_of = evaluator(found.closed, outputs)
    inputs = {name: jnp.asarray(array) for name, array in model.arguments.data.items()}
    log_p = lightly(lambda latents, data: model.log_density(latents, data))
    spare = {entry.name for entry in chosen}
    for number in range(PAIRS):
        keys = jax.random.split(jax.random.key(number))
        masks = masks_of([keys[0], *data])
        one, other = (model.draw(key) for key in keys)
        before = float(log_p(one, inputs))
        if not np.isfinite(before):
            continue
        for entry, mask in zip(chosen, masks, strict=True):
            kept = _spread_out(entry, mask)
            moved = {**one, entry.name: jnp.where(kept, one[entry.name], other[entry.name])}
            if kept.all() or float(log_p(moved, inputs)) != before:
                spare.discard(entry.name)
    return tuple(entry.name for entry in chosen if entry.name in spare)


def _is_continuous(found: Record, entry: Entry) -> bool:
    value = found.closed.out_avals[entry.value]
    return bool(jnp.issubdtype(value.dtype, jnp.floating))


def _spread_out(entry: Entry, mask: np.ndarray) -> np.ndarray:
    """A mask of batch elements, and of those that are reinterpreted, as one of all numbers."""
    own = len(entry.event_shape) - entry.base_event_dim
    shape = entry.batch_shape + entry.event_shape[:own]
    whole = np.broadcast_to(mask.astype(bool), shape).reshape(shape + (1,) * entry.base_event_dim)
    return np.broadcast_to(whole, entry.batch_shape + entry.event_shape)


class _Whole(Messenger):  # type: ignore[misc]
    """Takes masks off latent sites, and off those that stand for them in other coordinates."""

    def __init__(self, spare: Collection[str], known: Collection[str]) -> None:
        super().__init__()
        self.spare, self.known = spare, known

    def process_message(self, msg: dict[str, Any]) -> None:
        """Rebuild the distribution of a site without its masks."""
        if msg["type"] != "sample" or not self._is_spare(msg["name"], msg["is_observed"]):
            return
        fn, stripped = msg["fn"], strip(msg["fn"])
        shape = fn.batch_shape + fn.event_shape[: stripped.reinterpreted]
        msg["fn"] = stripped.base.expand(shape).to_event(stripped.reinterpreted)

    def _is_spare(self, name: str, is_observed: bool) -> bool:
        """Reparameterisations add to the name of a site: theta_decentered, theta_base.

        Ours are given the values of those coordinates, as an observed site is.
        """
        if name in self.known:
            return name in self.spare and not is_observed
        return any(name.startswith(f"{site}_") for site in self.spare)

"""Trying a group of discrete sites: which rows a density depends on, found by running the program.

In: a group that may be right. Out: the reach of each of its terms, or the term that no reach fits.
A term has the reach r if, with all rows in random states, its density in every row is that of the
window of r + 1 states there, as runs in which states repeat with period r + 1 give it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import biject_to
from numpyro.primitives import Messenger

from lowerbound.compiled import traced
from lowerbound.cost import mapped, numbers_computed
from lowerbound.errors import TooLargeError
from lowerbound.model.dependence import evaluator
from lowerbound.model.program import Message, execute
from lowerbound.rewrite.summing.finite import Group
from lowerbound.rewrite.summing.summation import Summation

TRIED, MOST_TRIED = 4, 64  # random states of all rows
COVERED = 3  # how often a window is met in these on average, if there are enough of them
LONG = 100_000_000  # numbers, above which one such state is tried
ROUNDING = 1e-9

Terms = dict[str, np.ndarray]


class Trial(NamedTuple):
    """What some runs of the program in given states have shown of a group.

    `group` has the reach of its terms, the lag that is needed, and whether rows can be given one
    state that they share. `impossible` says that there is an impossible state; `coupled` are the
    first site and row that rows affect beyond every reach that was tried; `untried` is a reach
    which would take too much to try, 0 where there is none.
    """

    group: Group
    impossible: bool = False
    coupled: tuple[str, int] | None = None
    untried: int = 0


def tried(found: Summation, group: Group, most: float) -> Trial:
    """Try a group, with states that rows share given once where the program can be run so.

    `most` are the densities that the windows of a reach may have to be tried.
    """
    runs = COVERED * math.prod(group.table) // math.prod(group.rows) ** 2
    own = group.random(np.random.default_rng(0), min(max(TRIED, runs), MOST_TRIED))
    mixed = _by_row(found, group, group.terms, own, fewer=True)
    own = own[: len(mixed[group.terms[0]])]
    if group.patterns(0).shape != group.given(0).shape:
        try:
            trial = _reached(found, replace(group, once=True), own, mixed, most)
            if trial.coupled is None:
                return trial
        except TooLargeError:
            raise
        except Exception:  # of the program, which may want an entry for every row
            pass
    return _reached(found, group, own, mixed, most)


def _reached(found: Summation, group: Group, own: np.ndarray, mixed: Terms, most: float) -> Trial:
    """The reach of every term, where rows in states `own` have the densities `mixed`."""
    reach: dict[str, int] = {}
    impossible, coupled = False, None
    sizes = {site.name: math.prod(site.batch_shape) for site in found.model.sites}
    for back in range(group.lag + 1):
        left = sorted(term for term in group.terms if term not in reach)
        if back and group.runs(back) * sum(sizes[n] for n in left) > most:
            return Trial(group, impossible, coupled, untried=back)
        alike = _by_row(found, group, left, group.given(back))
        coupled = None
        for name in left:
            expected = np.asarray(group.arranged(alike[name], back))
            there = np.stack([expected[group.windows(states, back)] for states in own])
            same = np.isclose(mixed[name], there, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
            if same.all():
                reach[name] = back
                impossible |= bool(np.isneginf(expected).any())
            elif coupled is None:
                coupled = name, int(np.argmin(same.all(axis=0)))
        if coupled is None:
            break
    return Trial(replace(group, reach=reach), impossible, coupled)


def _by_row(
    found: Summation, group: Group, names: Sequence[str], states: np.ndarray, fewer: bool = False
) -> Terms:
    """Some terms of a group, (runs, *rows), in every run of some states.

    `fewer` lets the first run stand for all where they take long.
    """
    model, latents = found.model, _places(found)

    def terms(states: Array, latents: Mapping[str, Array], data: Any) -> dict[str, Array]:
        args, kwargs = model.arguments.call(model._inputs(data))
        with model._mode():

            def one(states: Array) -> dict[str, Array]:
                return found.row_terms(group, names, states, latents, args, kwargs)

            together: dict[str, Array] = mapped(one, states, what="one run of the program")
            return together

    inputs = states, latents, model.arguments.data
    closed = traced(terms)(*inputs)
    if fewer and states[1:].size and numbers_computed(closed.jaxpr) > LONG:
        return _by_row(found, group, names, states[:1])
    evaluate = evaluator(closed, range(len(closed.jaxpr.outvars)))
    return dict(zip(sorted(names), evaluate(jax.tree.leaves(inputs)), strict=True))


def _places(found: Summation) -> Mapping[str, np.ndarray]:
    """The continuous sites of every trial of a program."""
    model = found.model

    def places(data: Any) -> list[Array]:
        args, kwargs = model.arguments.call(model._inputs(data))
        with model._mode():
            messages = execute(model.function, args, kwargs, _Anywhere(found.first))
            return [messages[name]["value"] for name in names]

    if "places of trials" not in model.findings:
        names = [name for name in model.latent if name not in found.first]
        closed = traced(places)(model.arguments.data)
        evaluate = evaluator(closed, range(len(names)))
        values = evaluate(jax.tree.leaves((model.arguments.data,)))
        model.findings["places of trials"] = dict(zip(names, values, strict=True))
    known: Mapping[str, np.ndarray] = model.findings["places of trials"]
    return known


class _Anywhere(Messenger):  # type: ignore[misc]
    """Puts continuous latent sites at standard normal numbers on the unconstrained space.

    Draws from the prior would do as well, but samplers take long to compile.
    """

    def __init__(self, discrete: Mapping[str, Any]) -> None:
        super().__init__()
        self.discrete, self.rng = discrete, np.random.default_rng(1)

    def process_message(self, msg: Message) -> None:
        """Give a latent site its value."""
        if msg["type"] == "prng_key" and msg["value"] is None:
            msg["value"] = jax.random.key(0)
        if msg["type"] == "control_flow":
            msg["kwargs"]["rng_key"] = jax.random.key(0)
            given = {name: jnp.asarray(value) for name, value in self.discrete.items()}
            msg["kwargs"]["substitute_stack"].append(("substitute", given))
        if msg["type"] != "sample" or msg["value"] is not None:
            return
        if msg["name"] in self.discrete:
            msg["value"] = self.discrete[msg["name"]]
            return
        transform: Any = biject_to(msg["fn"].support)
        shape = transform.inverse_shape(msg["fn"].shape())
        msg["value"] = transform(jnp.asarray(self.rng.standard_normal(shape)))

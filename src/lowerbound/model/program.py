"""Running a NumPyro program under handlers."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.primitives import Messenger

from lowerbound.errors import DuplicateSiteError, TooManySitesError
from lowerbound.model.closed_over import in_any_precision
from lowerbound.model.density import inside, masked, strip
from lowerbound.model.user_lines import user_line

Message = dict[str, Any]
WITHOUT_DRAWS = (NotImplementedError, ImportError)  # what a law raises that has a density alone
MOST_SITES = 2_000  # some minutes of compilation, where all of them are observed


def execute(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *messengers: Messenger,
) -> dict[str, Message]:
    """Run the program once, validation off; returns its messages by site name.

    The messengers are entered in order, so the last one is nearest to the program. Plates are
    whole, and all sites come in plain form.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(numpyro.validation_enabled(False))
        messages = stack.enter_context(handlers.trace())
        for messenger in (*messengers, WholePlates(), PlainSites()):
            stack.enter_context(messenger)
        in_any_precision(function)(*args, **kwargs)
    return dict(messages)


class Inspector(Messenger):  # type: ignore[misc]
    """Notes the line of every site and parameter; rejects what the analysis cannot express."""

    def __init__(self) -> None:
        super().__init__()
        self.where: dict[str, str] = {}
        self.parameters: dict[str, str] = {}  # those without a value, and their lines
        self.subsampled: dict[str, Subsampled] = {}

    def process_message(self, msg: Message) -> None:
        """Note the site's line, or reject the message."""
        kind, name = msg["type"], msg.get("name", "")
        if kind in ("sample", "deterministic"):
            here = user_line(sys._getframe(1))
            if name in self.where:
                raise DuplicateSiteError(name, self.where[name], here)
            if len(self.where) == MOST_SITES:  # while it runs: nobody waits for the last
                raise TooManySitesError(MOST_SITES, name, here)
            self.where[name] = here
        elif kind == "param" and msg["value"] is None:
            self.parameters.setdefault(name, user_line(sys._getframe(1)))
        elif kind == "plate" and msg.get("subsample_size") is not None:
            here = user_line(sys._getframe(1))
            self.subsampled[name] = Subsampled(name, msg["subsample_size"], msg["args"][0], here)


class Subsampled(NamedTuple):
    """A plate of which the program itself takes some rows at random, though a fit takes all."""

    name: str
    taken: int
    size: int
    where: str


class PriorDraw(Messenger):  # type: ignore[misc]
    """Draws the latent sites, and marks each draw as depending on the random key.

    A flat prior has no draws, nor has a law that states its density alone (one of the user's own;
    a truncated Student-t where TensorFlow Probability is not installed): its site takes a standard
    normal on the unconstrained space, unless draws must be those of the prior (`exact`). The mark
    (an optimization barrier, which leaves values alone) lets a reader of the jaxpr see that a site
    is random even where its draw is not, as for `Delta`.
    """

    def __init__(self, key: jax.Array, exact: bool = False) -> None:
        super().__init__()
        self.key, self.exact = key, exact

    def process_message(self, msg: Message) -> None:
        """Give a latent site a draw."""
        if msg["type"] == "prng_key" and msg["value"] is None:
            self.key, msg["value"] = jax.random.split(self.key)
        if msg["type"] == "control_flow" and msg["kwargs"]["rng_key"] is None:
            self.key, msg["kwargs"]["rng_key"] = jax.random.split(self.key)
        if msg["type"] != "sample" or msg["value"] is not None:
            return
        self.key, key = jax.random.split(self.key)
        try:
            value = msg["fn"].sample(key, sample_shape=msg["kwargs"]["sample_shape"])
        except WITHOUT_DRAWS:
            if self.exact or msg["fn"].support.is_discrete:
                raise
            value = _unconstrained_draw(msg["fn"], key)
        marked = jax.lax.optimization_barrier((value, jax.random.key_data(key)))  # type: ignore[no-untyped-call]
        msg["value"] = marked[0]


def _unconstrained_draw(fn: Any, key: jax.Array) -> jax.Array:
    base = strip(fn).base
    transform = biject_to(base.support)
    # `event_shape` belongs to the base; all else is independent copies of it.
    event = tuple(base.event_shape)
    copies = tuple(fn.shape())[: len(fn.shape()) - len(event)]
    unconstrained = copies + tuple(transform.inverse_shape(event))
    draw: jax.Array = transform(jax.random.normal(key, unconstrained))
    return draw


class Given(Messenger):  # type: ignore[misc]
    """Gives every latent site its value; one that is not given is an error, never a draw."""

    def __init__(self, latents: Mapping[str, Any]) -> None:
        super().__init__()
        # A program may index them by traced numbers, which NumPy's arrays do not take.
        self.latents = {name: jnp.asarray(value) for name, value in latents.items()}

    def process_message(self, msg: Message) -> None:
        """Give a latent site its value."""
        if msg["type"] == "prng_key" and msg["value"] is None:
            msg["value"] = jax.random.key(0)
        if msg["type"] == "control_flow":
            msg["kwargs"]["substitute_stack"].append(("substitute", dict(self.latents)))
        # A value that the program substitutes itself gives way, as it does in NumPyro; not one
        # that a loop has given its steps.
        mine = msg["value"] is None or not msg.get("_control_flow_done", False)
        if msg["type"] == "sample" and mine and not msg["is_observed"]:
            if msg["name"] in self.latents:
                msg["value"] = self.latents[msg["name"]]
            elif msg["value"] is None:
                raise KeyError(f"no value given for latent site '{msg['name']}'")


class WholePlates(Messenger):  # type: ignore[misc]
    """Lets a plate that draws some of its rows (`subsample_size`) hold all of them.

    The posterior is that of all rows; its estimates by a few of them are for steps of an
    optimiser, which batches of rows are made for elsewhere.
    """

    def process_message(self, msg: Message) -> None:
        """Take all rows, and note how many the program would."""
        if msg["type"] == "plate" and msg["value"] is None:
            size, msg["subsample_size"] = msg["args"]
            msg["args"], msg["value"] = (size, size), jnp.arange(size)


class PlainSites(Messenger):  # type: ignore[misc]
    """Gives every site one plain form, and scans carried values of types that do not change.

    A `sample_shape` is part of the distribution. Integers and constants have the widest types that
    are enabled, since densities take the precision of their numbers: the log gamma of an int32 is a
    float32, so that counts of 32 bits would have another likelihood than the same counts of 64
    bits. Floats that are computed stay, since a fit may run in single precision.
    """

    def process_message(self, msg: Message) -> None:
        """Put a site or a scan into plain form."""
        if msg["type"] == "sample":
            msg["fn"], msg["value"] = widened(msg["fn"]), widened(msg["value"])
            shape = tuple(msg["kwargs"].get("sample_shape", ()))
            whole = shape + tuple(msg["fn"].shape())
            if shape and (msg["value"] is None or np.shape(msg["value"]) == whole):
                msg["fn"] = msg["fn"].expand_by(shape)
                msg["kwargs"] = {**msg["kwargs"], "sample_shape": ()}
        if msg["type"] == "control_flow" and getattr(msg["fn"], "__name__", "") == "scan_wrapper":
            msg["fn"] = functools.partial(_settled, msg["fn"])


def _settled(scan: Callable[..., Any], step: Any, first: Any, *args: Any, **kwargs: Any) -> Any:
    """A scan whose carried values have, from the first, the types in which its steps return them.

    A program writes down the types of 32 bits, where what it draws and computes has 64. Given
    values are indexed by its steps, which NumPy's arrays cannot be.
    """
    given = [
        (kind, {k: jnp.asarray(v) for k, v in data.items()} if isinstance(data, dict) else data)
        for kind, data in kwargs.get("substitute_stack", ())
    ]
    kwargs = {**kwargs, "substitute_stack": given}
    for _ in range(3):
        wanted: dict[int, Any] = {}

        def matched(carry: Any, x: Any, wanted: dict[int, Any] = wanted) -> tuple[Any, Any]:
            new, y = step(carry, x)
            leaves, structure = jax.tree.flatten(new)
            before = jax.tree.leaves(carry)
            if len(leaves) == len(before):
                for i, old in enumerate(before):
                    leaves[i] = _like(old, leaves[i], i, wanted)
            return jax.tree.unflatten(structure, leaves), y

        _traced(scan, matched, first, *args, **kwargs)
        if not wanted:
            break
        leaves, structure = jax.tree.flatten(first)
        wide = [jnp.asarray(leaf, wanted.get(i)) for i, leaf in enumerate(leaves)]
        first = jax.tree.unflatten(structure, wide)
    return scan(matched, first, *args, **kwargs)


def _traced(scan: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Run a scan for what its steps note of their types: nothing of it is computed."""

    def nothing() -> tuple[()]:
        scan(*args, **kwargs)
        return ()

    jax.eval_shape(nothing)


def _like(old: Any, new: Any, place: int, wanted: dict[int, Any]) -> Any:
    """A value in the type of the one it follows, where both are of one kind."""
    before, after = jnp.result_type(old), jnp.result_type(new)
    alike = [k for k in (jnp.floating, jnp.integer) if jnp.issubdtype(before, k)]
    if before == after or not alike or not jnp.issubdtype(after, alike[0]):
        return new
    if jnp.promote_types(before, after) != before:
        wanted[place] = after
    return jnp.asarray(new, before)


class SharedCarry(Messenger):  # type: ignore[misc]
    """Lets the steps of a scan hand on one entry where its first value has one for every row.

    All rows then begin with that of the first: right where they begin alike, which is for the
    caller to check.
    """

    def process_message(self, msg: Message) -> None:
        """Let a scan begin with as few entries as its steps return."""
        if msg["type"] == "control_flow" and _is_scan(msg["fn"]):
            msg["fn"] = functools.partial(_shared, msg["fn"])


class Only(Messenger):  # type: ignore[misc]
    """Hides the observed sites whose densities are not wanted, in the steps of scans too.

    What only they need is then no part of the program.
    """

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self.names = names

    def process_message(self, msg: Message) -> None:
        """Hide a site that is not wanted."""
        if msg["type"] == "sample" and msg["is_observed"] and msg["name"] not in self.names:
            msg["stop"] = True
        if msg["type"] == "control_flow" and _is_scan(msg["fn"]):
            msg["fn"] = functools.partial(_within, msg["fn"], Only(self.names))


def _within(
    scan: Callable[..., Any], messenger: Messenger, step: Any, *args: Any, **kwargs: Any
) -> Any:
    """A scan whose steps run under a handler, which does not see into them from outside."""

    def handled(carry: Any, x: Any) -> Any:
        with messenger:
            return step(carry, x)

    return scan(handled, *args, **kwargs)


def _is_scan(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = next((a for a in function.args if callable(a)), function.func)
    return getattr(function, "__name__", "") == "scan_wrapper"


def _shared(scan: Callable[..., Any], step: Any, first: Any, *args: Any, **kwargs: Any) -> Any:
    """A scan whose carried values have axes of length 1 where its steps return them so."""
    while True:
        narrow: dict[int, tuple[slice, ...]] = {}

        def matched(carry: Any, x: Any, narrow: dict[int, Any] = narrow) -> tuple[Any, Any]:
            new, y = step(carry, x)
            leaves, structure = jax.tree.flatten(new)
            for i, old in enumerate(jax.tree.leaves(carry)):
                before, after = jnp.shape(old), jnp.shape(leaves[i])
                if before != after and _spans(before, after):
                    leaves[i] = jnp.broadcast_to(leaves[i], before)
                    narrow[i] = tuple(map(slice, after))
            return jax.tree.unflatten(structure, leaves), y

        _traced(scan, matched, first, *args, **kwargs)
        if not narrow:
            return scan(matched, first, *args, **kwargs)
        leaves, structure = jax.tree.flatten(first)
        fewer = [leaf[narrow[i]] if i in narrow else leaf for i, leaf in enumerate(leaves)]
        first = jax.tree.unflatten(structure, fewer)


def _spans(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether a shape of the same rank has 1 wherever it differs."""
    return len(shape) == len(other) and all(m in (1, n) for n, m in zip(shape, other, strict=True))


def widened(tree: Any) -> Any:
    """A tree with its narrow integers and constants in the widest types enabled."""
    leaves, structure = jax.tree.flatten(tree)
    wide = [_widened(leaf) for leaf in leaves]
    if all(new is old for new, old in zip(wide, leaves, strict=True)):
        return tree
    return jax.tree.unflatten(structure, wide)


def _widened(leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray | np.generic | jax.Array):
        return leaf
    integer = jnp.issubdtype(leaf.dtype, jnp.integer)
    constant = jnp.issubdtype(leaf.dtype, jnp.floating) and not isinstance(leaf, jax.core.Tracer)
    if not integer and not constant:
        return leaf
    dtype = jnp.result_type(int if integer else float)
    return leaf.astype(dtype) if leaf.dtype.itemsize < dtype.itemsize else leaf


class MaskMissing(Messenger):  # type: ignore[misc]
    """Takes the missing entries of observed sites out of the log density."""

    def __init__(self, missing: Mapping[str, Any]) -> None:
        super().__init__()
        self.missing = missing

    def process_message(self, msg: Message) -> None:
        """Mask the missing entries of an observed site."""
        if msg["type"] == "sample" and msg["name"] in self.missing:
            msg["fn"] = masked(msg["fn"], ~self.missing[msg["name"]])


class KeepInside(Messenger):  # type: ignore[misc]
    """Gives sites whose support depends on latent values no density outside of it."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self.names = names

    def process_message(self, msg: Message) -> None:
        """Bound the density of a site."""
        if msg["type"] == "sample" and msg["name"] in self.names:
            msg["fn"] = inside(msg["fn"])

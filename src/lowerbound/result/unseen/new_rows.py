"""What a fit says of new data: local factors, held-out densities, predictive draws."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from numpyro.primitives import Messenger
from scipy.special import logsumexp

from lowerbound.ascent import State, Sweep
from lowerbound.compiled import jit
from lowerbound.compute.engine import Engine, engine_for
from lowerbound.compute.prior_state import curved_blocks, from_prior, narrowed
from lowerbound.cost import mapped
from lowerbound.errors import ArgumentError, NoObservedSiteError, ShapeError
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import Statistics, energy, inputs_of
from lowerbound.joint.multiaffine import row_count
from lowerbound.model import Arguments, Model
from lowerbound.model.closed_over import in_any_precision
from lowerbound.model.dependence import once
from lowerbound.model.looking import Sight, some_sight
from lowerbound.model.program import Message, WholePlates
from lowerbound.result.unseen.drawing import Named

LOCAL_SWEEPS = 100
LOCAL_TOLERANCE = 1e-9


# --------------------------------------------------------------------------------------------------
# Arguments of a new call


def new_call(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    new_args: tuple[Any, ...],
    new_kwargs: Mapping[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the fit with the new ones put in.

    Arguments that are not given anew stay, except data with one row per row of the data plate:
    they belong to the old rows, and become None.
    """
    signature = inspect.signature(model.function)
    old = signature.bind(*args, **kwargs).arguments
    new = signature.bind_partial(*new_args, **new_kwargs).arguments
    rows = rows_in(model)
    merged: dict[str, Any] = {}
    for name, value in old.items():
        stale = any(
            np.ndim(leaf) >= 1 and np.shape(leaf)[0] == rows
            for leaf in jax.tree.leaves(value)
            if isinstance(leaf, np.ndarray | jax.Array) or hasattr(leaf, "shape")
        )
        merged[name] = None if stale else value
    merged.update(new)
    call = inspect.BoundArguments(signature, {})
    call.arguments.update({n: merged[n] for n in signature.parameters if n in merged})
    return call.args, dict(call.kwargs)


def rows_in(model: Model) -> int:
    """The number of rows of the data plate; without one, of the first observed site."""
    if model.data_plate is not None:
        return model.data_plate.size
    shapes = [s.batch_shape for s in model.observed.values() if s.batch_shape]
    return shapes[0][0] if shapes else -1


def row_axes(model: Model) -> dict[str, int]:
    """For every site inside the data plate, the batch axis of the rows.

    Without a plate the leading axis of the observed sites is taken for the rows.
    """
    plate = model.data_plate
    if plate is not None:
        inside = [s for s in model.sites if s.kind != "deterministic" and plate in s.plates]
        return {s.name: len(s.batch_shape) + plate.dim for s in inside}
    observed = [s for s in model.observed.values() if not s.is_factor]
    if not model.observed:
        raise NoObservedSiteError(tuple(model.latent), model.arguments.none)
    lengths = {s.batch_shape[0] if s.batch_shape else 0 for s in observed}
    if len(lengths) != 1 or 0 in lengths:
        raise ArgumentError(
            "The observations have no common rows: a density per row is not defined.\n"
            "Put the observed sites into one numpyro.plate."
        )
    return {s.name: 0 for s in observed}


# --------------------------------------------------------------------------------------------------
# Local factors given global ones


@dataclass(frozen=True)
class Rows:
    """New rows under a fit: their engine, compressed by row weights, and their local blocks."""

    model: Model
    engine: Engine
    local: tuple[int, ...]
    axes: Mapping[str, int]

    @property
    def count(self) -> int:
        """The number of rows."""
        return row_count(self.model, self.axes)

    def data(self) -> dict[str, Any]:
        """The inputs of the program, every row with weight one."""
        return {**inputs_of(self.model), "weights": np.ones(self.count)}

    @property
    def exact(self) -> bool:
        """Whether the local factors are the complete conditionals: one block, and one update."""
        if not self.local:
            return True
        first, *others = self.local
        sequential = self.engine.joint.blocks[first].sequential
        return not (others or sequential or first in curved_blocks(self.engine))

    def sweep(self) -> Sweep:
        """A sweep over the local blocks alone."""
        order = tuple(n for n in self.engine.sweep.order if n in self.local)
        return Sweep(self.engine.family, self.engine.joint.summands, order)

    def solve(
        self,
        arrays: tuple[Array, ...],
        means: Statistics,
        sweeps: int = LOCAL_SWEEPS,
        tolerance: float = LOCAL_TOLERANCE,
    ) -> State:
        """Optimal local factors with the means of the global ones held fixed."""
        start = narrowed(self.engine, arrays, from_prior(self.engine, arrays))
        mixed = tuple(
            start.means[n] if n in self.local else means[n] for n in range(len(start.means))
        )
        state = State(start.naturals, self.engine.cast_tree(mixed))
        if not self.local:
            return state
        sweep = self.sweep()
        if self.exact:
            return sweep(arrays, state)[0]

        def body(carry: tuple[Array, State, Array, Array]) -> tuple[Array, State, Array, Array]:
            t, state, bound, _ = carry
            new, value = sweep(arrays, state)
            return t + 1, new, value, value - bound

        def more(carry: tuple[Array, State, Array, Array]) -> Array:
            t, _, bound, change = carry
            settled = change <= tolerance * jnp.maximum(abs(bound), 1.0)
            return (t < sweeps) & ((t == 0) | ~settled)

        first = (jnp.zeros((), int), state, jnp.asarray(-jnp.inf), jnp.asarray(jnp.inf))
        return jax.lax.while_loop(more, body, first)[1]

    def bound(self, data: Mapping[str, Array], means: Statistics) -> Array:
        """The local ELBO of every row: log p(row | global factors) where `exact`, else below it."""
        arrays = tuple(self.engine.cast(a) for a in self.engine.joint.compress(data))
        state = jax.lax.stop_gradient(self.solve(arrays, means))
        value = self.energy(data, state.means)
        for number in self.local:
            value = value + self.row_entropy(number, state, arrays)
        return value

    def energy(self, data: Mapping[str, Array], means: Statistics) -> Array:
        """The energy of every row: the derivative of the whole energy in the row's weight."""

        def weighted(weights: Array) -> Array:
            compressed = self.engine.joint.compress({**data, "weights": weights})
            return energy(self.engine.joint.summands, compressed, means)

        value: Array = jax.grad(weighted)(data["weights"])
        return value

    def row_entropy(self, number: int, state: State, arrays: tuple[Array, ...]) -> Array:
        """The entropy of a local block's factors, by row."""
        family = self.engine.family.families[number]
        entropy = family.entropy(state.naturals[number], state.means[number])
        return self.by_row(number, entropy, arrays)

    def by_row(self, number: int, each: Array, arrays: tuple[Array, ...]) -> Array:
        """A value of each of a local block's factors, summed by row."""
        block = self.engine.joint.blocks[number]
        if block.presence is not None:
            each = jnp.where(arrays[block.presence], each, 0.0)
        site = next(iter(block.layouts))
        axis = block.layouts[site].batch.index(self.axes[site])
        return each.sum(axis=tuple(a for a in range(each.ndim) if a != axis))


def rows_of(model: Model, dtype: np.dtype[Any]) -> Rows:
    """Prepare new rows: globals and locals in separate blocks, one weight per row."""
    axes = row_axes(model)
    engine = engine_for(model, dtype, weighted=axes, apart=True)
    engine.certified()
    local = tuple(b.number for b in engine.joint.blocks if set(b.sites) & set(model.local))
    return Rows(model, engine, local, axes)


def global_statistics(
    family: MeanField,
    local: tuple[int, ...],
    values: Mapping[str, Array],
    arrays: Sequence[Array] = (),
) -> Statistics:
    """Point statistics of the global blocks; local ones are left empty."""
    return tuple(
        {} if b.number in local else f.statistics({**b.pack(values), **b.constants(arrays)})
        for b, f in zip(family.blocks, family.families, strict=True)
    )


def log_densities(rows: Rows, draws: Mapping[str, Array]) -> Array:
    """Log p(row | z), or its bound, for every draw of the global sites: shape (draws, rows)."""
    key = "log_densities"
    if key not in rows.engine.compiled:
        family, local = rows.engine.family, rows.local

        def every(data: Mapping[str, Array], draws: Mapping[str, Array]) -> Array:
            arrays = rows.engine.joint.compress(data)

            def one(values: Mapping[str, Array]) -> Array:
                return rows.bound(data, global_statistics(family, local, values, arrays))

            if not draws:  # every latent site is local
                return one({})[None]
            densities: Array = mapped(one, draws, most=1, what="one draw")
            return densities

        rows.engine.compiled[key] = jit(every)
    data = {name: jnp.asarray(array) for name, array in rows.data().items()}
    densities: Array = rows.engine.compiled[key](data, dict(draws))
    return densities


def log_mean_exp(values: Array) -> Array:
    """Log of the mean of exp over the leading axis (the log-sum-exp trick, paper section 2.5)."""
    total: Array
    if isinstance(values, jax.core.Tracer):
        total = jax.scipy.special.logsumexp(values, axis=0)
    else:  # by NumPy: nothing is compiled
        total = logsumexp(np.asarray(values), axis=0)
    return total - math.log(values.shape[0])


# --------------------------------------------------------------------------------------------------
# Predictive draws


class Unobserved(Messenger):  # type: ignore[misc]
    """The program with nothing observed: the seed around it draws those sites too.

    NumPyro's `uncondition` asks the program for a random key, and one whose parameters are fixed
    (`rewrite.trees.Fixed`) gives the same in every run.
    """

    def process_message(self, msg: Message) -> None:
        """Take the value away; a law of fewer entries is drawn once for each of the value."""
        if msg["type"] == "sample" and msg["is_observed"]:
            law, shape = msg["fn"], jnp.shape(msg["value"])
            entries = jnp.broadcast_shapes(shape[: len(shape) - law.event_dim], law.batch_shape)
            if entries != law.batch_shape:
                msg["fn"] = law.expand(entries)
            msg["is_observed"], msg["value"] = False, None


def predictive_draws(
    function: Callable[..., Any],
    arguments: Arguments,
    values: Mapping[str, Array],
    key: Array,
    sites: tuple[str, ...] | None,
    count: int,
) -> dict[str, Array]:
    """Draws of the observed sites given `count` draws of latent ones, by running the program."""
    data = {n: jnp.asarray(a) for n, a in arguments.data.items()}
    function = _whole(function)

    def run(
        value: Mapping[str, Array], key: Array, data: Mapping[str, Array], sight: Sight
    ) -> dict[str, Array]:
        args, kwargs = arguments.call({**data, **arguments.seen(sight.names)})
        free = numpyro.handlers.seed(Unobserved(function), jax.random.key(0))
        free = numpyro.handlers.substitute(free, substitute_fn=partial(_of_its_shape, value))
        program = numpyro.handlers.substitute(Unobserved(function), data=dict(value))
        with sight.mode(), Named():
            traced = numpyro.handlers.trace(numpyro.handlers.seed(program, key)).get_trace(
                *args, **kwargs
            )
            shapes = jax.eval_shape(lambda: _values(numpyro.handlers.trace(free), args, kwargs))
        out = {}
        for name, site in traced.items():
            if site["type"] != "sample":
                continue
            if name in value:
                asked, fitted = shapes[name].shape, np.shape(site["value"])
                if len(asked) == len(fitted) and any(map(operator.gt, asked, fitted)):
                    raise ShapeError.of_longer_series(name, np.shape(value[name]), asked)
                continue
            if type(site["fn"]).__name__ == "Unit":
                continue
            if sites is None or name in sites:
                out[name] = site["value"]
        return out

    def every(sight: Sight) -> dict[str, Array]:
        def draws(values: Mapping[str, Array], keys: Array, data: Mapping[str, Array]) -> Any:
            one = partial(run, data=data, sight=sight)
            return mapped(one, values, keys, what="one draw")

        found: dict[str, Array] = once(draws)(dict(values), jax.random.split(key, count), data)
        return found

    with numpyro.validation_enabled(False):
        return some_sight(every, tuple(data))[0]


def _whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """The program as it is fitted: with all rows of its plates, and no seed of its own."""

    def program(*args: Any, **kwargs: Any) -> Any:
        with WholePlates():
            return in_any_precision(function)(*args, **kwargs)

    return program


def _of_its_shape(known: Mapping[str, Array], message: Message) -> Array | None:
    """A value of the shape that the program asks for, whether or not its law can be drawn from."""
    if message["type"] != "sample" or message["name"] not in known:
        return None
    shape = message["fn"].shape(message["kwargs"].get("sample_shape", ()))
    return jnp.zeros(shape, known[message["name"]].dtype)


def _values(program: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all sampled sites of one run."""
    traced = program.get_trace(*args, **kwargs).items()
    return {name: site["value"] for name, site in traced if site["type"] == "sample"}

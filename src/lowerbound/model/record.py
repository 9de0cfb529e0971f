"""One abstract run of a program: what each site is, and a jaxpr of all its numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, jaxprs_in_params
from numpyro.distributions import CategoricalLogits, CategoricalProbs, Distribution

from lowerbound.compiled import traced
from lowerbound.errors import (
    CodeTypeError,
    ParameterSiteError,
    ShapeError,
    SubsampledPlateError,
    UncompiledCheckError,
)
from lowerbound.errors.wording import first_line
from lowerbound.model.density import broadcast_batch, strip
from lowerbound.model.dependence import Inputs, dependence, evaluator
from lowerbound.model.inputs.arguments import Arguments
from lowerbound.model.looking import Sight
from lowerbound.model.program import Inspector, Message, PriorDraw, Subsampled, execute
from lowerbound.model.sites import Plate

_KEY = 0  # position of the random key among the inputs of the jaxpr


@dataclass(frozen=True)
class Entry:
    """One site of a run; `parameters`, `value`, `mask` and `scale` are positions of outputs."""

    name: str
    kind: str
    where: str
    plates: tuple[Plate, ...]
    batch_shape: tuple[int, ...]
    event_shape: tuple[int, ...]
    value: int
    parameters: tuple[int, ...] = ()
    mask: int | None = None
    scale: int | None = None
    base: type[Distribution] | None = None
    base_event_dim: int = 0
    rebuild: Callable[[Sequence[Any]], Distribution] | None = None

    @property
    def is_factor(self) -> bool:
        """Whether the site is a `numpyro.factor`."""
        return self.base is not None and self.base.__name__ == "Unit"


@dataclass(frozen=True)
class Record:
    """The sites of one run and the jaxpr (key, data) -> all parameters, values, masks, scales."""

    entries: tuple[Entry, ...]
    closed: ClosedJaxpr
    names: tuple[str, ...]
    depends: tuple[Inputs, ...]
    sight: Sight
    subsampled: tuple[Subsampled, ...] = ()

    def is_random(self, output: int) -> bool:
        """Whether an output depends on latent values."""
        return _KEY in self.depends[output]

    def is_settled(self, output: int, unsettled: Sequence[str]) -> bool:
        """Whether an output is one number, whatever the latent values and some of the data are."""
        moving = {
            i for i, name in enumerate(self.names, start=1) if name.startswith(tuple(unsettled))
        }
        return not self.is_random(output) and not moving & set(self.depends[output])

    def depending_on(self, argument: str) -> list[int]:
        """The outputs that may depend on a data argument: all, where the program inspects it."""
        if argument not in self.names:
            return list(range(len(self.depends)))
        position = self.names.index(argument) + 1
        return [output for output, inputs in enumerate(self.depends) if position in inputs]

    def used(self) -> set[str]:
        """The data arguments whose values reach the density of some site."""
        reached = frozenset[int]().union(
            *(
                self.depends[output]
                for entry in self.entries
                if entry.kind != "deterministic"
                for output in (*entry.parameters, entry.value, entry.mask, entry.scale)
                if output is not None
            )
        )
        return {name for i, name in enumerate(self.names, start=1) if i in reached}

    def reader(
        self, outputs: Sequence[int], key: jax.Array
    ) -> Callable[[Arguments], dict[int, np.ndarray]]:
        """The numbers of some outputs as a function of the data, compiled once."""
        evaluate = evaluator(self.closed, outputs)

        def read(arguments: Arguments) -> dict[int, np.ndarray]:
            inputs = [key, *(arguments.data[name] for name in self.names)]
            return dict(zip(outputs, evaluate(inputs), strict=True))

        return read

    def filled(self, output: int, filler: int) -> np.ndarray:
        """An output's constant where it is one, otherwise an array of the filler."""
        atom = self.closed.jaxpr.outvars[output]
        if isinstance(atom, Literal):
            return np.asarray(atom.val)
        return np.broadcast_to(np.asarray(filler, atom.aval.dtype), atom.aval.shape)


def record(
    function: Callable[..., Any], arguments: Arguments, sight: Sight, key: jax.Array
) -> Record:
    """Run the program once, abstractly: data and latent values are tracers.

    The data that the program sees are constants of it instead.
    """
    names = tuple(name for name in arguments.data if name not in sight.names)
    entries: list[Entry] = []
    subsampled: dict[str, Subsampled] = {}

    def program(key: jax.Array, data: list[Any]) -> list[Any]:
        inspector = Inspector()
        inspector.subsampled = subsampled
        fixed = arguments.seen(sight.names)
        args, kwargs = arguments.call({**fixed, **dict(zip(names, data, strict=True))})
        with sight.mode():
            messages = execute(function, args, kwargs, inspector, PriorDraw(key))
        # What a prior has taken the place of, as in `random_flax_module`, is no parameter.
        held = {n: w for n, w in inspector.parameters.items() if leaves_of(messages[n])}
        if held:
            raise ParameterSiteError(held)
        outputs: list[Any] = []
        entries.clear()
        for name, message in messages.items():
            if message["type"] in ("sample", "deterministic"):
                entries.append(_entry(message, inspector.where[name], outputs))
        return outputs

    try:
        closed = traced(program)(key, [arguments.data[name] for name in names])
    except (TypeError, ValueError, AssertionError) as error:
        if subsampled and is_about_shapes(error):
            raise SubsampledPlateError(
                *next(iter(subsampled.values())), first_line(error)
            ) from error
        raise
    if "check" in operations_of(closed.jaxpr):
        raise UncompiledCheckError
    depends = tuple(dependence(closed.jaxpr))
    return Record(tuple(entries), closed, names, depends, sight, tuple(subsampled.values()))


def operations_of(jaxpr: Any) -> set[str]:
    """The names of the operations of a program, those within loops and calls included."""
    found = {equation.primitive.name for equation in jaxpr.eqns}
    inner = (part for equation in jaxpr.eqns for part in jaxprs_in_params(equation.params))
    return found.union(*map(operations_of, inner))


def is_about_shapes(error: Exception) -> bool:
    """Whether an exception of a program says that shapes do not fit."""
    text = str(error).lower()
    words = ("incompatible shapes", "broadcast", "contracting dimension", "must have equal shape")
    more = ("mismatch", "shapes do not match", "same shape", "got shape", "concatenate")
    return isinstance(error, ShapeError) or any(word in text for word in (*words, *more))


def _entry(message: Message, where: str, outputs: list[Any]) -> Entry:
    """The static part of a message; its arrays are appended to the outputs."""

    def put(array: Any) -> int:
        outputs.append(array)
        return len(outputs) - 1

    name, value = message["name"], message["value"]
    plates = tuple(
        Plate(frame.name, frame.size, frame.dim)
        for frame in sorted(message["cond_indep_stack"], key=lambda frame: int(frame.dim))
    )
    if message["type"] == "deterministic":
        return Entry(name, "deterministic", where, plates, np.shape(value), (), put(value))
    fn = message["fn"]
    stripped = strip(fn)
    codes = isinstance(stripped.base, CategoricalProbs | CategoricalLogits)
    if codes and message["is_observed"] and jnp.issubdtype(jnp.result_type(value), jnp.floating):
        raise CodeTypeError(name, where, str(jnp.result_type(value)))
    # The record outlives the run: it may hold the leaves that are not numbers, but no tracer.
    bare, aside = _without_traced_fields(stripped.base)
    leaves, structure = jax.tree.flatten(bare)
    arrays = [i for i, leaf in enumerate(leaves) if _is_number(leaf)]
    others = {i: leaf for i, leaf in enumerate(leaves) if i not in arrays}
    fields = tuple(aside)

    def rebuild(parameters: Sequence[Any]) -> Distribution:
        own, apart = parameters[: len(arrays)], parameters[len(arrays) :]
        filled = {**others, **dict(zip(arrays, own, strict=True))}
        found: Distribution = jax.tree.unflatten(structure, [filled[i] for i in sorted(filled)])
        for name, value in zip(fields, apart, strict=True):
            setattr(found, name, value)
        return found

    mask = None if stripped.mask is None else put(stripped.mask)
    return Entry(
        name=name,
        kind="observed" if message["is_observed"] else "latent",
        where=where,
        plates=plates,
        batch_shape=broadcast_batch(message, where),
        event_shape=tuple(fn.event_shape),
        value=put(value),
        parameters=(*(put(leaves[i]) for i in arrays), *map(put, aside.values())),
        mask=mask,
        scale=None if message["scale"] is None else put(message["scale"]),
        base=type(stripped.base),
        base_event_dim=stripped.base.event_dim,
        rebuild=rebuild,
    )


def _without_traced_fields(law: Distribution) -> tuple[Distribution, dict[str, Any]]:
    """A distribution without what it computes beside its parameters, as totals of counts; these."""
    names = type(law).gather_pytree_aux_fields()
    aside = {
        n: getattr(law, n) for n in names if isinstance(getattr(law, n, None), jax.core.Tracer)
    }
    if not aside:
        return law, aside
    bare = copy.copy(law)
    for name in aside:
        setattr(bare, name, None)
    return bare, aside


def leaves_of(message: Message) -> list[Any]:
    """The arrays that a message has for its value."""
    return jax.tree.leaves(message["value"])


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float | np.ndarray | np.generic | jax.Array)

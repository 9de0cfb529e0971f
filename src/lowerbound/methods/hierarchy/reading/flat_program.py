"""A program as one list of operations, the calls in it opened, and parts of it evaluated.

Custom derivatives stay closed: what they hold is only looked into, never differentiated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from lowerbound.compiled.interpreting import bind, interpreted
from lowerbound.compiled.tracing import traced

OPENED = frozenset({"jit", "pjit", "closed_call", "core_call", "remat", "checkpoint"})


@dataclass(frozen=True, eq=False)
class Name:
    """A value of a flat program."""

    number: int
    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return int(np.prod(self.shape, dtype=int))


@dataclass(frozen=True, eq=False)
class Known:
    """A value that is known while a program is read: a literal or a constant."""

    value: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return tuple(np.shape(self.value))

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return int(np.size(self.value))


Atom = Name | Known


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation: its inputs and the names of its outputs."""

    kind: str
    primitive: Any
    params: dict[str, Any]
    inputs: tuple[Atom, ...]
    outputs: tuple[Name, ...]


@dataclass(frozen=True, eq=False)
class FlatProgram:
    """The operations of a program in order, with the names of its inputs and outputs.

    decided: a digest of what the data have decided of the operations.
    """

    inputs: tuple[Name, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[Atom, ...]
    decided: str = ""

    @property
    def makers(self) -> dict[Name, Operation]:
        """The operation that makes each name."""
        return {name: one for one in self.operations for name in one.outputs}

    def values(
        self, wanted: Sequence[Atom], known: Mapping[Name, Any], makers: Mapping[Name, Operation]
    ) -> list[Any]:
        """Some values, from those that are `known`; nothing else is computed."""
        found: dict[Name, Any] = dict(known)
        needed = _needed(wanted, found, makers)
        for one in self.operations:
            if one in needed:
                inputs = [value_of(atom, found) for atom in one.inputs]
                outputs = bind(one.primitive, inputs, one.params)
                for name, value in zip(one.outputs, outputs, strict=True):
                    found.setdefault(name, value)
        return [value_of(atom, found) for atom in wanted]


def value_of(atom: Atom, found: Mapping[Name, Any], *otherwise: Any) -> Any:
    """What is known, or was found for its name; `otherwise`, where given, if nothing was."""
    if isinstance(atom, Known):
        return atom.value
    return found.get(atom, *otherwise) if otherwise else found[atom]


def _needed(
    wanted: Iterable[Atom], known: Mapping[Name, Any], makers: Mapping[Name, Operation]
) -> set[Operation]:
    """The operations that make the wanted names from the known ones."""
    needed: set[Operation] = set()
    open_ = [atom for atom in wanted if isinstance(atom, Name)]
    while open_:
        name = open_.pop()
        if name in known:
            continue
        one = makers[name]
        if one not in needed:
            needed.add(one)
            open_ += [atom for atom in one.inputs if isinstance(atom, Name)]
    return needed


def flattened(closed: ClosedJaxpr) -> FlatProgram:
    """The program with its calls opened, and nothing that its outputs do not need."""
    operations: list[Operation] = []
    count = 0

    def name(aval: Any) -> Name:
        nonlocal count
        count += 1
        return Name(count, tuple(aval.shape), aval.dtype)

    def run(jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Atom]) -> list[Atom]:
        return interpreted(jaxpr, map(Known, consts), inputs, outputs_of, Known)

    def outputs_of(equation: Any, given: list[Atom]) -> Sequence[Atom]:
        inner = opened(equation)
        if inner is not None:
            return run(inner[0], inner[1], given)
        names = tuple(name(variable.aval) for variable in equation.outvars)
        kind = equation.primitive.name
        one = Operation(kind, equation.primitive, equation.params, tuple(given), names)
        operations.append(one)
        return names

    inputs = tuple(name(variable.aval) for variable in closed.jaxpr.invars)
    outputs = run(closed.jaxpr, closed.consts, inputs)
    makers = {name: one for one in operations for name in one.outputs}
    needed = _needed(outputs, dict.fromkeys(inputs), makers)
    return FlatProgram(inputs, tuple(one for one in operations if one in needed), tuple(outputs))


def opened(equation: Any) -> tuple[Any, Sequence[Any]] | None:
    """The program that a call holds, and its constants; None for what is no plain call.

    A polynomial, from JAX 0.12 on an operation of its own, is what its coefficients enter linearly.
    """
    if equation.primitive.name == "polynomial":
        closed = traced(_horner)(*(jnp.zeros(a.aval.shape, a.aval.dtype) for a in equation.invars))
        return closed.jaxpr, closed.consts
    if equation.primitive.name not in OPENED:
        return None
    return held(equation.params, len(equation.invars))


def _horner(x: Any, *coefficients: Any) -> Any:
    total = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = jnp.add(jnp.multiply(total, x), coefficient)
    return total


def held(params: Mapping[str, Any], inputs: int) -> tuple[Any, Sequence[Any]] | None:
    """The program among some parameters that takes so many inputs."""
    for key in ("jaxpr", "call_jaxpr"):
        inner = params.get(key)
        if inner is None:
            continue
        consts = getattr(inner, "consts", ())
        jaxpr = getattr(inner, "jaxpr", inner)
        if len(jaxpr.invars) == inputs:
            return jaxpr, consts
    return None

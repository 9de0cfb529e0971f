"""A traced program as a list of NumPy calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from lowerbound.compiled.host.operations import NUMBERS, kind, operation

# Operations that stand for a program of their own, and the parameter that holds it.
CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}
CALL, NUMBER = 1.5e-6, 4e-9  # seconds of a call of NumPy, and of a number that it computes
USUAL_STEPS = 20  # of a loop that ends by a condition
COMPILED = 1.5e-3  # seconds that the compilation of an operation takes
Step = tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], bool]


class _UnknownError(Exception):
    """An operation that has no counterpart in NumPy."""


@dataclass(frozen=True, eq=False)
class Hosted:
    """A function of some arrays, by calls of NumPy; what the others decide is computed.

    `steps` are calls with the places of what they read and write, `places` what is known, and
    `numbers` counts those that one run computes, `operations` those to compile, inner ones too.
    """

    steps: tuple[Step, ...]
    places: tuple[Any, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    numbers: int
    operations: int

    @cached_property
    def read(self) -> frozenset[int]:
        """The places that anything is read from: keys of random numbers may be there, unread."""
        return frozenset(place for step in self.steps for place in step[1]).union(self.outputs)

    @property
    def seconds(self) -> float:
        """What one run takes on an ordinary core."""
        return CALL * len(self.steps) + NUMBER * self.numbers

    @property
    def compilation(self) -> float:
        """What it would take to compile the program, on an ordinary core."""
        return COMPILED * self.operations

    def __call__(self, *arrays: Any) -> list[np.ndarray]:
        """The outputs of the program."""
        values = list(self.places)
        for place, array in zip(self.inputs, arrays, strict=True):
            values[place] = np.asarray(array) if place in self.read else None
        with np.errstate(all="ignore"):
            _run(self.steps, values)
        return [np.asarray(values[place]) for place in self.outputs]


def _run(steps: Sequence[Step], values: list[Any]) -> None:
    for call, reads, writes, several in steps:
        found = call(*[values[place] for place in reads])
        if several:
            for place, one in zip(writes, found, strict=True):
                values[place] = one
        else:
            values[writes[0]] = found


def hosted(closed: ClosedJaxpr, known: Mapping[int, Any] | None = None) -> Hosted | None:
    """The program as calls of NumPy; None where one of its operations has no counterpart.

    known: inputs, by their number, whose values do not change; what depends on these alone is
    computed once.

    >>> import jax, jax.numpy as jnp
    >>> closed = jax.make_jaxpr(lambda x, y: jnp.sum(jnp.log1p(x) * y))(np.ones(3), np.ones(3))
    >>> run = hosted(closed, {1: np.array([1.0, 0.0, 2.0])})
    >>> float(run(np.zeros(3))[0])
    0.0
    """
    if any(kind(aval) not in NUMBERS for aval in closed.out_avals):
        return None
    writer = _Writer()
    fixed = {} if known is None else known
    places = [
        writer.place(np.asarray(fixed[n]), True) if n in fixed else writer.place(None, False)
        for n in range(len(closed.jaxpr.invars))
    ]
    try:
        with np.errstate(all="ignore"):
            outputs = writer.write(closed.jaxpr, closed.consts, places)
    except _UnknownError:
        return None
    inputs = tuple(place for n, place in enumerate(places) if n not in fixed)
    steps, numbers, operations = writer.needed(outputs)
    return Hosted(steps, tuple(writer.values), inputs, tuple(outputs), numbers, operations)


class _Writer:
    """The steps of a program as they are written, and the values that are known."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.values: list[Any] = []
        self.known: list[bool] = []
        self.sizes: list[tuple[int, int]] = []  # numbers that a step computes, operations in it

    def place(self, value: Any, known: bool) -> int:
        self.values.append(value)
        self.known.append(known)
        return len(self.values) - 1

    def needed(self, outputs: Sequence[int]) -> tuple[tuple[Step, ...], int, int]:
        """The steps that outputs depend on, with the numbers and operations of these."""
        read, kept, numbers, operations = set(outputs), list[Step](), 0, 0
        for step, (computed, inside) in zip(self.steps[::-1], self.sizes[::-1], strict=True):
            if not read.isdisjoint(step[2]):
                read.update(step[1])
                kept.append(step)
                numbers, operations = numbers + computed, operations + inside
        return tuple(kept[::-1]), numbers, operations

    def write(self, jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[int]) -> list[int]:
        """The places of the outputs of a program; its calls are written in place."""
        found: dict[Any, int] = dict(zip(jaxpr.invars, inputs, strict=True))
        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            found[variable] = self.place(_array(const), True)

        def read(atom: Any) -> int:
            if isinstance(atom, Literal):
                return self.place(np.asarray(atom.val, getattr(atom.aval, "dtype", None)), True)
            return found[atom]

        for equation in jaxpr.eqns:
            places = [read(atom) for atom in equation.invars]
            name = equation.primitive.name
            if name in CALLS:
                outputs = self.write(*_program(equation.params[CALLS[name]]), places)
            elif name == "platform_index":
                outputs = [self.place(_platform(equation.params["platforms"]), True)]
            elif name == "cond" and self.known[places[0]]:
                branches = equation.params["branches"]
                number = int(np.clip(self.values[places[0]], 0, len(branches) - 1))
                outputs = self.write(*_program(branches[number]), places[1:])
            else:
                outputs = self._step(equation, places)
            found.update(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _step(self, equation: Any, places: list[int]) -> list[int]:
        call, times, inside = None, 1, 1
        if equation.primitive.name in LOOPS:
            call, times, inside = LOOPS[equation.primitive.name](equation.params)
        elif not equation.effects:
            call = operation(equation)
        if call is None:
            raise _UnknownError
        several = bool(equation.primitive.multiple_results)
        if all(self.known[place] for place in places):
            value = call(*[self.values[place] for place in places])
            return [self.place(one, True) for one in (value if several else [value])]
        writes = tuple(self.place(None, False) for _ in equation.outvars)
        self.steps.append((call, tuple(places), writes, several))
        computed = sum(math.prod(variable.aval.shape) for variable in equation.outvars)
        self.sizes.append((max(computed, times), inside))
        return list(writes)


# How an operation that holds programs is run, the numbers it computes, the operations within it.
Inner = tuple[Callable[..., Any] | None, int, int]
NOT: Final[Inner] = (None, 0, 0)


def _repeated(params: Any) -> Inner:
    """A loop that ends by a condition, and the numbers that it computes, about."""
    count = params["cond_nconsts"], params["body_nconsts"]
    ask, body = hosted(params["cond_jaxpr"]), hosted(params["body_jaxpr"])
    if ask is None or body is None:
        return NOT

    def run(*inputs: Any) -> list[Any]:
        fixed, own = inputs[: count[0]], inputs[count[0] : sum(count)]
        carried = list(inputs[sum(count) :])
        going = ask(*fixed, *carried)[0]
        while going.any():
            moved = body(*own, *carried)
            # Of several loops together, those that have ended stay where they are.
            carried = [_where(going, *one) for one in zip(moved, carried, strict=True)]
            going = ask(*fixed, *carried)[0]
        return carried

    return run, USUAL_STEPS * _work(ask, body), _operations(ask, body)


def _where(going: Any, moved: Any, stayed: Any) -> Any:
    if going.all():
        return moved
    return np.where(
        going.reshape(going.shape + (1,) * (np.ndim(moved) - going.ndim)), moved, stayed
    )


def _scanned(params: Any) -> Inner:
    """A loop over the rows of arrays, and the numbers that it computes."""
    if "num_consts" not in params:  # of another JAX
        return NOT
    consts, carries, length = params["num_consts"], params["num_carry"], params["length"]
    body, backwards = hosted(params["jaxpr"]), params["reverse"]
    shapes = [(length, *aval.shape) for aval in params["jaxpr"].out_avals[carries:]]
    if body is None:
        return NOT

    def run(*inputs: Any) -> list[Any]:
        fixed, carried = inputs[:consts], list(inputs[consts : consts + carries])
        rows, kept = inputs[consts + carries :], list[Any]()
        for n in reversed(range(length)) if backwards else range(length):
            found = body(*fixed, *carried, *(array[n] for array in rows))
            carried = found[:carries]
            kept.append(found[carries:])
        kept = kept[::-1] if backwards else kept
        each = [np.asarray([one[k] for one in kept]).reshape(s) for k, s in enumerate(shapes)]
        return [*carried, *each]

    return run, length * _work(body), _operations(body)


def _branched(params: Any) -> Inner:
    """One of several programs, and the numbers that the longest computes."""
    branches = [hosted(branch) for branch in params["branches"]]
    programs = [branch for branch in branches if branch is not None]
    if len(programs) < len(branches):
        return NOT

    def run(which: Any, *inputs: Any) -> list[Any]:
        return programs[int(np.clip(which, 0, len(programs) - 1))](*inputs)

    return run, max(map(_work, programs)), _operations(*programs)


def _work(*programs: Hosted) -> int:
    """The numbers that would take as long as one run of programs."""
    return int(sum(program.seconds for program in programs) / NUMBER)


def _operations(*programs: Hosted) -> int:
    return 1 + sum(program.operations for program in programs)


LOOPS: dict[str, Callable[[Any], Inner]] = {
    "while": _repeated,
    "scan": _scanned,
    "cond": _branched,
}


def _program(inner: Any) -> tuple[Jaxpr, Sequence[Any]]:
    return (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())


def _platform(platforms: Sequence[Sequence[str] | None]) -> np.ndarray:
    """Which of several programs, each for some kinds of devices, is that of a processor."""
    found = [n for n, kinds in enumerate(platforms) if kinds is None or "cpu" in kinds]
    if not found:
        raise _UnknownError
    return np.asarray(found[0], np.int32)


def _array(const: Any) -> np.ndarray:
    if hasattr(const, "dtype") and not isinstance(const.dtype, np.dtype):
        raise _UnknownError  # a key of random numbers, say
    return np.asarray(const)

"""Programs with equal operations abreast: a loop of Python as a few operations on arrays.

A Python loop over sites or rows traces to as many copies of its operations, and whatever reads,
differentiates or compiles the program pays for each. Copies that do not wait for each other are
done at once here, on stacked operands; long sums become sums over an axis. The program computes the
same numbers, in another order of addition.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal

from lowerbound.compiled.copies import FEWEST, Copies, Group, Node, copies_in, is_plain
from lowerbound.compiled.interpreting import bind

LONG: Final = 200  # operations from which on copies are looked for
_HOLDERS: Final = {"jit", "pjit", "closed_call", "remat2", "checkpoint", "scan", "while", "cond"}
_KNOWN: WeakKeyDictionary[ClosedJaxpr, ClosedJaxpr | None] = WeakKeyDictionary()  # None: itself
_SCOPE: Final = "abreast"


def abreast(closed: ClosedJaxpr, told_apart: int = 0) -> ClosedJaxpr:
    """The program with its copies abreast; itself where it is short, or has few of them.

    Operations are copies of each other only where they depend on the same of the first
    `told_apart` inputs.

    >>> function = lambda a, y: sum((y[t + 1] - a * y[t]) ** 2 for t in range(99))
    >>> closed = jax.make_jaxpr(function)(0.5, np.ones(100))
    >>> len(closed.jaxpr.eqns) > 500 > 20 > len(abreast(closed).jaxpr.eqns)
    True
    """
    closed = _within(closed)
    if len(closed.jaxpr.eqns) < LONG:
        return closed
    plan = copies_in(closed.jaxpr, told_apart)
    if 2 * plan.operations > len(closed.jaxpr.eqns):
        return closed
    shapes = [
        jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype, weak_type=v.aval.weak_type)  # type: ignore[no-untyped-call]
        for v in closed.jaxpr.invars
    ]
    wide = any(v.aval.dtype.itemsize == 8 for v in (*closed.jaxpr.invars, *closed.jaxpr.outvars))
    with jax.enable_x64(wide or jnp.zeros(()).dtype.itemsize == 8):
        found = jax.make_jaxpr(lambda *args: _Run(closed, plan, args).outputs())(*shapes)
    if list(map(_kind, found.out_avals)) != list(map(_kind, closed.out_avals)):
        return closed  # loops want of their steps exactly what they got
    return _with_lines(found, plan.nodes)


def _kind(aval: Any) -> tuple[Any, ...]:
    return aval.shape, aval.dtype, aval.weak_type


def _within(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with the programs of its loops, branches and calls rewritten."""

    def changed(value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            if value not in _KNOWN:  # one program stays one, and is compiled once
                found = abreast(value)
                _KNOWN[value] = None if found is value else found
            return _KNOWN[value] or value
        if isinstance(value, tuple) and any(isinstance(one, ClosedJaxpr) for one in value):
            every = tuple(map(changed, value))
            return value if all(map(operator.is_, every, value)) else every
        return value

    equations = list(closed.jaxpr.eqns)
    for number, equation in enumerate(equations):
        if equation.primitive.name in _HOLDERS:
            params = {name: changed(value) for name, value in equation.params.items()}
            if any(params[name] is not value for name, value in equation.params.items()):
                equations[number] = equation.replace(params=params)
    if all(map(operator.is_, equations, closed.jaxpr.eqns)):
        return closed
    return ClosedJaxpr(closed.jaxpr.replace(eqns=equations), closed.consts)


class _Run:
    """One run of the program, group by group."""

    def __init__(self, closed: ClosedJaxpr, plan: Copies, args: Sequence[Any]) -> None:
        self.jaxpr, self.plan = closed.jaxpr, plan
        self.values: dict[Any, Any] = dict(zip(self.jaxpr.constvars, closed.consts, strict=True))
        self.values.update(zip(self.jaxpr.invars, args, strict=True))
        self.stacks: dict[tuple[Any, int], Any] = {}  # of a group, or of inputs of one shape
        self.place: dict[Any, tuple[tuple[Any, int], int]] = {}  # of a variable in its stack
        self.known: dict[tuple[int, ...], Any] = {}
        by_kind: dict[Any, list[Any]] = {}
        for v in self.jaxpr.invars:
            if is_plain(v.aval):
                by_kind.setdefault(_kind(v.aval), []).append(v)
        for kind, own in by_kind.items():
            if len(own) >= FEWEST:
                self.place.update({v: ((kind, 0), place) for place, v in enumerate(own)})
        self.inputs = by_kind
        done: set[int] = set()
        for number, node in enumerate(plan.nodes):
            if node.group is not None and id(node.group) in done:
                continue
            with jax.named_scope(f"{_SCOPE}{number}"):
                if node.group is not None:
                    done.add(id(node.group))
                    self.copies(node.group)
                elif node.summed:
                    self.values[node.equation.outvars[0]] = self.total(node.reads)
                elif node.joins:
                    self.values[node.equation.outvars[0]] = self.joined(node)
                else:
                    equation = node.equation
                    given = [self.one(atom) for atom in node.reads]
                    found = bind(equation.primitive, given, equation.params)
                    self.values.update(zip(equation.outvars, found, strict=True))

    def outputs(self) -> list[Any]:
        """The outputs of the program."""
        return [self.one(atom) for atom in self.plan.outputs]

    def one(self, atom: Any) -> Any:
        """The value of a variable by itself."""
        if isinstance(atom, Literal):
            return atom.val
        if atom not in self.values:
            stack, place = self.place[atom]
            self.values[atom] = lax.index_in_dim(self.stacks[stack], place, keepdims=False)
        return self.values[atom]

    def copies(self, group: Group) -> None:
        """Do an operation for all its copies at once."""
        equations = [node.equation for node in group.nodes]
        first = equations[0]
        if first.primitive.name == "slice":
            found = [_slices(self.one(group.nodes[0].reads[0]), equations)]
        else:
            reads = zip(*(node.reads for node in group.nodes), strict=True)
            columns = [self.column(atoms) for atoms in reads]
            axes = [axis for _, axis in columns]
            given = [value for value, _ in columns]
            found = jax.vmap(lambda *args: bind(first.primitive, args, first.params), axes)(*given)
        for output, stacked in enumerate(found):
            self.stacks[group, output] = stacked
            for place, equation in enumerate(equations):
                self.place[equation.outvars[output]] = (group, output), place

    def joined(self, node: Node) -> Any:
        """Many arrays of one shape in one, along one of its axes."""
        stacked, shared = self.column(node.reads)
        if shared is None:
            stacked = jnp.broadcast_to(stacked, (len(node.reads), *jnp.shape(stacked)))
        axis = node.equation.params.get("axis", node.equation.params.get("dimension"))
        whole = jnp.moveaxis(stacked, 0, axis)
        aval = node.equation.outvars[0].aval
        return lax.convert_element_type(whole.reshape(aval.shape), aval.dtype)

    def column(self, atoms: Sequence[Any]) -> tuple[Any, int | None]:
        """One operand of all copies, along a leading axis; None for one that they share."""
        if all(isinstance(atom, Literal) for atom in atoms):
            numbers = [np.asarray(atom.val) for atom in atoms]
            if all(np.array_equal(number, numbers[0]) for number in numbers):
                return atoms[0].val, None
            return jnp.asarray(np.stack(numbers), atoms[0].aval.dtype), 0
        if all(atom is atoms[0] for atom in atoms):
            return self.one(atoms[0]), None
        return self.stacked(atoms), 0

    def stacked(self, atoms: Sequence[Any]) -> Any:
        """The values of some variables along a leading axis."""
        key = tuple(map(id, atoms))
        if key in self.known:
            return self.known[key]
        places = [None if isinstance(a, Literal) else self.place.get(a) for a in atoms]
        stacks = {None if place is None else place[0] for place in places}
        if len(stacks) == 1 and None not in stacks:
            whole = self.whole(places[0][0])  # type: ignore[index]
            found = _taken(whole, np.array([place[1] for place in places]))  # type: ignore[index]
        else:
            found = lax.concatenate([*self.pieces(atoms, places)], 0)
        self.known[key] = found
        return found

    def pieces(self, atoms: Sequence[Any], places: Sequence[Any]) -> Iterable[Any]:
        """Runs of variables that lie one after another in a stack, and single ones."""
        start = 0
        while start < len(atoms):
            end = start + 1
            first = places[start]
            while end < len(atoms) and atoms[end] is atoms[start]:
                end += 1
            if end > start + 1:
                one = self.one(atoms[start])
                yield jnp.broadcast_to(one, (end - start, *jnp.shape(one)))
                start = end
                continue
            if first is not None:
                while end < len(atoms) and places[end] == (first[0], first[1] + end - start):
                    end += 1
            if first is None or end == start + 1:
                one = jnp.asarray(self.one(atoms[start]), atoms[start].aval.dtype)
                yield jnp.expand_dims(one, 0)
            else:
                yield lax.slice_in_dim(self.whole(first[0]), first[1], first[1] + end - start)
            start = end

    def whole(self, stack: tuple[Any, int]) -> Any:
        """A stack; that of the inputs is made when it is first asked for."""
        if stack not in self.stacks:
            inputs = [jnp.expand_dims(self.values[v], 0) for v in self.inputs[stack[0]]]
            self.stacks[stack] = lax.concatenate(inputs, 0)
        return self.stacks[stack]

    def total(self, atoms: Sequence[Any]) -> Any:
        """The sum of many variables: of those of one stack along its axis."""
        together: dict[Any, list[Any]] = {}
        for atom in atoms:
            place = None if isinstance(atom, Literal) else self.place.get(atom)
            together.setdefault(None if place is None else place[0], []).append(atom)
        parts: list[Any] = []
        for stack, own in together.items():
            if stack is None or len(own) == 1:
                parts += [self.one(atom) for atom in own]
            else:
                parts.append(jnp.sum(self.stacked(own), axis=0))
        whole = parts[0]
        for part in parts[1:]:
            whole = lax.add(*map(jnp.asarray, (whole, part)))
        return whole


def _taken(whole: Any, places: np.ndarray) -> Any:
    """Some entries of a leading axis."""
    steps = np.unique(np.diff(places))
    if len(steps) == 1 and steps[0] > 0:
        first, last, step = int(places[0]), int(places[-1]), int(steps[0])
        if (first, last, step) == (0, len(whole) - 1, 1):
            return whole
        return lax.slice_in_dim(whole, first, last + 1, step)
    return jnp.take(whole, places, axis=0, mode="clip")


def _slices(operand: Any, equations: Sequence[Any]) -> Any:
    """Windows of one size in one array, along a leading axis."""
    starts = np.array([e.params["start_indices"] for e in equations])
    sizes = equations[0].outvars[0].aval.shape
    moving = [axis for axis in range(len(sizes)) if np.ptp(starts[:, axis])]
    if len(moving) == 1 and sizes[moving[0]] == 1:
        axis = moving[0]
        limits = [int(s) + size for s, size in zip(starts[0], sizes, strict=True)]
        limits[axis] = operand.shape[axis]
        begin = [0 if d == axis else int(s) for d, s in enumerate(starts[0])]
        whole = jnp.moveaxis(lax.slice(operand, begin, limits), axis, 0)
        rows = _taken(whole, starts[:, axis])
        return jnp.expand_dims(rows, axis + 1)
    return jax.vmap(lambda start: lax.dynamic_slice(operand, start, sizes))(starts)


def _with_lines(closed: ClosedJaxpr, nodes: list[Node]) -> ClosedJaxpr:
    """The program whose operations tell the user's lines that they come from."""

    def lined(equation: Any) -> Any:
        named = re.search(rf"{_SCOPE}(\d+)", str(equation.source_info.name_stack))
        if named is None:
            return equation
        return equation.replace(source_info=nodes[int(named[1])].equation.source_info)

    equations = [lined(equation) for equation in closed.jaxpr.eqns]
    return ClosedJaxpr(closed.jaxpr.replace(eqns=equations), closed.consts)

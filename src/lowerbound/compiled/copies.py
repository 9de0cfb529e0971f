"""Which operations of a program are copies of each other, none of which waits for another."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

FEWEST: Final = 8  # copies, or summands, that are worth an axis
LARGEST: Final = 4096  # numbers of one result that is stacked
# What only looks at an input, and can be done before all else.
_VIEWS: Final = {"slice", "squeeze", "reshape", "expand_dims", "broadcast_in_dim"}
_JOINS: Final = {"stack", "concatenate"}
# Parameters that are told apart by the programs beside them.
_FUNCTIONS: Final = {"jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "bwd", "debug_info"}


@dataclass(eq=False)
class Node:
    """An operation, or a sum of many summands: what is read, and of which group it is."""

    equation: Any  # the operation; of a sum, the last addition
    reads: Sequence[Any]
    number: int
    summed: bool = False
    order: tuple[int, int] = (0, 0)  # when it is done: all that it reads is done before
    depends: int = 0  # which of the inputs that are told apart it depends on, as bits
    group: Group | None = None
    place: int = 0  # in its group

    @property
    def joins(self) -> bool:
        """Whether it puts many arrays of one shape into one."""
        same = len({atom.aval.shape for atom in self.reads}) == 1
        long = len(self.reads) >= FEWEST and self.equation.primitive.name in _JOINS
        return long and same and is_plain(self.reads[0].aval)

    @property
    def variables(self) -> list[Any]:
        """What it reads that is no number of the program's text."""
        return [atom for atom in self.reads if not isinstance(atom, Literal)]


@dataclass(eq=False)
class Group:
    """Copies of one operation, none of which waits for another."""

    nodes: list[Node]


@dataclass(frozen=True, eq=False)
class Copies:
    """A program's operations, in order, their groups, and its outputs."""

    nodes: list[Node]
    groups: list[Group]
    outputs: list[Any]

    @property
    def operations(self) -> int:
        """About how many operations there will be."""
        return sum(node.group is None for node in self.nodes) + 4 * len(self.groups)


def copies_in(jaxpr: Jaxpr, told_apart: int) -> Copies:
    """The operations in an order in which they can be done, and the groups of copies."""
    signatures = _Signatures()
    nodes, outputs = _nodes(jaxpr, signatures)
    maker = {v: node for node in nodes for v in node.equation.outvars}
    level = dict.fromkeys(nodes, 0)
    for node in reversed(nodes):  # the steps to the end of the program
        for atom in node.variables:
            if atom in maker:
                level[maker[atom]] = max(level[maker[atom]], level[node] + 1)
    depth: dict[Node, int] = {}
    depends: dict[Any, int] = {v: 1 << i for i, v in enumerate(jaxpr.invars[:told_apart])}
    for node in nodes:
        steps = 0 if node.equation.primitive.name in _VIEWS else -1
        for atom in node.variables:
            node.depends |= depends.get(atom, 0)
            if atom in maker:
                above = depth.get(maker[atom], -1)
                steps = -1 if above < 0 or steps < 0 else max(steps, above + 1)
        if steps >= 0:
            depth[node] = steps
        node.order = (0, steps) if steps >= 0 else (1, -level[node])
        depends.update(dict.fromkeys(node.equation.outvars, node.depends))
    nodes.sort(key=lambda node: (node.order, node.number))
    groups: list[Group] = []
    for _, abreast in itertools.groupby(nodes, key=lambda node: node.order):
        found: dict[object, list[Node]] = {}
        for node in abreast:
            key = signatures.of_copies(node)
            if key is not None:
                sources = tuple(_source(atom, maker) for atom in node.reads)
                found.setdefault((node.depends, key, sources), []).append(node)
        groups += [_group(own, maker) for own in found.values() if len(own) >= FEWEST]
    return Copies(nodes, groups, outputs)


def _source(atom: Any, maker: Mapping[Any, Node]) -> object:
    """Where an operand comes from: copies read what copies have made, or what stands alone."""
    if isinstance(atom, Literal):
        return "number"
    node = maker.get(atom)
    if node is None or node.group is None:
        return "one"
    return node.group, node.equation.outvars.index(atom)


def _group(nodes: list[Node], maker: Mapping[Any, Node]) -> Group:
    """Copies as a group: in the order of the rows of an array where they read these."""
    if nodes[0].equation.primitive.name == "slice":
        nodes = sorted(nodes, key=lambda node: node.equation.params["start_indices"])
    elif all(len(n.variables) == 1 and n.variables[0] in maker for n in nodes):
        nodes = sorted(nodes, key=lambda node: maker[node.variables[0]].place)
    group = Group(nodes)
    for place, node in enumerate(nodes):
        node.group, node.place = group, place
    return group


def _nodes(jaxpr: Jaxpr, signatures: _Signatures) -> tuple[list[Node], list[Any]]:
    """The operations that the outputs need, each once, and what the outputs are then.

    The additions of a long sum are one node.
    """
    same: dict[Any, Any] = {}
    seen: dict[object, Any] = {}
    every: list[Node] = []
    for number, equation in enumerate(jaxpr.eqns):
        reads = [a if isinstance(a, Literal) else same.get(a, a) for a in equation.invars]
        key = None if equation.effects else signatures.of_results(equation, reads)
        first = seen.setdefault(key, equation)
        if key is None or first is equation:
            every.append(Node(equation, reads, number))
        else:
            same.update(zip(equation.outvars, first.outvars, strict=True))
    outputs = [a if isinstance(a, Literal) else same.get(a, a) for a in jaxpr.outvars]
    needed = {v for v in outputs if not isinstance(v, Literal)}
    final = frozenset(needed)
    readers: dict[Any, list[Node]] = {}
    kept = []
    for node in reversed(every):
        if node.equation.effects or any(v in needed for v in node.equation.outvars):
            kept.append(node)
            for atom in node.variables:
                needed.add(atom)
                readers.setdefault(atom, []).append(node)
    return _summed(kept[::-1], readers, final), outputs


def _summed(nodes: list[Node], readers: dict[Any, list[Node]], final: frozenset[Any]) -> list[Node]:
    """The operations with the additions of every long sum in one."""
    additions = {
        node.equation.outvars[0]: node
        for node in nodes
        if node.equation.primitive.name == "add"
        and np.issubdtype(node.equation.outvars[0].aval.dtype, np.floating)
    }

    def is_part(atom: Any) -> bool:
        """Whether it is an addition that is read once, and by another."""
        if isinstance(atom, Literal) or atom not in additions or atom in final:
            return False
        own = readers[atom]
        return len(own) == 1 and own[0].equation.outvars[0] in additions

    inside: set[Node] = set()
    for variable, node in additions.items():
        if is_part(variable):
            continue
        leaves, within, waiting = [], [], list(reversed(node.reads))
        while waiting:
            atom = waiting.pop()
            if is_part(atom):
                within.append(additions[atom])
                waiting += reversed(additions[atom].reads)
            else:
                leaves.append(atom)
        if len(leaves) >= FEWEST:
            inside.update(within)
            node.reads, node.summed = leaves, True
    return [node for node in nodes if node not in inside]


class _Signatures:
    """What operations must have in common to be copies of each other."""

    def __init__(self) -> None:
        self.texts: dict[int, tuple[Any, str]] = {}

    def of_results(self, equation: Any, reads: Sequence[Any]) -> object:
        """A key that operations with the same results share."""
        given = tuple(self.number(a) if isinstance(a, Literal) else a for a in reads)
        return equation.primitive.name, self.params(equation), given

    def of_copies(self, node: Node) -> object:
        """A key that copies share; None for what is not put abreast."""
        equation = node.equation
        outputs = [v.aval for v in equation.outvars]
        given = [atom.aval for atom in node.reads]
        if (
            node.summed
            or node.joins
            or equation.effects
            or not all(map(is_plain, (*outputs, *given)))
        ):
            return None
        if equation.primitive.name == "slice":
            if set(equation.params["strides"] or (1,)) != {1}:
                return None
            return "slice", node.reads[0], outputs[0].shape
        shapes = tuple((aval.shape, aval.dtype, aval.weak_type) for aval in given)
        return equation.primitive.name, self.params(equation), shapes

    def params(self, equation: Any) -> object:
        """The parameters of an operation."""
        named = sorted(equation.params.items())
        return tuple((name, self.text(value)) for name, value in named if name not in _FUNCTIONS)

    def number(self, literal: Any) -> object:
        """A number of the program's text, exactly."""
        array = np.asarray(literal.val)
        return array.tobytes(), str(literal.aval)

    def text(self, value: Any) -> object:
        """A parameter as a key."""
        if isinstance(value, ClosedJaxpr) and value.consts:
            return id(value)
        if isinstance(value, ClosedJaxpr | Jaxpr):
            known = self.texts.get(id(value))
            if known is None:
                jaxpr = value.jaxpr if isinstance(value, ClosedJaxpr) else value
                source = getattr(jaxpr.debug_info, "func_src_info", "")
                known = self.texts[id(value)] = value, f"{source} {jaxpr}"
            return known[1]
        try:
            hash(value)
        except TypeError:
            return id(value)
        return type(value), value


def is_plain(aval: Any) -> bool:
    """Whether values are numbers, and few enough to be stacked."""
    numbers = hasattr(aval, "shape") and not jnp.issubdtype(aval.dtype, jax.dtypes.extended)
    return numbers and int(np.prod(aval.shape)) <= LARGEST

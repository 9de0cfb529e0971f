"""What a parameter of a site is computed from: its equations, back to the sites before it.

An augmentation may need what a parameter was made of: the predictor behind a probability, the terms
behind their log-sum. The program is traced up to the site with the earlier sites as inputs, and
every intermediate result is a node whose value can be had where the site is rewritten.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from numpyro import handlers
from numpyro.primitives import Messenger

from lowerbound.compiled import traced
from lowerbound.compiled.interpreting import interpreted
from lowerbound.model.density import strip

INLINED = ("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint")
_ELEMENTWISE = (
    "abs add and clamp convert_element_type copy div eq erf erf_inv erfc exp expm1 ge gt "
    "integer_pow is_finite le log log1p logistic lt max min mul ne neg not or pow select_n sign "
    "sqrt square stop_gradient sub tanh"
)
ELEMENTWISE = frozenset(_ELEMENTWISE.split())


@dataclass(eq=False)
class Step:
    """An equation on nodes; its results are computed when the first of them is asked for."""

    equation: Any
    inputs: tuple[Node, ...]
    results: list[Any] | None = None

    def run(self, *inputs: Any) -> list[Any]:
        """The equation's results at the given inputs."""
        primitive = self.equation.primitive
        bound = primitive.get_bind_params(self.equation.params)
        functions, parameters = bound if isinstance(bound, tuple) else ((), bound)
        found = primitive.bind(*functions, *inputs, **parameters)
        return list(found) if primitive.multiple_results else [found]


_counter = itertools.count()


@dataclass(eq=False)
class Node:
    """An array of the program: an input or a constant, or a result of a step."""

    known: Any = None
    step: Step | None = None
    position: int = 0
    depends: bool = False  # on the latent sites
    number: int = field(default_factory=lambda: next(_counter))

    @property
    def operation(self) -> str:
        """The primitive that made it; "" for inputs and constants."""
        return "" if self.step is None else str(self.step.equation.primitive.name)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of the primitive."""
        return {} if self.step is None else self.step.equation.params

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that the step works on."""
        return () if self.step is None else self.step.inputs

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        if self.step is None:
            return tuple(np.shape(self.known))
        return tuple(self.step.equation.outvars[self.position].aval.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its entries."""
        if self.step is None:
            found: np.dtype[Any] = np.dtype(jax.numpy.result_type(self.known))
        else:
            found = np.dtype(self.step.equation.outvars[self.position].aval.dtype)
        return found

    @property
    def value(self) -> Any:
        """The array itself, in the trace that asks for it."""
        todo = [self]
        while todo:
            step = todo[-1].step
            if step is None or step.results is not None:
                todo.pop()
                continue
            missing = [n for n in step.inputs if n.step is not None and n.step.results is None]
            if missing:
                todo += missing
                continue
            step.results = step.run(*(n._ready() for n in step.inputs))
        return self._ready()

    def _ready(self) -> Any:
        if self.step is None:
            return self.known
        assert self.step.results is not None
        return self.step.results[self.position]

    def number_everywhere(self) -> np.ndarray | None:
        """The one number in all entries of a constant; None where there is no such number."""
        if self.depends:
            return None
        if self.operation in ("broadcast_in_dim", "reshape", "copy") and len(self.inputs) == 1:
            return self.inputs[0].number_everywhere()
        if self.operation in ELEMENTWISE:
            given = [n.number_everywhere() for n in self.inputs]
            if any(g is None for g in given):
                return None
            assert self.step is not None
            with jax.ensure_compile_time_eval():
                return np.asarray(self.step.run(*given)[self.position])
        if self.step is not None or isinstance(self.known, jax.core.Tracer):
            return None
        array = np.asarray(self.known)
        same = array.size > 0 and bool((array == array.flat[0]).all())
        return array.flat[0] if same else None


def node_of(closed: ClosedJaxpr, inputs: list[Any]) -> list[Node]:
    """The outputs of a jaxpr as nodes; its calls are inlined."""
    start = [Node(value, depends=True) for value in inputs]
    return _outputs(closed.jaxpr, [Node(c) for c in closed.consts], start)


def _outputs(jaxpr: Jaxpr, constants: list[Node], inputs: list[Node]) -> list[Node]:
    def nodes(equation: Any, given: list[Node]) -> list[Node]:
        inner = equation.params.get("jaxpr") if equation.primitive.name in INLINED else None
        if inner is not None:
            own = [Node(c) for c in getattr(inner, "consts", ())]
            return _outputs(getattr(inner, "jaxpr", inner), own, given)
        step = Step(equation, tuple(given))
        depends = any(n.depends for n in given)
        count = range(len(equation.outvars))
        return [Node(step=step, position=i, depends=depends) for i in count]

    return interpreted(jaxpr, constants, inputs, nodes, lambda value: Node(np.asarray(value)))


# --------------------------------------------------------------------------------------------------
# The program up to a site


@dataclass(frozen=True)
class Past:
    """A run of a program that has come to a site: what was called, and the values drawn so far."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    values: Mapping[str, Any]

    def parameter(self, site: str, name: str) -> Node:
        """A parameter of the law of `site`, as a node over the sites before it."""
        names = list(self.values)

        def compute(*values: Any) -> Any:
            law: Any = None
            try:
                with handlers.block(), _Until(site, dict(zip(names, values, strict=True))):
                    self.function(*self.args, **self.kwargs)
            except _Reached as reached:
                law = reached.law
            return getattr(strip(law).base, name)

        given = [jax.numpy.asarray(self.values[n]) for n in names]
        (node,) = node_of(traced(compute)(*given), given)
        return node


class _Reached(Exception):  # noqa: N818
    """Carries the law of the site out of the program."""

    def __init__(self, law: Any) -> None:
        super().__init__()
        self.law = law


class _Until(Messenger):  # type: ignore[misc]
    """Gives earlier sites their values and stops at a site."""

    def __init__(self, site: str, values: Mapping[str, Any]) -> None:
        super().__init__()
        self.site, self.given = site, values

    def process_message(self, msg: dict[str, Any]) -> None:
        """Stop, or give the value."""
        if msg["type"] == "prng_key" and msg["value"] is None:
            msg["value"] = jax.random.key(0)
        if msg["type"] != "sample":
            return
        if msg["name"] == self.site:
            raise _Reached(msg["fn"])
        if msg["value"] is None:
            msg["value"] = self.given[msg["name"]]


# --------------------------------------------------------------------------------------------------
# Parts of a program


def between(first: Node, last: Node) -> list[Node] | None:
    """The nodes from `first` to `last` in order, if all that enters besides is constant."""
    found: dict[int, Node] = {}
    todo = [last]
    while todo:
        node = todo.pop()
        if node is first or not node.depends or node.number in found:
            continue
        if node.step is None:
            return None
        found[node.number] = node
        todo += node.inputs
    return [found[number] for number in sorted(found)]


def replay(first: Node, last: Node, value: np.ndarray) -> np.ndarray | None:
    """The value of `last` where `first` takes the given value; None where more enters.

    `value` may be a vector of points where `last` is an elementwise function of `first`.
    """
    inside = between(first, last)
    if inside is None:
        return None
    known: dict[int, Any] = {first.number: value}
    points = value.shape != first.shape
    with jax.ensure_compile_time_eval():
        for node in inside:
            assert node.step is not None
            given = []
            for n in node.inputs:
                if n.number not in known:
                    number = n.number_everywhere()
                    if number is None:
                        return None
                    shape = value.shape if points else n.shape
                    known[n.number] = np.broadcast_to(np.asarray(number, n.dtype), shape)
                given.append(jax.numpy.asarray(known[n.number]))
            known[node.number] = node.step.run(*given)[node.position]
    return np.asarray(known[last.number])


def elementwise_sources(node: Node) -> list[Node]:
    """The nodes of which `node` is a scalar function in every entry, nearest first."""
    found: list[Node] = []
    edge = {node.number: node}
    while True:
        last = edge.pop(max(edge))
        if last.operation not in ELEMENTWISE:
            return found
        for n in last.inputs:
            if n.depends:
                edge[n.number] = n
            elif n.number_everywhere() is None:
                return found
        if len(edge) != 1:
            continue
        (only,) = edge.values()
        if only.shape != node.shape:
            return found
        found.append(only)

"""Parameters (`numpyro.param`) of a program: where they are, and the program as a function of them.

Made data arguments of the program, parameters need nothing more: everything derived from the
program is then a function of their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import IdentityTransform, Transform
from numpyro.primitives import Messenger

from lowerbound.compiled import traced
from lowerbound.errors import ArgumentError, NoLatentSiteError, UnsupportedModelError
from lowerbound.errors.wording import prior_or_fixed
from lowerbound.model import Model, trace_model
from lowerbound.model.checks.validate import describe
from lowerbound.model.dependence import evaluator
from lowerbound.model.inputs.arguments import split_arguments
from lowerbound.model.looking import Sight, least_sight
from lowerbound.model.program import Inspector, Message, PriorDraw, execute
from lowerbound.rewrite.signature import takes_first
from lowerbound.rewrite.trees import Layout, is_float, is_key, named_arrays, with_values

FURTHEST = 100.0  # unconstrained numbers beyond which a constrained parameter is on its edge


@dataclass(frozen=True, eq=False)
class Parameter:
    """One parameter of a program: its starting value, and the set that it lies in."""

    name: str
    initial: np.ndarray
    constraint: Any
    where: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its value."""
        return self.initial.shape

    @property
    def transform(self) -> Transform:
        """The map from unconstrained numbers to values."""
        return biject_to(self.constraint)

    @property
    def is_free(self) -> bool:
        """Whether every real number is a value of it."""
        return isinstance(self.transform, IdentityTransform)

    @property
    def unconstrained_shape(self) -> tuple[int, ...]:
        """The shape of its unconstrained numbers."""
        return tuple(self.transform.inverse_shape(self.shape))

    @property
    def key(self) -> tuple[object, ...]:
        """What a compiled program depends on: all but the starting value."""
        leaves, structure = jax.tree.flatten(self.constraint)
        numbers = tuple((np.shape(a), np.asarray(a).tobytes()) for a in leaves)
        return self.name, self.shape, str(structure), type(self.constraint), numbers

    def at(self, value: Any) -> Parameter:
        """The same parameter with another starting value."""
        return _checked(Parameter(self.name, np.asarray(value, float), self.constraint, self.where))


class Parameters(tuple[Parameter, ...]):
    """The parameters of a program in its order, and the `layout` of the trees that they are in.

    A parameter is one array: that of a `numpyro.param`, or a leaf of the tree that it holds.
    """

    layout: Layout

    def __new__(cls, items: Iterable[Parameter], layout: Layout) -> Parameters:
        """Keep the layout beside the items."""
        self = super().__new__(cls, items)
        self.layout = layout
        return self

    def started(self, given: Mapping[str, Any]) -> Parameters:
        """The parameters, started at given arrays or trees, by the name of a leaf or a site."""
        leaves = dict(given)
        for site in self.layout.names:
            if site in given:
                leaves |= named_arrays(site, given[site])
        items = [p.at(leaves[p.name]) if p.name in leaves else p for p in self]
        return Parameters(items, self.layout)

    def trees(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What `numpyro.param` and `numpyro.mutable` hold, for values of the parameters."""
        return self.layout.trees(values)

    @property
    def initial(self) -> dict[str, np.ndarray]:
        """The starting values."""
        return {p.name: p.initial for p in self}

    @property
    def sites(self) -> tuple[str, ...]:
        """The names that a user gives starting values by: of sites, and of leaves."""
        return tuple(dict.fromkeys([*self.layout.names, *(p.name for p in self)]))


class _State(Messenger):  # type: ignore[misc]
    """Notes the state of networks as it is when they are made: a run may write into it."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, Any] = {}

    def postprocess_message(self, msg: Message) -> None:
        """Note a state."""
        if msg["type"] == "mutable" and msg["value"] is not None:
            self.values.setdefault(msg["name"], jax.tree.map(lambda a: a, msg["value"]))


def find_parameters(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Parameters:
    """The parameters of a program, in its order; empty where it has none.

    A parameter that `numpyro.handlers.substitute` gives a value is a constant. `seed` is for
    starting values that are functions of a random key, as those of networks are.
    """
    arguments = split_arguments(function, args, kwargs or {})
    found: dict[str, tuple[PyTreeDef, PyTreeDef, str]] = {}
    lines: dict[str, str] = {}
    keys: set[str] = set()  # leaves that are random keys

    def run(key: jax.Array, data: Mapping[str, Any]) -> dict[str, tuple[Any, list[Any]]]:
        inspector, state = Inspector(), _State()
        messages = execute(function, *arguments.call(data), inspector, state, PriorDraw(key))
        values: dict[str, tuple[Any, list[Any]]] = {}
        held = {name: messages[name]["value"] for name in inspector.parameters}
        for name, tree in {**held, **state.values}.items():
            constraint = constraints.real
            if name in held:
                constraint = messages[name]["kwargs"].get("constraint", constraints.real)
                lines[name] = inspector.parameters[name]
            leaves, structure = jax.tree.flatten(constraint)
            found[name] = jax.tree.structure(tree), structure, type(tree).__name__
            arrays = {leaf: _numbers(a) for leaf, a in named_arrays(name, tree).items()}
            keys.update(leaf for leaf, a in named_arrays(name, tree).items() if is_key(a))
            values[name] = arrays, leaves
        return values

    with jax.enable_x64(True):
        key = jax.random.key(seed)

        def read(sight: Sight) -> tuple[Any, list[Any]]:
            data = {n: a for n, a in arguments.data.items() if n not in sight.names}

            def seeing(key: jax.Array, data: Mapping[str, Any]) -> Any:
                fixed = arguments.seen(sight.names)
                with sight.mode():
                    return run(key, {**data, **fixed})

            program = traced(seeing, return_shape=True)(key, data)
            return program, [key, *jax.tree.leaves(data)]

        ((closed, shapes), inputs), _ = least_sight(read, tuple(arguments.data))
        numbers = evaluator(closed, range(len(closed.jaxpr.outvars)))(inputs)
        starts = jax.tree.unflatten(jax.tree.structure(shapes), numbers)
        items: list[Parameter] = []
        constants: dict[str, Any] = {}
        for name, (structure, rule, kind) in found.items():
            arrays, leaves = starts[name]
            constraint = jax.tree.unflatten(rule, leaves)
            plain = jax.tree_util.treedef_is_leaf(structure)
            if not plain:
                _check_real(name, kind, len(arrays), constraint, lines.get(name, ""))
            for leaf, array in arrays.items():
                if name in lines and (plain or is_float(array)):
                    start = np.asarray(array, float)
                    items.append(_checked(Parameter(leaf, start, constraint, lines[name])))
                else:
                    constants[leaf] = jax.random.wrap_key_data(array) if leaf in keys else array
        structures = {name: structure for name, (structure, _, _) in found.items()}
        # A dictionary comes out of JAX in the order of its keys; leaves are in that of the tree.
        names = {n: tuple(named_arrays(n, _numbered(s))) for n, s in structures.items()}
        return Parameters(items, Layout(structures, names, constants))


def _numbers(leaf: Any) -> jax.Array:
    return jax.random.key_data(leaf) if is_key(leaf) else jnp.asarray(leaf)


def _numbered(structure: PyTreeDef) -> Any:
    return jax.tree.unflatten(structure, range(structure.num_leaves))


def _check_real(name: str, kind: str, count: int, constraint: Any, where: str) -> None:
    if constraint is not constraints.real:
        raise UnsupportedModelError(
            f"Parameter '{name}' is a {kind} of {count} arrays, constrained to "
            f"{describe(constraint)}   ({where}).\n"
            "Expected constraint= with a single array. Give those that are constrained a "
            "numpyro.param of their own."
        )


def _checked(parameter: Parameter) -> Parameter:
    """The parameter, if its constraint has a transform and it starts inside of it."""
    name, where = parameter.name, parameter.where
    try:
        transform = parameter.transform
    except NotImplementedError:
        raise UnsupportedModelError(
            f"Parameter '{name}' is constrained to {describe(parameter.constraint)}   ({where}).\n"
            "Expected a set that real numbers map onto, such as constraints.positive or "
            f"constraints.simplex. {prior_or_fixed([name])}"
        ) from None
    with jax.enable_x64(True):
        inside = bool(np.all(parameter.constraint(parameter.initial)))
        numbers = np.asarray(transform.inv(parameter.initial)) if inside else np.asarray(np.nan)
        near = np.isfinite(numbers) if parameter.is_free else abs(numbers) < FURTHEST
        if not near.all():
            raise ArgumentError(
                f"Parameter '{name}' starts at {_brief(parameter.initial)}   ({where}).\n"
                f"Expected {describe(parameter.constraint)}: inside of its constraint, and not on "
                "the edge of it. Start it elsewhere."
            )
    return parameter


def _brief(value: np.ndarray) -> str:
    return np.array2string(value, threshold=6, edgeitems=2, precision=6)


# --------------------------------------------------------------------------------------------------
# Parameters as data


def parameter_name(name: str) -> str:
    """The name of the data argument that holds the value of a parameter."""
    return f"parameters[{name!r}]"


def parameter_inputs(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of parameters as data of the `parametrised` program; a scalar has one entry."""
    return {parameter_name(name): _as_data(value) for name, value in values.items()}


def as_argument(parameters: Sequence[Parameter]) -> dict[str, np.ndarray]:
    """The first argument of the `parametrised` program, at the starting values."""
    return {p.name: np.reshape(p.initial, p.shape or (1,)) for p in parameters}


def parametrised(function: Callable[..., Any], parameters: Parameters) -> Callable[..., Any]:
    """The program with its parameters as its first argument, a dict of arrays by name."""
    shapes = {p.name: p.shape for p in parameters}
    held = parameters.layout

    def program(parameters: Mapping[str, Any], /, *args: Any, **kwargs: Any) -> Any:
        values = {name: jnp.reshape(a, shapes[name]) for name, a in parameters.items()}
        return with_values(function, held.trees(values))(*args, **kwargs)

    return takes_first("parameters", program, function)


def parametrised_model(
    function: Callable[..., Any],
    parameters: Parameters,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Model:
    """The model whose data include the parameters, at their starting values."""
    program = parametrised(function, parameters)
    names = {parameter_name(p.name): p for p in parameters}
    try:
        model = trace_model(program, (as_argument(parameters), *args), kwargs)
    except NoLatentSiteError:
        listed = ", ".join(f"'{p.name}'" for p in parameters)
        raise ArgumentError(
            f"The model has parameters, {listed}, but no latent site: there is no posterior.\n"
            "Expected at least one numpyro.sample without obs. Give a parameter a prior with "
            "numpyro.sample; for maximum likelihood alone, hand numpyro.infer.util.log_density to "
            "an optimiser."
        ) from None
    for name in model.concrete:
        if name in names:
            raise UnsupportedModelError(
                f"The program inspects the values of its arguments and of the parameter "
                f"'{names[name].name}'   ({names[name].where}).\n"
                "Expected parameters to enter by operations that JAX can trace: compute what "
                "Python needs of the data beforehand, and pass it as an argument."
            )
    # The rows are those of the user's data, whatever the shapes of the parameters.
    own = {n: a for n, a in model.arguments.data.items() if n not in names}
    plate = replace(model, arguments=replace(model.arguments, data=own)).data_plate
    return replace(model, plate=plate.name if plate else None)


def at_values(model: Model, values: Mapping[str, Any]) -> Model:
    """Such a model with other values of its parameters."""
    data = {name: np.asarray(array) for name, array in parameter_inputs(values).items()}
    return replace(model, arguments=model.arguments.replace(data))


def _as_data(value: Any) -> Any:
    return value if np.ndim(value) else jnp.reshape(value, (1,))

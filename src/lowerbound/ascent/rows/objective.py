"""log p(x, z(u); theta) of some rows of a program, and its ELBO under a Gaussian by rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxprs_in_params
from numpyro.infer.util import potential_energy
from numpyro.primitives import Messenger

from lowerbound.ascent.rows.row_gaussians import Block, entropy, moved
from lowerbound.compiled import Jitted, Kept, jit, quickly, traced
from lowerbound.model import Model
from lowerbound.model.dependence import digest
from lowerbound.model.program import Message
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.parameters import Parameter, parameter_inputs, parameter_name

Free = dict[str, Any]  # unconstrained numbers of the parameters, by name
Data = Mapping[str, Any]
QUICK_BELOW = 1e6  # operations of a call
_programs: Kept[dict[object, Jitted]] = Kept(32)


class Weighted(Messenger):  # type: ignore[misc]
    """Counts every row of a plate by a weight of its own."""

    def __init__(self, plate: str, weights: Array) -> None:
        super().__init__()
        self.plate, self.weights = plate, weights

    def process_message(self, msg: Message) -> None:
        """Scale the log density of a site of the plate, row by row."""
        if msg["type"] != "sample":
            return
        for frame in msg["cond_indep_stack"]:
            if frame.name == self.plate:
                weights = self.weights.reshape((-1,) + (1,) * (-frame.dim - 1))
                msg["scale"] = weights if msg["scale"] is None else msg["scale"] * weights


@dataclass(frozen=True, eq=False)
class Objective:
    """The log density of a program of some rows, as a function of parameters and coordinates.

    `own` (rows, d) are the entries of u that belong to each row, `shared` the others; `sliced` are
    the data arguments with an entry a row. Without a plate of rows that has latent sites, or where
    discrete sites are summed out, all is shared.
    """

    model: Model
    parameters: tuple[Parameter, ...]
    coordinates: Coordinates
    plate: str | None
    own: np.ndarray
    shared: np.ndarray
    sliced: tuple[str, ...]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.own)

    def values(self, free: Free) -> dict[str, Array]:
        """The parameters at unconstrained numbers."""
        return {p.name: jnp.asarray(p.transform(free[p.name])) for p in self.parameters}

    def start(self) -> Free:
        """The unconstrained numbers at which the parameters start."""
        return {p.name: np.asarray(p.transform.inv(p.initial), float) for p in self.parameters}

    def data(self) -> dict[str, Any]:
        """The data of the program without the parameters, and its masks of missing entries."""
        names = {parameter_name(p.name) for p in self.parameters}
        data = {n: a for n, a in self.model.arguments.data.items() if n not in names}
        return data | {_mask(n): m for n, m in self.model.missing.items()}

    def take(self, data: Data, index: Array | np.ndarray) -> dict[str, Any]:
        """The data of some rows."""
        return {n: a[index] if n in self.sliced else a for n, a in data.items()}

    def log_joint(
        self, free: Free, own: Array, shared: Array, data: Data, weights: Array | None
    ) -> Array:
        """Log p(x, z(u); theta) + log |dz/du|, each row times its weight."""
        size = self.coordinates.size
        vector = jnp.zeros(size).at[self.own].set(own).at[self.shared].set(shared)
        model, parts = self.model, self.coordinates.split(vector)
        masks = {n: data[_mask(n)] for n in model.missing}
        inputs = {n: a for n, a in data.items() if n in model.arguments.data}
        inputs |= parameter_inputs(self.values(free))
        args, kwargs = model.arguments.call(model._inputs(inputs))
        rows: Any = contextlib.nullcontext()
        if weights is not None and self.plate is not None:
            rows = Weighted(self.plate, weights)
        program = model.plain(masks)
        with rows, numpyro.validation_enabled(False), model._mode():
            return -jnp.asarray(potential_energy(program, args, kwargs, parts))

    def bounds(
        self,
        free: Free,
        own: Block,
        shared: Block,
        noise: tuple[Array, Array],
        data: Data,
        weights: Array | None,
    ) -> Array:
        """The ELBO at each draw: noise (draws, rows, d) of the rows, and (draws, d) of the rest."""

        def one(pair: tuple[Array, Array]) -> Array:
            return self.log_joint(free, moved(own, pair[0]), moved(shared, pair[1]), data, weights)

        spread = entropy(own) if weights is None else entropy(own) * weights
        return jax.vmap(one)(noise) + jnp.sum(spread) + jnp.sum(entropy(shared))

    # -- what is compiled -------------------------------------------------------------------------

    @cached_property
    def closed(self) -> ClosedJaxpr:
        """The traced log density, each row with a weight where there are rows."""
        weights = None if self.plate is None else np.ones(self.rows)
        arguments = self.start(), np.zeros(self.own.shape), np.zeros(self.shared.shape)
        found: ClosedJaxpr = traced(self.log_joint)(*arguments, self.data(), weights)
        return found

    def work(self) -> float:
        """How many operations one evaluation takes, products of matrices included."""
        return operations(self.closed.jaxpr)

    def jitted(
        self, key: object, make: Callable[[Objective], Callable[..., Any]], work: float = 0.0
    ) -> Jitted:
        """`make(self)`, compiled once for all equal programs, whatever their data.

        The function that is made must take data as arguments: it gets an objective without any. One
        whose call takes little `work` rather compiles quickly.
        """
        found = self._programs
        if key not in found:
            function = make(self._light)
            found[key] = quickly(function) if work < QUICK_BELOW else jit(function)
        return found[key]

    @cached_property
    def _light(self) -> Objective:
        model = self.model.without_data()
        return replace(self, model=model, coordinates=replace(self.coordinates, model=model))

    @cached_property
    def _programs(self) -> dict[object, Jitted]:
        """What was compiled for programs that are equal to this one."""
        names = self.plate, self.sliced, [*self.data()], [*self.start()], self.coordinates.shapes
        places = self.own.tobytes(), self.shared.tobytes()
        key = digest(self.closed, str(names), *map(str, places))
        return _programs.of(key, dict)


def objective_of(model: Model, parameters: tuple[Parameter, ...], apart: bool = True) -> Objective:
    """The objective of a traced program; `apart`: its rows have coordinates of their own."""
    coordinates = Coordinates.of(model)
    plate = model.data_plate if apart else None
    own: list[np.ndarray] = []
    shared: list[np.ndarray] = []
    for name, shape in coordinates.shapes.items():
        part, site = coordinates.part(name), model.latent[name]
        entries = np.arange(part.start, part.stop)
        if plate is not None and name in model.local:
            axis = len(site.batch_shape) + plate.dim
            by_row = np.moveaxis(entries.reshape(shape), axis, 0)
            own.append(by_row.reshape(plate.size, -1))
        else:
            shared.append(entries)
    count = plate.size if plate is not None else 0
    none = np.zeros((count, 0), int)
    names = {parameter_name(p.name) for p in parameters}
    sliced = []
    if plate is not None:
        data = {n: a for n, a in model.arguments.data.items() if n not in names}
        sliced = [n for n, a in data.items() if a.shape[0] == plate.size]
        sliced += [_mask(n) for n, m in model.missing.items() if m.shape[:1] == (plate.size,)]
    return Objective(
        model,
        tuple(parameters),
        coordinates,
        None if plate is None else plate.name,
        np.concatenate(own, axis=1) if own else none,
        np.concatenate(shared) if shared else np.zeros(0, int),
        tuple(sliced),
    )


def _mask(name: str) -> str:
    return f"mask of {name}"


def operations(jaxpr: Any) -> float:
    """Multiplications and numbers computed in one run of a program, loops of known length too."""
    total = 0.0
    for equation in jaxpr.eqns:
        inner = sum(operations(part) for part in jaxprs_in_params(equation.params))
        if inner:
            total += inner * float(equation.params.get("length", 1) or 1)
            continue
        numbers = float(sum(np.prod(v.aval.shape) for v in equation.outvars))
        if equation.primitive.name == "dot_general":
            ((left, _), _) = equation.params["dimension_numbers"]
            numbers *= 2.0 * float(np.prod([equation.invars[0].aval.shape[i] for i in left]))
        total += numbers
    return total

"""One model's rows spread over devices: which axis of each array is the rows, and how to compile.

The first axis as long as the data plate is spread, whatever the array: the choice decides where
numbers live, never what they are. Devices hold equally many places at the boundary of a compiled
function, so arrays cross it padded; inside, the rows are those of the model.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.compiled import jit
from lowerbound.compute.devices import Placement, whole
from lowerbound.errors import DevicesError, NotSpreadError
from lowerbound.errors.wording import quoted
from lowerbound.joint import Joint
from lowerbound.joint.traced_program import abstract
from lowerbound.model import Model


@partial(jax.tree_util.register_dataclass, data_fields=["array"], meta_fields=["axis", "rows"])
@dataclass(frozen=True)
class SpreadArray:
    """An array spread along an axis, of whose places the first `rows` are rows of the data."""

    array: Any
    axis: int
    rows: int

    @property
    def own(self) -> Any:
        """The array without the padding."""
        return self.array[(slice(None),) * self.axis + (slice(self.rows),)]


def _is_spread(node: Any) -> bool:
    return isinstance(node, SpreadArray)


def fetch(tree: Any) -> Any:
    """Whole NumPy arrays without padding; all processes must call it together."""
    return jax.tree.map(lambda a: a.own if _is_spread(a) else a, whole(tree), is_leaf=_is_spread)


@dataclass(frozen=True)
class Spread:
    """So many rows on the devices of a placement.

    Its functions take a type `within`: of a tree, only arrays in nodes of that type are spread.
    """

    placement: Placement
    rows: int

    @property
    def key(self) -> tuple[object, ...]:
        """What tells one spread from another, for caches."""
        return (self.rows, *self.placement.key)

    def put(self, tree: Any, within: type = object) -> Any:
        """Host arrays on the devices; arrays that are there already stay."""

        def place(leaf: Any, axis: int | None) -> Any:
            if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
                return leaf
            if isinstance(leaf, jax.Array) and leaf.sharding == self.placement.replicated:
                return leaf
            host = np.asarray(leaf)
            if axis is None:
                return self.placement.replicate(host)
            padded = np.pad(host, self._widths(host.shape, axis))
            return SpreadArray(self.placement.shard(padded, axis), axis, self.rows)

        return self._mapped(place, tree, within)

    def jit(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        within: type,
    ) -> tuple[Any, tuple[Any, ...]]:
        """The function of placed arrays, jitted, and the shapes of its arguments."""
        shapes = self._abstract(args, within)
        placed = self._placed(function, within)
        results = jax.eval_shape(placed, *shapes)
        jitted = jit(
            placed,
            in_shardings=self._shardings(shapes),
            out_shardings=self._shardings(results),
        )
        return jitted, shapes

    def _placed(self, function: Callable[..., Any], within: type) -> Callable[..., Any]:
        def cut(leaf: Any) -> Any:
            return self._constrained(leaf.own, leaf.axis) if _is_spread(leaf) else leaf

        def widened(leaf: Any, axis: int | None) -> Any:
            array = jnp.asarray(leaf)
            if axis is None:
                return array
            array = self._constrained(array, axis)
            padded = jnp.pad(array, self._widths(array.shape, axis))
            return SpreadArray(padded, axis, self.rows)

        def placed(*args: Any) -> Any:
            own = jax.tree.map(cut, args, is_leaf=_is_spread)
            return self._mapped(widened, function(*own), within)

        return placed

    def _constrained(self, array: jax.Array, axis: int) -> jax.Array:
        sharding = self.placement.rows_sharding(axis)
        constrained: jax.Array = jax.lax.with_sharding_constraint(  # type: ignore[no-untyped-call]
            array, sharding
        )
        return constrained

    def _abstract(self, args: tuple[Any, ...], within: type) -> tuple[Any, ...]:
        """The shapes of arguments as `put` places them; shapes stay as they are."""

        def shape(leaf: Any, axis: int | None) -> Any:
            if isinstance(leaf, jax.ShapeDtypeStruct) or axis is None:
                return abstract(np.shape(leaf), leaf.dtype)
            widths = self._widths(leaf.shape, axis)
            wide = tuple(length + pad for length, (_, pad) in zip(leaf.shape, widths, strict=True))
            return SpreadArray(abstract(wide, leaf.dtype), axis, self.rows)

        def given(leaf: Any) -> Any:
            if not _is_spread(leaf):
                return leaf
            return SpreadArray(abstract(leaf.array.shape, leaf.array.dtype), leaf.axis, leaf.rows)

        shapes: tuple[Any, ...] = self._mapped(
            shape, jax.tree.map(given, args, is_leaf=_is_spread), within
        )
        return shapes

    def _shardings(self, shapes: Any) -> Any:
        def sharding(leaf: Any) -> Any:
            if not _is_spread(leaf):
                return self.placement.replicated
            return SpreadArray(self.placement.rows_sharding(leaf.axis), leaf.axis, leaf.rows)

        return jax.tree.map(sharding, shapes, is_leaf=_is_spread)

    def _widths(self, shape: tuple[int, ...], axis: int) -> list[tuple[int, int]]:
        padding = self.placement.padded(self.rows) - self.rows
        return [(0, padding if a == axis else 0) for a in range(len(shape))]

    def _mapped(self, function: Callable[[Any, int | None], Any], tree: Any, within: type) -> Any:
        """The function of every array and of the axis to spread it along; `SpreadArray` stay."""

        def inside(leaf: Any) -> Any:
            if _is_spread(leaf):
                return leaf
            shape = np.shape(leaf)
            return function(leaf, shape.index(self.rows) if self.rows in shape else None)

        def outside(node: Any) -> Any:
            if _is_spread(node):
                return node
            if isinstance(node, within):
                return jax.tree.map(inside, node, is_leaf=_is_spread)
            return function(node, None)

        return jax.tree.map(
            outside, tree, is_leaf=lambda node: _is_spread(node) or isinstance(node, within)
        )


def spread_rows(model: Model, placement: Placement | None) -> Spread | None:
    """The rows of a model on a placement; raises where it has none to spread."""
    if placement is None:
        return None
    plate = model.data_plate
    if plate is None:
        raise NotSpreadError(
            "the model has no data plate: its observations are not declared independent",
            "Put the observed sites into one numpyro.plate, or use devices=None.",
        )
    check_same_data(model, placement)
    return Spread(placement, plate.size)


def check_same_data(model: Model, placement: Placement) -> None:
    """Every process must pass the same arguments, for each places a part of them."""
    if placement.processes > 1:
        check_agreement(
            {
                name: zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data)
                for name, array in model.arguments.data.items()
            },
            placement,
        )


def check_agreement(digests: Mapping[str, int], placement: Placement) -> None:
    """The digest of every argument must be the same in all processes."""
    for name, digest in digests.items():
        found = placement.agree(digest)
        if (found != found[0]).any():
            other = int(np.argmax(found != found[0]))
            raise DevicesError.other_data(name, other)


def check_rows_apart(model: Model, joint: Joint) -> None:
    """Factors of local variables must be those of single rows, or devices would wait in turn."""
    plate = model.data_plate
    assert plate is not None
    for block in joint.blocks:
        if not set(block.sites) & set(model.local):
            continue
        names = quoted(block.sites)
        if block.sequential:
            raise NotSpreadError(
                f"the rows of {names} meet in one term and are updated one after the other",
                "Use devices=None.",
            )
        for site, layout in block.layouts.items():
            axis = len(model.latent[site].batch_shape) + plate.dim
            if site not in model.local or axis not in layout.batch:
                raise NotSpreadError(
                    f"one factor of {names} couples them",
                    "Use devices=None, or lb.CAVI(blocks=...) with a factor of its own for every "
                    "row.",
                )

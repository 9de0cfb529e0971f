"""Splitting a call's arguments into data arrays and everything else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.tree_util import (
    PyTreeDef,
    keystr,
    tree_flatten_with_path,
    tree_leaves,
    tree_unflatten,
)

from lowerbound.errors import ArgumentError, DataTypeError, StreamError
from lowerbound.model.inputs.leaves import (
    Column,
    is_data,
    is_label,
    is_leaf,
    is_table,
    table_like,
    whole_array,
)
from lowerbound.model.looking import seen


@dataclass(frozen=True)
class Arguments:
    """How the arguments of one call of the model split into data and everything else.

    Array leaves of one or more dimensions are the data, keyed by readable argument name ("x",
    "covariates['age']"). Scalars, strings, None and lists of numbers stay as they are. `missing`
    holds, for each `numpy.ma.MaskedArray` argument with masked entries, its mask; those entries
    are filled with a value that occurs in the array. `tables` are the arguments that came as a
    table: a program that looks at one finds its columns by name, as its author does. `labels` are
    those that hold text, dates or objects, which stay as they are, too.
    """

    data: dict[str, np.ndarray]
    missing: dict[str, np.ndarray]
    none: tuple[str, ...] = ()
    leaves: tuple[Any, ...] = field(default=(), repr=False)
    names: tuple[str | None, ...] = field(default=(), repr=False)
    structure: PyTreeDef | None = field(default=None, repr=False)
    tables: Mapping[str, Any] = field(default_factory=dict, repr=False)
    labels: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def call(self, data: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments with the given, possibly traced, arrays put back."""
        return put_back(data, self.names, self.leaves, self.structure)

    def within(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays in the arguments of a call like this one, by name: the inverse of `call`."""
        leaves = tree_leaves((args, dict(kwargs)), is_leaf=is_leaf)
        named = zip(self.names, leaves, strict=True)
        return {name: leaf for name, leaf in named if name is not None}

    def seen(self, names: Iterable[str]) -> dict[str, Any]:
        """The named data as a program that looks at them finds them, for one run of it."""
        return {
            name: table_like(self.tables[name], self.data[name])
            if name in self.tables
            else seen(self.data[name])
            for name in names
        }

    def replace(self, data: Mapping[str, np.ndarray]) -> Arguments:
        """The same call with other data arrays."""
        return replace(self, data={**self.data, **data})


def put_back(
    data: Mapping[str, Any],
    names: Sequence[str | None],
    leaves: Sequence[Any],
    structure: PyTreeDef | None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments: the leaves that have a name are the data of that name."""
    found = zip(names, leaves, strict=True)
    args, kwargs = tree_unflatten(
        structure, [leaf if name is None else data[name] for name, leaf in found]
    )
    return args, kwargs


def split_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Arguments:
    """Find the data among the arguments of `function(*args, **kwargs)`."""
    flat, structure, none = named_leaves(function, args, kwargs)
    data: dict[str, np.ndarray] = {}
    missing: dict[str, np.ndarray] = {}
    tables: dict[str, Any] = {}
    leaves: list[Any] = []
    names: list[str | None] = []
    for name, leaf in flat:
        if not is_data(leaf):
            leaves.append(leaf)
            names.append(None)
            continue
        data[name], mask = _as_data(name, leaf)
        if mask is not None:
            missing[name] = mask
        if is_table(leaf):
            tables[name] = leaf
        leaves.append(None)
        names.append(name)
    labels = {name: leaf for name, leaf in flat if is_label(leaf)}
    return Arguments(data, missing, none, tuple(leaves), tuple(names), structure, tables, labels)


def named_leaves(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[list[tuple[str, Any]], PyTreeDef, tuple[str, ...]]:
    """The leaves of a call under readable names, how they nest, and the arguments left None."""
    roots, none = _argument_names(function, args, kwargs)
    flat, structure = tree_flatten_with_path((args, dict(kwargs)), is_leaf=is_leaf)
    # A NumPy scalar would pin its own, possibly single, precision.
    leaves = [
        (_name(path, roots), leaf.item() if isinstance(leaf, np.generic) else leaf)
        for path, leaf in flat
    ]
    return leaves, structure, none


def _argument_names(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[list[str], tuple[str, ...]]:
    """Readable names of the positional arguments, and the names of arguments that are None."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return [f"args[{i}]" for i in range(len(args))], ()
    model = getattr(function, "__name__", type(function).__name__)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError(
            f"The arguments do not fit the model {model}{signature}: {error}.\n"
            "Pass the model's own arguments to fit, as you would to the model itself."
        ) from error
    bound.apply_defaults()
    names: list[str] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{name}[{i}]" for i in range(len(args) - len(names))]
        elif parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            names.append(name)
    none = tuple(name for name, value in bound.arguments.items() if value is None)
    return names, none


def _name(path: tuple[Any, ...], roots: list[str]) -> str:
    """Readable name of a leaf: the path starts with 0 (args) or 1 (kwargs), then the argument."""
    in_kwargs = getattr(path[0], "idx", 0) == 1
    root = path[1].key if in_kwargs else roots[path[1].idx]
    return f"{root}{keystr(path[2:])}"


def _as_data(name: str, leaf: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """The array of a data leaf (numbers of 64 bits) and the mask of missing entries."""
    if isinstance(leaf, Column):
        raise StreamError.all_at_once(name, leaf.reader.total, leaf.reader.label)
    leaf = whole_array(leaf)
    mask = None
    if isinstance(leaf, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(leaf)
        array = np.array(leaf.data)
        if mask.all() and array.size:
            raise ArgumentError(
                f"Argument '{name}' has no observed entry: all {array.size} of shape "
                f"{array.shape} are masked.\nExpected at least one. Drop the argument, or pass "
                "None to make its site latent."
            )
        if mask.any():
            array[mask] = array[~mask][0]
        else:
            mask = None
    else:
        # JAX may know the user's own object in single precision, and would take that for doubles.
        array = np.asarray(leaf).view()
    if jnp.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float64, copy=False)
    elif array.dtype.kind in "iu":
        if array.size and array.max() <= np.iinfo(np.int64).max:
            array = array.astype(np.int64, copy=False)
    elif array.dtype.kind != "b":
        raise DataTypeError(name, str(array.dtype), array.shape)
    return array, mask

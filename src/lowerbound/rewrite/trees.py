"""Trees of arrays that a program holds under a name: the parameters and the state of networks.

`numpyro.param` and `numpyro.mutable` hold anything that JAX can flatten, as `flax_module` and its
like do. A tree is told here by its leaves, each with a name that can be read:
"decoder$params['Dense_0']['kernel']".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef, keystr, tree_flatten_with_path, tree_unflatten
from numpyro.contrib.module import ParamShape
from numpyro.primitives import Messenger

from lowerbound.errors import ArgumentError

Message = dict[str, Any]


def named_arrays(site: str, tree: Any) -> dict[str, Any]:
    """The leaves of a tree under names that can be read; a plain array has the name of its site."""
    flat, _ = tree_flatten_with_path(tree)
    return {f"{site}{keystr(path)}": leaf for path, leaf in flat}


def is_float(leaf: Any) -> bool:
    """Whether a leaf holds real numbers, which can be maximised over."""
    return bool(np.issubdtype(np.result_type(leaf), np.floating))


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a random key."""
    return isinstance(leaf, jax.Array) and bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


@dataclass(frozen=True, eq=False)
class Layout:
    """How named arrays make up the trees of a program, by site.

    `constants` are the leaves that are no parameters: whole numbers, and the state of networks
    (running averages, counters), which stays as it starts.
    """

    structures: Mapping[str, PyTreeDef] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)

    def trees(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The trees with these arrays in their places, all containers new."""
        known = {**self.constants, **values}
        return {
            site: tree_unflatten(structure, [known[name] for name in self.names[site]])
            for site, structure in self.structures.items()
        }

    def state(self) -> tuple[str, ...]:
        """The sites that hold no number to maximise over, but constants."""
        return tuple(
            site
            for site, names in self.names.items()
            if names and all(name in self.constants for name in names)
        )


class Fixed(Messenger):  # type: ignore[misc]
    """The program with trees held at given values.

    A program may write into the containers that it gets, so each run has its own. Random numbers
    that the program asks for itself, as dropout does, are the same in every run.
    """

    def __init__(self, fn: Callable[..., Any], values: Mapping[str, Any]) -> None:
        super().__init__(fn)
        self.values = dict(values)

    def process_message(self, msg: Message) -> None:
        """Give a parameter, or a state, its value."""
        if msg["type"] == "control_flow":
            msg["kwargs"]["substitute_stack"].append(("substitute", self.values))
        if msg["type"] == "prng_key" and msg["value"] is None:
            msg["value"] = jax.random.key(0)
        if msg["type"] == "param" and msg["name"] in self.values:
            msg["value"] = jax.tree.map(lambda leaf: leaf, self.values[msg["name"]])
        if msg["type"] == "mutable" and msg["name"] in self.values:
            # Arrays of NumPy would be written into, where those of JAX are replaced.
            msg["value"] = jax.tree.map(jnp.asarray, self.values[msg["name"]])


def with_values(function: Callable[..., Any], values: Mapping[str, Any]) -> Callable[..., Any]:
    """The program with its parameters, and the state of its networks, fixed."""
    return Fixed(function, values) if values else function


# --------------------------------------------------------------------------------------------------
# Trees in files


def tree_record(name: str, tree: Any) -> Any:
    """A tree as lists, dictionaries with strings as keys, and arrays: what a file holds."""
    if is_key(tree):
        return {"key": np.asarray(jax.random.key_data(tree))}
    match tree:
        case None:
            return None
        case ParamShape():
            return {"lifted": list(tree.shape)}
        case dict():
            keys = list(tree)
            if all(type(key) in (str, int) for key in keys):
                return {"keys": keys, "values": [tree_record(name, tree[key]) for key in keys]}
        case list() | tuple() if type(tree) in (list, tuple):
            kind = type(tree).__name__
            return {kind: [tree_record(name, item) for item in tree]}
        case np.ndarray() | np.generic() | jax.Array() | float() | int():
            return {"leaf": np.asarray(tree)}
    raise ArgumentError(
        f"Parameter '{name}' holds a {type(tree).__name__}, which files do not know, so the fit "
        "cannot be saved.\nExpected dictionaries, lists and tuples of arrays. Keep "
        f"jax.tree.leaves(fit.parameters['{name}']) instead."
    )


def tree_from(record: Any) -> Any:
    """The tree of a record."""
    if record is None:
        return None
    match record:
        case {"lifted": shape}:
            return ParamShape(tuple(shape))
        case {"keys": keys, "values": values}:
            return dict(zip(keys, map(tree_from, values), strict=True))
        case {"list": items}:
            return [tree_from(item) for item in items]
        case {"tuple": items}:
            return tuple(tree_from(item) for item in items)
        case {"leaf": array}:
            return array
        case {"key": numbers}:
            return jax.random.wrap_key_data(numbers)
    raise ValueError(f"no tree has a part {record!r}")

"""Scalar functions of one number, as small trees.

A function that no closed form knows (log(1 + z^2), log Gamma(z + y), ...) is kept as a tree, so
that it can be evaluated at the nodes of a quadrature, compared with others, and written to a file:

    tree = ("z",) | ("number", x) | ("array", k) | (operation, tree, ...)

where ("array", k) is the k-th constant array that comes with the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import gammaln, log_ndtr, xlogy

Tree = tuple[Any, ...]

Z: Final[Tree] = ("z",)

OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda *terms: sum(terms[1:], start=terms[0]),
    "mul": lambda *factors: _product(factors),
    "power": lambda base, exponent: _power(base, exponent),
    "log": jnp.log,
    "log1p": jnp.log1p,
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "abs": abs,
    "sign": jnp.sign,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "log Gamma": gammaln,
    "log Beta": lambda a, b: log_beta(a, b),
    "digamma": lax.digamma,
    "softplus": jax.nn.softplus,
    "logistic": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "log Phi": log_ndtr,
    "x log y": xlogy,
    "clamp": lambda low, a, high: jnp.minimum(jnp.maximum(a, low), high),
    "atan2": jnp.arctan2,
    "erf_inv": lax.erf_inv,
    "cbrt": jnp.cbrt,
    "where": lambda condition, a, b: jnp.where(jnp.asarray(condition, bool), a, b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}

# Functions that are not smooth, which a quadrature must look at more closely.
KINKED: Final = {
    "abs", "sign", "max", "min", "clamp", "where", "lt", "le", "gt", "ge", "eq", "ne", "cbrt",
}  # fmt: skip


def array_key(array: Any) -> object:
    """Equal keys mean equal arrays; traced arrays are compared by identity."""
    if isinstance(array, np.ndarray):
        return (array.shape, array.dtype.str, array.tobytes()) if array.size <= 4096 else id(array)
    return id(array)


@dataclass(frozen=True, eq=False)
class Expression:
    """A tree with its constant arrays, as a function of each element of a latent site.

    It is an array of the site's shape followed by `sizes`; axis d of `arrays[k]` lies along axis
    `axes[k][d]` of it.
    """

    tree: Tree
    arrays: tuple[Any, ...] = ()
    axes: tuple[tuple[int, ...], ...] = ()
    sizes: tuple[int, ...] = ()

    @cached_property
    def key(self) -> object:
        """Equal keys mean equal functions."""
        return (self.tree, tuple(map(array_key, self.arrays)), self.axes, self.sizes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def evaluate(tree: Tree, z: Array, arrays: Sequence[Any] = ()) -> Array:
    """The value of the tree at `z`; `arrays` broadcast against it.

    >>> float(evaluate(("log", ("add", ("number", 1.0), ("power", Z, ("number", 2.0)))), 0.0))
    0.0
    """
    head, *rest = tree
    if head == "z":
        return z
    if head == "number":
        return rest[0]  # type: ignore[no-any-return]
    if head == "array":
        return arrays[rest[0]]  # type: ignore[no-any-return]
    value: Array = OPERATIONS[head](*(evaluate(part, z, arrays) for part in rest))
    return value


def contains(tree: Tree, heads: set[str]) -> bool:
    """Whether some operation of the tree is among `heads`."""
    if tree[0] in heads:
        return True
    return tree[0] not in ("number", "array") and any(contains(t, heads) for t in tree[1:])


def arrays_of(tree: Tree) -> list[int]:
    """The numbers of the constant arrays that the tree reads, in order of first appearance."""
    if tree[0] == "array":
        return [tree[1]]
    if tree[0] in ("z", "number", "operand"):
        return []
    return list(dict.fromkeys(k for part in tree[1:] for k in arrays_of(part)))


def renumbered(tree: Tree, numbers: dict[int, int]) -> Tree:
    """The tree with its constant arrays numbered otherwise."""
    if tree[0] == "array":
        return ("array", numbers[tree[1]])
    if tree[0] in ("z", "number", "operand"):
        return tree
    return (tree[0], *(renumbered(part, numbers) for part in tree[1:]))


def spread(array: Any, axes: Sequence[int], rank: int) -> Any:
    """An array along `axes` of `rank` axes, so that it broadcasts against all of them."""
    order = sorted(range(len(axes)), key=lambda d: axes[d])
    shape = [1] * rank
    for d in order:
        shape[axes[d]] = array.shape[d]
    return array.transpose(order).reshape(shape)


def shifted(tree: Tree, by: int) -> Tree:
    """The tree with its arrays numbered from `by` on."""
    head, *rest = tree
    if head == "array":
        return ("array", rest[0] + by)
    if head in ("z", "number"):
        return tree
    return (head, *(shifted(part, by) for part in rest))


def text(tree: Tree, z: str = "z") -> str:
    """The tree as a formula in `z`; constant arrays are called c."""
    head, *rest = tree
    match head:
        case "z":
            return z
        case "number":
            return f"{rest[0]:g}"
        case "array":
            return "c"
        case "add":
            return " + ".join(text(part, z) for part in rest).replace("+ -", "- ")
        case "mul":
            return " ".join(_bracketed(part, z) for part in rest)
        case "power":
            return f"{_bracketed(rest[0], z)}^{_bracketed(rest[1], z)}"
    return f"{head}({', '.join(text(part, z) for part in rest)})"


def _bracketed(tree: Tree, z: str) -> str:
    return f"({text(tree, z)})" if tree[0] in ("add", "mul") else text(tree, z)


def log_beta(a: Any, b: Any) -> Any:
    """The log of the Beta function; JAX's own has seven digits where an argument exceeds 8."""
    return gammaln(a) + gammaln(b) - gammaln(a + b)


def _product(factors: Sequence[Any]) -> Any:
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    return product


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(exponent, float) and exponent == int(exponent) and abs(exponent) <= 8:
        return lax.integer_pow(jnp.asarray(base, float), int(exponent))
    return base**exponent

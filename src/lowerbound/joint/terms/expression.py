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


@dataclass(frozen=True)
class Operation:
    """An elementwise function of numbers; one that is not smooth needs more nodes."""

    function: Callable[..., Any]
    smooth: bool = True


def _kinked(function: Callable[..., Any]) -> Operation:
    return Operation(function, smooth=False)


# By name: that of the JAX primitive, where there is one, which then has a rule.
OPERATIONS: Final[dict[str, Operation]] = {
    "add": Operation(lambda *terms: sum(terms[1:], start=terms[0])),
    "mul": Operation(lambda *factors: _product(factors)),
    "power": Operation(lambda base, exponent: _power(base, exponent)),
    "log": Operation(jnp.log),
    "log1p": Operation(jnp.log1p),
    "exp": Operation(jnp.exp),
    "expm1": Operation(jnp.expm1),
    "abs": _kinked(abs),
    "sign": _kinked(jnp.sign),
    "max": _kinked(jnp.maximum),
    "min": _kinked(jnp.minimum),
    "log Gamma": Operation(gammaln),
    "log Beta": Operation(lambda a, b: log_beta_function(a, b)),
    "digamma": Operation(lax.digamma),
    "softplus": Operation(jax.nn.softplus),
    "logistic": Operation(jax.nn.sigmoid),
    "tanh": Operation(jnp.tanh),
    "sin": Operation(jnp.sin),
    "cos": Operation(jnp.cos),
    "erf": Operation(lax.erf),
    "erfc": Operation(lax.erfc),
    "log Phi": Operation(log_ndtr),
    "x log y": Operation(xlogy),
    "clamp": _kinked(lambda low, a, high: jnp.minimum(jnp.maximum(a, low), high)),
    "atan2": Operation(jnp.arctan2),
    "erf_inv": Operation(lax.erf_inv),
    "cbrt": _kinked(jnp.cbrt),
    "where": _kinked(lambda condition, a, b: jnp.where(jnp.asarray(condition, bool), a, b)),
    "lt": _kinked(lambda a, b: a < b),
    "le": _kinked(lambda a, b: a <= b),
    "gt": _kinked(lambda a, b: a > b),
    "ge": _kinked(lambda a, b: a >= b),
    "eq": _kinked(lambda a, b: a == b),
    "ne": _kinked(lambda a, b: a != b),
}


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
    value: Array = OPERATIONS[head].function(*(evaluate(part, z, arrays) for part in rest))
    return value


def is_smooth(tree: Tree) -> bool:
    """Whether all operations of the tree are."""
    if tree[0] in ("z", "number", "array"):
        return True
    return OPERATIONS[tree[0]].smooth and all(map(is_smooth, tree[1:]))


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


def log_beta_function(a: Any, b: Any) -> Any:
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

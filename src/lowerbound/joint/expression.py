"""Scalar functions of one number, as small trees.

A function that no closed form knows (log(1 + z^2), log Gamma(z + y), ...) is kept as a tree, so that
it can be evaluated at the nodes of a quadrature, compared with others, and written to a file:

    tree = ("z",) | ("number", x) | ("array", k) | (operation, tree, ...)

where ("array", k) is the k-th constant array that comes with the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import betaln, gammaln, log_ndtr

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
    "log Beta": betaln,
    "digamma": lax.digamma,
    "softplus": jax.nn.softplus,
    "logistic": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "log Phi": log_ndtr,
}


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


def _product(factors: Sequence[Any]) -> Any:
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    return product


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(exponent, float) and exponent == int(exponent) and abs(exponent) <= 8:
        return lax.integer_pow(jnp.asarray(base, float), int(exponent))
    return base**exponent

"""Trees in normal form: sums and products flattened, log and exp cancelled where they meet.

The rewritings keep the value and make it finite where the plain formula overflows:
log(1 + e^x) is softplus(x), log(1 - logistic(x)) is -softplus(x), log of a normal tail is log Phi.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from lowerbound.joint.terms.expression import Tree
from lowerbound.joint.terms.impossible import IMPOSSIBLE

ZERO: Final[Tree] = ("number", 0.0)
ONE: Final[Tree] = ("number", 1.0)


def number(value: float) -> Tree:
    """A fixed number as a tree, the log of zero in finite form."""
    return ("number", min(max(float(value), IMPOSSIBLE), -IMPOSSIBLE))


def plus(*parts: Tree) -> Tree:
    """The sum, flattened, with its number first."""
    numbers, others = _flattened("add", parts)
    constant = sum(numbers)
    terms = ([number(constant)] if constant != 0.0 else []) + others
    return terms[0] if len(terms) == 1 else ("add", *terms) if terms else ZERO


def product(*parts: Tree) -> Tree:
    """The product, flattened, with its number first; a number goes inside a sum."""
    numbers, others = _flattened("mul", parts)
    scale = math.prod(numbers)
    if scale == 0.0:
        return ZERO
    if not others:
        return number(scale)
    if len(others) == 1:
        if scale == 1.0:
            return others[0]
        if others[0][0] == "add":
            return plus(*(product(number(scale), term) for term in others[0][1:]))
    return ("mul", *([number(scale)] if scale != 1.0 else []), *others)


def _flattened(operation: str, parts: Sequence[Tree]) -> tuple[list[float], list[Tree]]:
    """The operands of nested sums, or products: the numbers among them, and the others."""
    flat = [leaf for part in parts for leaf in (part[1:] if part[0] == operation else (part,))]
    numbers = [leaf[1] for leaf in flat if leaf[0] == "number"]
    return numbers, [leaf for leaf in flat if leaf[0] != "number"]


def negative(tree: Tree) -> Tree:
    """Minus the tree."""
    return product(number(-1.0), tree)


def power(base: Tree, exponent: Tree) -> Tree:
    """The power, with (e^x)^p = e^(p x) and numbers taken out."""
    if exponent[0] != "number":
        return ("power", base, exponent)
    p = exponent[1]
    whole = p == int(p)
    if p == 1.0:
        return base
    if p == 0.0:
        return ONE
    if base[0] == "number" and (base[1] > 0.0 or (whole and base[1] != 0.0)):
        return number(base[1] ** p)
    if base[0] == "exp":
        return exponential(product(exponent, base[1]))
    if base[0] == "power" and base[2][0] == "number" and whole and base[2][1] == int(base[2][1]):
        return power(base[1], number(base[2][1] * p))
    if base[0] == "mul" and (whole or (base[1][0] == "number" and base[1][1] > 0.0)):
        head, rest = base[1], base[2:]
        if whole:
            return product(*(power(factor, exponent) for factor in base[1:]))
        return product(number(head[1] ** p), power(product(*rest), exponent))
    return ("power", base, exponent)


def exponential(tree: Tree) -> Tree:
    """The exponential, with exp(c log x) = x^c."""
    if tree[0] == "number":
        return number(math.exp(tree[1]))
    if tree[0] == "log":
        return tree[1]  # type: ignore[no-any-return]
    if tree[0] == "mul" and len(tree) == 3 and tree[1][0] == "number" and tree[2][0] == "log":
        return power(tree[2][1], tree[1])
    return ("exp", tree)


def logarithm(tree: Tree) -> Tree:
    """The logarithm, in the form that stays finite in the tails."""
    match tree:
        case ("number", x) if x > 0.0:
            return number(math.log(x))
        case ("exp", x):
            return x  # type: ignore[no-any-return]
        case ("mul", ("number", c), *rest) if c > 0.0:
            return plus(number(math.log(c)), logarithm(product(*rest)))
        case ("logistic", x):
            return negative(softplus(negative(x)))
        case ("add", ("number", 1.0), ("mul", ("number", -1.0), ("logistic", x))):
            return negative(softplus(x))
        case ("add", ("number", 1.0), ("exp", x)):
            return softplus(x)
        case ("erfc", x):
            return plus(number(math.log(2.0)), _log_phi(x, -1.0))
        case ("add", ("number", 1.0), ("mul", ("number", -0.5), ("erfc", x))):
            return _log_phi(x, 1.0)
    return ("log", tree)


def _log_phi(x: Tree, sign: float) -> Tree:
    return ("log Phi", product(number(sign * math.sqrt(2.0)), x))


def softplus(tree: Tree) -> Tree:
    """log(1 + e^x)."""
    return ("softplus", tree)


def choice(condition: Tree, chosen: Tree, other: Tree) -> Tree:
    """where(condition, chosen, other); the pieces of JAX's normal cdf make one erfc."""
    match condition, chosen, other:
        case (
            ("lt", ("abs", x), ("number", _)),
            ("add", ("number", 1.0), ("erf", y)),
            ("where", ("gt", z, ("number", 0.0)), _, ("erfc", ("abs", w))),
        ) if x == y == z == w:
            return ("erfc", negative(x))
    if condition[0] == "number":
        return chosen if condition[1] else other
    return chosen if chosen == other else ("where", condition, chosen, other)


_REWRITTEN: Final[dict[str, Callable[..., Tree]]] = {
    "add": plus,
    "mul": product,
    "power": power,
    "exp": exponential,
    "log": logarithm,
    "where": choice,
}


def applied(operation: str, *operands: Tree) -> Tree:
    """The operation on trees, in normal form."""
    rewritten = _REWRITTEN.get(operation)
    return rewritten(*operands) if rewritten else (operation, *operands)


def substituted(tree: Tree, operands: Sequence[Tree]) -> Tree:
    """The tree with ("operand", i) replaced by the i-th operand, in normal form."""
    head, *rest = tree
    if head == "operand":
        return operands[rest[0]]
    if head in ("z", "number", "array"):
        return tree
    return applied(head, *(substituted(part, operands) for part in rest))


def is_positive(tree: Tree, z_positive: bool) -> bool:
    """Whether the tree is known to be positive everywhere; arrays are not known."""
    match tree:
        case ("z",):
            return z_positive
        case ("number", x):
            return bool(x > 0.0)
        case ("exp" | "softplus" | "logistic" | "erfc", _):
            return True
        case ("add", *parts):
            signs = [is_positive(part, z_positive) for part in parts]
            return any(signs) and all(
                sign or is_nonnegative(part, z_positive)
                for sign, part in zip(signs, parts, strict=True)
            )
        case ("mul", *parts):
            return all(is_positive(part, z_positive) for part in parts)
        case ("power", base, _):
            return is_positive(base, z_positive)
        case ("where", _, a, b):
            return is_positive(a, z_positive) and is_positive(b, z_positive)
        case ("max", *parts):
            return any(is_positive(part, z_positive) for part in parts)
        case ("clamp", low, _, _):
            return is_positive(low, z_positive)
    return _below_one(tree)


def is_nonnegative(tree: Tree, z_positive: bool) -> bool:
    """Whether the tree is known to be nowhere negative."""
    match tree:
        case ("number", x):
            return bool(x >= 0.0)
        case ("abs", _):
            return True
        case ("power", _, ("number", p)) if p > 0 and p % 2.0 == 0.0:
            return True
        case ("mul", *parts):
            return all(is_nonnegative(part, z_positive) for part in parts)
    return is_positive(tree, z_positive)


def _below_one(tree: Tree) -> bool:
    """1 - p for a probability p."""
    match tree:
        case ("add", ("number", 1.0), ("mul", ("number", c), ("logistic", _))):
            return bool(-1.0 <= c < 0.0)
        case ("add", ("number", 1.0), ("mul", ("number", c), ("erfc", _))):
            return bool(-0.5 <= c < 0.0)
    return False


def is_affine(tree: Tree) -> bool:
    """Whether the tree is a + b z with constants a and b != 0."""
    match tree:
        case ("z",):
            return True
        case ("add", *parts):
            moving = [part for part in parts if not _is_fixed(part)]
            return bool(moving) and all(map(is_affine, moving))
        case ("mul", *parts):
            moving = [part for part in parts if not _is_fixed(part)]
            return len(moving) == 1 and is_affine(moving[0])
    return False


def _is_fixed(tree: Tree) -> bool:
    if tree[0] == "z":
        return False
    return tree[0] in ("number", "array") or all(map(_is_fixed, tree[1:]))

"""Rules for products over an axis: `jnp.prod` and `jnp.cumprod`, as of stick-breaking weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowerbound.joint.rules.structural import concatenate, poisoned_shape, reshape, slice_axis
from lowerbound.joint.terms.monomials import monomial, with_atom, without_complements
from lowerbound.joint.terms.value import Operand, Outcome, Poison, Value, full, lift, times

MOST_TERMS = 64  # of a product that is multiplied out
MOST_FACTORS = 256  # along the axis


def _reduce_prod(operand: Operand, *, axes: tuple[int, ...], aval: Any, **_: Any) -> Outcome:
    product: Outcome = lift(operand)
    for axis in sorted(axes, reverse=True):
        if isinstance(product, Poison):
            return product
        if product.is_constant:
            product = lift(jnp.prod(jnp.asarray(full(product)), axis=axis))
            continue
        parts = _partial_products(product, axis)
        if parts is None:
            return poisoned_shape("prod", tuple(aval.shape), product)
        shape = (*product.shape[:axis], *product.shape[axis + 1 :])
        product = parts[-1] if parts else lift(np.ones(shape))
        if not isinstance(product, Poison):
            product = reshape(product, aval=_Shaped(shape))
    return product


def _cumprod(operand: Operand, *, axis: int, reverse: bool, aval: Any, **_: Any) -> Outcome:
    value = lift(operand)
    if value.is_constant:
        return lift(lax.cumprod(jnp.asarray(full(value)), axis=axis, reverse=reverse))
    parts = _partial_products(value, axis, reverse)
    if parts is None:
        return poisoned_shape("cumprod", tuple(aval.shape), value)
    poison = next((part for part in parts if isinstance(part, Poison)), None)
    return poison or concatenate(*parts, dimension=axis, aval=aval)


def _partial_products(value: Value, axis: int, reverse: bool = False) -> list[Outcome] | None:
    """The products up to each position of an axis, in the order of the positions."""
    size = value.shape[axis]
    complements, rest = without_complements(value)
    if complements:  # 1 - p as one number
        ones = [with_atom(value, p, function="power1m", parameter=1.0) for p in complements]
        product = times(*ones, rest)
        value = value if isinstance(product, Poison) else product
    many = len(value.terms) if monomial(value) is None else 1
    if size > MOST_FACTORS or many**size > MOST_TERMS:
        return None
    order = range(size)[::-1] if reverse else range(size)
    found: dict[int, Outcome] = {}
    so_far: Outcome | float = 1.0
    for place in order:
        so_far = found[place] = times(so_far, slice_axis(value, axis, np.array([place])))
    return [found[place] for place in range(size)]


class _Shaped:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


RULES: dict[str, Callable[..., Any]] = {"reduce_prod": _reduce_prod, "cumprod": _cumprod}

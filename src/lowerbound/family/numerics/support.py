"""Open intervals and their maps from the line, exact at the ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.joint.terms.expression import Tree

__all__ = ["Logs", "Point", "Support", "split", "with_logs"]


Logs = tuple[Array | None, Array | None]  # of the distances from the two ends, if they are finite


class Point(NamedTuple):
    """A point of the interval, the logs of its distances from the ends, and log |dz/du|."""

    z: Array
    logs: Logs
    log_jacobian: Array


@dataclass(frozen=True)
class Support:
    """The open interval (lower, upper), either end of which may be infinite.

    The line is mapped to it by lower + exp(u), upper - exp(-u), a logistic curve or sinh(u), so
    that power-law tails become exponential ones.
    """

    lower: float
    upper: float

    def point(self, u: Array) -> Point:
        """The point that u of the line stands for."""
        below, above = math.isfinite(self.lower), math.isfinite(self.upper)
        if below and above:
            width = self.upper - self.lower
            left = math.log(width) + jax.nn.log_sigmoid(u)
            right = math.log(width) + jax.nn.log_sigmoid(-u)
            nearer = jnp.where(u < 0, self.lower + jnp.exp(left), self.upper - jnp.exp(right))
            return Point(nearer, (left, right), left + right - math.log(width))
        if below:
            return Point(self.lower + jnp.exp(u), (u, None), u)
        if above:
            return Point(self.upper - jnp.exp(-u), (None, -u), -u)
        size = jnp.abs(u)
        log_cosh = size + jnp.log1p(jnp.exp(-2 * size)) - math.log(2)
        return Point(jnp.sinh(u), (None, None), log_cosh)

    def line(self, z: Array) -> Array:
        """The number of the line that stands for z."""
        below, above = math.isfinite(self.lower), math.isfinite(self.upper)
        if below and above:
            return jnp.log(z - self.lower) - jnp.log(self.upper - z)
        if below:
            return jnp.log(z - self.lower)
        return -jnp.log(self.upper - z) if above else jnp.arcsinh(z)

    def logs(self, z: Array) -> Logs:
        """The logs of the distances of z from the finite ends."""
        left = jnp.log(z - self.lower) if math.isfinite(self.lower) else None
        right = jnp.log(self.upper - z) if math.isfinite(self.upper) else None
        return left, right

    def inside(self, u: Array) -> Array:
        """The point that u stands for, rounded to a number inside the interval."""
        z, kind = self.point(u).z, np.dtype(u.dtype).type
        if math.isfinite(self.lower):
            least = np.nextafter(kind(self.lower), kind(np.inf))
            z = jnp.maximum(z, max(least, np.finfo(kind).tiny) if self.lower == 0 else least)
        if math.isfinite(self.upper):
            most = np.nextafter(kind(self.upper), kind(-np.inf))
            z = jnp.minimum(z, min(most, -np.finfo(kind).tiny) if self.upper == 0 else most)
        return z


def split(tree: Tree) -> list[Tree]:
    """The terms of a sum."""
    return [term for part in tree[1:] for term in split(part)] if tree[0] == "add" else [tree]


def with_logs(tree: Tree, support: Support, arrays: int) -> Tree:
    """The tree with log(z - lower) and log(upper - z) read from two further arrays.

    Near an end of the interval, z rounds to it long before the mass of a density is spent.
    """
    if tree[0] in ("z", "number", "array"):
        return tree
    if tree[0] in ("log", "log1p"):
        inner = tree[1] if tree[0] == "log" else ("add", ("number", 1.0), tree[1])
        a, b = _affine(inner) or (0.0, 0.0)
        if b > 0 and math.isfinite(support.lower) and a + b * support.lower == 0:
            return ("add", ("number", math.log(b)), ("array", arrays))
        if b < 0 and math.isfinite(support.upper) and a + b * support.upper == 0:
            return ("add", ("number", math.log(-b)), ("array", arrays + 1))
    return (tree[0], *(with_logs(part, support, arrays) for part in tree[1:]))


def _affine(tree: Tree) -> tuple[float, float] | None:
    """(a, b) where the tree is a + b z with numbers a and b."""
    head: str = tree[0]
    rest: tuple[Any, ...] = tree[1:]
    if head == "z":
        return 0.0, 1.0
    if head == "number":
        return float(rest[0]), 0.0
    if head not in ("add", "mul"):
        return None
    parts = [_affine(part) for part in rest]
    a, b = (0.0, 0.0) if head == "add" else (1.0, 0.0)
    for part in parts:
        if part is None or (head == "mul" and b and part[1]):
            return None
        if head == "add":
            a, b = a + part[0], b + part[1]
        else:
            a, b = a * part[0], a * part[1] + b * part[0]
    return a, b

"""Members of a free-form family: one with given means, and one to start from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.errors import ArgumentError
from lowerbound.family.exponential import Natural
from lowerbound.family.numerics.damped_newton import Local, minimise

if TYPE_CHECKING:
    from lowerbound.family.factors.free import Free

__all__ = ["falling", "matching"]

_MOST: Final = 256  # statistics of an element that can be recovered from their means
_PULL: Final = 2.0  # of a statistic in `falling`: a log(1 + z) alone then makes a proper density
_FAR: Final = 10.0  # where on the line the ends are looked at


def matching(family: Free, mean: Mapping[str, Array], extras: Natural) -> Natural:
    """The natural parameters whose means are `mean`: the minimum of A(eta) - <eta, mean>.

    NaN where no member has these means, or where the way to it leaves the domain: between a light
    and a heavy tail the best member may be improper, and Newton's method stops there.
    """
    shapes = family.statistic_shapes()
    size = sum(math.prod(each) for each in family.sizes)
    if size > _MOST:
        raise ArgumentError(
            f"Free.natural expects at most {_MOST} numbers of statistics per element; "
            f"found {size}. Keep the natural parameters instead of recovering them."
        )

    def joined(parts: Mapping[str, Array]) -> Array:
        """All statistics of an element along one last axis; any axes may come first."""
        flat = []
        for name, shape in shapes.items():
            lead = parts[name].ndim - len(shape) + len(family.batch_shape)
            flat.append(parts[name].reshape(*parts[name].shape[:lead], -1))
        return jnp.concatenate(flat, axis=-1)

    def parted(eta: Array) -> Natural:
        found, start = {}, 0
        for (name, shape), each in zip(shapes.items(), family.sizes, strict=True):
            stop = start + math.prod(each)
            found[name] = eta[..., start:stop].reshape(shape)
            start = stop
        return {**found, **extras}

    wanted = joined({name: jnp.asarray(mean[name]) for name in shapes})

    def local(eta: Array) -> Local:
        natural = parted(eta)
        placed = family.place(natural)
        q = family.integrate(natural, placed.edges)
        pairs = zip(shapes.items(), q.at.statistics, strict=True)
        nodes = len(q.probabilities)
        t = joined({name: jnp.broadcast_to(t, (nodes, *shape)) for (name, shape), t in pairs})
        p = q.probabilities[..., None]
        centre = jnp.sum(p * t, axis=0)
        off = t - centre
        hessian = jnp.einsum("n...i,n...j->...ij", p * off, off)
        value = q.log_normalizer - jnp.sum(eta * wanted, axis=-1)
        return Local(value, centre - wanted, hessian, placed.proper)

    plain = falling(family, extras)
    start = joined({name: plain[name].astype(wanted.dtype) for name in shapes})
    found, reached = minimise(local, start)
    return parted(jnp.where(reached[..., None], found, jnp.nan))


def falling(family: Free, extras: Natural) -> Natural:
    """A proper density: each statistic has the sign that makes it fall where it grows.

    A statistic that rises at one end and falls at the other (z on the line, log z of a positive z)
    has no such sign: it is left out, or, where the density is not proper without it, let in with
    either sign.
    """
    u = jnp.asarray([-_FAR, 0.0, _FAR], float).reshape(3, *(1 for _ in family.batch_shape))
    u = jnp.broadcast_to(u, (3, *family.batch_shape))
    limit = math.sqrt(float(np.finfo(u.dtype).max))
    signs = {}
    for (name, shape), t in zip(
        family.statistic_shapes().items(), family.on_line(extras, u), strict=True
    ):
        t = jnp.broadcast_to(jnp.nan_to_num(t, nan=0, posinf=limit, neginf=-limit), (3, *shape))
        t = jnp.sum(t, axis=tuple(range(u.ndim, t.ndim)))
        left, right = t[0] - t[1], t[2] - t[1]
        more = jnp.where(jnp.abs(left) > jnp.abs(right), left, right)
        less = jnp.where(jnp.abs(left) > jnp.abs(right), right, left)
        torn = (jnp.abs(less) > jnp.abs(more) / 4) & (less * more < 0)
        signs[name] = jnp.where(torn, 0.0, -jnp.sign(more)), jnp.where(torn, 1.0, 0.0)

    def member(side: Array) -> Natural:
        parts = {}
        for (name, shape), size in zip(
            family.statistic_shapes().items(), family.sizes, strict=True
        ):
            sure, torn = signs[name]
            pull = (_PULL * sure + side * torn) / max(1, math.prod(size))
            pull = pull.reshape(pull.shape + (1,) * len(size))
            parts[name] = jnp.broadcast_to(pull, shape)
        return parts

    found = jax.vmap(member)(jnp.asarray([0.0, 1.0, -1.0], float))
    constants = {k: jnp.broadcast_to(a, (3, *jnp.shape(a))) for k, a in extras.items()}
    proper = family.copies(3).in_domain({**found, **constants})
    first = jnp.argmax(proper, axis=0)

    def chosen(array: Array) -> Array:
        which = first.reshape(1, *first.shape, *(1 for _ in range(array.ndim - first.ndim - 1)))
        return jnp.take_along_axis(array, which, axis=0)[0]

    return {**{name: chosen(array) for name, array in found.items()}, **extras}

"""Batched linear algebra that cannot wait for itself.

On CPU, JAX hands factorisations and solves to LAPACK. From jaxlib 0.10.0 to 0.11.0 the kernel of a
batch divides it into parts, schedules them on XLA's pool of threads and blocks until they are done;
but it runs on a thread of that pool itself. As many such kernels at once as the pool has threads
wait for each other for ever: two, on two cores. Nothing in JAX keeps them apart: independent
operations of one program run at once, and so do programs.

A batch is divided only where its work, by the kernel's own estimate, is at least `SPLIT_FROM` for
each part. So a program is compiled with every larger batch replaced by a loop over smaller ones,
none of which is ever divided: by construction, no kernel waits. This is done to the jaxpr of what
is compiled, after vmap and differentiation, and thus to a user's programs too. Elsewhere than on
CPU nothing changes, and neither with a jaxlib that divides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import Array

from lowerbound.compiled.interpreting import bind
from lowerbound.compiled.rewriting import Values

# `kMinWorkPerTask` in jaxlib/cpu/lapack_kernels.cc, the same in every release that divides batches.
SPLIT_FROM: Final = 200_000
_DIVIDES_BEFORE: Final = (0, 11, 2)


@cache
def kernels_divide() -> bool:
    """Whether the LAPACK kernels of this jaxlib divide a batch over the pool."""
    return tuple(int(part) for part in version("jaxlib").split(".")[:3]) < _DIVIDES_BEFORE


def _cubic(weight: float) -> Callable[..., int]:
    def work(matrix: tuple[int, ...], *_: tuple[int, ...]) -> int:
        return math.ceil(weight * math.prod(matrix) * max(matrix))

    return work


@dataclass(frozen=True)
class _Kernel:
    """The ranks of a kernel's operands without their batch, and a bound of its work for one."""

    ranks: tuple[int, ...]
    work: Callable[..., int]


# The work is at least jaxlib's own estimate, which is tripled for complex numbers.
_KERNELS: Final = {
    "cholesky": _Kernel((2,), _cubic(1 / 3)),
    "triangular_solve": _Kernel((2, 2), lambda a, b: a[0] * math.prod(b)),
    "lu": _Kernel((2,), _cubic(1)),
    "geqrf": _Kernel((2,), _cubic(2)),
    "geqp3": _Kernel((2, 1), _cubic(2)),
    "householder_product": _Kernel((2, 1), _cubic(4)),
    "ormqr": _Kernel((2, 1, 2), lambda a, taus, c: 4 * taus[0] * math.prod(c)),
    "qr": _Kernel((2,), _cubic(4)),
    "svd": _Kernel((2,), _cubic(10)),
    "eigh": _Kernel((2,), _cubic(5)),
    "eig": _Kernel((2,), _cubic(10)),
    "schur": _Kernel((2,), _cubic(5)),
    "hessenberg": _Kernel((2,), _cubic(2)),
    "tridiagonal": _Kernel((2,), _cubic(2)),
    "tridiagonal_solve": _Kernel((1, 1, 1, 2), lambda dl, d, du, b: 5 * math.prod(b)),
}


def batch_and_most(
    name: str, shapes: Sequence[tuple[int, ...]], *, complex_: bool = False
) -> tuple[int, int] | None:
    """The batch of an operation on such shapes, and the largest that is not divided.

    None for operations that are no linear algebra.
    """
    kernel = _KERNELS.get(name)
    if kernel is None:
        return None
    ranks = [len(shape) - rank for shape, rank in zip(shapes, kernel.ranks, strict=True)]
    batch = math.prod(shapes[0][: ranks[0]])
    work = kernel.work(*(shape[rank:] for shape, rank in zip(shapes, ranks, strict=True)))
    return batch, max(1, (SPLIT_FROM - 1) // max(1, work * (3 if complex_ else 1)))


def _of(equation: Any) -> tuple[int, int] | None:
    avals = [atom.aval for atom in equation.invars]
    complex_ = any(
        jnp.issubdtype(a.dtype, jnp.complexfloating) for a in avals if hasattr(a, "dtype")
    )
    return batch_and_most(
        equation.primitive.name, [getattr(a, "shape", ()) for a in avals], complex_=complex_
    )


def divided(equation: Any) -> bool:
    """Whether the kernel of an operation would divide its batch."""
    found = _of(equation)
    return found is not None and found[0] > found[1]


def in_parts(equation: Any, inputs: Sequence[Any]) -> Values:
    """The operation as a loop over parts of its batch, on CPU; as it is elsewhere."""
    whole = partial(bind, equation.primitive, params=equation.params)
    parts = partial(_loop, equation)
    return list(
        jax.lax.platform_dependent(
            *inputs, cpu=lambda *args: parts(args), default=lambda *args: whole(args)
        )
    )


def _loop(equation: Any, inputs: Sequence[Array]) -> Values:
    found = _of(equation)
    assert found is not None
    batch, most = found
    count = -(-batch // most)
    size = -(-batch // count)  # parts as equal as can be; the last one laps over the one before
    leading = _batch_rank(equation)
    shape = inputs[0].shape[:leading]
    flat = [a.reshape(batch, *a.shape[leading:]) for a in inputs]
    outputs = [v.aval for v in equation.outvars]
    blank = [jnp.zeros((batch, *o.shape[leading:]), o.dtype) for o in outputs]

    def part(number: Array, done: Values) -> Values:
        start = jnp.minimum(number * size, batch - size)
        own = [jax.lax.dynamic_slice_in_dim(a, start, size) for a in flat]
        new = bind(equation.primitive, own, equation.params)
        return [
            jax.lax.dynamic_update_slice_in_dim(old, value, start, 0)
            for old, value in zip(done, new, strict=True)
        ]

    done = jax.lax.fori_loop(0, count, part, blank)
    return [a.reshape(*shape, *a.shape[1:]) for a in done]


def _batch_rank(equation: Any) -> int:
    rank: int = equation.invars[0].aval.ndim
    return rank - _KERNELS[equation.primitive.name].ranks[0]

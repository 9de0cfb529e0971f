"""The function of the hyperparameters that is integrated: what the inner problem gives at t."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class Solved:
    """The best q(z | t) at one t, z ~ N(loc, P^-1) with P sparse.

    t: (k,). value: L(t) = log p(theta) + log |dtheta/dt| + the bound given theta; -inf where there
    is none. slope: dL/dt (k,), None where it was not asked for. loc: (d,). precision: (nnz,), the
    entries of P in the order of its pattern, or none where the surface finds them again at t.
    variance: (d,), the diagonal of P^-1. error: that of the value, in nats, where it is estimated.
    spread: the variances of the predictors, from which other solves start; none where they need no
    start.
    """

    t: np.ndarray
    value: float
    slope: np.ndarray | None
    loc: np.ndarray
    precision: np.ndarray
    variance: np.ndarray
    error: float = 0.0
    spread: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))


# t, what to start from (the first that will do), and whether the slope is wanted. None, or a value
# of -inf, where the inner problem has no answer.
Surface = Callable[[np.ndarray, Sequence[Solved], bool], Solved | None]

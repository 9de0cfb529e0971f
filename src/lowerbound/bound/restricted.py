"""The ELBO of a q that reaches a little beyond where the density is positive (section 2.2).

The bound of such a q is -inf, however little it is. With S the points of positive density, w = q(S)
and q_S = q / w on S, nothing elsewhere,

    elbo(q_S) = E_{q_S}[log p - log q] + log w <= log p(x)

is that of q kept to S, which differs from q by no more than 1 - w in any probability.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from lowerbound.errors import ZeroDensityError

MOST_OUTSIDE = 0.01  # of the draws of q
WIDTHS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.03, 0.01)  # of a q that reaches farther
T = TypeVar("T")


class Restricted(NamedTuple):
    """The ELBO from draws, its standard error, and the share of draws that were left out."""

    elbo: float
    error: float
    outside: float

    @property
    def notes(self) -> tuple[str, ...]:
        """What a plan says of it: nothing where nothing was left out."""
        if not self.outside:
            return ()
        return (
            f"{self.outside:.2g} of q lies where the density is zero, or no number; the ELBO is "
            "that of q kept to where it is positive.",
        )


def narrowed(measure: Callable[[float], T]) -> tuple[float, T]:
    """The largest of some widths, 1 first, at which a q can be measured, and what was measured.

    `measure(width)` is of q with its scale multiplied. Raises what it raises of the narrowest.
    """
    for width in WIDTHS[:-1]:
        with contextlib.suppress(ZeroDensityError):
            return width, measure(width)
    return WIDTHS[-1], measure(WIDTHS[-1])


def reason(width: float) -> str:
    """Why a q that was narrowed has not converged."""
    return f"the density is zero within the scale of q, which was narrowed to {width:g} of it"


def restricted(
    ratios: np.ndarray, why: Callable[[int], Sequence[str]] = lambda draw: (), pairs: bool = False
) -> Restricted:
    """The bound from log p - log q at draws of q; in `pairs`, neighbours are not independent.

    Raises ZeroDensityError, with what `why(draw)` says of a draw that has no density, where these
    are more than a few.
    """
    fine = np.isfinite(ratios)
    outside = 1.0 - float(fine.mean())
    if outside > MOST_OUTSIDE:
        raise ZeroDensityError(outside, len(ratios), why(int(np.argmin(fine))))
    kept = ratios[fine]
    if pairs and not outside:
        kept = kept.reshape(-1, 2).mean(axis=1)
    error = float(kept.std() / len(kept) ** 0.5)
    return Restricted(float(ratios[fine].mean()) + float(np.log1p(-outside)), error, outside)

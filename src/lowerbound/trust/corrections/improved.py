"""What a correction finds: better draws, and how far they and q can be trusted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.family.variational import Parameters, Variational

if TYPE_CHECKING:
    from lowerbound.result.fitted import Fit

MOST_NUMBERS = 100_000  # in the sites that are compared


@dataclass(frozen=True, eq=False)
class Improved:
    """A corrected density of the sites it names, and what is worth knowing of it.

    text: how it was found, with its numbers. elbo, error: of the density, where it has a bound of
    its own. reason: why it can be trusted, where that is known. flaw, remedy: why it should not be
    trusted as it is, where it should not, and what to do. doubt: why its intervals may be off,
    though nothing shows it. before: draws of q that it was made from,
    by site, where there are any.
    """

    family: Variational
    parameters: Parameters
    text: str
    elbo: float | None = None
    error: float = 0.0
    reason: str = ""
    flaw: str = ""
    remedy: str = ""
    before: Mapping[str, np.ndarray] = field(default_factory=dict)
    doubt: str = ""

    @property
    def sites(self) -> Collection[str]:
        """The sites that it has; the others are drawn given them."""
        if isinstance(self.family, UnconstrainedGaussian):
            return self.family.coordinates.shapes
        held: Mapping[str, np.ndarray] = self.parameters["values"]
        return held


@dataclass(frozen=True)
class Distance:
    """How far q was off, at worst: a mean in corrected sds, and a ratio of sds, q's over corrected.

    >>> print(Distance("tau", 0.4, "theta[2]", 0.5))
    q was off by 0.40 sd in the mean of 'tau' at most, and its sd of 'theta[2]' is 0.50 times this.
    """

    mean_entry: str
    shift: float
    sd_entry: str
    ratio: float

    def __str__(self) -> str:
        return (
            f"q was off by {abs(self.shift):.2f} sd in the mean of '{self.mean_entry}' at most, "
            f"and its sd of '{self.sd_entry}' is {self.ratio:.2f} times this."
        )


def distance(
    fit: Fit, draws: Mapping[str, np.ndarray], after: Fit, sites: Iterable[str]
) -> Distance | None:
    """The largest differences of means and sds between two fits; None where there are none.

    Those of the first are of its draws, where there are any.
    """
    shifts: list[tuple[float, str]] = []
    ratios: list[tuple[float, str]] = []
    for name in sites:
        with np.errstate(all="ignore"):
            own = draws.get(name)
            first = (fit.mean(name), fit.sd(name)) if own is None else (own.mean(0), own.std(0))
            old, spread = (np.asarray(a, float) for a in first)
            new, wide = (np.asarray(a, float) for a in (after.mean(name), after.sd(name)))
            shift, ratio = (old - new) / wide, np.log(spread / wide)
        shifts += _worst(name, shift)
        ratios += _worst(name, ratio)
    if not shifts or not ratios:
        return None
    most, entry = max(shifts, key=lambda one: abs(one[0]))
    log_ratio, other = max(ratios, key=lambda one: abs(one[0]))
    return Distance(entry, most, other, float(np.exp(log_ratio)))


def _worst(name: str, values: np.ndarray) -> list[tuple[float, str]]:
    """The largest entry of a site in absolute value, with its name."""
    size = np.where(np.isfinite(values), np.abs(values), -1.0)
    if not values.size or size.max() < 0:
        return []
    index = np.unravel_index(int(size.argmax()), values.shape)
    place = f"[{', '.join(map(str, index))}]" if index else ""
    return [(float(values[index]), f"{name}{place}")]

"""What several chains of draws say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

MOST_RHAT = 1.05
FEWEST = 100  # effective draws of the worst number
CHUNK = 2000  # numbers whose autocorrelations are computed together


@dataclass(frozen=True)
class Mixing:
    """The worst R-hat and effective size of all numbers, with the names of these."""

    rhat: float
    rhat_entry: str
    size: float
    size_entry: str

    def __str__(self) -> str:
        return (
            f"R-hat at most {self.rhat:.3f} ('{self.rhat_entry}'), effective size at least "
            f"{self.size:,.0f} ('{self.size_entry}')"
        )

    @property
    def flaw(self) -> str:
        """Why the chains should not be trusted, where they should not."""
        if not self.rhat <= MOST_RHAT:
            return f"R-hat is {self.rhat:.2f} for '{self.rhat_entry}', above {MOST_RHAT}"
        if not self.size >= FEWEST:
            return f"the draws of '{self.size_entry}' are worth {self.size:.0f} independent ones"
        return ""


def mixing(chains: np.ndarray, name: Callable[[int], str]) -> Mixing:
    """Of chains (C, S, d); `name` gives that of each of the d numbers."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    rhats, sizes = [], []
    with np.errstate(all="ignore"):
        for begin in range(0, chains.shape[-1], CHUNK):
            some = chains[..., begin : begin + CHUNK]
            rhats.append(np.asarray(split_gelman_rubin(some)))
            sizes.append(np.asarray(effective_sample_size(some)))
    rhat, size = np.concatenate(rhats), np.concatenate(sizes)
    # A number that never moves, such as a state that is certain, has neither.
    still = np.ptp(chains, axis=(0, 1)) == 0
    rhat, size = np.where(still, 1.0, rhat), np.where(still, chains[..., 0].size, size)
    rhat, size = np.where(np.isnan(rhat), np.inf, rhat), np.where(np.isnan(size), 0.0, size)
    worst, least = int(rhat.argmax()), int(size.argmin())
    return Mixing(float(rhat[worst]), name(worst), float(size[least]), name(least))

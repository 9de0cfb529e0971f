"""The factors of q as NumPyro distributions, and the records of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import jax
import numpy as np
from numpyro.distributions import Distribution

from lowerbound.family.q import Q


@dataclass(frozen=True)
class Move:
    """Changes of components of one kind: which, the nats that they gained, after which sweep.

    A "merge" of (k, l) moved the rows of k to l, a "split" some of the rows of k to l.
    """

    kind: str
    components: tuple[tuple[int, ...], ...]
    gain: float
    sweep: int

    def __str__(self) -> str:
        which = "all" if self.kind == "order" else ", ".join(map(_joined, self.components))
        return f"sweep {self.sweep}: {self.kind} {which} ({self.gain:+.2f} nats)"


def _joined(components: tuple[int, ...]) -> str:
    return " and ".join(map(str, components))


@dataclass(frozen=True)
class History:
    """One value per sweep of the kept restart; `held_out` one per check, when monitored.

    A stochastic fit has one value of each per evaluation; its ELBO is noisy, the average of the
    estimates since the last evaluation. `rows` counts the rows that have been worked through;
    `unit` is that of `held_out`, `step` what the ELBO is recorded after. `starts` has the ELBO of
    every restart, (sweeps, restarts), no number after its end; empty where that is not kept.
    `moves` are changes of the components of a mixture, those of `lb.Growing` that were kept.
    """

    elbo: np.ndarray
    seconds: np.ndarray
    held_out: np.ndarray = field(default_factory=lambda: np.zeros(0))
    rows: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    unit: str = "nats per row"
    step: str = "sweep"  # what one value of `elbo` belongs to
    starts: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True)
class Restart:
    """What happened in one restart, and how it began."""

    elbo: float
    sweeps: int
    reason: str
    start: str = ""


class Posterior(Mapping[str, Distribution]):
    """The factors of q by site, as NumPyro distributions (marginals of joint factors)."""

    def __init__(
        self,
        q: Q,
        sites: tuple[str, ...],
        absent: tuple[str, ...] = (),
        whole: bool = False,
    ) -> None:
        self._q, self._sites = q, sites
        # Local sites of a fit that keeps the global ones alone, or (`whole`) of one without data.
        self._absent, self._whole = absent, whole

    def __getitem__(self, site: str) -> Distribution:
        if site in self._absent and self._whole:
            raise KeyError(
                f"{site!r} is summed out of the rows of the data, which the file of the fit does "
                "not hold; pass them to lb.load(path, model, ...)"
            )
        if site in self._absent:
            raise KeyError(
                f"{site!r} is local, and a stochastic fit keeps the global factors alone; "
                f"fit.local(rows)[{site!r}] gives its factors for any rows"
            )
        if site not in self._sites:
            raise KeyError(f"{site!r} is no latent site; they are {', '.join(self._sites)}")
        with jax.enable_x64(True):
            law = self._q.marginal(site)
            plain = jax.tree.map(np.asarray, law)
            if law.is_discrete and hasattr(law, "probs"):
                # NumPyro computes probabilities on first use, in the caller's precision.
                plain.probs = np.asarray(law.probs)
            return plain

    def __iter__(self) -> Iterator[str]:
        return iter(self._sites)

    def __len__(self) -> int:
        return len(self._sites)

    def __repr__(self) -> str:
        return f"<Posterior of {', '.join(self._sites)}>"

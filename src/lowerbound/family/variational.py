"""What every variational density offers, and what can be solved given a few scalars."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from jax import Array
from numpyro.distributions import Distribution

Parameters = Any  # a tree of arrays
TOGETHER = 4096  # draws that one compiled program makes for whoever asks for fewer


class Variational(Protocol):
    """A density q(z) with parameters in a tree of arrays."""

    def sample(
        self, parameters: Parameters, key: Array, shape: tuple[int, ...] = ()
    ) -> dict[str, Array]:
        """Independent draws of all sites, with leading axes `shape`."""
        ...

    def moments(self, parameters: Parameters, site: str) -> tuple[Array, Array]:
        """Mean and variance of one site under q, elementwise."""
        ...

    def marginal(self, parameters: Parameters, site: str) -> Distribution:
        """The marginal density of one site under q, as a NumPyro distribution."""
        ...

    def log_prob(self, parameters: Parameters, values: Mapping[str, Array]) -> Array:
        """Log q(z) of draws (S,): values of all sites as `sample` gives them, of shape (S, ...).

        It is the density of what `sample` draws: of real sites on their own scales, times the
        probability of discrete ones; of auxiliary weights relative to their base law.
        """
        ...


def marginal_without(
    family: Variational, parameters: Parameters, sites: Collection[str]
) -> tuple[Variational, Parameters] | None:
    """Q of all sites but these, where it is a density of the same kind; else None."""
    if not sites:
        return family, parameters
    without = getattr(family, "without", None)
    found: tuple[Variational, Parameters] | None
    found = None if without is None else without(parameters, sites)
    return found


def drawn_together(family: Variational, draws: int, numbers: int) -> int:
    """How many draws to make where so many are wanted, each of so many numbers.

    To compile a program for another number of draws takes longer than to draw all of `TOGETHER`,
    unless one draw is dear: `most_together` are the numbers up to which a family's is not. Families
    that compile nothing, or whose draws are spread over their number, have none.
    """
    cheap = numbers <= getattr(family, "most_together", -1)
    return TOGETHER if cheap and draws < TOGETHER else draws


class Inner(Protocol):
    """The best q(z | theta) at given scalars theta; all of it can be traced and mapped."""

    @property
    def family(self) -> Variational:
        """The density of the sites that are left."""
        ...

    def first(self, theta: Mapping[str, Array]) -> Parameters:
        """Parameters to start from."""
        ...

    def solve(
        self, theta: Mapping[str, Array], parameters: Parameters, sweeps: Array
    ) -> tuple[Parameters, Array]:
        """The parameters at convergence, and the ELBO with theta observed, log p(theta) in it.

        At most so many sweeps: after fewer than it takes, the ELBO is a lower one.
        """
        ...

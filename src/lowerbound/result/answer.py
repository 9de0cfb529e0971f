"""What a method answers: q, its bound, and why the run stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lowerbound.family.q import Q
from lowerbound.model import Model
from lowerbound.result.posterior import History, Restart
from lowerbound.result.verdicts import Drawn, Verdict
from lowerbound.rewrite.augment import auxiliary_of


@dataclass(frozen=True)
class Stop:
    """Why a run is over. `remedy` is what to do about it, where the answer may suffer.

    interrupted: whether it was ended by Ctrl-C.
    """

    converged: bool
    text: str
    remedy: str = ""
    interrupted: bool = False

    def __str__(self) -> str:
        return f"{'converged' if self.converged else 'stopped'}: {self.text}"

    @classmethod
    def read(cls, converged: bool, reason: str) -> Stop:
        """What a record of its text says."""
        return cls(converged, reason.removeprefix("converged: ").removeprefix("stopped: "))


@dataclass(frozen=True, eq=False)
class Answer:
    """q(z) with its bound, whatever the method.

    error: the standard error of `elbo`; 0 where it is exact. terms: the bound by site, where the
    run has found it. parameters: those of `numpyro.param`, maximised. notes: what the run has
    found that no plan could know. rows: the arguments of some rows, where the factors are the
    global ones alone, and total: how many there are. exact: whether q is the posterior itself, up
    to numerical integration. drawn: draws of q with both densities, where the run has made them.
    optima: where other starts have converged, on the unconstrained space, and by how many nats
    these are below; others: the same of factors, whose parameters are in the place of q's. taught:
    whether its prior is what earlier rows have taught. known: how far to trust it, where the run
    says so itself, as chains of draws do.
    """

    q: Q
    elbo: float
    history: History
    restarts: tuple[Restart, ...]
    precision: str = "float64"
    error: float = 0.0
    terms: dict[str, float] | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    augment: dict[str, str] | None = None  # the sites that were augmented, and how
    rows: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    plate: str | None = None  # that of the rows
    total: int | None = None
    blocks: Any = None  # the partition of q, where one was asked for
    exact: bool = False
    drawn: Drawn | None = None
    optima: tuple[tuple[float, np.ndarray], ...] = ()
    others: tuple[tuple[float, Any], ...] = ()
    taught: bool = False
    known: Verdict | None = None


def in_order(model: Model, terms: Mapping[str, Any]) -> dict[str, float]:
    """The ELBO by site, in the order of the program.

    Where auxiliary sites decide an observed one, counts their sum say, its whole density is theirs,
    and its own term is zero.
    """
    decided = {auxiliary_of(name) for name in terms}
    names = [site.name for site in model.sites if site.name in terms or site.name in decided]
    return {name: float(terms.get(name, 0.0)) for name in names}

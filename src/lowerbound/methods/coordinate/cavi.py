"""The method value of coordinate ascent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lowerbound.run.method import (
    CHECKPOINTS,
    COUNT,
    DEVICES,
    SINGLE,
    Method,
    Rule,
    is_count,
    is_size,
)
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem

STARTS = ("auto", "k-means++", "rows", "random", "prior")


@dataclass(frozen=True, eq=False, repr=False)
class CAVI(Method):
    """Coordinate ascent variational inference (alg:cavi): exact updates, all data, step 1.

    restarts: independent starts, run together in one compiled batch; the best ELBO is kept.
    tolerance: stop when the relative change of the ELBO (or of `monitor`) in a sweep is below it;
        0 runs to `max_sweeps`.
    max_sweeps: stop after this many sweeps.
    blocks: groups of latent sites that share one factor, e.g. [("beta", "tau"), ("alpha",)]; sites
        not named are grouped by structure.
    init: "auto", "k-means++", "rows", "random", "prior", or a dict of site values to start from.
    monitor: held-out arguments of the model; stop by their average log predictive instead.

    Parameters of the program (`numpyro.param`) are maximised with the same ELBO (variational EM);
    restarts then run one after the other.

    >>> fit = lb.fit(coin, y, method=lb.CAVI())
    >>> round(float(fit.mean("p")), 2)
    0.67
    """

    restarts: int = 1
    tolerance: float = 1e-8
    max_sweeps: int = 2000
    blocks: Sequence[Sequence[str]] | None = None
    init: str | Mapping[str, Any] = "auto"
    monitor: Any = None
    can: ClassVar[frozenset[str]] = frozenset({CHECKPOINTS, DEVICES, SINGLE})

    def __post_init__(self) -> None:
        self.check(
            ("restarts", is_count(self.restarts), COUNT),
            ("max_sweeps", is_count(self.max_sweeps), COUNT),
            ("tolerance", is_size(self.tolerance), "a number of at least 0"),
            *start_rules(self.init, self.blocks),
        )

    def abilities_for(self, problem: Problem) -> frozenset[str]:
        """None of them where parameters are maximised."""
        return frozenset() if problem.has_parameters else self.can

    def plan(self, problem: Problem) -> Planned[Any]:
        """Sweeps over the factors, and over the parameters where there are some."""
        if problem.has_parameters:
            from lowerbound.methods.coordinate.variational_em import Maximising

            return Maximising(problem, self)
        from lowerbound.methods.coordinate.sweeping import Sweeping

        return Sweeping(problem, self)


def start_rules(init: Any, blocks: Any) -> tuple[Rule, ...]:
    """The rules of the settings that say where factors start, and which sites share one."""
    names = ", ".join(f'"{name}"' for name in STARTS)
    groups = blocks or ()
    apart = not any(isinstance(block, str) for block in (blocks, *groups))
    sites = [site for block in groups for site in block]
    return (
        (
            "init",
            isinstance(init, Mapping) or init in STARTS,
            f"one of {names}, or a dict of site values",
        ),
        ("blocks", apart, 'a list of tuples of site names, e.g. [("beta", "tau"), ("alpha",)]'),
        ("blocks", len(set(sites)) == len(sites), "every site in one block at most"),
    )

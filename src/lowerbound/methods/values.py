"""All methods by their shorthand, and values from what a user passes."""

from __future__ import annotations

from typing import Any, Final

from lowerbound.errors import SettingError
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.methods.gaussian.unconstrained_methods import (
    Delta,
    Gaussian,
    Laplace,
    ScoreMatching,
    StochasticGaussian,
)
from lowerbound.methods.grid.given_scalars import Given
from lowerbound.methods.growth.growing import Growing
from lowerbound.methods.hierarchy.integrated_value import Integrated
from lowerbound.methods.parameters.em_value import EM
from lowerbound.methods.partial.over import Over
from lowerbound.methods.rewriting.augmenting import Augmented
from lowerbound.methods.rewriting.collapsed_out import Collapsed
from lowerbound.methods.rewriting.enumeration import Enumeration
from lowerbound.methods.sampling.trajectories_value import Trajectories
from lowerbound.methods.score.score_value import ScoreFunctions
from lowerbound.methods.stochastic.batched import SVI, Details, Memoized
from lowerbound.run.method import Method, Settings

# A new method is its file, and a line here. Those that need an argument have no shorthand.
METHODS: Final[tuple[type[Method], ...]] = (
    CAVI,
    Growing,
    SVI,
    Memoized,
    Gaussian,
    StochasticGaussian,
    ScoreMatching,
    Laplace,
    Delta,
    ScoreFunctions,
    Enumeration,
    EM,
    Integrated,
    Trajectories,
)
AROUND: Final[tuple[type[Method], ...]] = (Given, Over, Augmented, Collapsed)
VALUES: Final[tuple[type[Settings], ...]] = (*METHODS, *AROUND, Details)  # that files may name
SHORTHAND: Final = {kind.__name__.lower(): kind for kind in METHODS}


def is_auto(method: Any) -> bool:
    """Whether the library is to choose."""
    return isinstance(method, str) and method.lower() == "auto"


def as_method(method: Any) -> Method:
    """A method value from a value or its shorthand."""
    if isinstance(method, Method):
        return method
    if isinstance(method, str) and method.lower() in SHORTHAND:
        return SHORTHAND[method.lower()]()
    if isinstance(method, type) and issubclass(method, Method) and method in METHODS:
        return method()
    names = ", ".join(f'"{name}"' for name in SHORTHAND)
    expected = f'"auto", {names}, or a method value such as lb.CAVI(restarts=10)'
    raise SettingError("fit", "method", method, expected)

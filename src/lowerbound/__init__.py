"""Variational inference for NumPyro models, after Blei, Kucukelbir and McAuliffe (2017)."""

from typing import TYPE_CHECKING, Any

from lowerbound.version import __version__

if TYPE_CHECKING:
    from lowerbound.names import *

__all__ = [
    "CAVI",
    "EM",
    "SVI",
    "Augmented",
    "Calibration",
    "Checkpoint",
    "Collapsed",
    "Comparison",
    "Delta",
    "Details",
    "Enumeration",
    "Fit",
    "Formula",
    "Gaussian",
    "Given",
    "Growing",
    "Integrated",
    "Laplace",
    "Memoized",
    "Over",
    "Plan",
    "ScoreFunctions",
    "ScoreMatching",
    "StochasticGaussian",
    "Sweep",
    "Trajectories",
    "Verdict",
    "__version__",
    "calibrate",
    "check",
    "compare",
    "computing",
    "correct",
    "data",
    "errors",
    "explain",
    "fit",
    "formula",
    "interruptible",
    "load",
    "plot",
    "report",
    "resume",
    "stream",
    "sweep",
    "update",
]


def __getattr__(name: str) -> Any:
    """A public name, on first use: importing the package alone takes no time."""
    if name not in __all__:
        raise AttributeError(f"module 'lowerbound' has no attribute '{name}'")
    from lowerbound import names

    globals().update({public: getattr(names, public) for public in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

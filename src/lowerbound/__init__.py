"""Variational inference for NumPyro models, after Blei, Kucukelbir and McAuliffe (2017)."""

from lowerbound import errors, plot
from lowerbound.fit import CAVI, Fit, Plan, explain, fit, load
from lowerbound.report import report

__version__ = "0.1.0"

__all__ = [
    "CAVI",
    "Fit",
    "Plan",
    "__version__",
    "errors",
    "explain",
    "fit",
    "load",
    "plot",
    "report",
]

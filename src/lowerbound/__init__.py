"""Variational inference for NumPyro models, after Blei, Kucukelbir and McAuliffe (2017)."""

from lowerbound import errors, plot
from lowerbound.compiled import interruptible
from lowerbound.fit import (
    CAVI,
    EM,
    SVI,
    Checkpoint,
    Fit,
    Gaussian,
    Plan,
    explain,
    fit,
    load,
    resume,
    update,
)
from lowerbound.report import report
from lowerbound.source import stream
from lowerbound.version import __version__

__all__ = [
    "CAVI",
    "EM",
    "SVI",
    "Checkpoint",
    "Fit",
    "Gaussian",
    "Plan",
    "__version__",
    "errors",
    "explain",
    "fit",
    "interruptible",
    "load",
    "plot",
    "report",
    "resume",
    "stream",
    "update",
]

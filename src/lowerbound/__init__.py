"""Variational inference for NumPyro models, after Blei, Kucukelbir and McAuliffe (2017)."""

from lowerbound import errors, plot
from lowerbound.api import fit, resume
from lowerbound.compiled import interruptible
from lowerbound.em import EM
from lowerbound.explaining import explain
from lowerbound.methods.gaussian_value import Gaussian
from lowerbound.methods.stochastic.streaming import update
from lowerbound.methods.values import CAVI, SVI
from lowerbound.reporting import report
from lowerbound.result.fitted import Fit
from lowerbound.result.plan import Plan
from lowerbound.result.saving import load
from lowerbound.source import stream
from lowerbound.store.checkpoint import Checkpoint
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

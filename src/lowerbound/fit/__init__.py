"""Running the plan (paper sections 2.4 and 2.5): `explain` makes it, `fit` runs exactly it.

Contract: `fit(model, *args, method=..., **kwargs)` returns a `Fit`; `explain` prints the same plan
without running it. There is one loop, of compiled chunks, which stops with a stated reason.
"""

from lowerbound.em import EM
from lowerbound.fit.api import fit, resume
from lowerbound.fit.checkpoint import Checkpoint
from lowerbound.fit.explain import explain
from lowerbound.fit.gaussian_method import Gaussian
from lowerbound.fit.method import CAVI, SVI
from lowerbound.fit.plan import Plan
from lowerbound.fit.posterior import History, Posterior
from lowerbound.fit.result import Fit
from lowerbound.fit.storage import load
from lowerbound.fit.streaming import update

__all__ = [
    "CAVI",
    "EM",
    "SVI",
    "Checkpoint",
    "Fit",
    "Gaussian",
    "History",
    "Plan",
    "Posterior",
    "explain",
    "fit",
    "load",
    "resume",
    "update",
]

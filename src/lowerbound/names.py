"""The public names, imported together when the first of them is used."""

from lowerbound import data, errors, plot
from lowerbound.api import fit, resume
from lowerbound.calibration.calibrated import Calibration
from lowerbound.calibration.calibrating import calibrate
from lowerbound.choosing.compared import Comparison
from lowerbound.choosing.comparing import compare
from lowerbound.choosing.varied import Sweep, sweep
from lowerbound.compiled import interruptible
from lowerbound.compute.computing import computing
from lowerbound.explaining import explain
from lowerbound.formulas.formulated import Formula, formula
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
from lowerbound.reporting import report
from lowerbound.result.fitted import Fit
from lowerbound.result.plan import Plan
from lowerbound.result.saving import load
from lowerbound.result.verdicts import Verdict
from lowerbound.source import stream
from lowerbound.store.checkpoint import Checkpoint
from lowerbound.trust.checking import check
from lowerbound.trust.corrections.correcting import correct
from lowerbound.updating import update
from lowerbound.version import __version__

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

"""The public names of `__all__`, imported together when the first of them is used."""

from lowerbound import data as data
from lowerbound import errors as errors
from lowerbound import plot as plot
from lowerbound.api import fit as fit
from lowerbound.api import resume as resume
from lowerbound.calibration.calibrated import Calibration as Calibration
from lowerbound.calibration.calibrating import calibrate as calibrate
from lowerbound.choosing.compared import Comparison as Comparison
from lowerbound.choosing.comparing import compare as compare
from lowerbound.choosing.varied import Sweep as Sweep
from lowerbound.choosing.varied import sweep as sweep
from lowerbound.compiled import interruptible as interruptible
from lowerbound.compute.computing import computing as computing
from lowerbound.explaining import explain as explain
from lowerbound.formulas.formulated import Formula as Formula
from lowerbound.formulas.formulated import formula as formula
from lowerbound.methods.coordinate.cavi import CAVI as CAVI
from lowerbound.methods.gaussian.unconstrained_methods import Delta as Delta
from lowerbound.methods.gaussian.unconstrained_methods import Gaussian as Gaussian
from lowerbound.methods.gaussian.unconstrained_methods import Laplace as Laplace
from lowerbound.methods.gaussian.unconstrained_methods import ScoreMatching as ScoreMatching
from lowerbound.methods.gaussian.unconstrained_methods import (
    StochasticGaussian as StochasticGaussian,
)
from lowerbound.methods.grid.given_scalars import Given as Given
from lowerbound.methods.growth.growing import Growing as Growing
from lowerbound.methods.hierarchy.integrated_value import Integrated as Integrated
from lowerbound.methods.parameters.em_value import EM as EM
from lowerbound.methods.partial.over import Over as Over
from lowerbound.methods.rewriting.augmenting import Augmented as Augmented
from lowerbound.methods.rewriting.collapsed_out import Collapsed as Collapsed
from lowerbound.methods.rewriting.enumeration import Enumeration as Enumeration
from lowerbound.methods.sampling.trajectories_value import Trajectories as Trajectories
from lowerbound.methods.score.score_value import ScoreFunctions as ScoreFunctions
from lowerbound.methods.stochastic.batched import SVI as SVI
from lowerbound.methods.stochastic.batched import Details as Details
from lowerbound.methods.stochastic.batched import Memoized as Memoized
from lowerbound.reporting import report as report
from lowerbound.result.fitted import Fit as Fit
from lowerbound.result.plan import Plan as Plan
from lowerbound.result.saving import load as load
from lowerbound.result.verdicts import Verdict as Verdict
from lowerbound.source import stream as stream
from lowerbound.store.checkpoint import Checkpoint as Checkpoint
from lowerbound.trust.checking import check as check
from lowerbound.trust.corrections.correcting import correct as correct
from lowerbound.updating import update as update
from lowerbound.version import __version__ as __version__

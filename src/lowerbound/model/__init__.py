"""p(z, x): what the NumPyro program says (section 2.1, the problem of approximate inference).

Contract: `trace_model(function, args, kwargs)` runs the program once and returns a `Model`, frozen
records of sites and plates; `Model.run` gives the density of every site at given values, and
`Model.log_density` is NumPyro's own. No other package reads a NumPyro trace.
"""

from lowerbound.model.density import Density
from lowerbound.model.inputs.arguments import Arguments
from lowerbound.model.sites import Model, Plate, Site
from lowerbound.model.trace import trace_model

__all__ = ["Arguments", "Density", "Model", "Plate", "Site", "trace_model"]

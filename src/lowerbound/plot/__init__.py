"""Pictures of fits and of topics. Each function returns the Matplotlib axes it drew on.

None shows a window. Matplotlib is imported when a picture is drawn:
`pip install "lowerbound[plot]"`.

`coin` is the program in the example of `lb.fit`, `y` its data.

>>> axes = lb.plot.elbo(lb.fit(coin, y))
>>> axes.get_xlabel()
'sweep'
"""

from lowerbound.plot.axes import COLOURS
from lowerbound.plot.choices import sweep
from lowerbound.plot.evidenced import evidence
from lowerbound.plot.fits import elbo, mixture
from lowerbound.plot.forest import posterior
from lowerbound.plot.marginal import marginals
from lowerbound.plot.memberships import responsibilities
from lowerbound.plot.of_series.along import components, states
from lowerbound.plot.of_series.forecasts import forecast
from lowerbound.plot.of_topics.history import topic_history
from lowerbound.plot.of_topics.panels import topics
from lowerbound.plot.of_topics.reading import document
from lowerbound.plot.of_topics.scaling import topic_map
from lowerbound.plot.pairing import pairs
from lowerbound.plot.replicated import predictive
from lowerbound.plot.starting import restarts
from lowerbound.plot.tails import k_hat
from lowerbound.plot.uniformity import calibration

__all__ = [
    "COLOURS",
    "elbo",
    "restarts",
    "posterior",
    "marginals",
    "pairs",
    "responsibilities",
    "mixture",
    "predictive",
    "states",
    "components",
    "forecast",
    "evidence",
    "k_hat",
    "sweep",
    "calibration",
    "topics",
    "topic_map",
    "topic_history",
    "document",
]

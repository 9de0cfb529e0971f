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
from lowerbound.plot.fits import elbo, mixture, posterior
from lowerbound.plot.history import topic_history
from lowerbound.plot.panels import topics
from lowerbound.plot.reading import document
from lowerbound.plot.scaling import topic_map
from lowerbound.plot.uniformity import calibration

__all__ = [
    "COLOURS",
    "elbo",
    "posterior",
    "mixture",
    "sweep",
    "calibration",
    "topics",
    "topic_map",
    "topic_history",
    "document",
]

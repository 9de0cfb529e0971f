"""The rows of the data, a minibatch at a time (paper section 4.3, "data that do not fit").

Contract: `open_call` finds the data among a model's arguments without reading them; `Batches` is a
seeded sequence of minibatches of their rows, of which batch t is a function of the seed and t
alone; `stream` names Parquet files or any re-iterable of batches as arguments of a model.
"""

from lowerbound.source.batches import Batches
from lowerbound.source.call import Call, open_call
from lowerbound.source.stream import stream

__all__ = ["Batches", "Call", "open_call", "stream"]

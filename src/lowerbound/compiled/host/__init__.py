"""Programs that are run by NumPy, operation by operation.

In: a traced program of arrays. Out: the same function of NumPy arrays, of which nothing is
compiled: a microsecond an operation and a call, where a compilation takes a millisecond an
operation. None where an operation has no counterpart; then the program is compiled.
"""

from lowerbound.compiled.host.calling import (
    CALLS,
    FITS,
    Light,
    OnHost,
    as_traced,
    light,
    lightly,
    on_host,
    readily,
)
from lowerbound.compiled.host.running import COMPILED, Hosted, hosted

__all__ = [
    "CALLS",
    "FITS",
    "COMPILED",
    "Hosted",
    "Light",
    "OnHost",
    "as_traced",
    "hosted",
    "light",
    "lightly",
    "on_host",
    "readily",
]

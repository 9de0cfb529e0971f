"""The memory that some work takes at its peak, above what the process held before."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak:
    """Megabytes from when it was made.

    On Linux what was freed before is handed back and the peak begins anew, so that an earlier and
    larger one hides nothing. Elsewhere the peak of the whole process is all that is known.
    """

    def __init__(self) -> None:
        gc.collect()
        self.anew = _begun_anew()
        self.before = _now("VmRSS") if self.anew else _most()

    @property
    def grown(self) -> float:
        """By how much the peak exceeds what was held at the beginning."""
        return (_now("VmHWM") if self.anew else _most()) - self.before


def _begun_anew() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        _CLEAR.write_text("5", encoding="ascii")  # the peak is what is held now
    except (OSError, AttributeError):
        return False
    return True


def _now(name: str) -> float:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name)) / 1e3


def _most() -> float:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1e6 if sys.platform == "darwin" else most / 1e3

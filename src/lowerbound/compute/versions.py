"""The versions of everything that a fit's numbers may depend on."""

from __future__ import annotations

import platform

import jax
import numpy as np
import numpyro

from lowerbound.version import __version__


def versions() -> dict[str, str]:
    """Package by package, and Python's own."""
    return {
        "lowerbound": __version__,
        "jax": jax.__version__,
        "numpyro": numpyro.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }

"""The compiled kernel: its C++ sources, and the libraries that the build made of them."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


@cache
def library() -> tuple[ctypes.CDLL, str] | None:
    """The library for this machine and its variant ("v4", "v3", "base"); None where none is built.

    Nothing is searched for outside this folder.
    """
    base = FOLDER / "kernels_base.so"
    try:
        found = ctypes.CDLL(str(base))
        found.lowerbound_variant.restype = ctypes.c_char_p
        variant = found.lowerbound_variant().decode()
        return ctypes.CDLL(str(FOLDER / f"kernels_{variant}.so")), variant
    except OSError:
        return None

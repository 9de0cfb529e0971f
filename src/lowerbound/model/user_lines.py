"""Lines of the user's code: where a site stands, and where an exception came from."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
from collections.abc import Iterator
from types import FrameType, TracebackType

import jax
import numpyro

# Frames inside these belong to the machinery, not to the user's model.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_INTERNAL = (
    *(os.path.dirname(os.path.abspath(str(module.__file__))) + os.sep for module in (numpyro, jax)),
    *(os.path.join(_PACKAGE, folder, "") for folder in ("model", "rewrite")),
)
_INTERNAL_FILES = (contextlib.__file__, functools.__file__)


def is_internal(filename: str) -> bool:
    """Whether a file is the machinery's."""
    return (
        filename.startswith(_INTERNAL)
        or filename in _INTERNAL_FILES
        or filename.startswith("<frozen")
    )


def user_line(frame: FrameType | None) -> str:
    """The first line up the stack that is the user's, as "model.py:14"."""
    while frame is not None and is_internal(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return "unknown line"
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def error_line(error: BaseException) -> tuple[str, str]:
    """The user's innermost line that an exception passed through, and its source text."""
    where, source = "unknown line", ""
    for frame, line in _frames(error.__traceback__):
        filename = frame.f_code.co_filename
        if not is_internal(filename):
            where = f"{os.path.basename(filename)}:{line}"
            source = linecache.getline(filename, line, frame.f_globals).strip()
    return where, source


def error_site(error: BaseException) -> str | None:
    """The name of the site whose `numpyro.sample` call raised, where one did."""
    site = None
    for frame, _ in _frames(error.__traceback__):
        code = frame.f_code
        if code.co_name == "sample" and code.co_filename.endswith(
            os.path.join("numpyro", "primitives.py")
        ):
            site = frame.f_locals.get("name")
    return site

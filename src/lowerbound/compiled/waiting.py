"""Waiting for compilations and results in a way that Ctrl-C ends at once.

Python handles signals between its own instructions; while XLA compiles or computes, there are
none. So compilations run in a thread of their own, results are asked whether they are ready before
they are read, and the thread of the user waits in Python. What was started goes on in the
background after an interrupt and is forgotten.

An interrupt that comes while Python collects garbage is lost: JAX has a callback there, and Python
drops what callbacks raise. So a fit remembers that Ctrl-C was pressed (`heard`), and raises at the
next wait.
"""

from __future__ import annotations

import atexit
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import jax

R = TypeVar("R")
_LONGEST: Final = 0.02  # seconds between two looks
_AT_EXIT: Final = 10.0  # seconds
_asked: ContextVar[bool] = ContextVar("asked", default=False)


_pressed = threading.Event()
running: Final[set[Future[Any]]] = set()  # in threads of their own


@atexit.register
def _end() -> None:
    """A thread that is within XLA as Python ends aborts the process: it is given some time."""
    wait(list(running), _AT_EXIT)


def _interrupts_come_here() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def heard() -> Iterator[None]:
    """Within this context no Ctrl-C is lost. A handler that is not Python's own is left alone."""
    own = _interrupts_come_here() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not own:
        yield
        return

    def press(number: int, frame: Any) -> None:
        _pressed.set()
        signal.default_int_handler(number, frame)

    _pressed.clear()
    signal.signal(signal.SIGINT, press)
    try:
        yield
        _raise_if_pressed()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _pressed.clear()


def _raise_if_pressed() -> None:
    if _pressed.is_set():
        _pressed.clear()
        raise KeyboardInterrupt


def interruptibly(function: Callable[[], R]) -> R:
    """The value of a function that waits outside of Python, such as a compilation."""
    return awaited(started(function)) if _interrupts_come_here() else function()


def started(function: Callable[[], R], found: Future[R] | None = None) -> Future[R]:
    """What a function will return or raise: it runs in a thread of its own."""
    found = Future() if found is None else found
    running.add(found)

    def run() -> None:
        try:
            found.set_result(function())
        except BaseException as error:  # it is raised where the result is asked for
            found.set_exception(error)
        finally:
            running.discard(found)

    threading.Thread(target=run, name="lowerbound-wait", daemon=True).start()
    return found


def awaited(future: Future[R]) -> R:
    """The result, once it is there; in the thread of the user Ctrl-C ends the wait."""
    if _interrupts_come_here():
        _raise_if_pressed()
    return future.result()


def settled(tree: R) -> R:
    """The same arrays, once they are computed."""
    if not _interrupts_come_here():
        return tree
    _raise_if_pressed()
    began = None
    for leaf in jax.tree.leaves(tree):
        # Tracers and keys of random numbers cannot be asked.
        if isinstance(leaf, jax.core.Tracer) or not hasattr(leaf, "is_ready"):
            continue
        while not leaf.is_ready():
            began = began or time.perf_counter()
            # A tenth of the wait so far: late by a tenth at most, and seldom awake.
            time.sleep(min(_LONGEST, (time.perf_counter() - began) / 10))
    return tree


@contextmanager
def interruptible() -> Iterator[None]:
    """Within this context, Ctrl-C makes a fit stop and return what there is.

    `fit.converged` is then False, and `fit.stop_reason` says that it was interrupted. Every
    method can be stopped so, between two of its steps; where there is nothing to return as yet, and
    outside of this context, Ctrl-C raises KeyboardInterrupt as it always does.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> with lb.interruptible():
    ...     fit = lb.fit(coin, y)
    >>> fit.converged  # nobody pressed Ctrl-C
    True
    """
    token = _asked.set(True)
    try:
        yield
    finally:
        _asked.reset(token)


def partial_results_are_asked_for() -> bool:
    """Whether an interrupted loop is to return what there is; if so, the interrupt is over."""
    if _asked.get():
        _pressed.clear()
    return _asked.get()

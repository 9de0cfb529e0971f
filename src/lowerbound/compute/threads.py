"""One thread for the linear algebra of small matrices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


@contextmanager
def one_thread() -> Iterator[None]:
    """NumPy's and LAPACK's matrices on one thread, for as long as the context lasts.

    Threads that wait for each other make the eigenvalues of a 26 x 26 matrix take 50 times as long
    where other processes are running.
    """
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

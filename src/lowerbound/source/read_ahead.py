"""Reading ahead in background threads."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(make: Callable[[], Iterator[Item]], depth: int = 2) -> Generator[Item]:
    """The items of `make()`, made by a thread that stays at most `depth` items ahead.

    An exception of the maker is raised here, in its place in the sequence. Closing the iterator,
    or dropping it, ends the thread.
    """
    ready: Queue[tuple[Item | None, BaseException | None]] = Queue(depth)
    closed = Event()
    # The thread must not refer to this generator, which would then never be collected.
    thread = Thread(
        target=_make_all, args=(make, ready, closed), name="lowerbound-rows", daemon=True
    )
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
    finally:
        closed.set()
        with suppress(Empty):
            while True:
                ready.get_nowait()
        # Once the interpreter is going down a daemon thread never answers.
        if not sys.is_finalizing():
            thread.join()


def make_in_order(tasks: Iterable[Callable[[], Item]], workers: int) -> Generator[Item]:
    """The results of independent tasks, in order, made by several threads a little ahead.

    An exception of a task is raised in its place. Closing the iterator, or dropping it, ends the
    threads.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="lowerbound-rows")
    ahead: deque[Future[Item]] = deque()
    try:
        for task in tasks:
            ahead.append(pool.submit(task))
            if len(ahead) > workers + 1:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(wait=not sys.is_finalizing(), cancel_futures=True)


def _make_all(
    make: Callable[[], Iterator[Item]],
    ready: Queue[tuple[Item | None, BaseException | None]],
    closed: Event,
) -> None:
    error: BaseException | None = None
    try:
        for item in make():
            if not _put(ready, (item, None), closed):
                return
    except BaseException as caught:
        error = caught
    _put(ready, (None, error), closed)


def _put(
    ready: Queue[tuple[Item | None, BaseException | None]],
    entry: tuple[Item | None, BaseException | None],
    closed: Event,
) -> bool:
    """Hand over an entry; False once nobody waits for it."""
    while not closed.is_set():
        with suppress(Full):
            ready.put(entry, timeout=0.05)
            return True
    return False

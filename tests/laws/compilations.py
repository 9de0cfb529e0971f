"""Counting what XLA compiles, through JAX's public monitoring events."""

from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager

import jax.monitoring

from lowerbound.compiled import waiting

COMPILE = "/jax/core/compile/backend_compile_duration"


@contextmanager
def counted() -> Iterator[list[str]]:
    """A list that grows by one entry per compilation while the context is open.

    Those in the background that were begun before have ended, and those begun within end with it.
    """
    wait(list(waiting.running))
    found: list[str] = []

    def listen(event: str, duration: float, **about: object) -> None:
        if event == COMPILE:
            found.append(str(about))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
        wait(list(waiting.running))
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)

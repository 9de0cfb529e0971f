"""Counting what XLA compiles, through JAX's public monitoring events."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax.monitoring

COMPILE = "/jax/core/compile/backend_compile_duration"


@contextmanager
def counted() -> Iterator[list[str]]:
    """A list that grows by one entry per compilation while the context is open."""
    found: list[str] = []

    def listen(event: str, duration: float, **about: object) -> None:
        if event == COMPILE:
            found.append(str(about))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)

"""Where and in which precision to compute: the same for every method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from lowerbound.compute.devices import Placement, placement
from lowerbound.errors import SettingError


@dataclass(frozen=True, eq=False)
class Computing:
    """The precision and the devices of a fit; None is what suits the machine.

    verdicts: whether fits are compared with the posterior at draws of their q.
    """

    precision: str | None = None
    devices: Any = None
    verdicts: bool = True

    def __post_init__(self) -> None:
        if self.precision not in (None, "float32", "float64"):
            raise SettingError(
                "computing", "precision", self.precision, '"float32", "float64" or None'
            )
        if not isinstance(self.verdicts, bool):
            raise SettingError("computing", "verdicts", self.verdicts, "True or False")

    def placement(self) -> Placement | None:
        """The devices over which rows are spread; None for one."""
        return placement(self.devices)

    def dtype(self, where: Placement | None = None) -> np.dtype[Any]:
        """float64 on CPU and float32 on an accelerator, unless it was asked for."""
        if self.precision is not None:
            return np.dtype(self.precision)
        platform = jax.default_backend() if where is None else where.platform
        return np.dtype("float64" if platform == "cpu" else "float32")


_current: ContextVar[Computing | None] = ContextVar("computing", default=None)


@contextmanager
def computing(
    *, precision: str | None = None, devices: Any = None, verdicts: bool | None = None
) -> Iterator[None]:
    """Fits within this context compute in this precision, on these devices.

    precision: "float64" or "float32"; by default float64 on CPU and float32 on an accelerator.
    devices: spread the rows of the data over a number of devices, "all" (of all processes), a
        sequence of JAX devices or a mesh of one axis; by default one device.
    verdicts: False leaves out the comparison of q with the posterior, which takes a few percent of
        most fits, and as long as a small one by coordinate ascent; `fit.verdict` then says that
        nothing is known, and `lb.check(fit)` makes up for it.

    >>> with lb.computing(precision="float32"):
    ...     fit = lb.fit(coin, np.array([1, 0, 1]))
    >>> fit.precision
    'float32'
    """
    measures = current().verdicts if verdicts is None else verdicts
    token = _current.set(Computing(precision, devices, measures))
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def without_verdicts() -> Iterator[None]:
    """As it is otherwise asked for, but no fit is compared with the posterior."""
    token = _current.set(replace(current(), verdicts=False))
    try:
        yield
    finally:
        _current.reset(token)


def current() -> Computing:
    """What the context asks for."""
    return _current.get() or Computing()

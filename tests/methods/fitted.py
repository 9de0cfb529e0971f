"""Every way of the table, fitted once, and once more while compilations are counted."""

import contextlib
import io
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

import numpy as np

import lowerbound as lb
from tests.laws.compilations import counted
from tests.methods.table import Way

SEED = 3
DRAWS = 2000


@dataclass(frozen=True, eq=False)
class Fitted:
    """A way's plan, its fit, and a second fit with what it compiled."""

    plan: lb.Plan
    fit: lb.Fit
    again: lb.Fit
    compilations: tuple[str, ...]


@cache
def fitted(way: Way) -> Fitted:
    """A way's fits; the plan is asked for before them."""
    plan = explained(way)
    fit = run(way)
    with counted() as compilations:
        again = run(way)
    return Fitted(plan, fit, again, tuple(compilations))


@cache
def drawn(way: Way, seed: int) -> dict[str, np.ndarray]:
    """Draws from the fit of a way."""
    return fitted(way).fit.sample(DRAWS, seed=seed)


@cache
def predicted(way: Way) -> np.ndarray:
    """Predictive draws of new rows."""
    return fitted(way).fit.predictive(**way.example.at, draws=100, seed=4)["y"]


def explained(way: Any, model: Any = None) -> lb.Plan:
    """What `explain` returns; what it prints is not looked at."""
    with contextlib.redirect_stdout(io.StringIO()):
        return lb.explain(model or way.example.model, **way.example.call, method=way.method)


class Calls:
    """A program that counts how often it is run: no more than by `explain`, before any work."""

    def __init__(self, model: Any) -> None:
        self.count = 0

        @wraps(model)
        def counting(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return model(*args, **kwargs)

        self.model = counting


def run(way: Way, **more: Any) -> lb.Fit:
    """A fit of a way."""
    call = {**way.example.call, **more}
    return lb.fit(way.example.model, **call, method=way.method, seed=SEED)

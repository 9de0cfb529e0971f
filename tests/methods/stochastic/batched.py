"""Stochastic fits of small models, for the laws that compare one way of running them with another.

Steps and rows are few: the laws hold at every step, converged or not.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import lowerbound as lb
from tests.run import models


@dataclass(frozen=True)
class Batched:
    """A model and its data; none of the batch sizes divides the number of rows."""

    model: Callable[..., None]
    arguments: dict[str, Any]
    batch_size: int


x, y = models.line(n=90)
MODELS = {
    "mixture": Batched(models.mixture, {"x": models.clusters(n=90)[0], "K": 3}, 16),
    "regression": Batched(models.regression, {"x": x, "y": y}, 16),
    "topics": Batched(models.topics, {"w": models.words(n=42)}, 8),
}
METHODS = {
    "plain": lb.SVI(steps=12, monitor=None),
    "averaged": lb.SVI(steps=12, forgetting=0.7, monitor=10, details=lb.Details(average=True)),
    "memoized": lb.Memoized(visits=16),
}
ALL = [(name, how) for name in MODELS for how in METHODS]


def lasting(method: Any, units: int | None, **more: Any) -> Any:
    """The method with so many steps, or visits."""
    return replace(method, **{"steps" if isinstance(method, lb.SVI) else "visits": units}, **more)


def batched(name: str, how: str, devices: Any = None, **options: Any) -> lb.Fit:
    """A few steps on a model."""
    chosen = MODELS[name]
    method = replace(METHODS[how], batch_size=chosen.batch_size)
    with lb.computing(devices=devices):
        return lb.fit(
            chosen.model, **chosen.arguments, method=method, seed=1, progress=False, **options
        )


def numbers(fit: lb.Fit) -> dict[str, np.ndarray]:
    """All numbers of a fit but its seconds."""
    leaves = {
        f"state{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(fit.q.parameters))
    }
    history = {f"history.{n}": getattr(fit.history, n) for n in ("elbo", "held_out", "rows")}
    restarts = np.array([(r.elbo, r.sweeps) for r in fit.restarts])
    reason = np.array(fit.stop_reason)
    terms = np.array(list(fit.elbo_terms.values()))
    return {"elbo": np.array(fit.elbo), "restarts": restarts, "reason": reason, "terms": terms} | (
        history | leaves
    )


def assert_close(found: dict[str, Any], expected: dict[str, Any], tolerance: float = 1e-10) -> None:
    """Equal up to rounding; texts and counts exactly."""
    assert set(found) == set(expected)
    for key, value in expected.items():
        if value.dtype.kind in "fc":
            np.testing.assert_allclose(found[key], value, tolerance, tolerance, err_msg=key)
        else:
            np.testing.assert_array_equal(found[key], value, err_msg=key)


def stored(path: Path) -> dict[str, np.ndarray]:
    """Numbers written by another process."""
    with np.load(path) as archive:
        return dict(archive)

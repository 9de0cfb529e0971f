"""Alternating repetitions and their medians: what is compared is measured side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np


def alternate(runs: Mapping[str, Callable[[], float]], repetitions: int) -> dict[str, np.ndarray]:
    """Call every run in turn, `repetitions` times; each returns its own seconds."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repetitions):
        for name, run in runs.items():
            seconds[name].append(run())
    return {name: np.array(values) for name, values in seconds.items()}


def ratio(first: np.ndarray, second: np.ndarray) -> float:
    """The median of the ratios of neighbouring measurements: slow drifts of the machine cancel."""
    return float(np.median(first / second))


def timed(function: Callable[..., Any], *arguments: Any) -> float:
    """Seconds of one call, its result waited for."""
    start = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - start


def verdict(value: float, target: float, at_most: bool = True) -> str:
    """The target and whether the value meets it."""
    met = value <= target if at_most else value >= target
    return f"target {'<=' if at_most else '>='} {target:g}: {'met' if met else 'NOT MET'}"

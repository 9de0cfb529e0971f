"""Theta as one vector: its numbers among those of all sites, their names, and where priors are."""

from __future__ import annotations

import jax
import numpy as np

from lowerbound.compiled.host import lightly
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.run.problem import Problem


def entries_of(one: Predictors, names: tuple[str, ...]) -> np.ndarray:
    """Where the numbers of some sites are in the coordinates of all."""
    parts = [one.coordinates.part(name) for name in names]
    return np.concatenate([np.arange(own.start, own.stop) for own in parts])


def named(one: Predictors, number: int) -> str:
    """The name of a number of theta, or of those that may come after it: u."""
    entries = entries_of(one, one.theta)
    if number >= len(entries):
        return f"u[{number - len(entries)}]"
    return one.coordinates.owner(int(entries[number]))


def at_scores(problem: Problem, one: Predictors, scores: np.ndarray) -> np.ndarray:
    """Theta, on the unconstrained space, at rows of normal scores of its prior."""
    coordinates, theta = one.coordinates, one.theta
    normal = np.zeros((len(scores), coordinates.size))
    normal[:, entries_of(one, theta)] = scores

    def spread(normal: jax.Array, data: dict[str, jax.Array]) -> jax.Array:
        return jax.vmap(lambda row: coordinates.prior(row, data, theta))(normal)

    run = one.compiled.setdefault("spread", lightly(spread))
    return np.array(run(normal, dict(problem.model.arguments.data)))

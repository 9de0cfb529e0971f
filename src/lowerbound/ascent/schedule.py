"""Step sizes of stochastic natural gradients (Robbins and Monro 1951; alg:svi).

A schedule is a pair of pure functions: `init(natural)` gives the state of one block before its
first step, and `after(state, t, old, new)` its state after step t moved the block from `old` to
`new`. `state["step"]` is the size of the block's next step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.family.exponential import Natural

StepState = dict[str, Any]


@dataclass(frozen=True)
class RobbinsMonro:
    """step_t = (t + delay)^-forgetting, t = 0, 1, ...

    The steps sum to infinity and their squares do not (alg:svi) exactly when forgetting
    is in (0.5, 1].
    """

    delay: float = 1.0
    forgetting: float = 0.7

    def init(self, natural: Natural) -> StepState:
        """The first step."""
        return {"step": jnp.asarray(self.delay, float) ** -self.forgetting}

    def after(self, state: StepState, t: Array, old: Natural, new: Natural) -> StepState:
        """The step after step t."""
        return {"step": (t + 1.0 + self.delay) ** -self.forgetting}


@dataclass(frozen=True)
class Adaptive:
    """The step that minimises the expected distance to the optimum (Ranganath et al. 2013).

    It is |E g|^2 / E|g|^2 for the noisy natural gradient g of a block, both expectations moving
    averages whose memory grows while steps are short: near one while the gradients agree, like 1/t
    when they are all noise. No setting to tune. Each kind of statistic has its own scale, so the
    ratio is taken for each and averaged.
    """

    memory: float = 4.0

    def init(self, natural: Natural) -> StepState:
        """A full first step: nothing is known of the noise."""
        return {
            "step": jnp.ones(()),
            "memory": jnp.asarray(self.memory, float),
            "gradient": {k: jnp.zeros(a.shape) for k, a in natural.items()},
            "square": {k: jnp.zeros(()) for k in natural},
        }

    def after(self, state: StepState, t: Array, old: Natural, new: Natural) -> StepState:
        """The step after one that moved `old` to `new`."""
        gradient = {k: (new[k] - old[k]) / state["step"] for k in state["gradient"]}
        share = jnp.where(t == 0, 1.0, 1.0 / state["memory"])
        average = {k: g + share * (gradient[k] - g) for k, g in state["gradient"].items()}
        square = {
            k: s + share * (jnp.sum(gradient[k] ** 2) - s) for k, s in state["square"].items()
        }
        tiny = float(np.finfo(float).tiny)
        # A statistic whose natural parameter never moves says nothing of the noise.
        moves = [jnp.where(square[k] > tiny, 1.0, 0.0) for k in average]
        ratios = [m * jnp.sum(a**2) / (square[k] + tiny)
                  for m, (k, a) in zip(moves, average.items(), strict=True)]  # fmt: skip
        count = sum(moves, jnp.zeros(()))
        mean = sum(ratios, jnp.zeros(())) / jnp.maximum(count, 1.0)
        step = jnp.clip(jnp.where(count > 0, mean, 1.0), 1e-6, 1.0)
        # While the first gradients decide everything, the memory does not shrink.
        memory = jnp.where(t == 0, state["memory"], state["memory"] * (1.0 - step) + 1.0)
        memory = jnp.maximum(memory, self.memory)
        return {"step": step, "memory": memory, "gradient": average, "square": square}


Schedule = RobbinsMonro | Adaptive

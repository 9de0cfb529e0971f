"""Paths of discrete states, as a NumPyro distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import CategoricalProbs, Distribution, constraints

__all__ = ["Paths", "with_steps_first"]


def with_steps_first(array: Array, event: int) -> Array:
    """An array with the first of its last `event` axes, the steps, moved to the front."""
    return jnp.moveaxis(array, array.ndim - event, 0)


class Paths(Distribution):  # type: ignore[misc]
    """Paths z_1, ..., z_T of a Markov chain with log q(z_1) and log q(z_{t+1} | z_t).

    `probs` are the probabilities of every state in every step, in the shape of a path and one axis
    more. `axis` is where the steps are among the axes of a value: the last, or, of a whole site,
    where the program has them; then all axes are of one event.

    >>> first = jnp.log(jnp.array([0.5, 0.5]))
    >>> steps = jnp.log(jnp.array([[[0.9, 0.1], [0.2, 0.8]]]))
    >>> law = Paths(first, steps, jnp.array([[0.5, 0.5], [0.55, 0.45]]))
    >>> float(jnp.exp(law.log_prob(jnp.array([0, 1])))).__round__(6)
    0.05
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    pytree_data_fields = ("log_first", "log_steps", "probs")
    pytree_aux_fields = ("axis",)

    def __init__(
        self,
        log_first: Array,
        log_steps: Array,
        probs: Array,
        axis: int | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.log_first, self.log_steps, self.probs = log_first, log_steps, probs
        self.axis = axis
        batch, length = log_first.shape[:-1], log_steps.shape[-3] + 1
        if axis is None:
            super().__init__(batch, (length,), validate_args=validate_args)
        else:
            event = (*batch[:axis], length, *batch[axis:])
            super().__init__((), event, validate_args=validate_args)

    def on_axis(self, axis: int) -> Paths:
        """The law of a whole site, of which the steps are one axis."""
        rank = len(self.log_first.shape) - 1
        if axis == rank == 0:
            return self
        return Paths(self.log_first, self.log_steps, jnp.moveaxis(self.probs, -2, axis), axis)

    def one(self, step: int) -> Distribution:
        """The marginal of one step."""
        return CategoricalProbs(self.probs[..., step, :])

    @property
    def likeliest(self) -> Array:
        """The most likely path (Viterbi 1967), which need not have the likeliest states.

        >>> first = jnp.log(jnp.array([0.4, 0.6]))
        >>> steps = jnp.log(jnp.array([[[0.99, 0.01], [0.5, 0.5]]]))
        >>> Paths(first, steps, jnp.array([[0.4, 0.6], [0.696, 0.304]])).likeliest.tolist()
        [0, 0]
        """

        def back(ahead: Array, step: Array) -> tuple[Array, Array]:
            scores = step + ahead[..., None, :]
            return jnp.max(scores, axis=-1), jnp.argmax(scores, axis=-1)

        steps = with_steps_first(self.log_steps, 3)
        ahead, chosen = jax.lax.scan(back, jnp.zeros_like(self.log_first), steps, reverse=True)

        def on(before: Array, table: Array) -> tuple[Array, Array]:
            after = jnp.take_along_axis(table, before[..., None], axis=-1)[..., 0]
            return after, after

        start = jnp.argmax(self.log_first + ahead, axis=-1)
        _, after = jax.lax.scan(on, start, chosen)
        path = jnp.concatenate([start[None], after])
        return jnp.moveaxis(path, 0, -1 if self.axis is None else self.axis)

    @property
    def support(self) -> Any:
        """Whole numbers below the number of states."""
        states = self.log_first.shape[-1]
        rank = len(self.event_shape)
        return constraints.independent(constraints.integer_interval(0, states - 1), rank)

    @property
    def mean(self) -> Array:
        """Not defined: states have no mean."""
        return jnp.full(self.batch_shape + self.event_shape, jnp.nan)

    variance = mean

    def _last(self, value: Array) -> Array:
        """A value with its steps as the last axis."""
        if self.axis is None:
            return value
        return jnp.moveaxis(value, self.axis - len(self.event_shape), -1)

    def log_prob(self, value: Array) -> Array:
        """Log q(z_1) + sum_t log q(z_{t+1} | z_t)."""
        path = self._last(jnp.asarray(value)).astype(int)
        lead = jnp.broadcast_shapes(path.shape[:-1], self.log_first.shape[:-1])
        path = jnp.broadcast_to(path, (*lead, path.shape[-1]))
        first = jnp.broadcast_to(self.log_first, (*lead, self.log_first.shape[-1]))
        total = jnp.take_along_axis(first, path[..., :1], axis=-1)[..., 0]
        steps = jnp.broadcast_to(self.log_steps, (*lead, *self.log_steps.shape[-3:]))
        rows = jnp.take_along_axis(steps, path[..., :-1, None, None], axis=-2)[..., 0, :]
        each = jnp.take_along_axis(rows, path[..., 1:, None], axis=-1)[..., 0]
        total = total + each.sum(axis=-1)
        if self.axis is not None:
            rank = len(self.event_shape) - 1
            total = total.sum(axis=tuple(range(total.ndim - rank, total.ndim)))
        return total

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of whole paths, from the first state on."""
        first_key, rest = jax.random.split(key)
        shape = (*sample_shape, *self.log_first.shape[:-1])
        start = jax.random.categorical(first_key, self.log_first, shape=shape)
        steps = with_steps_first(self.log_steps, 3)

        def step(before: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
            logits, key = inputs
            spread = jnp.broadcast_to(logits, (*sample_shape, *logits.shape))
            rows = jnp.take_along_axis(spread, before[..., None, None], axis=-2)[..., 0, :]
            after = jax.random.categorical(key, rows)
            return after, after

        _, after = jax.lax.scan(step, start, (steps, jax.random.split(rest, len(steps))))
        path = jnp.concatenate([start[None], after])
        if self.axis is None:
            return jnp.moveaxis(path, 0, -1)
        return jnp.moveaxis(path, 0, len(sample_shape) + self.axis)

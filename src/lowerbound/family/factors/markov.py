"""Markov chains of discrete states: q(z_1, ..., z_T) = q(z_1) prod_t q(z_t | z_{t-1}).

The recursion runs backward in logarithms, the forward-backward algorithm (Rabiner 1989) in the form

    beta_t(k) = log sum_l exp(pair_t(k, l) + indicator_{t+1}(l) + beta_{t+1}(l)),

from which A, the conditionals q(z_{t+1} | z_t) and draws follow; with the largest in place of the
sum it gives the most likely path (Viterbi 1967).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from numpyro.distributions import Distribution

from lowerbound.family.exponential import ExponentialFamily, Mean, Natural, Values
from lowerbound.family.numerics.paths import Paths, with_steps_first
from lowerbound.joint.blocks.block import Block, Read, same_index
from lowerbound.joint.blocks.kind import Path
from lowerbound.joint.blocks.neighbours import neighbouring
from lowerbound.joint.terms.domain import DISCRETE
from lowerbound.joint.terms.indices import Index, Label, gathered, position
from lowerbound.joint.terms.labelled import Atom, Factor

__all__ = ["MarkovChain"]


@dataclass(frozen=True)
class MarkovChain(ExponentialFamily):
    """Paths of `length` states 0..`dim`-1 with statistics 1[z_t = k] and 1[z_t = k, z_{t+1} = l].

    Natural indicator, shape `batch_shape` + (length, dim), and pair, `batch_shape` +
    (length - 1, dim, dim), are log weights, -inf allowed. `absent`, of `batch_shape`, is the number
    of steps that the program leaves out: each has the base measure 1 / dim, so that it counts for
    nothing.

    >>> chain = MarkovChain((), 3, 2)
    >>> float(chain.log_normalizer(chain.default({"absent": jnp.zeros(())}))).__round__(4)
    2.0794
    """

    length: int
    dim: int

    kind: ClassVar[str] = "markov_chain"
    name: ClassVar[str] = "Markov chain"
    domains: ClassVar = (DISCRETE,)
    atoms: ClassVar = {"indicator": "indicator"}
    is_vector: ClassVar[bool] = True
    alone: ClassVar[bool] = False
    enumerable: ClassVar[bool] = True
    along: ClassVar[bool] = True
    counts_absent: ClassVar[bool] = True
    statistic_names: ClassVar[tuple[str, ...]] = ("indicator", "pair")
    extra_names: ClassVar[tuple[str, ...]] = ("absent",)

    # -- what the derivation asks -----------------------------------------------------------------

    @classmethod
    def of_path(cls, path: Path) -> Block | None:
        """Discrete elements, each of which meets the one before it and the one after it alone."""
        static = {"length": path.length, "dim": path.values}
        return Block(0, cls, path.layouts, path.batch_shape, static)

    @classmethod
    def read(
        cls, block: Block, factors: Sequence[Factor[Atom]], private: set[Label]
    ) -> list[Read] | None:
        """One state, or two that follow each other."""
        length, dim = block.static["length"], block.static["dim"]
        places = [_place(block, factor) for factor in factors]
        batch, step, category = places[0]
        if len(places) == 1:
            shape = (*block.batch_shape, length, dim)
            return [Read(block.number, "indicator", (), shape, (*batch, step, category))]
        if len(places) > 2 or not same_index(batch, places[1][0]):
            return None
        found = neighbouring(step, places[1][1])
        if found is None:
            return None
        first, labels, forward = found
        pair = [category, places[1][2]]
        before, after = pair if forward else pair[::-1]
        where: Index = gathered(first, labels, length - 1) if labels else position(int(first))
        shape = (*block.batch_shape, length - 1, dim, dim)
        return [Read(block.number, "pair", (), shape, (*batch, where, before, after))]

    @classmethod
    def text(cls, block: Block, site: str) -> str:
        """The states and the transitions."""
        if len(block.layouts) == 1:
            return f"1[{site} = k], 1[{site}' = k, {site} = l]"
        first, *_, last = block.layouts
        return f"states and transitions of {first} ... {last}"

    @classmethod
    def likeliest(cls, logits: Mapping[str, Array]) -> Array:
        """The most likely path (Viterbi 1967)."""
        return _followed(*_steps_first(logits), _best, _highest)

    # -- numerics ---------------------------------------------------------------------------------

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the indicators of states and of transitions."""
        return {
            "indicator": (*self.batch_shape, self.length, self.dim),
            "pair": (*self.batch_shape, self.length - 1, self.dim, self.dim),
        }

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """1[z_t = k] and 1[z_t = k, z_{t+1} = l]."""
        return self.assigned(jax.nn.one_hot(values["z"], self.dim, dtype=float))

    def assigned(self, indicator: Array) -> Mean:
        """The means of independent states."""
        before, after = indicator[..., :-1, :, None], indicator[..., 1:, None, :]
        return {"indicator": indicator, "pair": before * after}

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = log of the sum over all paths, less absent * log dim."""
        indicator, pair = _steps_first(natural)
        weights = indicator[0] + _backward(indicator, pair, _summed)[0]
        return logsumexp(weights, axis=-1) - self._left_out(natural, indicator.dtype)

    def _left_out(self, natural: Mapping[str, Array], dtype: Any) -> Array:
        left: Array = natural["absent"].astype(dtype) * np.log(self.dim).astype(dtype)
        return left

    def conditionals(self, natural: Mapping[str, Array]) -> tuple[Array, Array]:
        """Log q(z_1), `batch_shape` + (dim,), and log q(z_{t+1} | z_t), (length - 1, ..)."""
        indicator, pair = _steps_first(natural)
        beta = _backward(indicator, pair, _summed)
        first = indicator[0] + beta[0]
        ahead = pair + (indicator + beta)[1:, ..., None, :]
        steps = ahead - logsumexp(ahead, axis=-1, keepdims=True)
        return first - logsumexp(first, axis=-1, keepdims=True), steps

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """The probabilities of states and of transitions: forward along the conditionals."""
        first, steps = self.conditionals(natural)

        def step(before: Array, log_next: Array) -> tuple[Array, tuple[Array, Array]]:
            pair = before[..., :, None] * jnp.exp(log_next)
            after = pair.sum(axis=-2)
            after = after / after.sum(axis=-1, keepdims=True)
            return after, (after, pair)

        start = jnp.exp(first)
        _, (after, pair) = jax.lax.scan(step, start, steps)
        indicator = jnp.concatenate([start[None], after])
        rank = len(self.batch_shape)
        return {"indicator": jnp.moveaxis(indicator, 0, rank), "pair": jnp.moveaxis(pair, 0, rank)}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """The log conditionals: the natural parameters whose A is 0, with no step left out."""
        indicator, pair = mean["indicator"], mean["pair"]
        before = pair.sum(axis=-1, keepdims=True)
        logs = jnp.where(before > 0, jnp.log(pair) - jnp.log(before), 0.0)
        first = jnp.zeros_like(indicator).at[..., 0, :].set(jnp.log(indicator[..., 0, :]))
        absent = jnp.zeros(self.batch_shape, indicator.dtype)
        return {"indicator": first, "pair": logs, "absent": absent}

    def inner(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """<natural, mean> with 0 * -inf = 0."""
        states = _weighted(mean["indicator"], natural["indicator"]).sum(axis=(-1, -2))
        return states + _weighted(mean["pair"], natural["pair"]).sum(axis=(-1, -2, -3))

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """-E log q(z_1) - sum_t E log q(z_{t+1} | z_t) - absent * log dim, free of cancellation."""
        first, pair = mean["indicator"][..., 0, :], mean["pair"]
        before = pair.sum(axis=-1, keepdims=True)
        ratio = jnp.where(pair > 0, pair, 1.0) / jnp.where(before > 0, before, 1.0)
        steps = jnp.where(pair > 0, pair * jnp.log(ratio), 0.0).sum(axis=(-1, -2, -3))
        start = jnp.where(first > 0, first * jnp.log(jnp.where(first > 0, first, 1.0)), 0.0)
        return -steps - start.sum(axis=-1) - self._left_out(natural, pair.dtype)

    def log_measure(self, natural: Mapping[str, Array], values: Mapping[str, Array]) -> Array:
        """-absent * log dim."""
        return -self._left_out(natural, natural["indicator"].dtype)

    def kl(self, natural_q: Mapping[str, Array], natural_p: Mapping[str, Array]) -> Array:
        """The divergence of the first state, and the expected ones of the steps."""
        (first_q, steps_q), (first_p, steps_p) = map(self.conditionals, (natural_q, natural_p))
        mean = self.mean(natural_q)
        start = _ratio(jnp.exp(first_q), first_q, first_p).sum(axis=-1)
        pair = jnp.moveaxis(mean["pair"], len(self.batch_shape), 0)
        return start + _ratio(pair, steps_q, steps_p).sum(axis=(0, -1, -2))

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of paths, from the first state on."""
        return {"z": self.marginals(natural)["z"].sample(key, shape)}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """The chain as a distribution of paths, with the probabilities of each state."""
        first, steps = self.conditionals(natural)
        steps = jnp.moveaxis(steps, 0, len(self.batch_shape))
        return {"z": Paths(first, steps, self.mean(natural)["indicator"])}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """No NaN, no +inf, and some path of positive weight."""
        return jnp.isfinite(self.log_normalizer(natural))

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """All paths equally likely."""
        return {**self._full({"indicator": 0.0, "pair": 0.0}), **self._extras(extras)}

    def noise(self, rng: np.random.Generator) -> np.ndarray:
        """A number for every state of every step: the largest is chosen."""
        return rng.standard_exponential((*self.batch_shape, self.length, self.dim))

    def scattered(self, natural: Mapping[str, Array], mean: Mean, noise: Array) -> Mean:
        """Every step in a state drawn by chance."""
        one = jax.nn.one_hot(jnp.argmax(noise, -1), noise.shape[-1], dtype=noise.dtype)
        return self.assigned(one)


# --------------------------------------------------------------------------------------------------
# Recursions


def _place(block: Block, factor: Factor[Atom]) -> tuple[tuple[Index, ...], Index, Index]:
    """The batch index of an indicator, its step and its category."""
    layout = block.layouts[factor.atom.site]
    batch, along = layout.split(factor.index)
    return batch, along[0] if along else position(layout.start), factor.index[-1]


def _steps_first(natural: Mapping[str, Array]) -> tuple[Array, Array]:
    """Log weights of states and of transitions, steps first."""
    indicator, pair = natural["indicator"], natural["pair"]
    return with_steps_first(indicator, 2), with_steps_first(pair, 3)


def _summed(weights: Array) -> Array:
    return logsumexp(weights, axis=-1)


def _best(weights: Array) -> Array:
    return jnp.max(weights, axis=-1)


def _highest(weights: Array) -> Array:
    return jnp.argmax(weights, axis=-1)


def _backward(indicator: Array, pair: Array, over: Callable[[Array], Array]) -> Array:
    """What is ahead of every state, (length, ..., dim), with `over` for the sum over the next."""

    def step(ahead: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        own, transition = inputs
        before = over(transition + (own + ahead)[..., None, :])
        return before, before

    last = jnp.zeros_like(indicator[0])
    _, found = jax.lax.scan(step, last, (indicator[1:], pair), reverse=True)
    return jnp.concatenate([found, last[None]])


def _followed(
    indicator: Array,
    pair: Array,
    over: Callable[[Array], Array],
    chosen: Callable[[Array], Array],
) -> Array:
    """The path whose every state is `chosen` by what is ahead."""
    ahead = indicator + _backward(indicator, pair, over)

    def step(before: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        weights, transition = inputs
        rows = jnp.take_along_axis(transition, before[..., None, None], axis=-2)[..., 0, :]
        after = chosen(rows + weights)
        return after, after

    start = chosen(ahead[0])
    _, after = jax.lax.scan(step, start, (ahead[1:], pair))
    return jnp.moveaxis(jnp.concatenate([start[None], after]), 0, -1)


def _weighted(mean: Array, log: Array) -> Array:
    """The product mean * log with 0 * -inf = 0."""
    return mean * jnp.where((mean == 0) & ~jnp.isfinite(log), 0, log)


def _ratio(mean: Array, log_q: Array, log_p: Array) -> Array:
    """The product mean * (log_q - log_p), zero where the mean is zero."""
    zero = mean == 0
    return mean * (jnp.where(zero, 0, log_q) - jnp.where(zero, 0, log_p))

"""The engine of compiled array programs: GPUs, several devices, and any CPU.

Lambda and its statistics are summed and blended in float64 whatever the precision of the local
step: a small step of a long fit is not rounded away, and the cost is that of V x K numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.compiled import jit
from lowerbound.compute.devices import Placement, whole
from lowerbound.errors import SettingError
from lowerbound.topics.documents import Documents
from lowerbound.topics.inference_steps import BY_DEFAULT, How, Local, Rule
from lowerbound.topics.xla import cvb0, fused, rules
from lowerbound.topics.xla.batch import Batch, Table, packed
from lowerbound.topics.xla.rules import Weights
from lowerbound.topics.xla.spreading import EACH, WHOLE, everywhere, over_rows, platform_of, summed
from lowerbound.topics.xla.sums import by_word


@dataclass(frozen=True)
class XlaEngine:
    """The engine on JAX devices: local steps in `precision`, documents spread over `where`."""

    precision: str = "float32"
    where: Placement | None = None
    name = "xla"

    def __post_init__(self) -> None:
        if self.precision not in rules.FLOORS:
            which = " is no precision of the engine"
            raise SettingError("", "precision", self.precision, '"float32" or "float64"', which)

    def alone(self) -> XlaEngine:
        """Itself: its programs decide the order of all sums."""
        return self

    def place(self, topics: np.ndarray) -> jax.Array:
        """Lambda (V, K), or any array of that shape, on the device in float64."""
        with jax.enable_x64(True):
            return everywhere(topics, self.where, np.float64)

    def fetch(self, array: Any) -> np.ndarray:
        """An array of the engine's, or weights, as NumPy float64."""
        if isinstance(array, Weights):
            rows, logs = self.fetch(array.rows), self.fetch(array.logs)
            unscaled: np.ndarray = rows * np.exp(logs)[:, None]
            return unscaled
        return np.asarray(whole(array), np.float64)

    def pack(self, documents: Documents) -> Batch:
        """Tables of documents on the device; copies overlap what the device does."""
        with jax.enable_x64(True):
            return packed(documents, self.where, self.precision)

    def weights(self, topics: Any, rule: Rule) -> Weights:
        """B (V, K), each row scaled to a largest element of 1."""
        with jax.enable_x64(True):
            weights: Weights = _weights(topics, rule, self.precision)
            return weights

    def local(
        self,
        weights: Any,
        batch: Batch,
        prior: np.ndarray,
        start: Any = None,
        **how: Unpack[How],
    ) -> Local:
        """Iterate the rule for each document; `weights` may be a plain array (V, K) too."""
        where, precision, chosen = self.where, self.precision, BY_DEFAULT | how
        rule = chosen["rule"]
        with jax.enable_x64(True):
            weights = self._scaled(weights)
            alpha = everywhere(prior, where, precision)
            begun = None if start is None else everywhere(start, where, precision)
            limits = _Limits(
                everywhere(chosen["iterations"], where, np.int32),
                everywhere(chosen["tolerance"], where, precision),
            )
            state = _empty(batch.size, weights.rows.shape, precision, where)
            kernel = kernel_for(platform_of(where), len(alpha), rule, precision)
            for table in batch.tables:
                state = _step(state, weights, table, alpha, begun, limits, rule, where, kernel)
            local: Local = _finished(state, weights.rows, batch.documents)
            return local

    def blend(
        self, topics: Any, statistics: Any, prior: np.ndarray, step: float, scale: float
    ) -> jax.Array:
        """(1 - step) lambda + step (eta + scale * statistics), in float64."""
        with jax.enable_x64(True):
            numbers = (everywhere(a, self.where, np.float64) for a in (prior, step, scale))
            sums = everywhere(statistics, self.where, np.float64)
            blended: jax.Array = _blend(topics, sums, *numbers)
            return blended

    def assign(self, documents: Documents, weights: Any, prior: np.ndarray) -> cvb0.Assigned:
        """Phi of every entry given the topics, kept on the device."""
        with jax.enable_x64(True):
            return cvb0.assign(documents, self._scaled(weights), prior, self.where)

    def reassign(
        self, assigned: cvb0.Assigned, prior: np.ndarray, eta: np.ndarray
    ) -> cvb0.Assigned:
        """One sweep of CVB0, a batch of documents at a time."""
        with jax.enable_x64(True):
            return cvb0.reassign(assigned, prior, eta)

    def word_counts(self, assigned: cvb0.Assigned) -> np.ndarray:
        """N_wk (V, K), expected under the current phi."""
        with jax.enable_x64(True):
            return self.fetch(cvb0.word_counts(assigned))

    def document_counts(self, assigned: cvb0.Assigned) -> np.ndarray:
        """N_dk (D, K), expected under the current phi."""
        with jax.enable_x64(True):
            return self.fetch(cvb0.document_counts(assigned))

    def responsibilities(self, assigned: cvb0.Assigned) -> np.ndarray:
        """Phi of every entry (entries, K), as float64."""
        return cvb0.responsibilities(assigned)

    def _scaled(self, weights: Any) -> Weights:
        if isinstance(weights, Weights):
            return weights
        plain = everywhere(weights, self.where, np.float64)
        scaled: Weights = _from_array(plain, self.precision)
        return scaled


def kernel_for(platform: str, topics: int, rule: Rule, precision: str) -> str:
    """What runs the local step: "fused", the GPU kernel, or "loop", which runs everywhere."""
    fits = precision == "float32" and rule != "collapsed"
    return "fused" if fits and fused.usable(platform, topics) else "loop"


class _Limits(NamedTuple):
    iterations: Any
    tolerance: Any


class _State(NamedTuple):
    """Sums over the tables of a batch so far."""

    gamma: Any  # (size, K)
    statistics: Any  # (V, K) float64, to be multiplied by the weights
    bound: Any  # float64
    iterations: Any  # float64


@partial(jit, ahead=True, static_argnames=("rule", "precision"))
def _weights(topics: jax.Array, rule: Rule, precision: str) -> Weights:
    return rules.scaled(topics, rule, precision)


@partial(jit, ahead=True, static_argnames=("precision",))
def _from_array(weights: jax.Array, precision: str) -> Weights:
    return rules.from_logs(jnp.log(weights), precision)


@partial(jit, ahead=True, static_argnames=("size", "shape", "precision", "where"))
def _empty(size: int, shape: tuple[int, int], precision: str, where: Placement | None) -> _State:
    state = _State(
        jnp.zeros((size, shape[1]), precision), jnp.zeros(shape), jnp.zeros(()), jnp.zeros(())
    )
    if where is None:
        return state
    alike: _State = jax.lax.with_sharding_constraint(  # type: ignore[no-untyped-call]
        state, where.replicated
    )
    return alike


@partial(jit, ahead=True, static_argnames=("rule", "where", "kernel"), donate_argnames=("state",))
def _step(
    state: _State,
    weights: Weights,
    table: Table,
    prior: jax.Array,
    start: jax.Array | None,
    limits: _Limits,
    rule: Rule,
    where: Placement | None,
    kernel: str,
) -> _State:
    """Add the documents of a table."""
    size, platform = len(state.gamma), platform_of(where)

    def own_rows(
        weights: Weights, table: Table, prior: jax.Array, start: Any, limits: _Limits
    ) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        words, counts, documents, _ = table
        gamma = (
            rules.started(counts, prior)
            if start is None
            else start[documents.clip(max=len(start) - 1)]
        )
        task = rules.Task(words, counts, gamma, prior, *limits)
        if kernel == "loop":
            solved = rules.solve(weights.rows, task, rule=rule, platform=platform)
        else:
            interpreted = kernel == "interpreted"
            solved = fused.solve(weights.rows, task, rule=rule, interpret=interpreted)
        sums = by_word(
            words, counts, solved.ratio, solved.t, vocabulary=len(weights.rows), platform=platform
        )
        exists = documents < size
        bound = jnp.zeros(())
        if rule == "mean field":
            nats = rules.document_bounds(solved, words, counts, weights.logs, prior)
            bound = jnp.where(exists, nats, 0).astype(jnp.float64).sum()
        used = jnp.where(exists, solved.iterations, 0).sum().astype(jnp.float64)
        return solved.gamma, summed((sums.astype(jnp.float64), bound, used), where)

    spread = over_rows(
        own_rows, where, (WHOLE, EACH, WHOLE, WHOLE, WHOLE), (EACH, (WHOLE, WHOLE, WHOLE))
    )
    gamma, sums = spread(weights, table, prior, start, limits)
    documents = table.documents
    if where is not None:
        gamma, documents = jax.lax.with_sharding_constraint(  # type: ignore[no-untyped-call]
            (gamma, documents), where.replicated
        )
    placed = state.gamma.at[documents].set(gamma, mode="drop")
    return _State(placed, *jax.tree.map(jnp.add, tuple(state[1:]), sums))


@partial(jit, ahead=True, static_argnames=("documents",))
def _finished(state: _State, rows: jax.Array, documents: int) -> Local:
    return Local(
        state.gamma[:documents],
        state.statistics * rows,
        state.bound,
        state.iterations / max(documents, 1),
    )


@partial(jit, ahead=True)
def _blend(
    topics: jax.Array, statistics: jax.Array, prior: jax.Array, step: jax.Array, scale: jax.Array
) -> jax.Array:
    return (1 - step) * topics + step * (prior[:, None] + scale * statistics)

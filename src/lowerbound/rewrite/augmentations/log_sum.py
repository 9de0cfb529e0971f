"""The indicator behind a log-sum written by hand: log sum_k exp(a_k) as a_c of an unknown c."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.extend.core import jaxpr_as_fun
from numpyro.distributions import Distribution

from lowerbound.errors import AugmentationError
from lowerbound.rewrite.augmentations.behind import ELEMENTWISE, Node, replay
from lowerbound.rewrite.augmentations.site import Chosen

# What leads from the sum of exponentials to its logarithm, where the largest term is taken out.
_PASSED = ELEMENTWISE | {"broadcast_in_dim", "reshape", "squeeze", "expand_dims"}
MOST_STEPS = 30  # back from a log-sum to its terms


@dataclass(frozen=True)
class LogSum:
    """The terms a_k of a log-sum, with k along the last axis."""

    terms: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the log-sum."""
        return tuple(self.terms.shape[:-1])

    @property
    def count(self) -> int:
        """How many terms are summed."""
        return int(self.terms.shape[-1])


def factor_indicator(site: Chosen) -> Distribution:
    """A factor that adds log-sums: each gets an indicator c, and gives way to its term a_c."""
    rewriting = _Rewriting(site)
    value = rewriting.given(site.behind("log_factor"))
    if not rewriting.made:
        raise AugmentationError.of_site(
            site.name,
            site.where,
            "is a factor in which no log-sum is seen",
            "jax.scipy.special.logsumexp(terms, axis=-1) of latent sites, or a sum of such. Leave "
            f"'{site.name}' out of augment",
        )
    return dist.Unit(value)


@dataclass
class _Rewriting:
    """One factor while its log-sums are replaced."""

    site: Chosen
    made: list[str] = field(default_factory=list)

    def given(self, node: Node) -> Any:
        """The value of a node with every log-sum that adds to it replaced by its term."""
        if not node.depends:
            return node.value
        found = log_sum(node)
        if found is not None:
            return self.indicated(found)
        match node.operation:
            case "add":
                return self.given(node.inputs[0]) + self.given(node.inputs[1])
            case "sub":
                return self.given(node.inputs[0]) - node.inputs[1].value
            case "reduce_sum":
                return jnp.sum(self.given(node.inputs[0]), axis=node.parameters["axes"])
            case "select_n" if not node.inputs[0].depends and len(node.inputs) == 3:
                which, off, on = node.inputs
                return jnp.where(which.value, self.given(on), self.given(off))
            case "reshape" | "squeeze" | "expand_dims" | "copy":
                return jnp.reshape(self.given(node.inputs[0]), node.shape)
        return node.value

    def indicated(self, found: LogSum) -> Array:
        """A term a_c, and log K to undo the uniform prior of c."""
        own = self.site.shape
        inside = found.shape[: len(own)] == own
        if not inside and own:
            raise AugmentationError.of_site(
                self.site.name,
                self.site.where,
                f"has shape {own}, and a log-sum of shape {found.shape} in it",
                "one log-sum for each of its entries: add other dimensions up before the factor, "
                "or put the factor outside the plate",
            )
        what = "indicator" if not self.made else f"indicator{len(self.made) + 1}"
        self.made.append(what)
        uniform = dist.Categorical(probs=jnp.full(found.count, 1.0 / found.count))
        chosen = self.site.auxiliary(what, uniform, *found.shape[len(own) :])
        return picked(found.terms, chosen) + math.log(found.count)


def picked(terms: Array, chosen: Array) -> Array:
    """terms[..., chosen] along the last axis."""
    hot = jax.nn.one_hot(chosen, terms.shape[-1], dtype=terms.dtype)
    return jnp.sum(hot * terms, axis=-1)


# --------------------------------------------------------------------------------------------------
# Reading


def log_sum(node: Node) -> LogSum | None:
    """The terms of a log-sum; None where the node is none."""
    if _is_log_add(node):
        return LogSum(jnp.stack([n.value for n in node.inputs], axis=-1))
    if node.operation not in ("add", "log"):
        return None
    total = _sum_behind(node)
    if total is None or len(total.parameters["axes"]) != 1:
        return None
    (axis,) = total.parameters["axes"]
    summed = total.inputs[0]
    for source, logs in _candidates(summed):
        if _is_log_sum(source, node, axis, logs):
            terms = source.value if logs else jnp.log(source.value)
            return LogSum(jnp.moveaxis(terms, axis, -1))
    return None


def _is_log_add(node: Node) -> bool:
    """Whether the node is `jnp.logaddexp` of two arrays, by its values at random ones."""
    if node.operation != "custom_jvp_call" or [n.shape for n in node.inputs] != [node.shape] * 2:
        return False
    function = jaxpr_as_fun(node.parameters["call_jaxpr"])
    draws = np.random.default_rng(0).normal(size=(2, *node.shape))
    with jax.ensure_compile_time_eval():
        given = [jnp.asarray(d, n.dtype) for d, n in zip(draws, node.inputs, strict=True)]
        found = np.asarray(function(*given)[node.position])
    return bool(np.allclose(found, np.logaddexp(*draws), rtol=1e-4, atol=1e-4))


def _sum_behind(node: Node) -> Node | None:
    """The sum that a logarithm is taken of."""
    todo, seen = [node], 0
    while todo and seen < MOST_STEPS:
        current = todo.pop()
        seen += 1
        if current.operation == "reduce_sum":
            return current
        if current.operation in _PASSED:
            todo += [n for n in current.inputs if n.depends]
    return None


def _candidates(summed: Node) -> list[tuple[Node, bool]]:
    """Nodes that may be the terms, and whether they are logarithms of what is summed."""
    found: list[tuple[Node, bool]] = []
    if summed.operation == "exp":
        (exponent,) = summed.inputs
        if exponent.operation == "sub":
            found.append((exponent.inputs[0], True))
        found.append((exponent, True))
    found.append((summed, False))
    return found


def _is_log_sum(source: Node, node: Node, axis: int, logs: bool) -> bool:
    """Whether the node equals log sum exp of the source at random values."""
    if not source.depends or axis >= len(source.shape):
        return False
    kept = tuple(n for a, n in enumerate(source.shape) if a != axis)
    if node.shape != kept:
        return False
    draw = np.random.default_rng(0).normal(size=source.shape)
    value = draw if logs else np.exp(draw)
    found = replay(source, node, value.astype(source.dtype))
    expected = np.log(np.sum(np.exp(draw), axis=axis))
    return found is not None and bool(np.allclose(found, expected, rtol=1e-4, atol=1e-4))

"""Discrete factors: categories and counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln, logsumexp
from numpyro.distributions import Distribution

from lowerbound.family.exponential import ExponentialFamily, Mean, Natural, Values
from lowerbound.joint.blocks.block import Block, Layout
from lowerbound.joint.blocks.kind import Extras, Misfit, Observed, Restriction, Uses
from lowerbound.joint.latents import Latent
from lowerbound.joint.terms.domain import COUNT, DISCRETE
from lowerbound.joint.terms.indices import Label, align, varies
from lowerbound.joint.terms.labelled import Atom

__all__ = ["Categorical", "Multinomial", "Poisson"]


def without_factorial(latent: Latent, uses: Uses) -> Misfit | None:
    """A count whose density has no 1/x!, which is the base measure of the families here."""
    if not uses or any(factor.atom.is_base for _, factors in uses for factor in factors):
        return None
    reason = f"its density has no 1/{latent.name}!"
    return Misfit(latent.name, latent.name, latent.name, reason)


def _weighted(mean: Array, log: Array) -> Array:
    """The product mean * log with 0 * -inf = 0."""
    return mean * jnp.where((mean == 0) & ~jnp.isfinite(log), 0, log)


def _centred(logits: Array) -> Array:
    """Logits less their largest, so that differences of huge logits keep their digits."""
    return logits - jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))


def _log_softmax(logits: Array) -> Array:
    centred = _centred(logits)
    return centred - logsumexp(centred, axis=-1, keepdims=True)


def _log_ratio(mean: Array, log_q: Array, log_p: Array) -> Array:
    """The product mean * (log_q - log_p), zero where the mean is zero."""
    zero = mean == 0
    return mean * (jnp.where(zero, 0, log_q) - jnp.where(zero, 0, log_p))


@dataclass(frozen=True)
class Categorical(ExponentialFamily):
    """Category numbers z in 0..K-1 with statistics 1[z = k] (the c_i of eq:gmm-mf-family).

    Natural indicator = logits, shape `batch_shape` + (K,), free up to a constant per batch element
    and -inf allowed; eq:gmm-z-update2 sets them. `dim` is K.

    >>> Categorical((), 2).mean({"indicator": jnp.zeros(2)})["indicator"].tolist()
    [0.5, 0.5]
    """

    dim: int

    kind: ClassVar[str] = "categorical"
    name: ClassVar[str] = "Categorical"
    domains: ClassVar = (DISCRETE,)
    atoms: ClassVar = {"indicator": "indicator"}
    formula: ClassVar[str] = "1[{z} = k]"
    enumerable: ClassVar[bool] = True
    statistic_names: ClassVar[tuple[str, ...]] = ("indicator",)

    @classmethod
    def settings(cls, latent: Latent, uses: Uses) -> dict[str, Any]:
        """The number of values."""
        return {"dim": len(np.asarray(latent.support_values))}

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of the indicators."""
        return {"indicator": (*self.batch_shape, self.dim)}

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """1[z = k]."""
        return {"indicator": jax.nn.one_hot(values["z"], self.dim, dtype=float)}

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = log sum_k exp(logit_k)."""
        return logsumexp(natural["indicator"], axis=-1)

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """The probabilities, softmax of the logits."""
        return {"indicator": jax.nn.softmax(natural["indicator"], axis=-1)}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """The logarithms of the probabilities: the logits whose A is 0."""
        return {"indicator": jnp.log(mean["indicator"])}

    def inner(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """<natural, mean> with 0 * -inf = 0."""
        return jnp.sum(_weighted(mean["indicator"], natural["indicator"]), axis=-1)

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """-sum_k p_k log p_k, exact for logits of any size.

        With logits l and m = max l, log p_k = l_k - m + log p_max: one logarithm per element of
        the batch, none per category.
        """
        p, logits = mean["indicator"], natural["indicator"]
        centred = logits - jnp.max(logits, axis=-1, keepdims=True)
        weighted = p * jnp.where(p > 0, centred, 0)
        return -jnp.log(jnp.max(p, axis=-1)) - jnp.sum(weighted, axis=-1)

    def kl(self, natural_q: Mapping[str, Array], natural_p: Mapping[str, Array]) -> Array:
        """sum_k q_k log(q_k / p_k)."""
        log_q = _log_softmax(natural_q["indicator"])
        log_p = _log_softmax(natural_p["indicator"])
        return jnp.sum(_log_ratio(jnp.exp(log_q), log_q, log_p), axis=-1)

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of z, integers."""
        logits = natural["indicator"]
        return {"z": jax.random.categorical(key, logits, shape=shape + self.batch_shape)}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """Categorical(logits), without NumPyro's check that refuses -inf."""
        return {"z": dist.Categorical(logits=natural["indicator"], validate_args=False)}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """No NaN, no +inf, and some logit above -inf."""
        return jnp.isfinite(jnp.max(natural["indicator"], axis=-1))

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """All categories equally likely."""
        return self._full({"indicator": 0.0})

    def noise(self, rng: np.random.Generator) -> np.ndarray:
        """A number for every category: the largest is chosen."""
        return rng.standard_exponential((*self.batch_shape, self.dim))

    def scattered(self, natural: Mapping[str, Array], mean: Mean, noise: Array) -> Mean:
        """Every element in a category drawn by chance."""
        one = jax.nn.one_hot(jnp.argmax(noise, -1), noise.shape[-1], dtype=noise.dtype)
        return {"indicator": one}


class Counts(ExponentialFamily):
    """Counts x with the statistic x and the base measure h(x) = 1/x!."""

    domains: ClassVar = (COUNT,)
    atoms: ClassVar = {("power", 1.0): "count"}
    value: ClassVar[str] = "x"
    based: ClassVar[bool] = True
    statistic_names: ClassVar[tuple[str, ...]] = ("count",)

    @classmethod
    def misfit(cls, latent: Latent, uses: Uses, sequential: bool = False) -> Misfit | None:
        """Counts without their factorials, too."""
        return super().misfit(latent, uses, sequential) or without_factorial(latent, uses)

    @classmethod
    def log_base(cls, values: Array) -> Array:
        """-log x!."""
        return -gammaln(values + 1.0)

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """The counts themselves."""
        return {"count": as_float(values["x"])}


@dataclass(frozen=True)
class Multinomial(Counts):
    """Counts x of K = `dim` categories that sum to `total` (an extra, shape `batch_shape`).

    Natural count = logits, shape `batch_shape` + (K,); base measure h(x) = prod_k 1/x_k!.
    """

    dim: int

    kind: ClassVar[str] = "multinomial"
    name: ClassVar[str] = "Multinomial"
    alone: ClassVar[bool] = False
    traced: ClassVar[bool] = False  # NumPyro must see the totals
    extra_names: ClassVar[tuple[str, ...]] = ("total",)

    @classmethod
    def restriction(cls, seen: Observed) -> Restriction | None:
        """Counts whose sum over one axis is observed."""
        (*others, term), latent = seen.terms, seen.latent
        if others or len(term.latents) != 1 or term.constants or term.coefficient != 1.0:
            return None
        (factor,) = term.latents
        if factor.atom != Atom(latent.name, domain=COUNT):
            return None
        summed = [a for a, i in enumerate(factor.index) if i not in seen.labels and varies(i)]
        if len(summed) != 1:
            return None
        (axis,) = summed
        batch = tuple(a for a in range(len(latent.shape)) if a != axis)
        layout = Layout(latent.shape, batch, (axis,))
        onto = tuple(i for a, i in enumerate(factor.index) if a != axis and isinstance(i, Label))
        totals = jnp.broadcast_to(
            align(seen.data, seen.data_labels, onto), [i.size for i in onto]
        ).reshape(layout.batch_shape)
        static = {"dim": latent.shape[axis]}
        block = Block(0, cls, {latent.name: layout}, layout.batch_shape, static)
        return Restriction(block, {"total": totals * 1.0})

    @classmethod
    def point(
        cls, latent: Latent, rng: np.random.Generator, moved: float, extras: Extras
    ) -> np.ndarray:
        """Random counts with the observed sums."""
        shape, total = latent.shape, extras["total"]
        axes = range(len(shape))
        axis = next(a for a in axes if (*shape[:a], *shape[a + 1 :]) == total.shape)
        share = np.full(shape[axis], 1.0 / shape[axis])
        return np.moveaxis(rng.multinomial(total.astype(int), share), -1, axis) * 1.0

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of the counts."""
        return {"count": (*self.batch_shape, self.dim)}

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = total * log sum_k exp(logit_k) - log total!."""
        total = natural["total"].astype(natural["count"].dtype)
        return total * logsumexp(natural["count"], axis=-1) - gammaln(total + 1)

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """Expected counts total * softmax(logits)."""
        logits = natural["count"]
        total = natural["total"].astype(logits.dtype)
        return {"count": total[..., None] * jax.nn.softmax(logits, axis=-1)}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """The log proportions of the expected counts, and their sum as `total`."""
        total = jnp.sum(mean["count"], axis=-1)
        empty = total == 0
        share = mean["count"] / jnp.where(empty, 1, total)[..., None]
        logits = jnp.log(jnp.where(empty[..., None], 1 / self.dim, share))
        return {"count": logits, "total": total}

    def inner(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """<natural, mean> with 0 * -inf = 0."""
        return jnp.sum(_weighted(mean["count"], natural["count"]), axis=-1)

    def log_measure(self, natural: Mapping[str, Array], values: Mapping[str, Array]) -> Array:
        """Log h(x) = -sum_k log x_k!."""
        return jnp.sum(self.log_base(values["x"]), axis=-1)

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """The categorical entropy times total, less log total! (relative to h)."""
        total = natural["total"].astype(natural["count"].dtype)
        log_p = _log_softmax(natural["count"])
        return -jnp.sum(_weighted(mean["count"], log_p), axis=-1) - gammaln(total + 1)

    def kl(self, natural_q: Mapping[str, Array], natural_p: Mapping[str, Array]) -> Array:
        """The divergence of one category times the total, which q and p share."""
        log_q, log_p = _log_softmax(natural_q["count"]), _log_softmax(natural_p["count"])
        return jnp.sum(_log_ratio(self.mean(natural_q)["count"], log_q, log_p), axis=-1)

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of the counts, integers."""
        p = jax.nn.softmax(natural["count"], axis=-1)
        total = natural["total"].astype(p.dtype)
        # What `shape=` of `multinomial` counts depends on the version of JAX.
        p = jnp.broadcast_to(p, (*shape, *self.batch_shape, self.dim))
        counts = jax.random.multinomial(key, total, p, dtype=p.dtype)
        return {"x": counts.astype(int)}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """Multinomial(total, logits); NumPyro needs totals that are known, not traced."""
        total = natural["total"].astype(int)
        return {"x": dist.Multinomial(total, logits=natural["count"], validate_args=False)}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """As for the categorical, with total >= 0."""
        return jnp.isfinite(jnp.max(natural["count"], axis=-1)) & (natural["total"] >= 0)

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """All categories equally likely."""
        return {**self._full({"count": 0.0}), **self._extras(extras)}


@dataclass(frozen=True)
class Poisson(Counts):
    """Counts x with natural count = log rate, shape `batch_shape`, and h(x) = 1/x!."""

    kind: ClassVar[str] = "poisson"
    name: ClassVar[str] = "Poisson"

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of the counts."""
        return {"count": self.batch_shape}

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = rate."""
        return jnp.exp(natural["count"])

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """The rate."""
        return {"count": jnp.exp(natural["count"])}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """The logarithm of the rate."""
        return {"count": jnp.log(mean["count"])}

    def inner(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """<natural, mean> with 0 * -inf = 0."""
        return _weighted(mean["count"], natural["count"])

    def log_measure(self, natural: Mapping[str, Array], values: Mapping[str, Array]) -> Array:
        """Log h(x) = -log x!."""
        return self.log_base(values["x"])

    def kl(self, natural_q: Mapping[str, Array], natural_p: Mapping[str, Array]) -> Array:
        """rate_q log(rate_q / rate_p) - rate_q + rate_p."""
        log_q, log_p = natural_q["count"], natural_p["count"]
        rate = jnp.exp(log_q)
        return _log_ratio(rate, log_q, log_p) - rate + jnp.exp(log_p)

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of the counts, integers."""
        rate = jnp.exp(natural["count"])
        return {"x": jax.random.poisson(key, rate, shape + self.batch_shape)}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """Poisson(rate)."""
        return {"x": dist.Poisson(jnp.exp(natural["count"]))}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """A finite rate."""
        return jnp.isfinite(jnp.exp(natural["count"]))

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """Rate 1."""
        return self._full({"count": 0.0})


def as_float(x: Array) -> Array:
    """Counts in a floating type; floating counts as they are."""
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float)

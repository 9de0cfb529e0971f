"""Gaussian factors restricted to an interval, as observed signs make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from lowerbound.family.exponential import Mean, Natural, Values
from lowerbound.family.factors import interval
from lowerbound.family.factors.gaussian import Squares, are_finite
from lowerbound.family.numerics import distributions
from lowerbound.joint.blocks.kind import Extras, Observed, Restriction
from lowerbound.joint.latents import Latent
from lowerbound.joint.terms.domain import REAL
from lowerbound.joint.terms.indices import Label, align, varies
from lowerbound.joint.terms.labelled import Term

__all__ = ["TruncatedNormal"]


@dataclass(frozen=True)
class TruncatedNormal(Squares):
    """Independent normals restricted to (lower, upper), with statistics x and x^2.

    The natural parameters are those of the normal before truncation; `lower` and `upper` (extras,
    shape `batch_shape`) may be infinite elementwise. Exact however far the interval lies in a tail.
    """

    kind: ClassVar[str] = "truncated_normal"
    name: ClassVar[str] = "TruncatedNormal"
    alone: ClassVar[bool] = False
    extra_names: ClassVar[tuple[str, ...]] = ("lower", "upper")

    @classmethod
    def restriction(cls, seen: Observed) -> Restriction | None:
        """1[z > t], or 1 - 1[z > t], is observed of every element."""
        last, latent = seen.terms[-1], seen.latent
        if len(last.latents) != 1 or last.constants:
            return None
        (factor,) = last.latents
        above = _steps_up(seen.terms)
        if factor.atom.function != "step" or latent.domain is not REAL or above is None:
            return None
        if not all(i in seen.labels for i in factor.index if varies(i)):
            return None
        onto = tuple(i for i in factor.index if isinstance(i, Label))
        observed = align(seen.data, seen.data_labels, onto)
        upper_side = jnp.broadcast_to(observed, [i.size for i in onto]) > 0.5
        upper_side = (upper_side if above else ~upper_side).reshape(latent.shape)
        threshold = factor.atom.parameter
        extras = {
            "lower": jnp.where(upper_side, threshold, -jnp.inf),
            "upper": jnp.where(upper_side, jnp.inf, threshold),
        }
        return Restriction(cls.block(latent), extras)

    @classmethod
    def point(
        cls, latent: Latent, rng: np.random.Generator, moved: float, extras: Extras
    ) -> np.ndarray:
        """A random number on the side of the bound that is finite."""
        away = np.abs(rng.normal(size=latent.shape)) + 0.01
        above = np.isfinite(extras["lower"])
        return np.where(above, extras["lower"] + away, extras["upper"] - away)

    def _arguments(self, natural: Mapping[str, Array]) -> tuple[Array, Array, Array, Array]:
        dtype = natural["x"].dtype
        bounds = natural["lower"].astype(dtype), natural["upper"].astype(dtype)
        return natural["x"], natural["x2"], *bounds

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = log of the integral of exp(natural x * x + natural x2 * x^2) over the interval."""
        t = interval.tilted(*self._arguments(natural))
        at_anchor = t.anchor * (natural["x"] + natural["x2"] * t.anchor)
        return at_anchor + t.log_integral - jnp.log(-2 * natural["x2"]) / 2

    def log_measure(self, natural: Mapping[str, Array], values: Mapping[str, Array]) -> Array:
        """Nothing outside of the interval."""
        x = values["x"]
        inside = (x >= natural["lower"]) & (x <= natural["upper"])
        return jnp.where(inside, 0.0, -jnp.inf)

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """E x, strictly between the bounds, and E x^2."""
        arguments = self._arguments(natural)
        t = interval.tilted(*arguments)
        x = interval.inside(t.anchor - t.direction * t.first, *arguments[2:])
        variance = t.direction**2 * (t.second - t.first**2)
        return {"x": x, "x2": x * x + variance}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """Not available: the moments of a truncated normal do not determine its bounds."""
        raise NotImplementedError(
            "TruncatedNormal.natural expects the bounds besides the mean parameters, which have "
            "no closed-form inverse. Keep the natural parameters instead of recovering them."
        )

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """The entropy about the anchor, where nothing cancels."""
        t = interval.tilted(*self._arguments(natural))
        log_scale = -jnp.log(-2 * natural["x2"]) / 2
        return log_scale + t.log_integral + t.slope * t.first + t.second / 2

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of x by inversion."""
        arguments = self._arguments(natural)
        uniform = jax.random.uniform(key, shape + self.batch_shape, arguments[0].dtype)
        return {"x": interval.draw(uniform, *arguments)}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """The truncated normal itself, in a form that is exact in the tails."""
        x, x2, lower, upper = self._arguments(natural)
        scale = 1 / jnp.sqrt(-2 * x2)
        law = distributions.TruncatedNormal(x * scale**2, scale, low=lower, high=upper)
        return {"x": law}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """Positive precision and a non-empty interval."""
        proper = are_finite(natural["x"], natural["x2"]) & (natural["x2"] < 0)
        return proper & (natural["lower"] < natural["upper"])

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """The standard normal restricted to the interval."""
        return {**self._full({"x": 0.0, "x2": -0.5}), **self._extras(extras)}


def _steps_up(terms: Sequence[Term]) -> bool | None:
    """Whether the terms are a step up, or 1 less one; None when they are neither."""
    if len(terms) == 1 and terms[0].coefficient == 1.0:
        return True
    if len(terms) == 2 and not terms[0].factors:
        return False if (terms[0].coefficient, terms[1].coefficient) == (1.0, -1.0) else None
    return None

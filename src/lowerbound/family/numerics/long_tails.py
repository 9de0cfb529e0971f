"""A coordinate of the real line in which power-law tails are exponential ones."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.transforms import ComposeTransform, Transform

__all__ = ["Eased", "easing", "with_easing"]


class Eased(Transform):  # type: ignore[misc]
    """u = centre + width sinh(v): like v within a few widths of the centre, like e^|v| far out.

    A density that falls as |u|^-a falls as e^{-(a-1)|v|}, so that a sum over equally spaced v
    converges as fast as for any other.
    """

    domain = constraints.real
    codomain = constraints.real

    def __init__(self, centre: Any, width: Any) -> None:
        self.centre, self.width = centre, width

    def __call__(self, x: Any) -> Array:
        """Where u is."""
        return jnp.asarray(self.centre + self.width * jnp.sinh(x))

    def _inverse(self, y: Any) -> Array:
        return jnp.arcsinh((y - self.centre) / self.width)

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Array:
        """Log of du/dv, from |v| alone where cosh would overflow."""
        log_cosh = abs(x) + jnp.log1p(jnp.exp(-2 * abs(x))) - jnp.log(2.0)
        return jnp.asarray(jnp.log(self.width) + log_cosh)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """The centre and the width."""
        return (self.centre, self.width), (("centre", "width"), {})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Eased):
            return False
        return bool(self.centre == other.centre and self.width == other.width)


def with_easing(transform: Transform, centre: Any, width: Any) -> Transform:
    """The transform after an easing of its unconstrained coordinate."""
    return ComposeTransform([Eased(centre, width), transform])


def easing(transform: Transform) -> tuple[float, float] | None:
    """Centre and width of the easing that a transform begins with; None where there is none."""
    if isinstance(transform, ComposeTransform) and isinstance(transform.parts[0], Eased):
        first = transform.parts[0]
        return float(first.centre), float(first.width)
    return None

"""Families of location and scale: z = loc + scale * u, where u has the family's standard law.

Of log-normal sites it is log z that has a location and a scale. Between u and z itself are the
coordinates v with z = loc + scale^(1 - c) (v - c loc), for c from 0 (v is u) to 1 (v is z): partly
centred (Papaspiliopoulos, Roberts & Skold 2007).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jax import Array
from numpyro.distributions import Distribution, Normal
from numpyro.infer.reparam import Reparam

# The parameters that a family has beside its location and scale.
LOCATION_SCALE: dict[str, tuple[str, ...]] = {
    "Normal": (),
    "StudentT": ("df",),
    "Laplace": (),
    "Cauchy": (),
    "Logistic": (),
    "Gumbel": (),
    "GaussianRandomWalk": ("num_steps",),
    "MultivariateNormal": (),
    "MultivariateStudentT": ("df",),
    "LogNormal": (),
}


@dataclass(frozen=True, eq=False)
class Affine:
    """z = loc + scale * u entry by entry, or loc + scale u where `scale` is a triangular matrix.

    logs: whether that is log z.
    """

    loc: Any
    scale: Any
    matrix: bool
    logs: bool = False

    def __call__(self, part: Any) -> Array:
        """The value z."""
        if self.matrix:
            return jnp.asarray(self.loc + jnp.einsum("...ij,...j->...i", self.scale, part))
        line = jnp.asarray(self.loc + self.scale * part)
        return jnp.exp(line) if self.logs else line

    def inv(self, value: Any) -> Array:
        """The coordinates u."""
        if not self.matrix:
            line = jnp.log(value) if self.logs else value
            return jnp.asarray((line - self.loc) / self.scale)
        centred = value - self.loc
        scale = jnp.broadcast_to(self.scale, (*centred.shape, centred.shape[-1]))
        return jax.scipy.linalg.solve_triangular(scale, centred[..., None], lower=True)[..., 0]

    def log_abs_det_jacobian(self, part: Any, value: Any) -> Array:
        """Log |dz/du|, entry by entry or by matrix."""
        if not self.matrix:
            volume = jnp.broadcast_to(jnp.log(jnp.abs(self.scale)), jnp.shape(value))
            return volume + jnp.log(value) if self.logs else volume
        scale = jnp.diagonal(self.scale, axis1=-2, axis2=-1)
        return jnp.broadcast_to(jnp.log(jnp.abs(scale)), jnp.shape(value))


def location_scale(base: Distribution) -> Affine:
    """The location and the scale of a distribution without wrappers."""
    known: Any = base
    if hasattr(known, "scale_tril"):
        return Affine(known.loc, known.scale_tril, True)
    walk = type(base).__name__ == "GaussianRandomWalk"
    scale = jnp.asarray(known.scale)[..., None] if walk else known.scale
    return Affine(getattr(known, "loc", 0.0), scale, False, logs=is_positive(type(base).__name__))


def is_positive(distribution: str) -> bool:
    """Whether it is the logarithm of a site of this family that has a location and a scale."""
    return distribution == "LogNormal"


def affine(base: Distribution, centred: Any) -> Affine:
    """The map from the coordinates of a site to its value; of a matrix, c = `centred` is 0 or 1."""
    found = location_scale(base)
    if _never(centred):
        return found
    if found.matrix:
        scale = centred * jnp.eye(found.scale.shape[-1]) + (1.0 - centred) * found.scale
        return Affine((1.0 - centred) * found.loc, scale, True)
    scale = found.scale ** (1.0 - centred)
    return Affine(found.loc * (1.0 - centred * scale), scale, False, found.logs)


class Decentred(Reparam):  # type: ignore[misc]
    """The handler that has a site of their own for the coordinates, at `part`, and makes z of it.

    The density is their own, so nothing is divided by a scale that may be tiny. No one finds that
    site by its name: handlers inside the program, such as `scope`, change it once more.
    """

    def __init__(self, part: Any, centred: Any = 0.0) -> None:
        self.part, self.centred = part, centred

    def __call__(self, name: str, fn: Distribution, obs: Any) -> tuple[None, Array]:
        """No distribution of its own, and the value."""
        base, shape, event_dim = self._unwrap(fn)
        law = self._wrap(_standard(base, self.centred), shape, event_dim)
        part = numpyro.sample(auxiliary(name), law, obs=self.part)
        return None, affine(base, self.centred)(part)


def _standard(base: Any, centred: Any) -> Any:
    """The law of the coordinates: the family with location c loc and scale scale^c."""
    kind = Normal if is_positive(type(base).__name__) else type(base)
    parameters = {name: getattr(base, name) for name in LOCATION_SCALE[kind.__name__]}
    never = _never(centred)
    if hasattr(base, "loc"):
        parameters["loc"] = jnp.zeros_like(base.loc) if never else centred * base.loc
    if hasattr(base, "scale_tril"):
        one = jnp.broadcast_to(jnp.eye(base.scale_tril.shape[-1]), base.scale_tril.shape)
        mixed = one if never else centred * base.scale_tril + (1.0 - centred) * one
        return kind(**parameters, scale_tril=mixed)
    scale = jnp.asarray(base.scale)
    mixed = jnp.ones_like(scale) if never else scale**centred
    return kind(**parameters, scale=mixed)


def _never(centred: Any) -> bool:
    return isinstance(centred, float) and centred == 0.0


def auxiliary(site: str) -> str:
    """The name of the site of u, as NumPyro's own handlers name it."""
    return f"{site}_decentered"


def centring_name(site: str) -> str:
    """The name of the number c among the data."""
    return f"centring of {site}"


def centring(site: str, data: Mapping[str, Any]) -> Any:
    """How far a non-centred site is centred: the number c among the data, or not at all."""
    return data.get(centring_name(site), 0.0)

"""Gaussian factors: scalars and vectors."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import solve_triangular
from numpyro.distributions import Distribution

from lowerbound.family.exponential import ExponentialFamily, Mean, Natural, Values
from lowerbound.family.numerics.definite import (
    inverse_cholesky,
    inverse_of,
    is_positive_definite,
    log_determinant,
    symmetric,
    times_vector,
)
from lowerbound.joint.blocks.block import Block, Gaussians, Layout, Read
from lowerbound.joint.blocks.gaussians import Found, factors_of, read_vector
from lowerbound.joint.blocks.kind import Scale
from lowerbound.joint.latents import Latent
from lowerbound.joint.terms.domain import REAL
from lowerbound.joint.terms.indices import Label
from lowerbound.joint.terms.labelled import Atom, Factor

__all__ = ["MultivariateNormal", "Normal"]

LOG_TWO_PI = math.log(2 * math.pi)


class Squares(ExponentialFamily):
    """Real numbers with the statistics x and x^2, of shape `batch_shape` each."""

    domains: ClassVar = (REAL,)
    atoms: ClassVar = {("power", 1.0): "x", ("power", 2.0): "x2"}
    formula: ClassVar[str] = "{z}, {z}^2"
    value: ClassVar[str] = "x"
    statistic_names: ClassVar[tuple[str, ...]] = ("x", "x2")

    @classmethod
    def reason(cls, atom: Atom) -> str:
        """Powers beyond the second are said to be that."""
        beyond = atom.function == "power"
        return "it is not quadratic in a Gaussian" if beyond else super().reason(atom)

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of x and x^2: `batch_shape` each."""
        return {"x": self.batch_shape, "x2": self.batch_shape}

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """The value and its square."""
        x = values["x"]
        return {"x": x, "x2": x * x}


@dataclass(frozen=True)
class Normal(Squares):
    """Independent normals with statistics x and x^2 (the factors q(mu_k) of eq:gmm-mf-family).

    With precision Lambda and mean m, natural x = Lambda m and natural x2 = -Lambda/2, both of
    shape `batch_shape`.

    >>> Normal(()).mean({"x": jnp.array(2.0), "x2": jnp.array(-0.5)})["x2"].item()
    5.0
    """

    kind: ClassVar[str] = "normal"
    name: ClassVar[str] = "Normal"
    located: ClassVar[bool] = True

    @classmethod
    def describes(cls, latent: Latent) -> bool:
        """Single numbers; arrays may turn out to be vectors."""
        return latent.domain is REAL and not latent.shape

    @classmethod
    def of_gaussians(cls, group: Gaussians, scale: Scale | None) -> Block | None:
        """One site of numbers that meet no others."""
        if group.full or scale is not None:
            return None
        ((name, layout),) = group.layouts.items()
        flat = Layout(layout.shape, tuple(range(len(layout.shape))))
        return Block(0, cls, {name: flat}, layout.shape)

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = Lambda m^2 / 2 - log(Lambda)/2 + log(2 pi)/2."""
        precision = -2 * natural["x2"]
        return natural["x"] ** 2 / (2 * precision) + (LOG_TWO_PI - jnp.log(precision)) / 2

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """Moments m and m^2 + 1/Lambda."""
        precision = -2 * natural["x2"]
        m = natural["x"] / precision
        return {"x": m, "x2": m * m + 1 / precision}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """Lambda m and -Lambda/2 from the mean and the variance."""
        precision = 1 / (mean["x2"] - mean["x"] ** 2)
        return {"x": precision * mean["x"], "x2": -precision / 2}

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """log(2 pi e / Lambda)/2, however large m is."""
        return (LOG_TWO_PI + 1 - jnp.log(-2 * natural["x2"])) / 2

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of x."""
        precision = -2 * natural["x2"]
        m = natural["x"] / precision
        noise = jax.random.normal(key, shape + self.batch_shape, m.dtype)
        return {"x": m + noise / jnp.sqrt(precision)}

    def translated(self, natural: Mapping[str, Array], origin: Array) -> Natural:
        """The same precision about m + origin."""
        return {"x": natural["x"] - 2 * natural["x2"] * origin, "x2": natural["x2"]}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """Normal(m, Lambda^(-1/2))."""
        precision = -2 * natural["x2"]
        return {"x": dist.Normal(natural["x"] / precision, 1 / jnp.sqrt(precision))}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """Lambda > 0."""
        return are_finite(natural["x"], natural["x2"]) & (natural["x2"] < 0)

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """The standard normal."""
        return self._full({"x": 0.0, "x2": -0.5})

    def noise(self, rng: np.random.Generator) -> np.ndarray:
        """Deviations from the mean."""
        return rng.standard_normal(self.batch_shape)

    def scattered(self, natural: Mapping[str, Array], mean: Mean, noise: Array) -> Mean:
        """The mean moved by deviations of at most one."""
        sd = jnp.minimum(jnp.sqrt(jnp.maximum(mean["x2"] - mean["x"] ** 2, 0.0)), 1.0)
        x = mean["x"] + sd * noise
        return {"x": x, "x2": x**2 + sd**2}

    def centre(self, mean: Mapping[str, Array]) -> Values:
        """The mean."""
        return {"x": mean["x"]}


class Joined(ExponentialFamily):
    """A block of Gaussian sites under one quadratic form, with a site that scales it or none."""

    domains: ClassVar = (REAL,)
    value: ClassVar[str] = "x"
    alone: ClassVar[bool] = False
    located: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def product(cls, block: Block, found: Found, private: set[Label]) -> Read | None:
        """The statistic that a product of factors of the scale and of Gaussian entries is."""

    @classmethod
    def read(
        cls, block: Block, factors: Sequence[Factor[Atom]], private: set[Label]
    ) -> list[Read] | None:
        """One statistic has all factors."""
        found = factors_of(block, factors)
        read = None if found is None else cls.product(block, found, private)
        return None if read is None else [read]


@dataclass(frozen=True)
class MultivariateNormal(Joined):
    """Independent normal vectors of length `dim` with statistics x and x x'.

    With precision matrix Lambda and mean m, natural x = Lambda m, shape `batch_shape` + (D,), and
    natural xx = -Lambda/2, shape `batch_shape` + (D, D).
    """

    dim: int

    kind: ClassVar[str] = "gaussian"
    name: ClassVar[str] = "MultivariateNormal"
    is_vector: ClassVar[bool] = True
    statistic_names: ClassVar[tuple[str, ...]] = ("x", "xx")

    @classmethod
    def describes(cls, latent: Latent) -> bool:
        """Arrays of numbers."""
        return latent.domain is REAL and bool(latent.shape)

    @classmethod
    def of_gaussians(cls, group: Gaussians, scale: Scale | None) -> Block | None:
        """Sites that meet in one quadratic form."""
        if not group.full or scale is not None:
            return None
        return Block(0, cls, group.layouts, group.batch_shape, {"dim": group.dimension})

    @classmethod
    def symmetric(cls, static: Mapping[str, Any]) -> tuple[str, ...]:
        """The outer product."""
        return ("xx",)

    @classmethod
    def product(cls, block: Block, found: Found, private: set[Label]) -> Read | None:
        """One entry of x, or two of x x'."""
        return read_vector(block, ("x", "xx"), found[1])

    @classmethod
    def text(cls, block: Block, site: str) -> str:
        """The vector and its outer product."""
        x = " ".join(block.layouts)
        return f"({x}), ({x})({x})'" if len(block.layouts) > 1 else f"{x}, {x} {x}'"

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of x and x x'."""
        return {
            "x": (*self.batch_shape, self.dim),
            "xx": (*self.batch_shape, self.dim, self.dim),
        }

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """The vector and its outer product."""
        x = values["x"]
        return {"x": x, "xx": x[..., :, None] * x[..., None, :]}

    def _cholesky(self, natural: Mapping[str, Array]) -> Array:
        result: Array = jnp.linalg.cholesky(-2 * symmetric(natural["xx"]))
        return result

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = m' Lambda m / 2 - log|Lambda|/2 + D log(2 pi)/2."""
        cholesky = self._cholesky(natural)
        half = solve_triangular(cholesky, natural["x"][..., None], lower=True)[..., 0]
        square = jnp.sum(half * half, axis=-1)
        return (square - log_determinant(cholesky) + self.dim * LOG_TWO_PI) / 2

    def _moments(self, natural: Mapping[str, Array]) -> tuple[Array, Array]:
        root = inverse_cholesky(self._cholesky(natural))
        transposed = jnp.swapaxes(root, -1, -2)
        return times_vector(transposed, times_vector(root, natural["x"])), transposed @ root

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """Moments m and m m' + Lambda^-1."""
        m, covariance = self._moments(natural)
        return {"x": m, "xx": m[..., :, None] * m[..., None, :] + covariance}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """Lambda m and -Lambda/2 from the mean and the covariance."""
        m = mean["x"]
        precision = inverse_of(symmetric(mean["xx"]) - m[..., :, None] * m[..., None, :])
        return {"x": times_vector(precision, m), "xx": -precision / 2}

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """D log(2 pi e)/2 - log|Lambda|/2, however large m is."""
        return (self.dim * (LOG_TWO_PI + 1) - log_determinant(self._cholesky(natural))) / 2

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of x."""
        root = inverse_cholesky(self._cholesky(natural))
        m = times_vector(jnp.swapaxes(root, -1, -2), times_vector(root, natural["x"]))
        noise = jax.random.normal(key, (*shape, *self.batch_shape, self.dim), m.dtype)
        return {"x": m + jnp.einsum("...ji,...j->...i", root, noise)}

    def translated(self, natural: Mapping[str, Array], origin: Array) -> Natural:
        """The same precision about m + origin."""
        moved = natural["x"] - 2 * times_vector(symmetric(natural["xx"]), origin)
        return {"x": moved, "xx": natural["xx"]}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """MultivariateNormal(m, Lambda^-1)."""
        m, covariance = self._moments(natural)
        scale_tril = jnp.linalg.cholesky(covariance)
        return {"x": dist.MultivariateNormal(m, scale_tril=scale_tril)}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """Lambda positive definite."""
        finite = jnp.all(jnp.isfinite(natural["x"]), axis=-1)
        return finite & is_positive_definite(-2 * symmetric(natural["xx"]))

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """The standard normal."""
        shapes = self.statistic_shapes()
        precision = jnp.broadcast_to(jnp.eye(self.dim, dtype=float), shapes["xx"])
        return {"x": jnp.zeros(shapes["x"], float), "xx": -precision / 2}

    def noise(self, rng: np.random.Generator) -> np.ndarray:
        """Deviations from the mean."""
        return rng.standard_normal((*self.batch_shape, self.dim))

    def scattered(self, natural: Mapping[str, Array], mean: Mean, noise: Array) -> Mean:
        """The mean moved by deviations of at most one, and nothing correlated."""
        x = mean["x"]
        variance = jnp.diagonal(mean["xx"], axis1=-2, axis2=-1) - x**2
        sd = jnp.minimum(jnp.sqrt(jnp.maximum(variance, 0.0)), 1.0)
        x = x + sd * noise
        outer = x[..., :, None] * x[..., None, :]
        return {"x": x, "xx": outer + (sd**2)[..., None] * jnp.eye(x.shape[-1], dtype=x.dtype)}

    def centre(self, mean: Mapping[str, Array]) -> Values:
        """The mean."""
        return {"x": mean["x"]}


def are_finite(*arrays: Array) -> Array:
    """True where every array is finite."""
    result = jnp.isfinite(arrays[0])
    for array in arrays[1:]:
        result = result & jnp.isfinite(array)
    return result

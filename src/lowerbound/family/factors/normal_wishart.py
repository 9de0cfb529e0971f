"""A Gaussian vector together with its precision matrix: the block of the paper's appendix B."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import solve_triangular
from numpyro.distributions import Distribution

from lowerbound.family.exponential import Mean, Natural, Values
from lowerbound.family.factors.gaussian import LOG_TWO_PI, Joined
from lowerbound.family.factors.precision import Wishart, bartlett
from lowerbound.family.numerics.definite import log_determinant, symmetric, times_vector
from lowerbound.joint.blocks.block import Block, Gaussians, Layout, Read, same_index
from lowerbound.joint.blocks.gaussians import Found
from lowerbound.joint.blocks.kind import Scale
from lowerbound.joint.terms.indices import Label, index_key

__all__ = ["NormalWishart"]


@dataclass(frozen=True)
class NormalWishart(Joined):
    """x given L is Normal(m, (kappa L)^-1) in `dim` dimensions; L is Wishart: q(mu, Lambda).

    The block of app:cavi. L (the value z) has density proportional to
    |L|^(a - (D+1)/2) exp(-tr(B L)). Statistics: matrix = L, logdet = log|L|, px = L x,
    xpx = x' L x. Natural: matrix = -B - kappa m m'/2, logdet = a - D/2, px = kappa m,
    xpx = -kappa/2.
    """

    dim: int

    kind: ClassVar[str] = "normal_wishart"
    name: ClassVar[str] = "Normal-Wishart"
    statistic_names: ClassVar[tuple[str, ...]] = ("matrix", "logdet", "px", "xpx")

    @classmethod
    def of_gaussians(cls, group: Gaussians, scale: Scale | None) -> Block | None:
        """One Gaussian site with a Wishart site of its shape and one axis more."""
        if scale is None or scale.family is not Wishart or len(group.layouts) != 1:
            return None
        ((name, layout),) = group.layouts.items()
        if Wishart.settings(scale.latent, scale.uses)["inverse"]:
            return None
        if layout.shape != scale.latent.shape[:-1]:
            return None
        rank = len(layout.shape)
        moved = Layout(layout.shape, tuple(range(rank - 1)), (rank - 1,))
        static = {"dim": layout.shape[-1]}
        return Block(0, cls, {name: moved}, moved.batch_shape, static, scale.latent.name)

    @classmethod
    def symmetric(cls, static: Mapping[str, Any]) -> tuple[str, ...]:
        """L."""
        return ("matrix",)

    @classmethod
    def product(cls, block: Block, found: Found, private: set[Label]) -> Read | None:
        """log|L|, L, L x summed over one of its axes, or x' L x summed over both."""
        scales, gaussians = found
        if len(scales) != 1:
            return None
        (scale,) = scales
        number, copies, size = block.number, block.batch_shape, block.static["dim"]
        if scale.atom.function == "logdet":
            return None if gaussians else Read(number, "logdet", (), copies, scale.index)
        *batch, i, j = scale.index
        if not gaussians:
            return Read(number, "matrix", (), (*copies, size, size), scale.index)
        if not same_index(tuple(batch), *(w[:-1] for _, w in gaussians)):
            return None
        ends = [w[-1] for _, w in gaussians]
        if any(not isinstance(e, Label) or (e not in private and size > 1) for e in ends):
            return None
        if len(ends) == 2:
            if {index_key(e) for e in ends} != {index_key(i), index_key(j)}:
                return None
            return Read(number, "xpx", (), copies, tuple(batch))
        for contracted, other in ((i, j), (j, i)):
            if index_key(ends[0]) == index_key(contracted):
                return Read(number, "px", (), (*copies, size), (*batch, other))
        return None

    @classmethod
    def text(cls, block: Block, site: str) -> str:
        """Those of the precision, and its products with x."""
        z, x = block.scale or site, " ".join(block.layouts)
        return f"{z}, log|{z}|, {z} {x}, {x}' {z} {x}"

    def statistic_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of L, log|L|, L x and x' L x."""
        batch, d = self.batch_shape, self.dim
        return {"matrix": (*batch, d, d), "logdet": batch, "px": (*batch, d), "xpx": batch}

    def statistics(self, values: Mapping[str, Array]) -> Mean:
        """L, log|L|, L x and x' L x."""
        matrix, x = symmetric(values["z"]), values["x"]
        px = times_vector(matrix, x)
        logdet = log_determinant(jnp.linalg.cholesky(matrix))
        return {"matrix": matrix, "logdet": logdet, "px": px, "xpx": jnp.sum(x * px, axis=-1)}

    def _split(self, natural: Mapping[str, Array]) -> tuple[Natural, Array, Array]:
        """Natural parameters of the Wishart marginal of L, then m and kappa."""
        kappa = -2 * natural["xpx"]
        px = natural["px"]
        m = px / kappa[..., None]
        matrix = symmetric(natural["matrix"]) + px[..., :, None] * m[..., None, :] / 2
        return {"matrix": symmetric(matrix), "logdet": natural["logdet"] - 0.5}, m, kappa

    @property
    def _leaf(self) -> Wishart:
        return Wishart(self.batch_shape, self.dim)

    def log_normalizer(self, natural: Mapping[str, Array]) -> Array:
        """A = log Gamma_D(a) - a log|B| + D log(2 pi / kappa)/2."""
        wishart, _, kappa = self._split(natural)
        gaussian = self.dim * (LOG_TWO_PI - jnp.log(kappa)) / 2
        return self._leaf.log_normalizer(wishart) + gaussian

    def mean(self, natural: Mapping[str, Array]) -> Mean:
        """E L = a B^-1, E log|L|, (E L) m, and m' (E L) m + D/kappa."""
        wishart, m, kappa = self._split(natural)
        leaf = self._leaf.mean(wishart)
        px = times_vector(leaf["matrix"], m)
        return {**leaf, "px": px, "xpx": jnp.sum(m * px, axis=-1) + self.dim / kappa}

    def natural(self, mean: Mapping[str, Array]) -> Natural:
        """Invert m = (E L)^-1 E L x, D/kappa = E x' L x - m' E L x, and the Wishart."""
        px = mean["px"]
        cholesky = jnp.linalg.cholesky(symmetric(mean["matrix"]))
        m = jax.scipy.linalg.cho_solve((cholesky, True), px[..., None])[..., 0]
        kappa = self.dim / (mean["xpx"] - jnp.sum(m * px, axis=-1))
        leaf = self._leaf.natural(mean)
        outer = kappa[..., None, None] * m[..., :, None] * m[..., None, :]
        return {
            "matrix": leaf["matrix"] - outer / 2,
            "logdet": leaf["logdet"] + 0.5,
            "px": kappa[..., None] * m,
            "xpx": -kappa / 2,
        }

    def entropy(self, natural: Mapping[str, Array], mean: Mapping[str, Array]) -> Array:
        """Entropy of L plus that of x given L: however large m is, nothing cancels."""
        wishart, _, kappa = self._split(natural)
        conditional = self.dim * (LOG_TWO_PI + 1 - jnp.log(kappa)) - mean["logdet"]
        return self._leaf.entropy(wishart, mean) + conditional / 2

    def sample(
        self, natural: Mapping[str, Array], key: Array, shape: tuple[int, ...] = ()
    ) -> Values:
        """Draws of L by Bartlett's decomposition, then of x given L."""
        z_key, x_key = jax.random.split(key)
        wishart, m, kappa = self._split(natural)
        a = self._leaf._shape(wishart)
        factor = bartlett(z_key, a, self.dim, shape + self.batch_shape)
        cholesky = jnp.broadcast_to(jnp.linalg.cholesky(-wishart["matrix"]), factor.shape)
        half = solve_triangular(cholesky, factor, lower=True, trans=1) / math.sqrt(2)
        noise = jax.random.normal(x_key, factor.shape[:-1], m.dtype)
        # half' ^-1 noise has covariance L^-1; half'^-1 = sqrt(2) C T'^-1
        noise = solve_triangular(factor, noise[..., None], lower=True, trans=1)
        x = m + times_vector(cholesky, noise[..., 0]) * jnp.sqrt(2 / kappa)[..., None]
        return {"z": half @ jnp.swapaxes(half, -1, -2), "x": x}

    def translated(self, natural: Mapping[str, Array], origin: Array) -> Natural:
        """The same kappa and Wishart about m + origin: x' L x expands into the other statistics."""
        px, xpx = natural["px"], natural["xpx"]
        outer = (xpx[..., None] * origin - px)[..., :, None] * origin[..., None, :]
        matrix = natural["matrix"] + symmetric(outer)
        moved = px - 2 * xpx[..., None] * origin
        return {"matrix": matrix, "logdet": natural["logdet"], "px": moved, "xpx": xpx}

    def marginals(self, natural: Mapping[str, Array]) -> dict[str, Distribution]:
        """L Wishart; x a multivariate Student t with 2a - D + 1 degrees of freedom."""
        wishart, m, kappa = self._split(natural)
        dof = 2 * self._leaf._shape(wishart) - self.dim + 1
        spread = jnp.sqrt(2 / (kappa * dof))[..., None, None]
        scale_tril = spread * jnp.linalg.cholesky(-wishart["matrix"])
        x = dist.MultivariateStudentT(dof, m, scale_tril)
        return {**self._leaf.marginals(wishart), "x": x}

    def in_domain(self, natural: Mapping[str, Array]) -> Array:
        """Weight kappa > 0, a > (D - 1)/2 and B positive definite."""
        wishart, m, _ = self._split(natural)
        finite = jnp.all(jnp.isfinite(m), axis=-1)
        return finite & (natural["xpx"] < 0) & self._leaf.in_domain(wishart)

    def default(self, extras: Mapping[str, Array] | None = None) -> Natural:
        """L Wishart with D + 1 degrees of freedom and mean I; x standard normal given L = I."""
        leaf = self._leaf.default()
        rest = self._full({"px": 0.0, "xpx": -0.5})
        return {"matrix": leaf["matrix"], "logdet": leaf["logdet"] + 0.5, **rest}

    def centre(self, mean: Mapping[str, Array]) -> Values:
        """The precision at its mean, and x at its mean given that."""
        solved = jnp.linalg.solve(mean["matrix"], mean["px"][..., None])[..., 0]
        return {"z": mean["matrix"], "x": solved}

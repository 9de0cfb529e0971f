"""The mean-field family: the named product of factors q(z) = prod_j q_j(z_j) (eq:mf-family)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from lowerbound.compiled import Kept
from lowerbound.compiled.host import lightly, readily
from lowerbound.family.exponential import ExponentialFamily, Natural
from lowerbound.family.host_draws import all_drawn
from lowerbound.family.numerics.distributions import SiteAxes
from lowerbound.family.numerics.paths import Paths
from lowerbound.family.registry import family_of
from lowerbound.joint import Block, Statistics
from lowerbound.joint.blocks.block import Layout

_equal: Kept[dict[object, Any]] = Kept(64)


@dataclass(frozen=True)
class MeanField:
    """One exponential family per block, and the packing of sites into blocks."""

    most_together: ClassVar[int] = 96
    blocks: tuple[Block, ...]
    families: tuple[ExponentialFamily, ...]

    @classmethod
    def of(cls, blocks: tuple[Block, ...]) -> MeanField:
        """The families that the blocks' kinds name."""
        return cls(blocks, tuple(family_of(b.kind, b.batch_shape, **b.static) for b in blocks))

    @cached_property
    def compiled(self) -> dict[object, Any]:
        """What was compiled for families that are equal: of another fit, or read from a file."""
        blocks = [(b.number, b.family, b.scale, tuple(b.layouts.items())) for b in self.blocks]
        return _equal.of((self.families, *blocks), dict)

    def statistics(self, values: Mapping[str, Array], arrays: Sequence[Array] = ()) -> Statistics:
        """t(z) of every block at point values of the sites; `arrays` is the compressed data."""
        return tuple(
            family.statistics({**block.pack(values), **block.constants(arrays)})
            for block, family in zip(self.blocks, self.families, strict=True)
        )

    def sample(
        self,
        naturals: tuple[Natural, ...],
        key: Array,
        shape: tuple[int, ...] = (),
        sites: Collection[str] | None = None,
    ) -> dict[str, Array]:
        """Independent draws with leading axes `shape`: of all sites, or of the factors of some."""
        numbers = [n for n, b in enumerate(self.blocks) if sites is None or set(b.sites) & {*sites}]

        def draw(naturals: tuple[Natural, ...], key: Array) -> dict[str, Array]:
            values: dict[str, Array] = {}
            keys = jax.random.split(key, len(self.blocks))  # one draw, whatever is left out
            for n in numbers:
                drawn = self.families[n].sample(naturals[n], keys[n], shape)
                values.update(self.blocks[n].unpack(drawn))
            return values

        drawn: dict[str, Array] = self.jitted(("sample", shape, *numbers), draw)(naturals, key)
        return drawn

    def weighed(
        self, naturals: tuple[Natural, ...], seed: int, count: int
    ) -> tuple[dict[str, Array], Array] | None:
        """Draws of all sites and log q at them.

        The draws are NumPy's, and what is left is run by it too, where it can be. None where a
        factor has no such draws.
        """
        packed = all_drawn(self.families, naturals, count, seed)
        if packed is None:
            return None

        def unpacked(
            naturals: tuple[Natural, ...], packed: Sequence[Mapping[str, Array]]
        ) -> tuple[dict[str, Array], Array]:
            values: dict[str, Array] = {}
            total = jnp.zeros(())
            parts = zip(self.blocks, self.families, naturals, packed, strict=True)
            for block, family, natural, drawn in parts:
                values.update(block.unpack(drawn))
                each = family.log_prob(natural, drawn)
                total = total + each.sum(axis=tuple(range(1, each.ndim)))
            return values, total

        key = ("weighed", count)
        if key not in self.compiled:
            self.compiled[key] = lightly(unpacked)
        found: tuple[dict[str, Array], Array] = self.compiled[key](naturals, packed)
        return found

    def log_prob(self, naturals: tuple[Natural, ...], values: Mapping[str, Array]) -> Array:
        """Log q(z) = sum_j log q_j(z_j) of draws; discrete sites are indices, as in `sample`.

        Elements that the program masks out count with the factor that they are drawn from.
        """

        def density(naturals: tuple[Natural, ...], values: Mapping[str, Array]) -> Array:
            total = jnp.zeros(())
            for block, family, natural in zip(self.blocks, self.families, naturals, strict=True):
                packed = jax.vmap(block.pack)({site: values[site] for site in block.sites})
                each = family.log_prob(natural, packed)
                total = total + each.sum(axis=tuple(range(1, each.ndim)))
            return total

        own = {site: jnp.asarray(values[site]) for block in self.blocks for site in block.sites}
        found: Array = self.jitted("log_prob", density)(naturals, own)
        return found

    def without(
        self, naturals: tuple[Natural, ...], sites: Collection[str]
    ) -> tuple[MeanField, tuple[Natural, ...]] | None:
        """The factors of the other sites; None where one factor has sites of both."""
        kept = [number for number, b in enumerate(self.blocks) if not set(b.sites) & set(sites)]
        if any(set(b.sites) & set(sites) and set(b.sites) - set(sites) for b in self.blocks):
            return None
        key = ("without", *sorted(sites))
        if key not in self.compiled:
            blocks = tuple(replace(self.blocks[n], number=i) for i, n in enumerate(kept))
            self.compiled[key] = MeanField(blocks, tuple(self.families[n] for n in kept))
        return self.compiled[key], tuple(naturals[n] for n in kept)

    def jitted(self, key: object, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, jitted once for all fits of equal families."""

        def call(*args: Any) -> Any:
            leaves = jax.tree.leaves(args)
            if not leaves or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
                return function(*args)  # of no factors at all, or inside another compiled function
            if key not in self.compiled:
                self.compiled[key] = readily(function)
            # NumPyro validates with dozens of small compilations, even inside a trace.
            with numpyro.validation_enabled(False):
                return self.compiled[key](*args)

        return call

    def means(self, naturals: tuple[Natural, ...]) -> Statistics:
        """The mean parameters of every block."""

        def every(naturals: tuple[Natural, ...]) -> Statistics:
            return tuple(f.mean(n) for f, n in zip(self.families, naturals, strict=True))

        found: Statistics = self.jitted("means", every)(naturals)
        return found

    def proper(self, naturals: tuple[Natural, ...]) -> tuple[Array, ...]:
        """Whether all factors of a block are proper densities, for every block."""

        def every(naturals: tuple[Natural, ...]) -> tuple[Array, ...]:
            pairs = zip(self.families, naturals, strict=True)
            return tuple(family.in_domain(natural).all() for family, natural in pairs)

        found: tuple[Array, ...] = self.jitted("proper", every)(naturals)
        return found

    def present(self, natural: Natural, arrays: Sequence[Array], number: int) -> Natural:
        """The natural parameters with elements that the model masks out at the default."""
        slot = self.blocks[number].presence
        if slot is None:
            return natural
        default = self.families[number].default(natural)
        kept = arrays[slot]
        return {k: _where(kept, a, default[k].astype(a.dtype)) for k, a in natural.items()}

    def entropy(
        self, naturals: Sequence[Natural], means: Statistics, arrays: Sequence[Array], number: int
    ) -> Array:
        """The entropy A(lambda) - <lambda, mu> of a block, summed over the elements present."""
        entropy = self.families[number].entropy(naturals[number], means[number])
        slot = self.blocks[number].presence
        kept = entropy if slot is None else jnp.where(arrays[slot], entropy, 0.0)
        return kept.sum(dtype=float)

    def marginal(self, naturals: tuple[Natural, ...], site: str) -> Distribution:
        """The marginal density of one site under q, as a NumPyro distribution."""
        if not self.block_of(site).family.traced:
            return self._marginal(naturals, site)
        law: Distribution = self.jitted(
            ("marginal", site), lambda naturals: self._marginal(naturals, site)
        )(naturals)
        return law

    def block_of(self, site: str) -> Block:
        """The block that a site belongs to."""
        return next(block for block in self.blocks if site in block.sites)

    def _marginal(self, naturals: tuple[Natural, ...], site: str) -> Distribution:
        block = self.block_of(site)
        number, natural = block.number, naturals[block.number]
        laws = self.families[number].marginals(natural)
        if site == block.scale:
            return laws["z"]
        law = laws["x"] if "x" in laws else laws["z"]
        layout = block.layouts[site]
        if block.is_vector:
            law = _entries(law, layout)
        return _arranged(law, layout)

    def moments(self, naturals: tuple[Natural, ...], site: str) -> tuple[Array, Array]:
        """Mean and variance of one site under q, elementwise."""

        def both(naturals: tuple[Natural, ...]) -> tuple[Array, Array]:
            law = self.marginal(naturals, site)
            if isinstance(law, dist.TransformedDistribution) and law.transforms:
                axes = law.transforms[-1]
                if isinstance(axes, SiteAxes):
                    base = law.base_dist
                    while isinstance(base, dist.Independent):
                        base = base.base_dist
                    return axes(base.mean), axes(base.variance)
            return law.mean, law.variance

        moments: tuple[Array, Array] = self.jitted(("moments", site), both)(naturals)
        return moments


def _where(present: Array, first: Array, second: Array) -> Array:
    spread = present.reshape(present.shape + (1,) * (first.ndim - present.ndim))
    return jnp.where(spread, first, second)


def _entries(law: Distribution, layout: Layout) -> Distribution:
    """The marginal of some entries of a Gaussian or Student vector, or of a path."""
    if isinstance(law, Paths):
        return law if layout.vector else law.one(layout.start)
    part = slice(layout.start, layout.start + layout.size)
    loc = law.loc[..., part]
    if isinstance(law, dist.MultivariateStudentT):
        rows = law.scale_tril[..., part, :]
        scale = rows @ jnp.swapaxes(rows, -1, -2)
        if not layout.vector:
            return dist.StudentT(law.df, loc[..., 0], jnp.sqrt(scale[..., 0, 0]))
        return dist.MultivariateStudentT(law.df, loc, jnp.linalg.cholesky(scale))
    covariance = law.covariance_matrix[..., part, part]
    if not layout.vector:
        return dist.Normal(loc[..., 0], jnp.sqrt(covariance[..., 0, 0]))
    return dist.MultivariateNormal(loc, covariance)


def _arranged(law: Distribution, layout: Layout) -> Distribution:
    """The law with its axes in the site's own order."""
    order = (*layout.batch, *layout.vector)
    if isinstance(law, Paths):
        return law.on_axis(layout.vector[0])
    if order == tuple(range(len(order))) and len(layout.vector) <= max(1, law.event_dim):
        return law
    whole = law.to_event(len(law.batch_shape))
    return dist.TransformedDistribution(whole, SiteAxes(layout.shape, order, whole.event_shape))

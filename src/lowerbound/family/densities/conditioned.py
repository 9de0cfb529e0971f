"""Structured densities q(theta) q(z | theta): a few scalars on a grid, the rest given each node.

q(theta) is proportional to p(theta) exp(conditional ELBO). The grid is a tensor grid in the
unconstrained coordinates u = origin + axes t, so that moments are sums over its nodes; draws of
theta interpolate the log density where it is one scalar, with z from a node beside it; of several
scalars, whose nodes lie further apart, they are nodes themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from jax.scipy.special import logsumexp
from numpyro.distributions import (
    CategoricalLogits,
    CategoricalProbs,
    Distribution,
)
from numpyro.distributions.transforms import Transform

from lowerbound.compiled import in_two
from lowerbound.compiled.host import readily
from lowerbound.cost import mapped
from lowerbound.family.densities.between_nodes import (
    density_at_nodes,
    density_in_cells,
    drawn_places,
    finer,
)
from lowerbound.family.densities.gridded import Interpolated, NodeMixture, usable
from lowerbound.family.variational import Variational, marginal_without

KNOTS = 512  # of the marginal density of a scalar
NUMBERS_AT_ONCE = 2_000_000  # in the parameters of the draws that are made together


@dataclass(frozen=True, eq=False)
class Conditioned:
    """The density of scalars `sites` on a grid and of the sites of `inner` given them.

    Parameters: "origin" (k,), "axes" (k, k), "first" (k,), "spacing" (k,) place the nodes at
    origin + axes (first + spacing i); "log_weights" (n_1, ..., n_k) sum to one after exp; "inner"
    holds parameters of `inner`, stacked in front; "solved" says which of them each node has, in
    the same order, and may be left out where every node has its own.
    """

    most_together: ClassVar[int] = 32  # every draw has a node's parameters: a matrix
    sites: tuple[str, ...]
    transforms: tuple[Transform, ...]
    inner: Variational
    compiled: dict[object, Any] = field(default_factory=dict, repr=False)

    def values(self, parameters: Mapping[str, Any]) -> dict[str, Array]:
        """The values of the scalars at every node, (G,) each."""
        return self._values(self.transforms, _nodes(parameters))

    def sample(
        self, parameters: Mapping[str, Any], key: Array, shape: tuple[int, ...] = ()
    ) -> dict[str, Array]:
        """Independent draws of all sites, with leading axes `shape`; they keep the dependence."""

        def draw(
            transforms: tuple[Transform, ...], parameters: Mapping[str, Any], key: Array
        ) -> dict[str, Array]:
            first, second = jax.random.split(key)
            place, nodes = drawn_places(parameters["log_weights"], first, math.prod(shape))
            if _at_nodes(parameters):
                place = jnp.stack(jnp.unravel_index(nodes, parameters["log_weights"].shape), -1)
            t = parameters["first"] + parameters["spacing"] * place
            values = self._values(transforms, parameters["origin"] + t @ parameters["axes"].T)

            nodes = parameters["solved"][nodes] if "solved" in parameters else nodes
            keys = jax.random.split(second, math.prod(shape))
            values |= self._by_node(self.inner.sample, parameters["inner"], nodes, keys)
            return {name: a.reshape(shape + a.shape[1:]) for name, a in values.items()}

        drawn: dict[str, Array] = self._run(("sample", shape), draw, parameters, key)
        return drawn

    def log_prob(self, parameters: Mapping[str, Any], values: Mapping[str, Array]) -> Array:
        """Log q(theta) + log q(z | theta) of draws.

        Of one scalar, or of scalars alone: the density of the draws, exactly, which is constant in
        each cell between nodes; z is given the node that a draw of this theta takes. Of several
        scalars with others given them, whose draws are nodes: the spline through log weights over
        the volume of a cell, which integrates to one as far as the nodes sum to it, and z given
        the nearest node. -inf beyond the nodes.
        """

        def density(
            transforms: tuple[Transform, ...],
            parameters: Mapping[str, Any],
            values: Mapping[str, Array],
        ) -> Array:
            scalars = [values[site] for site in self.sites]
            parts = [t.inv(value) for t, value in zip(transforms, scalars, strict=True)]
            triples = zip(transforms, parts, scalars, strict=True)
            volume = sum(t.log_abs_det_jacobian(u, value) for t, u, value in triples)
            u = jnp.stack(parts, axis=-1) - parameters["origin"]
            t = jnp.linalg.solve(parameters["axes"], u[..., None])[..., 0]
            place = (t - parameters["first"]) / parameters["spacing"]
            volume += jnp.linalg.slogdet(parameters["axes"])[1]
            volume += jnp.sum(jnp.log(parameters["spacing"]))
            found = density_at_nodes if _at_nodes(parameters) else density_in_cells
            log_density, nodes = found(parameters["log_weights"], place)
            nodes = parameters["solved"][nodes] if "solved" in parameters else nodes

            def density_rest(own: Any, values: Mapping[str, Array]) -> Array:
                one = {name: value[None] for name, value in values.items()}
                return self.inner.log_prob(own, one).reshape(())

            others = {name: v for name, v in values.items() if name not in self.sites}
            rest = self._by_node(density_rest, parameters["inner"], nodes, others)
            return jnp.asarray(log_density - volume + rest)

        own = {name: jnp.asarray(value) for name, value in values.items()}
        found: Array = self._run("log_prob", density, parameters, own)
        return found

    def at_nodes(
        self, parameters: Mapping[str, Any], nodes: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The scalars at some nodes, and log q(theta) there, which needs no interpolation."""
        places = np.stack(np.unravel_index(nodes, parameters["log_weights"].shape), axis=-1)
        t = np.asarray(parameters["first"]) + np.asarray(parameters["spacing"]) * places
        u = np.asarray(parameters["origin"]) + t @ np.asarray(parameters["axes"]).T

        def scalars(transforms: tuple[Transform, ...], u: Array) -> tuple[dict[str, Array], Array]:
            values = self._values(transforms, u)
            volume = jnp.zeros(len(u))
            for number, (site, transform) in enumerate(zip(self.sites, transforms, strict=True)):
                volume += transform.log_abs_det_jacobian(u[:, number], values[site])
            return values, volume

        values, volume = self._run(("at_nodes", len(nodes)), scalars, u)
        cell = np.linalg.slogdet(np.asarray(parameters["axes"]))[1]
        cell += np.log(np.asarray(parameters["spacing"])).sum()
        log_weights = np.asarray(parameters["log_weights"]).ravel()[nodes]
        found = {site: np.asarray(value) for site, value in values.items()}
        return found, log_weights - cell - np.asarray(volume)

    def moments(self, parameters: Mapping[str, Any], site: str) -> tuple[Array, Array]:
        """Mean and variance of one site under q, elementwise, by sums over the nodes."""

        def both(
            transforms: tuple[Transform, ...], parameters: Mapping[str, Any]
        ) -> tuple[Array, Array]:
            weights = jnp.exp(parameters["log_weights"].ravel())
            if site in self.sites:
                means = self._values(transforms, _nodes(parameters))[site]
                variances = jnp.zeros_like(means)
            else:
                weights = _weights(parameters)
                means, variances = mapped(
                    lambda p: self.inner.moments(p, site), parameters["inner"], what="one node"
                )
            finite = (jnp.isfinite(means) & jnp.isfinite(variances)).reshape(len(weights), -1)
            kept = usable(weights, finite.all(axis=1))
            means, variances = (
                jnp.where(kept.reshape((-1,) + (1,) * (a.ndim - 1)), a, 0.0)
                for a in (means, variances)
            )
            weights = jnp.where(kept, weights, 0.0)
            weights /= weights.sum()
            mean = jnp.tensordot(weights, means, 1)
            between = jnp.tensordot(weights, (means - mean) ** 2, 1)
            return mean, jnp.tensordot(weights, variances, 1) + between

        moments: tuple[Array, Array] = self._run(("moments", site), both, parameters)
        return moments

    def marginal(self, parameters: Mapping[str, Any], site: str) -> Distribution:
        """The marginal density of one site under q, as a NumPyro distribution."""

        def law(transforms: tuple[Transform, ...], parameters: Mapping[str, Any]) -> Distribution:
            moments = self.moments(parameters, site)
            if site in self.sites:
                number = self.sites.index(site)
                low, step, log_density = _marginal_density(parameters, number)
                return Interpolated(low, step, log_density, moments, transforms[number])
            weights = _weights(parameters)
            each = jax.vmap(lambda p: self.inner.marginal(p, site))(parameters["inner"])
            if isinstance(each, CategoricalProbs | CategoricalLogits):
                shares = jax.vmap(lambda law: law.probs)(each)
                return CategoricalProbs(jnp.tensordot(weights, shares, 1))
            return NodeMixture(each, jnp.log(weights), moments)

        found: Distribution = self._run(("marginal", site), law, parameters)
        return found

    def without(
        self, parameters: Mapping[str, Any], sites: Collection[str]
    ) -> tuple[Conditioned, Mapping[str, Any]] | None:
        """The same scalars with the other sites given them."""
        found = marginal_without(self.inner, parameters["inner"], sites)
        if found is None or set(sites) & set(self.sites):
            return None
        key = ("without", *sorted(sites))
        if key not in self.compiled:
            self.compiled[key] = Conditioned(self.sites, self.transforms, found[0])
        return self.compiled[key], {**parameters, "inner": found[1]}

    def _by_node(self, function: Callable[..., Any], given: Any, nodes: Array, more: Any) -> Any:
        """The function of the inner parameters of a node and of more, for every draw."""
        leaves = jax.tree.leaves(given)
        if leaves and len(nodes) > len(leaves[0]):  # each node is prepared once, not each draw
            own, one = (jax.tree.map(lambda a: a[0], tree) for tree in (given, more))
            prepare, function = in_two(function, own, one)
            given = jax.vmap(prepare)(given)

        def rest(node: Array, one: Any) -> Any:
            return function(jax.tree.map(lambda a: a[node], given), one)

        numbers = sum(a.size // a.shape[0] for a in jax.tree.leaves(given)) + 1
        together = max(1, NUMBERS_AT_ONCE // numbers)
        return mapped(rest, nodes, more, most=together, what="one draw")

    def _values(self, transforms: tuple[Transform, ...], u: Array) -> dict[str, Array]:
        return {
            site: transform(u[..., number])
            for number, (site, transform) in enumerate(zip(self.sites, transforms, strict=True))
        }

    def _run(self, key: object, function: Callable[..., Any], *args: Any) -> Any:
        """The function of the transforms and `args`, jitted once for all fits of one program."""
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
            return function(self.transforms, *args)  # inside another compiled function
        key = ("conditioned", self.sites, key)
        if key not in self.compiled:
            self.compiled[key] = readily(function)
        # NumPyro validates with dozens of small compilations, even inside a trace.
        with numpyro.validation_enabled(False):
            return self.compiled[key](self.transforms, *args)


def _weights(parameters: Mapping[str, Any]) -> Array:
    """The probability of every set of parameters of the inner density: that of its nodes."""
    weights = jnp.exp(parameters["log_weights"].ravel())
    if "solved" not in parameters:
        return weights
    count = len(jax.tree.leaves(parameters["inner"])[0])
    return jnp.zeros(count, weights.dtype).at[parameters["solved"]].add(weights)


def _nodes(parameters: Mapping[str, Any]) -> Array:
    """The unconstrained coordinates of all nodes, (G, k)."""
    shape = parameters["log_weights"].shape
    index = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    index = index.reshape(-1, len(shape))
    t = parameters["first"] + parameters["spacing"] * index
    nodes: Array = parameters["origin"] + t @ parameters["axes"].T
    return nodes


def _at_nodes(parameters: Mapping[str, Any]) -> bool:
    """Whether draws of theta are nodes: where these are far apart, and others are given them.

    Functions of theta and z then need the theta of z's own node.
    """
    return parameters["log_weights"].ndim > 1 and bool(jax.tree.leaves(parameters["inner"]))


def _marginal_density(parameters: Mapping[str, Any], number: int) -> tuple[Array, Array, Array]:
    """Knots of one unconstrained coordinate (the first, their distance) and log density there.

    For each knot the coordinate fixes one grid axis given the others, which are summed out.
    """
    log_weights = parameters["log_weights"]
    k = log_weights.ndim
    row = parameters["axes"][number]
    # The axis that moves the coordinate most, counted over the whole grid.
    reach = abs(row) * parameters["spacing"] * jnp.asarray(log_weights.shape)
    solved = jnp.argmax(reach)
    nodes = _nodes(parameters)[:, number].reshape(log_weights.shape)
    counts = log_weights > log_weights.max() - 30.0
    low = jnp.where(counts, nodes, jnp.inf).min()
    high = jnp.where(counts, nodes, -jnp.inf).max()
    knots = jnp.linspace(low, high, KNOTS + 1)

    def along(axis: int) -> Array:
        size = log_weights.shape[axis]
        fine = finer(jnp.moveaxis(log_weights, axis, 0), 16, centres=False)
        fine = fine.reshape((-1, math.prod(log_weights.shape) // size))
        start = jnp.moveaxis(nodes, axis, 0)[0].ravel()  # of every line along the axis
        slope = row[axis] * parameters["spacing"][axis]
        place = (knots[:, None] - start) / jnp.where(slope == 0.0, 1.0, slope) * 16

        def line(values: Array, at: Array) -> Array:
            inside = (at >= -1e-6) & (at <= len(values) - 1 + 1e-6)
            found = jnp.interp(at, jnp.arange(len(values)), values)
            return jnp.where(inside, found, -jnp.inf)

        lines = jax.vmap(line, in_axes=(1, 1), out_axes=1)(fine, place)
        return logsumexp(lines, axis=1)

    log_density = jax.lax.switch(solved, [lambda a=a: along(a) for a in range(k)])
    floor = log_density.max() - 60.0
    return low, (high - low) / KNOTS, jnp.maximum(log_density, floor)

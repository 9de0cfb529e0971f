"""Quadrature on the line: panels find the mass, whatever its place, width and number of modes."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import Array

from lowerbound.compiled import quickly
from lowerbound.family.numerics import line


@quickly
def normals(location: Array, scale: Array) -> tuple[Array, Array, Array, Array]:
    """log integral, mean, whether proper, and the panels of exp(-(u - location)^2 / 2 scale^2)."""

    def g(u: Array) -> Array:
        return -(((u - location) / scale) ** 2) / 2

    placed = line.place(lambda u: g(u)[None], location.shape, location.dtype)
    u, weight = line.rule(placed.edges)
    mass = weight * jnp.exp(g(u))
    total = jnp.sum(mass, axis=0)
    return jnp.log(total), jnp.sum(mass * u, axis=0) / total, placed.proper, placed.edges


def test_normals_of_every_place_and_width() -> None:
    grid = np.meshgrid([0.0, 0.7, -300.0, 1e6], 10.0 ** np.arange(-5, 6))
    location, scale = (a.ravel() for a in grid)
    location, scale = location[abs(location) < 1e7 * scale], scale[abs(location) < 1e7 * scale]
    log_integral, mean, proper, edges = normals(jnp.asarray(location), jnp.asarray(scale))
    assert np.all(proper)
    np.testing.assert_allclose(log_integral, np.log(scale * np.sqrt(2 * np.pi)), atol=1e-8)
    np.testing.assert_allclose((mean - location) / scale, 0, atol=1e-8)
    # The panels reach where the density is negligible, and not much further.
    ends = np.abs(np.asarray(edges)[[0, -1]] - location) / scale
    assert np.all((ends > 8) & (ends < 60))


def test_single_precision() -> None:
    scale = jnp.asarray([1e-2, 1.0, 1e4], "float32")
    log_integral, mean, proper, _ = normals(jnp.zeros(3, "float32"), scale)
    assert log_integral.dtype == mean.dtype == "float32"
    assert np.all(proper)
    np.testing.assert_allclose(log_integral, np.log(np.asarray(scale) * np.sqrt(2 * np.pi)), 1e-5)


@quickly
def profiles_of(kind: Array) -> tuple[Array, Array]:
    """log integral and properness of five shapes in one batch."""

    def g(u: Array) -> Array:
        lean = jnp.stack(
            [1e-3 * u[:, 0] - jnp.exp(u[:, 0]), 0.01 * _tent(u[:, 1]), -jnp.exp(u[:, 2])]
        )
        two = jnp.logaddexp(-(((u[:, 3] + 6) / 0.5) ** 2) / 2, -(((u[:, 3] - 8) / 2) ** 2) / 2 - 9)
        return (
            jnp.moveaxis(jnp.concatenate([lean, two[None], 0.1 * u[None, :, 4]]), 0, 1) + 0 * kind
        )

    placed = line.place(lambda u: g(u)[None], (5,), kind.dtype)
    u, weight = line.rule(placed.edges)
    return jnp.log(jnp.sum(weight * jnp.exp(g(u)), axis=0)), placed.proper


def _tent(u: Array) -> Array:
    return jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u)


def test_long_tails_corners_and_second_modes() -> None:
    log_integral, proper = profiles_of(jnp.zeros(()))
    np.testing.assert_array_equal(proper, [True, True, False, True, False])
    two = np.log(np.sqrt(2 * np.pi) * (0.5 + 2 * np.exp(-9)))
    expected = [scipy.special.gammaln(1e-3), scipy.special.betaln(0.01, 0.01), two]
    np.testing.assert_allclose(np.asarray(log_integral)[[0, 1, 3]], expected, rtol=1e-9)


def test_quantiles_invert_the_distribution_function() -> None:
    p = np.concatenate([[1e-9], np.linspace(0.001, 0.999, 101)])

    @quickly
    def both(scale: Array, p: Array) -> tuple[Array, Array, Array]:
        def density(u: Array) -> Array:
            return jnp.exp(-u / scale - jnp.exp(-u / scale)) / scale  # Gumbel

        placed = line.place(lambda u: jnp.log(density(u))[None], (2,), scale.dtype)
        u, weight = line.rule(placed.edges)
        table = line.cumulative(placed.edges, weight * density(u))
        rough = line.invert(table, p)
        return rough, line.polished(table, density, p, rough), line.below(table, rough)

    scale = jnp.asarray([1e-3, 50.0])
    rough, fine, back = both(scale, jnp.broadcast_to(p[:, None], (len(p), 2)))
    expected = -np.log(-np.log(p))[:, None]
    np.testing.assert_allclose(rough / scale, np.broadcast_to(expected, rough.shape), atol=1e-5)
    np.testing.assert_allclose(fine / scale, np.broadcast_to(expected, fine.shape), atol=1e-8)
    np.testing.assert_allclose(back, np.broadcast_to(p[:, None], back.shape), atol=1e-12)


def test_narrow_densities_that_the_net_knows_at_one_node() -> None:
    """Between nodes 2 apart, log(1 - p) is finite on one of them; beyond, p is one to rounding."""
    place, width = np.meshgrid([-3.6, -4.4, -7.9, 12.1], [0.02, 0.15])
    location, scale = jnp.asarray(place.ravel()), jnp.asarray(width.ravel())

    def g(u: Array) -> Array:
        known = jnp.abs(u - location) < 1.5
        return jnp.where(known, -(((u - location) / scale) ** 2) / 2, -jnp.inf)

    @quickly
    def found(zero: Array) -> tuple[Array, Array, Array]:
        rows = lambda u: jnp.stack([g(u) + zero, g(u) + 2 * u])  # noqa: E731
        placed = line.place(rows, location.shape, location.dtype)
        u, weight = line.rule(placed.edges)
        return jnp.log(jnp.sum(weight * jnp.exp(g(u)), axis=0)), placed.proper, placed.counted

    log_integral, proper, counted = found(jnp.zeros(()))
    assert np.all(proper)
    assert np.all(counted)
    np.testing.assert_allclose(log_integral, np.log(scale * np.sqrt(2 * np.pi)), atol=1e-8)

"""Warped coordinates: increasing maps that can be undone, and laws that they make normal."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions.transforms import StickBreakingTransform
from scipy import stats

from lowerbound.compiled import quickly
from lowerbound.model import trace_model
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.skewed import LogGamma, LogitBeta
from lowerbound.rewrite.warped import (
    FAR,
    GRID,
    Sticks,
    Warp,
    straight_table,
    warp_name,
    warped,
)

# Shapes of which the first is small, both are, none is, and the second is.
SHAPES = np.array([[0.02, 0.9], [0.1, 300.0], [0.1, 0.1], [1.0, 9.0], [40.0, 70.0], [5.0, 0.05]])
LAWS = {"beta": LogitBeta, "gamma": LogGamma}
INSIDE = np.array([-7.3, -3.31, -1.0, -0.02, 0.0, 0.25, 1.9, 6.6])
BEYOND = np.array([-30.0, -FAR, FAR, 12.5])


def table_of(kind):
    return LAWS[kind](np.zeros(len(SHAPES))).table(SHAPES)


@pytest.mark.parametrize("kind", LAWS)
@pytest.mark.parametrize("precision", [np.float64, np.float32])
def test_the_map_can_be_undone_and_its_slope_is_its_derivative(kind, precision):
    """At knots, between them and beyond the ends; at a knot the slope is no average of two."""
    table = table_of(kind).astype(precision)
    u = np.concatenate([INSIDE, BEYOND]).astype(precision)[:, None] * np.ones(len(SHAPES))
    with jax.enable_x64(precision is np.float64):
        map_ = Warp(jnp.asarray(table))
        x, slope = quickly(lambda u: (map_(u), map_.log_abs_det_jacobian(u, u)))(
            u.astype(precision)
        )
        back = quickly(map_._inverse)(x)
        single = jax.vmap(jax.vmap(jax.grad(lambda u, t: Warp(t)(u)), (0, 0)), (0, None))
        derivative = quickly(single)(u, table)
    assert x.dtype == precision
    rough = 1e-9 if precision is np.float64 else 2e-3
    np.testing.assert_allclose(back, u, rtol=rough, atol=rough)
    np.testing.assert_allclose(np.log(derivative), slope, atol=10 * rough)
    assert (np.diff(np.sort(u, axis=0), axis=0) > 0).all()
    assert (np.diff(np.asarray(x)[np.argsort(u[:, 0])], axis=0) > 0).all()


def test_numpy_and_jax_have_one_map():
    table, u = table_of("beta"), INSIDE[:, None] * np.ones(len(SHAPES))
    with jax.enable_x64(True):
        np.testing.assert_allclose(warped(u, table, np), quickly(warped)(u, table), rtol=1e-12)


def test_a_straight_table_changes_nothing():
    u = np.concatenate([INSIDE, BEYOND])
    x, slope = warped(u, straight_table(u.shape), np)
    np.testing.assert_allclose(x, u, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(slope, 0.0, atol=1e-14)


@pytest.mark.parametrize(("kind", "law"), [("beta", stats.beta), ("gamma", stats.gamma)])
def test_normal_numbers_have_the_law(kind, law):
    """At knots, and within 1e-4 sds of u between them: quantiles of SciPy, unless these round."""
    table = table_of(kind)
    for entry, (first, second) in enumerate(SHAPES):
        own = law(first, second) if kind == "beta" else law(first, scale=1.0 / second)
        for u, most in ((GRID[20:45:4], 1e-9), (GRID[20:45:4] + 0.11, 1e-4)):
            x, slope = warped(u, np.broadcast_to(table[entry], (len(u), *table.shape[1:])), np)
            z = own.ppf(stats.norm.cdf(u))
            fine = (z > 1e-250) & (z < 1.0 - 1e-6 if kind == "beta" else True)
            x, slope, z = x[fine], slope[fine], z[fine]
            known = np.log(z) - (np.log1p(-z) if kind == "beta" else 0.0)
            assert fine.any()
            assert np.all(np.abs(x - known) < most * np.exp(slope))


@pytest.mark.parametrize("kind", LAWS)
def test_the_nearest_law_is_the_law_itself(kind):
    """Whatever the draws at which its slopes are read."""
    law = LAWS[kind](np.zeros(len(SHAPES)))
    x = np.random.default_rng(0).normal(-2.0, 4.0, (200, len(SHAPES)))
    slopes = sum(part * shape for part, shape in zip(law.parts(x), SHAPES.T, strict=True))
    np.testing.assert_allclose(law.nearest(x, slopes, 0.02), SHAPES, rtol=1e-5)
    assert (law.nearest(x, -slopes, 0.02) > 0).all()


def test_sticks_are_those_of_numpyro_and_reach_further():
    x = np.random.default_rng(1).normal(0.0, 3.0, (5, 4))

    def broken(x, sticks):
        y = sticks(x)
        return y, sticks._inverse(y), sticks.log_abs_det_jacobian(x, y)

    with jax.enable_x64(True):
        own, other = quickly(lambda x: (broken(x, Sticks()), broken(x, StickBreakingTransform())))(
            x
        )
        far = np.array([[60.0, -60.0], [900.0, -2000.0]])
        y, back, _ = quickly(lambda x: broken(x, Sticks()))(far)
    for one, two in zip(own, other, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8)
    np.testing.assert_allclose(own[1], x, rtol=1e-10)
    np.testing.assert_allclose(back[0], far[0], rtol=1e-10)
    assert np.isfinite(np.log(y)).all()


def sparse(y):
    with numpyro.plate("rows", 2):
        p = numpyro.sample("p", dist.Dirichlet(jnp.array([0.1, 0.5, 2.0])))
    rate = numpyro.sample("rate", dist.Gamma(0.3, 2.0).expand([2, 2]).to_event(2))
    share = numpyro.sample("share", dist.Beta(0.2, 0.8))
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mean + share + (p[:, :2] * rate).sum(), 1.0), obs=y)


KINDS = {"p": LogitBeta, "rate": LogGamma, "share": LogitBeta}


@pytest.fixture(scope="module")
def coordinates():
    with jax.enable_x64(True):
        model = trace_model(sparse, (np.array([0.3, 1.2]),), {})
        return Coordinates.of(model, warped=tuple(KINDS))


@pytest.fixture(scope="module")
def data(coordinates):
    """Tables of laws with shapes of their own for every entry."""
    rng, found = np.random.default_rng(2), dict(coordinates.program().arguments.data)
    for name, kind in KINDS.items():
        shape = coordinates.shapes[name]
        shapes = np.exp(rng.normal(-1.0, 1.0, (*shape, 2)))
        found[warp_name(name)] = kind(np.zeros(shape)).table(shapes)
    return found


@pytest.fixture(scope="module")
def u(coordinates):
    return np.random.default_rng(3).normal(size=coordinates.size)


def density(coordinates, u, data):
    with jax.enable_x64(True):
        return float(quickly(coordinates.log_density)(u, data))


def test_the_density_is_that_of_the_program_with_the_volume(coordinates, data, u):
    def known(u, data):
        values = coordinates.constrain(u, data)
        place, volume = coordinates.placed(values, data)
        whole = coordinates.program().log_density(values, data) + volume
        return place, coordinates.unconstrain(values, data), whole

    with jax.enable_x64(True):
        place, back, whole = quickly(known)(u, data)
    np.testing.assert_allclose(place, u, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(back, u, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(density(coordinates, u, data), whole, rtol=1e-9)


def test_the_volume_is_that_of_the_derivative(coordinates, data, u):
    def numbers(u):
        values = coordinates.constrain(u, data)
        values["p"] = values["p"][:, :-1]  # the last share follows
        return jnp.concatenate([jnp.ravel(values[name]) for name in coordinates.shapes])

    def known(u):
        return coordinates.placed(coordinates.constrain(u, data), data)[1]

    with jax.enable_x64(True):
        matrix, volume = quickly(lambda u: (jax.jacfwd(numbers)(u), known(u)))(u)
    np.testing.assert_allclose(np.linalg.slogdet(matrix)[1], volume, rtol=1e-8)


def test_straight_tables_are_the_coordinates_that_were(coordinates, u):
    plain = Coordinates.of(coordinates.program())
    tables = {warp_name(n): straight_table(coordinates.shapes[n]) for n in KINDS}
    own = coordinates.program().arguments.data
    known = density(plain, u, own)
    np.testing.assert_allclose(density(coordinates, u, {**own, **tables}), known, rtol=1e-10)


def test_a_wrong_slope_is_found(coordinates, data, u, monkeypatch):
    """The law of the density fails where the logarithm of a slope is left out."""
    right = density(coordinates, u, data)
    monkeypatch.setattr(Warp, "log_abs_det_jacobian", lambda self, x, *rest, **_: 0.0 * x)
    assert abs(density(coordinates, u, data) - right) > 0.1

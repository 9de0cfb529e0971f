"""Level, slope and season with unknown scales, as a scan whose state moves on, and otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from numpyro.contrib.control_flow import scan
from scipy.stats import halfnorm, multivariate_normal, norm

import lowerbound as lb
from lowerbound.methods.hierarchy.finding_theta import predictors_of
from lowerbound.methods.hierarchy.inner.parabolas import surface_of
from lowerbound.model import trace_model

SEASONS = 4
Y = np.array([0.4, 1.9, -1.0, 0.6, 1.1, 2.4, -0.4, 1.0, 1.3, 2.2, 0.1, 1.4, 2.0])
THETA = np.array([-0.5, -1.0, -0.2])


def scales():
    names = ("level_scale", "season_scale", "noise")
    found = [numpyro.sample(name, dist.LogNormal(-0.7, 0.5)) for name in names]
    level = numpyro.sample("level0", dist.Normal(0.0, 2.0))
    return found, level, numpyro.sample("season0", dist.Normal(0.0, 1.0).expand([3]).to_event(1))


def stepped(move):
    """A scan whose step samples the level and the season; `move` makes the next seasons."""

    def program(y):
        (a, b, noise), level, season = scales()

        def step(state, y):
            level, season = state
            level = numpyro.sample("level", dist.Normal(level, a))
            new = numpyro.sample("season", dist.Normal(-jnp.sum(season), b))
            numpyro.sample("y", dist.Normal(level + new, noise), obs=y)
            return (level, move(new, season)), None

        scan(step, (level, season), y)

    return program


by_concatenation = stepped(lambda new, s: jnp.concatenate([new[None], s[:-1]]))
by_roll = stepped(lambda new, s: jnp.roll(s, 1).at[0].set(new))
by_stack = stepped(lambda new, s: jnp.stack([new, s[0], s[1]]))


def by_matrix(y):
    (a, b, noise), level, season = scales()
    move = np.array([[-1.0, -1.0, -1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])

    def step(state, y):
        level, season = state
        level = numpyro.sample("level", dist.Normal(level, a))
        moved = move @ season
        new = numpyro.sample("season", dist.Normal(moved[0], b))
        numpyro.sample("y", dist.Normal(level + new, noise), obs=y)
        return (level, jnp.concatenate([new[None], moved[1:]])), None

    scan(step, (level, season), y)


def by_innovations(y):
    (a, b, noise), level, season = scales()

    def step(state, y):
        level, season = state
        level = level + a * numpyro.sample("e", dist.Normal(0.0, 1.0))
        new = b * numpyro.sample("f", dist.Normal(0.0, 1.0)) - jnp.sum(season)
        numpyro.sample("y", dist.Normal(level + new, noise), obs=y)
        return (level, jnp.concatenate([new[None], season[:-1]])), None

    scan(step, (level, season), y)


def by_loop(y):
    (a, b, noise), level, season = scales()
    seasons = list(season)
    for t in range(len(y)):
        level = numpyro.sample(f"level_{t}", dist.Normal(level, a))
        new = numpyro.sample(f"season_{t}", dist.Normal(-sum(seasons), b))
        seasons = [new, *seasons[:-1]]
        numpyro.sample(f"y_{t}", dist.Normal(level + new, noise), obs=y[t])


WAYS = {
    "concatenation": by_concatenation,
    "roll": by_roll,
    "stack": by_stack,
    "matrix": by_matrix,
    "innovations": by_innovations,
    "loop": by_loop,
}


def covariance(a: float, b: float, noise: float) -> np.ndarray:
    """That of y, by running the recurrences on every source of noise by itself."""
    n = len(Y)
    seasons, levels = np.zeros((SEASONS - 1, 3 + n)), np.zeros((n, 1 + n))
    seasons[:, :3] = np.eye(3)
    found = np.zeros((n, 3 + n))
    for t in range(n):
        new = -seasons.sum(axis=0)
        new[3 + t] += b
        seasons = np.stack([new, *seasons[:-1]])
        found[t] = new
        levels[t, 0], levels[t, 1 : 2 + t] = 2.0, a
    return levels @ levels.T + found @ found.T + noise**2 * np.eye(n)


@pytest.mark.parametrize("program", WAYS.values(), ids=WAYS)
def test_every_way_has_the_density_of_the_scales(program):
    with jax.enable_x64(True):
        predictors = predictors_of(trace_model(program, (Y,)))
        found = surface_of(predictors)(THETA, (), False)
    expected = multivariate_normal(cov=covariance(*np.exp(THETA))).logpdf(Y)
    expected += norm.logpdf(THETA, -0.7, 0.5).sum()
    assert predictors.is_quadratic
    assert found.value == pytest.approx(expected, rel=1e-9)


def test_no_step_meets_more_than_a_year():
    with jax.enable_x64(True):
        for program in (by_concatenation, by_roll, by_innovations):
            found = predictors_of(trace_model(program, (Y,)))
            assert np.bincount(found.rows).max() <= 2 * SEASONS


def test_a_level_that_grows_by_a_level():
    """Sums of sums: a trend whose slope is a random walk, and a second sum of increments."""

    def trend(y):
        a, b = (numpyro.sample(name, dist.HalfNormal(1.0)) for name in ("a", "b"))
        with numpyro.plate("steps", len(y)):
            e = numpyro.sample("e", dist.Normal(0.0, 1.0))
            f = numpyro.sample("f", dist.Normal(0.0, 1.0))
        slope = jnp.cumsum(b * f)
        numpyro.sample("y", dist.Normal(jnp.cumsum(slope + a * e), 0.5), obs=y)

    def smooth(y):
        b = numpyro.sample("b", dist.HalfNormal(1.0))
        f = numpyro.sample("f", dist.Normal(0.0, b).expand([len(y)]).to_event(1))
        numpyro.sample("y", dist.Normal(jnp.cumsum(jnp.cumsum(f)), 0.5), obs=y)

    n, sums = len(Y), np.tril(np.ones((len(Y), len(Y))))
    twice = sums @ sums
    for program, t in ((trend, np.array([-0.4, -1.2])), (smooth, np.array([-1.2]))):
        with jax.enable_x64(True):
            predictors = predictors_of(trace_model(program, (Y,)))
            found = surface_of(predictors)(t, (), False)
        assert predictors.back is not None
        assert np.bincount(predictors.rows).max() <= 6
        total = np.exp(2 * t[-1]) * twice @ twice.T + 0.25 * np.eye(n)
        if program is trend:
            total += np.exp(2 * t[0]) * sums @ sums.T
        expected = multivariate_normal(cov=total).logpdf(Y) + halfnorm.logpdf(np.exp(t)).sum()
        assert found.value == pytest.approx(expected + t.sum(), rel=1e-9)


def test_an_autoregression_of_innovations_with_an_unknown_coefficient():
    def program(y):
        phi = numpyro.sample("phi", dist.Uniform(-1.0, 1.0))
        a = numpyro.sample("a", dist.HalfNormal(1.0))

        def step(state, y):
            last, before = state
            z = phi * last - 0.2 * before + a * numpyro.sample("e", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(z, 0.5), obs=y)
            return (z, last), None

        scan(step, (0.0, 0.0), y)

    t = np.array([0.7, -0.4])
    with jax.enable_x64(True):
        predictors = predictors_of(trace_model(program, (Y,)))
        found = surface_of(predictors)(t, (), False)
    assert predictors.back is not None
    phi, a, n = 2 / (1 + np.exp(-0.7)) - 1, np.exp(-0.4), len(Y)
    steps = np.eye(n) - phi * np.eye(n, k=-1) + 0.2 * np.eye(n, k=-2)
    root = a * np.linalg.inv(steps)
    expected = multivariate_normal(cov=root @ root.T + 0.25 * np.eye(n)).logpdf(Y)
    expected += halfnorm.logpdf(a) + t[1] + np.log((1 - phi**2) / 4)
    assert found.value == pytest.approx(expected, rel=1e-9)


def test_sums_without_increments_of_their_own_stay_products():
    def program(y):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        knots = numpyro.sample("knots", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        bend = jnp.cumsum(jnp.repeat(knots, 5)[: len(y)])
        trend = jnp.cumsum(jnp.full(len(y), slope))
        numpyro.sample("y", dist.Normal(trend + bend, noise), obs=y)

    with jax.enable_x64(True):
        found = predictors_of(trace_model(program, (Y,)))
    assert found.back is None


@pytest.fixture(scope="module")
def fit():
    return lb.fit(by_concatenation, Y, method=lb.Integrated())


def test_a_season_is_integrated_over_its_scales(fit):
    assert fit.answer.exact
    nodes, weights = np.polynomial.hermite_e.hermegauss(14)
    grid, weights = np.exp(0.5 * nodes - 0.7), weights / weights.sum()
    mass = np.empty((14, 14, 14))
    for i, j, k in np.ndindex(mass.shape):
        mass[i, j, k] = multivariate_normal(cov=covariance(grid[i], grid[j], grid[k])).pdf(Y)
    mass *= np.einsum("i,j,k->ijk", weights, weights, weights)
    assert fit.elbo == pytest.approx(np.log(mass.sum()), abs=0.02)
    mass = mass / mass.sum()
    for axis, name in enumerate(("level_scale", "season_scale", "noise")):
        own = mass.sum(axis=tuple(other for other in range(3) if other != axis))
        mean = own @ grid
        sd = np.sqrt(own @ (grid - mean) ** 2)
        assert fit.mean(name) == pytest.approx(mean, abs=0.03 * sd)
        assert fit.sd(name) == pytest.approx(sd, rel=0.03)


def test_draws_of_a_season_have_its_moments(fit):
    draws = fit.sample(2000)
    for name in ("season", "level"):
        sd = np.asarray(fit.sd(name))
        off = np.asarray(draws[name]).mean(axis=0) - np.asarray(fit.mean(name))
        # 5 standard errors: one in 10^5 such tests fails by chance
        assert (abs(off) < 5 * sd / np.sqrt(2000)).all()
        assert_allclose(np.asarray(draws[name]).std(axis=0), sd, rtol=5 / np.sqrt(4000))


def local_trend(y):
    a = numpyro.sample("a", dist.HalfNormal(1.0))
    b = numpyro.sample("b", dist.HalfNormal(0.3))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))

    def step(state, y):
        level, slope = state
        level = numpyro.sample("level", dist.Normal(level + slope, a))
        slope = numpyro.sample("slope", dist.Normal(slope, b))
        numpyro.sample("y", dist.Normal(level, noise), obs=y)
        return (level, slope), None

    scan(step, (0.0, 0.0), y)


def trend_density(y, a, b, noise):
    """Log p(y) at arrays of scales, by the Kalman filter."""
    total, level, slope = (np.zeros(np.broadcast_shapes(a.shape, b.shape, noise.shape)),) * 3
    ll = ls = ss = total
    for value in y:
        level, ll, ls, ss = level + slope, ll + 2 * ls + ss + a**2, ls + ss, ss + b**2
        spread, error = ll + noise**2, value - level
        total = total + norm.logpdf(error, 0.0, np.sqrt(spread))
        level, slope = level + ll / spread * error, slope + ls / spread * error
        ll, ls, ss = ll - ll**2 / spread, ls - ll * ls / spread, ss - ls**2 / spread
    return total


def test_a_trend_that_explains_all_without_the_noise_of_its_level():
    """0.4% of the mass is where a is next to nothing and b large: a tenth of the sd of b."""
    rng = np.random.default_rng(0)
    y = np.cumsum(0.4 * rng.normal(size=150)) + 0.8 * rng.normal(size=150)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    nodes, weights = 0.5 * (nodes + 1.0), 0.5 * weights
    a, b, noise = 1.2 * nodes, 0.4 * nodes**2, 0.3 + 1.2 * nodes
    grids = a[:, None, None], b[:, None], noise
    logs = trend_density(y, *grids) - 0.5 * (grids[0] ** 2 + (grids[1] / 0.3) ** 2 + noise**2)
    mass = np.exp(logs - logs.max()) * np.einsum("i,j,k->ijk", weights, weights * nodes, weights)
    mass = mass / mass.sum()
    fit = lb.fit(local_trend, y)
    assert fit.converged
    for name, values in zip(("a", "b", "noise"), grids, strict=True):
        mean = (mass * values).sum()
        sd = np.sqrt((mass * (values - mean) ** 2).sum())
        assert fit.mean(name) == pytest.approx(mean, abs=0.03 * sd)
        assert fit.sd(name) == pytest.approx(sd, rel=0.05)

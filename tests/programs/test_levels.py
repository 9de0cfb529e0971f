"""Series with unknown scales: increments, loops and levels say the same, and quadrature agrees."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints
from scipy.stats import halfnorm, multivariate_normal

import lowerbound as lb
from lowerbound.methods.hierarchy.finding_theta import predictors_of
from lowerbound.methods.hierarchy.inner.parabolas import surface_of
from lowerbound.model import trace_model

FIRST = 2.0
Y = np.array([0.4, 1.3, 0.7, 2.1, 2.9, 2.0, 3.4, 3.1])


def scales():
    walk = numpyro.sample("walk", dist.HalfNormal(1.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    return walk, noise, numpyro.sample("start", dist.Normal(0.0, FIRST))


def standard(name, y):
    return numpyro.sample(name, dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))


def by_levels(y):
    walk, noise, start = scales()

    def step(z, y):
        z = numpyro.sample("z", dist.Normal(z, walk))
        numpyro.sample("y", dist.Normal(z, noise), obs=y)
        return z, None

    scan(step, start, y)


def by_walk(y):
    walk, noise, start = scales()
    z = numpyro.sample("z", dist.GaussianRandomWalk(walk, num_steps=len(y)))
    numpyro.sample("y", dist.Normal(start + z, noise), obs=y)


def by_slices(y):
    walk, noise, start = scales()
    z = numpyro.sample("z", dist.ImproperUniform(constraints.real_vector, (), (len(y),)))
    before = jnp.concatenate([start[None], z[:-1]])
    numpyro.factor("steps", dist.Normal(before, walk).log_prob(z).sum())
    numpyro.sample("y", dist.Normal(z, noise), obs=y)


def by_loop(y):
    walk, noise, z = scales()
    for t in range(len(y)):
        z = numpyro.sample(f"z_{t}", dist.Normal(z, walk))
        numpyro.sample(f"y_{t}", dist.Normal(z, noise), obs=y[t])


def by_increments(y):
    walk, noise, start = scales()
    steps = numpyro.sample("steps", dist.Normal(0.0, walk).expand([len(y)]).to_event(1))
    numpyro.sample("y", dist.Normal(start + jnp.cumsum(steps), noise), obs=y)


def by_standard_increments(y):
    walk, noise, start = scales()
    with numpyro.plate("steps", len(y)):
        e = numpyro.sample("e", dist.Normal(0.0, 1.0))
    level = numpyro.deterministic("level", start + jnp.cumsum(walk * e))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(level, noise), obs=y)


def by_first_and_increments(y):
    walk, noise, start = scales()
    steps = walk * standard("e", y)
    level = jnp.cumsum(jnp.concatenate([start[None], steps]))[1:]
    numpyro.sample("y", dist.Normal(level, noise), obs=y)


def by_sums_backwards(y):
    walk, noise, start = scales()
    steps = walk * standard("e", y)
    level = start + jax.lax.cumsum(steps, reverse=True)[::-1]
    numpyro.sample("y", dist.Normal(level, noise), obs=y)


def by_scan_of_increments(y):
    walk, noise, start = scales()

    def step(z, y):
        z = z + walk * numpyro.sample("e", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z, noise), obs=y)
        return z, z

    scan(step, start, y)


def by_plain_scan(y):
    walk, noise, start = scales()

    def step(z, e):
        z = z + walk * e
        return z, z

    _, level = jax.lax.scan(step, start, standard("e", y))
    numpyro.sample("y", dist.Normal(level, noise), obs=y)


INCREMENTS = (
    by_increments,
    by_standard_increments,
    by_first_and_increments,
    by_sums_backwards,
    by_scan_of_increments,
    by_plain_scan,
)
LEVELS = (by_walk, by_slices, by_loop)


def predictors(program, *data):
    with jax.enable_x64(True):
        return predictors_of(trace_model(program, data))


@pytest.mark.parametrize("program", INCREMENTS, ids=lambda one: one.__name__)
def test_levels_take_the_places_of_increments(program):
    found = predictors(program, Y)
    assert found.back is not None
    rng = np.random.default_rng(0)
    t, levels = rng.normal(size=2), rng.normal(size=9)
    z = found.back(t, levels)
    assert_allclose(z, found.back(t, np.zeros(9)) + found.back.matrix(t) @ levels, atol=1e-12)
    # No level meets more than its neighbours and the start.
    assert np.bincount(found.rows).max() <= 4


@pytest.fixture(scope="module")
def by_quadrature():
    """Means and sds of the scales and the start, and log p(y), over a grid of scales."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    grid, weights = 2.5 * (nodes + 1.0), 2.5 * weights
    times = np.arange(1, 9)
    common = FIRST**2 + np.zeros((8, 8))
    logs, means, spreads = (np.empty((60, 60)) for _ in range(3))
    for i, walk in enumerate(grid):
        for j, noise in enumerate(grid):
            total = walk**2 * np.minimum.outer(times, times) + noise**2 * np.eye(8) + common
            gain = np.linalg.solve(total, np.full(8, FIRST**2))
            logs[i, j] = multivariate_normal(cov=total).logpdf(Y)
            means[i, j], spreads[i, j] = gain @ Y, FIRST**2 - gain.sum() * FIRST**2
    prior = halfnorm.logpdf(grid)
    mass = np.exp(logs + prior[:, None] + prior) * np.outer(weights, weights)
    evidence = mass.sum()
    mass = mass / evidence
    found = {}
    for name, values in {"walk": grid[:, None], "noise": grid[None], "start": means}.items():
        mean = (mass * values).sum()
        inside = spreads if name == "start" else 0.0
        found[name] = mean, np.sqrt((mass * ((values - mean) ** 2 + inside)).sum())
    return found, np.log(evidence)


@pytest.fixture(scope="module")
def fits():
    ways = by_levels, by_increments, by_first_and_increments
    return {one: lb.fit(one, Y, method=lb.Integrated()) for one in ways}


def test_all_ways_agree_with_quadrature(fits, by_quadrature):
    expected, evidence = by_quadrature
    for fit in fits.values():
        assert fit.answer.exact
        assert fit.elbo == pytest.approx(evidence, abs=0.02)
        for name, (mean, sd) in expected.items():
            assert fit.mean(name) == pytest.approx(mean, abs=0.02 * sd)
            assert fit.sd(name) == pytest.approx(sd, rel=0.02)


def test_increments_have_the_moments_of_their_draws_and_a_density(fits, tmp_path):
    fit = fits[by_first_and_increments]
    draws = fit.sample(4000)
    for name in ("e", "start", "walk"):
        drawn = np.asarray(draws[name])
        mean, sd = np.asarray(fit.mean(name)), np.asarray(fit.sd(name))
        # 5 standard errors: one in 10^5 such tests fails by chance
        assert (abs(drawn.mean(axis=0) - mean) < 5 * sd / np.sqrt(4000)).all()
        assert_allclose(drawn.std(axis=0), sd, rtol=5 / np.sqrt(8000))
    # log q = log p(z, y) - log p(y) where q is the posterior
    some = {name: np.asarray(value[:40]) for name, value in draws.items()}
    with jax.enable_x64(True):
        log_q = np.asarray(fit.q.log_prob(some))
    walk, noise, start, e = (some[name] for name in ("walk", "noise", "start", "e"))
    level = start[:, None] + np.cumsum(walk[:, None] * e, axis=1)
    log_p = halfnorm.logpdf(walk) + halfnorm.logpdf(noise)
    log_p += np.asarray(dist.Normal(0.0, FIRST).log_prob(start))
    log_p += np.asarray(dist.Normal(0.0, 1.0).log_prob(e).sum(axis=1))
    log_p += np.asarray(dist.Normal(level, noise[:, None]).log_prob(Y).sum(axis=1))
    assert np.median(abs(log_q - log_p + fit.elbo)) < 0.1
    fit.save(tmp_path / "chain")
    again = lb.load(tmp_path / "chain", by_first_and_increments, Y)
    assert_allclose(again.sample(2)["e"], fit.sample(2)["e"])


def test_increments_of_levels_are_those_of_increments(fits):
    """E of the increments from the levels of one program, and of the other."""
    level = fits[by_levels]
    z = np.concatenate([[level.mean("start")], level.mean("z")])
    fit = fits[by_increments]
    steps, sds = np.asarray(fit.mean("steps")), np.asarray(fit.sd("steps"))
    assert (abs(steps - np.diff(z)) < 0.02 * sds).all()


@pytest.mark.parametrize("program", [*LEVELS, *INCREMENTS], ids=lambda one: one.__name__)
def test_all_ways_have_one_density_of_the_scales(program):
    """L(theta), all else integrated out, is known in closed form."""
    t = np.array([-0.3, 0.2])
    with jax.enable_x64(True):
        found = surface_of(predictors(program, Y))(t, (), True)
    walk, noise = np.exp(t)
    times = np.arange(1, 9)
    total = walk**2 * np.minimum.outer(times, times) + noise**2 * np.eye(8) + FIRST**2
    expected = multivariate_normal(cov=total).logpdf(Y) + halfnorm.logpdf(np.exp(t)).sum() + t.sum()
    assert found.value == pytest.approx(expected, rel=1e-9)

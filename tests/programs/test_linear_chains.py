"""Linear-Gaussian chains: however they are written, one Gaussian with the precision of a chain."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints
from scipy.stats import multivariate_normal

import lowerbound as lb

STEP, NOISE, FIRST = 0.4, 0.8, 2.0


def by_scan(y):
    def step(z, y):
        z = numpyro.sample("z", dist.Normal(z, STEP))
        numpyro.sample("y", dist.Normal(z, NOISE), obs=y)
        return z, None

    scan(step, numpyro.sample("start", dist.Normal(0.0, FIRST)), y)


def by_slices(y):
    start = numpyro.sample("start", dist.Normal(0.0, FIRST))
    flat = dist.ImproperUniform(constraints.real_vector, (), (len(y),))
    z = numpyro.sample("z", flat)
    before = jnp.concatenate([start[None], z[:-1]])
    numpyro.factor("steps", dist.Normal(before, STEP).log_prob(z).sum())
    numpyro.sample("y", dist.Normal(z, NOISE), obs=y)


def by_walk(y):
    start = numpyro.sample("start", dist.Normal(0.0, FIRST))
    walk = numpyro.sample("walk", dist.GaussianRandomWalk(STEP, num_steps=len(y)))
    numpyro.sample("y", dist.Normal(start + walk, NOISE), obs=y)


def by_increments(y):
    start = numpyro.sample("start", dist.Normal(0.0, FIRST))
    steps = numpyro.sample("steps", dist.Normal(0.0, STEP).expand([len(y)]).to_event(1))
    numpyro.sample("y", dist.Normal(start + jnp.cumsum(steps), NOISE), obs=y)


def by_loop(y):
    z = numpyro.sample("start", dist.Normal(0.0, FIRST))
    for t in range(len(y)):
        z = numpyro.sample(f"z_{t}", dist.Normal(z, STEP))
        numpyro.sample(f"y_{t}", dist.Normal(z, NOISE), obs=y[t])


WAYS = (by_scan, by_slices, by_walk, by_increments, by_loop)


def series(length: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 1.0 + np.cumsum(STEP * rng.normal(size=length)) + NOISE * rng.normal(size=length)


def smoothed(y: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Means and sds of the start and of all levels, and log p(y), with dense matrices."""
    n = len(y)
    differences = np.eye(n + 1)[1:] - np.eye(n + 1)[:-1]
    precision = differences.T @ differences / STEP**2
    precision[0, 0] += 1 / FIRST**2
    covariance = np.linalg.inv(precision)[1:, 1:] + NOISE**2 * np.eye(n)
    precision[1:, 1:] += np.eye(n) / NOISE**2
    mean = np.linalg.solve(precision, np.concatenate([[0.0], y / NOISE**2]))
    sds = np.sqrt(np.diag(np.linalg.inv(precision)))
    return mean, sds, float(multivariate_normal(cov=covariance).logpdf(y))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_all_ways_of_writing_a_chain_are_one_gaussian(way):
    y = series(9)
    mean, sds, evidence = smoothed(y)
    fit = lb.fit(way, y, method=lb.Integrated())
    assert fit.plan.method == "Sparse Gaussian"
    assert fit.answer.exact
    assert_allclose(fit.elbo, evidence, rtol=1e-10)
    assert_allclose(fit.mean("start"), mean[0], rtol=1e-8)
    assert_allclose(fit.sd("start"), sds[0], rtol=1e-8)
    if "z" in fit.sites:
        assert_allclose(fit.mean("z"), mean[1:], rtol=1e-8)
        assert_allclose(fit.sd("z"), sds[1:], rtol=1e-8)
    if "z_8" in fit.sites:
        assert_allclose([fit.mean("z_8"), fit.sd("z_8")], [mean[-1], sds[-1]], rtol=1e-8)


@pytest.fixture(scope="module")
def long_fit():
    return lb.fit(by_scan, series(600))


def test_a_long_chain_is_exact_without_being_asked(long_fit):
    mean, sds, evidence = smoothed(series(600))
    assert long_fit.plan.method == "Sparse Gaussian"
    assert long_fit.answer.exact
    assert_allclose(long_fit.elbo, evidence, rtol=1e-10)
    assert_allclose(long_fit.mean("z"), mean[1:], rtol=1e-8)
    assert_allclose(long_fit.sd("z"), sds[1:], rtol=1e-8)
    assert (
        "-> integrated: all scales are known: one Gaussian of 601 numbers with a sparse precision, "
        "the posterior" in long_fit.plan.ladder
    )


def test_draws_of_a_long_chain_have_its_moments_and_density(long_fit, tmp_path):
    draws = long_fit.sample(1000)
    z = np.concatenate([np.asarray(draws["start"])[:, None], draws["z"]], axis=1)
    mean, sds, _ = smoothed(series(600))
    # 5 standard errors of a mean, and of an sd: one in 10^5 such tests fails by chance
    assert abs((z.mean(axis=0) - mean) / sds).max() < 5 / np.sqrt(1000)
    assert abs(z.std(axis=0) / sds - 1).max() < 5 / np.sqrt(2000)
    # log q(z) = log p(z, y) - log p(y) where q is the posterior
    some = {name: np.asarray(value[:3]) for name, value in draws.items()}
    with jax.enable_x64(True):
        log_q = long_fit.q.log_prob(some)
    y = series(600)
    steps = dist.Normal(z[:3, :-1], STEP).log_prob(z[:3, 1:]).sum(axis=1)
    log_p = dist.Normal(0.0, FIRST).log_prob(z[:3, 0]) + steps
    log_p = log_p + dist.Normal(z[:3, 1:], NOISE).log_prob(y).sum(axis=1)
    assert_allclose(log_q, np.asarray(log_p) - long_fit.elbo, rtol=1e-4)
    long_fit.save(tmp_path / "chain")
    again = lb.load(tmp_path / "chain", by_scan, y)
    assert_allclose(again.sd("z"), long_fit.sd("z"))
    assert_allclose(again.sample(2)["z"], long_fit.sample(2)["z"])


def test_steps_without_data_are_left_out():
    y = series(7)
    seen = np.array([True, True, False, True, False, False, True])

    def masked(y, seen):
        def step(z, now):
            z = numpyro.sample("z", dist.Normal(z, STEP))
            with handlers.mask(mask=now[1]):
                numpyro.sample("y", dist.Normal(z, NOISE), obs=now[0])
            return z, None

        scan(step, 0.5, (y, seen))

    fit = lb.fit(masked, y, seen, method=lb.Integrated())
    differences = np.eye(7) - np.eye(7, k=-1)
    precision = differences.T @ differences / STEP**2 + np.diag(seen / NOISE**2)
    push = seen * y / NOISE**2 + np.eye(7)[0] * 0.5 / STEP**2
    assert_allclose(fit.mean("z"), np.linalg.solve(precision, push), rtol=1e-8)
    assert_allclose(fit.sd("z") ** 2, np.diag(np.linalg.inv(precision)), rtol=1e-8)


def test_states_of_several_numbers():
    moved, noise = np.array([[0.9, 0.3], [-0.2, 0.7]]), np.array([[0.5, 0.0], [0.2, 0.4]])
    seen = np.array([1.0, 0.5])
    y = series(6)

    def model(y):
        def step(z, y):
            z = numpyro.sample("z", dist.MultivariateNormal(moved @ z, scale_tril=noise))
            numpyro.sample("y", dist.Normal(z @ seen, NOISE), obs=y)
            return z, None

        scan(step, jnp.zeros(2), y)

    fit = lb.fit(model, y, method=lb.Integrated())
    root = np.kron(np.eye(6), np.linalg.inv(noise))
    steps = root @ (np.eye(12) - np.kron(np.eye(6, k=-1), moved))
    design = np.kron(np.eye(6), seen)
    precision = steps.T @ steps + design.T @ design / NOISE**2
    mean = np.linalg.solve(precision, design.T @ y / NOISE**2)
    assert_allclose(np.ravel(fit.mean("z")), mean, rtol=1e-7, atol=1e-9)
    assert_allclose(np.ravel(fit.sd("z")) ** 2, np.diag(np.linalg.inv(precision)), rtol=1e-7)


def counts(y):
    def step(z, y):
        z = numpyro.sample("z", dist.Normal(z, STEP))
        numpyro.sample("y", dist.Poisson(jnp.exp(z)), obs=y)
        return z, None

    scan(step, 0.5, y)


def test_counts_along_a_chain_have_the_best_gaussian():
    y = np.array([2, 0, 3, 1, 4])
    fit = lb.fit(counts, y, method=lb.Integrated())
    mean, sd = np.asarray(fit.mean("z")), np.asarray(fit.sd("z"))
    differences = np.eye(5) - np.eye(5, k=-1)
    # At the optimum P is the expected curvature and the expected slope is zero; E e^z is known.
    rate = np.exp(mean + sd**2 / 2)
    prior = differences.T @ differences / STEP**2
    # An ELBO within 1e-5 nats of the best allows relative changes of P of (4e-5)^(1/2) in all.
    precision = prior + np.diag(rate)
    assert_allclose(sd**2, np.diag(np.linalg.inv(precision)), rtol=np.sqrt(4e-5))
    slope = y - rate - prior @ mean + np.eye(5)[0] * 0.5 / STEP**2
    assert 0.5 * slope @ np.linalg.solve(precision, slope) < 1e-5

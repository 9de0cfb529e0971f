"""Gaussians of many dimensions: sparse precisions are exact, and as good as full ones."""

import re
import tracemalloc
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.compiled import quickly
from lowerbound.errors import ArgumentError, NoStructureError
from lowerbound.family.densities.unconstrained import covariance as covariance_of
from lowerbound.methods.gaussian.sparse.sparsity import dense, full_work, sparsity_of
from lowerbound.methods.gaussian.target import target_for
from lowerbound.model import trace_model
from tests.laws.compilations import counted
from tests.methods.gaussian.runs import fitted, shift


def units(x, y, scale=0.7):
    """Means and slopes of units around those of all, a Gaussian posterior."""
    centre = numpyro.sample("centre", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    with numpyro.plate("units", x.shape[0]):
        own = numpyro.sample("own", dist.Normal(centre, scale).to_event(1))
        more = numpyro.sample("more", dist.Normal(own[:, 0], 0.5))
        mean = own[:, :1] + own[:, 1:] * x + more[:, None]
        numpyro.sample("y", dist.Normal(mean, 0.5).to_event(1), obs=y)


def chain(y):
    """A level that comes back to an unknown one."""
    drift = numpyro.sample("drift", dist.Normal(0.0, 1.0))
    flat = dist.ImproperUniform(dist.constraints.real, (), (len(y),))
    level = numpyro.sample("level", flat)
    numpyro.factor("first", dist.Normal(0.0, 1.0).log_prob(level[0]))
    numpyro.factor("walk", dist.Normal(0.9 * level[:-1] + drift, 0.3).log_prob(level[1:]).sum())
    numpyro.sample("y", dist.Normal(level, 0.5).to_event(1), obs=y)


def logistic(g, y, count):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.LogNormal(0.0, 0.3))
    with numpyro.plate("units", count):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Bernoulli(logits=mu + tau * z[g]).to_event(1), obs=y)


def of_units(seed, count):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 3))
    return x, rng.standard_normal((count, 3)) + x


def of_chain(seed, count):
    rng = np.random.default_rng(seed)
    return (np.cumsum(rng.normal(0.1, 0.3, count)) + rng.normal(0, 0.5, count),)


def of_logistic(seed, count):
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(count), 6)
    rate = 1 / (1 + np.exp(-0.5 - rng.standard_normal(count)[g]))
    return g, (rng.random(len(g)) < rate).astype(int), count


def exact(model, args):
    """Mean and covariance of a Gaussian posterior on the unconstrained space."""
    with jax.enable_x64(True):
        target = target_for(trace_model(model, args))

        def density(vector):
            return target.coordinates.log_density(vector, target.data)

        zero = jnp.zeros(target.size)
        slope, curvature = quickly(lambda u: (jax.grad(density)(u), jax.hessian(density)(u)))(zero)
        covariance = np.linalg.inv(-np.asarray(curvature))
        return covariance @ np.asarray(slope), covariance


GAUSSIAN = {"units": (units, of_units(0, 25)), "chain": (chain, of_chain(1, 50))}


@cache
def solved(name):
    """One of the Gaussian posteriors: mean, covariance, and its structured fit."""
    model, args = GAUSSIAN[name]
    run = fitted(model, *args, rank="structured", tolerance=1e-8, noncentred=())
    return *exact(model, args), run


@pytest.mark.parametrize("name", GAUSSIAN)
def test_a_sparse_gaussian_posterior_is_found_exactly(name):
    mean, covariance, run = solved(name)
    assert run.converged
    assert "Gaussian (structured, d = " in run.plan.rows[0].family
    np.testing.assert_allclose(run.q.parameters["loc"], mean, atol=1e-6)
    np.testing.assert_allclose(run.q.parameters["variance"], np.diag(covariance), rtol=1e-6)
    assert run.elbo_error < 1e-6  # log p - log q is constant
    for site in run.q.family.coordinates.shapes:
        part = run.q.family.coordinates.part(site)
        with jax.enable_x64(True):
            spread = np.asarray(covariance_of(run.q.parameters, part))
        wanted = covariance[part, part]
        np.testing.assert_allclose(spread, wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_draws_and_densities_are_those_of_the_covariance(seed):
    """Five standard errors of each of 80 moments: false failures below 1e-4 a seed."""
    mean, covariance, run = solved("units")
    draws = np.asarray(
        run.q.family.sample_unconstrained(run.q.parameters, jax.random.key(seed), 20000)
    )
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    assert np.abs(whitened.mean(axis=1)).max() < 5 / 20000**0.5
    second = whitened @ whitened.T / 20000
    assert np.abs(second - np.eye(len(mean))).max() < 5 * (2 / 20000) ** 0.5
    with jax.enable_x64(True):
        law = dist.MultivariateNormal(mean, covariance)
        expected = np.asarray(law.log_prob(draws[:50]))
        found = np.asarray(
            run.q.family.log_prob_unconstrained(run.q.parameters, jnp.asarray(draws[:50]))
        )
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_structured_is_as_good_as_full_and_better_than_diagonal():
    """The precision of the best full covariance is sparse, so that both have one optimum."""
    args = of_logistic(0, 40)
    runs = {
        rank: fitted(logistic, *args, rank=rank, noncentred=())
        for rank in ("structured", "full", "diagonal")
    }
    noise = 5 * max(run.elbo_error for run in runs.values()) + 0.01
    assert abs(runs["structured"].elbo - runs["full"].elbo) < noise
    assert runs["structured"].elbo > runs["diagonal"].elbo + noise
    sds = np.sqrt(np.sum(runs["full"].q.parameters["scale_tril"] ** 2, axis=1))
    moved = (runs["structured"].q.parameters["loc"] - runs["full"].q.parameters["loc"]) / sds
    assert np.abs(moved).max() < 0.1
    ratio = np.log(runs["structured"].q.parameters["variance"] / sds**2) / 2
    assert np.abs(ratio).max() < 0.1


@pytest.mark.parametrize(
    ("model", "args", "border", "width"),
    [
        (units, of_units(0, 300), 2, 2),
        (chain, of_chain(0, 520), 1, 1),
        (logistic, of_logistic(0, 300), 2, 0),
    ],
)
def test_the_second_derivatives_are_read_off_few_directions(model, args, border, width):
    with jax.enable_x64(True):
        target = target_for(trace_model(model, args))
        points = np.random.default_rng(0).uniform(-1, 1, (2, target.size))
        sparsity = sparsity_of(target, points, full_work(target.size))
        assert (sparsity.border, sparsity.width) == (border, width)
        assert sum(map(len, sparsity.directions)) <= border + 2 * width + 3

        def density(vector):
            return target.coordinates.log_density(vector, target.data)

        wanted = np.asarray(quickly(jax.hessian(density))(points[0]))
        np.testing.assert_allclose(read(sparsity, target, points[:1]), wanted, atol=1e-9)
        np.testing.assert_allclose(read(dense(target), target, points[:1]), wanted, atol=1e-9)


def read(sparsity, target, points):
    from lowerbound.methods.gaussian.sparse.curvature import second_derivatives

    products = second_derivatives(target, sparsity.groups, sparsity.directions, points)
    found = sparsity.read(products)
    count = found.band.shape[1]
    matrix = np.zeros((sparsity.size,) * 2)
    for k in range(len(found.band)):
        matrix[np.arange(k, count), np.arange(count - k)] = found.band[k, : count - k]
    matrix[count:, :count], matrix[count:, count:] = found.border.T, found.corner
    matrix = np.tril(matrix) + np.tril(matrix, -1).T
    placed = np.empty_like(matrix)
    placed[np.ix_(sparsity.order, sparsity.order)] = matrix
    return placed


def test_wide_posteriors_are_structured_or_full_by_what_pays():
    wide = lb.explain(logistic, *of_logistic(0, 300), method=lb.Gaussian())
    assert {row.family for row in wide.rows} == {"Gaussian (structured, d = 302)"}
    assert wide.notes[-1] == (
        "Structured covariance: 2 globals, 300 locals in sets of up to 1. Its precision has the "
        "zeros of the second derivatives of log p, as that of the best full covariance has."
    )
    few = lb.explain(logistic, *of_logistic(0, 30), method=lb.Gaussian())
    assert {row.family for row in few.rows} == {"Gaussian (full, d = 32)"}


def mixed(A, y):
    """Every number meets every other."""
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([A.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(A @ z)).to_event(1), obs=y)


def of_mixed(count):
    rng = np.random.default_rng(0)
    return rng.standard_normal((60, count)) / count**0.5, rng.poisson(1.5, 60)


def test_a_wide_posterior_without_zeros_is_full():
    run = fitted(mixed, *of_mixed(220))
    assert run.converged
    assert {row.family for row in run.plan.rows} == {"Gaussian (full, d = 220)"}
    other = fitted(mixed, *of_mixed(220), rank="diagonal", draws=512)
    assert run.elbo > other.elbo
    assert shift(run) < 0.3


def test_a_wide_posterior_without_zeros_takes_no_memory_of_a_covariance():
    """A program of 127,000 numbers ended without a word: matrices of 87 GB were filled."""
    count = 20_000
    args = of_mixed(count)
    tracemalloc.start()
    try:
        plan = lb.explain(mixed, *args, method=lb.Gaussian())
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert {row.family for row in plan.rows} == {f"Gaussian (rank 20, d = {count})"}
    assert most < 8 * count**2 / 4


def test_no_structure_is_an_error():
    message = (
        'Gaussian got rank="structured" for a posterior of 30 dimensions in which no order of the '
        "unconstrained entries makes the second derivatives of log p banded with a border.\n"
        "Expected units that are independent given the other sites, or a Markov chain. Use "
        'rank="full", or a number of columns such as rank=20.'
    )
    with pytest.raises(NoStructureError, match=f"^{re.escape(message)}$"):
        fitted(mixed, *of_mixed(30), rank="structured")


def test_structured_goes_with_fixed_draws():
    message = (
        "StochasticGaussian got rank='structured'.\n"
        'Expected "auto", "full", "diagonal" or a rank of at least 1.'
    )
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}$"):
        lb.StochasticGaussian(rank="structured")


def test_a_structured_fit_is_saved_and_loaded(tmp_path):
    args = of_logistic(0, 40)
    method = lb.Gaussian(rank="structured", noncentred=())
    fit = lb.fit(logistic, *args, method=method, progress=False)
    fit.save(tmp_path / "run.lb")
    again = lb.load(tmp_path / "run.lb", logistic)
    for site in ("mu", "tau", "z"):
        np.testing.assert_array_equal(again.mean(site), fit.mean(site))
        np.testing.assert_array_equal(again.sd(site), fit.sd(site))
    draws, others = fit.sample(10, seed=3), again.sample(10, seed=3)
    np.testing.assert_array_equal(draws["z"], others["z"])


def test_a_second_fit_of_equal_shapes_compiles_nothing():
    first, second = of_logistic(0, 210), of_logistic(1, 210)
    fitted(logistic, *first)
    with counted() as compilations:
        fitted(logistic, *second)
    assert not compilations

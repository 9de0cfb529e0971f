"""Gaussians of many dimensions: their coordinates, noisy steps, and single precision."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.methods.gaussian.sparse.curvature import second_derivatives
from lowerbound.methods.gaussian.sparse.sparsity import dense
from lowerbound.methods.gaussian.target import target_for
from lowerbound.model import trace_model
from tests.methods.gaussian.runs import fitted


def spread(g, y, count):
    """Units around a mean, in their own coordinates, with an unknown spread."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("units", count):
        z = numpyro.sample("z", dist.Normal(mu, tau))
    numpyro.sample("y", dist.Bernoulli(logits=z[g]).to_event(1), obs=y)


@pytest.mark.parametrize(("each", "noncentred"), [(2, True), (60, False)])
def test_the_coordinates_of_many_units_are_those_of_the_larger_elbo(each, noncentred):
    """Two observations of a unit say little of it, so that its prior's funnel shows."""
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(60), each)
    z = 0.5 + (0.4 if noncentred else 1.2) * rng.standard_normal(60)
    y = (rng.random(len(g)) < 1 / (1 + np.exp(-z[g]))).astype(int)
    auto = fitted(spread, g, y, 60, rank="structured")
    assert auto.notes[0].startswith("Non-centred" if noncentred else "Centred coordinates kept")
    if noncentred:
        own = fitted(spread, g, y, 60, rank="structured", noncentred=())
        assert auto.elbo > own.elbo + 5 * (auto.elbo_error + own.elbo_error)


@pytest.mark.parametrize("rank", [2, "diagonal"])
def test_noisy_steps_end_at_the_mean_of_an_ill_conditioned_posterior(rank):
    """Scales over three decades and a common direction; the mean of the best Gaussian is exact."""
    rng = np.random.default_rng(0)
    scales = np.logspace(-2, 1, 200)
    A = rng.standard_normal((80, 200)) + 2.0 * rng.standard_normal((80, 1))
    y = A @ (scales * rng.standard_normal(200)) + rng.standard_normal(80)

    def line(A, y):
        z = numpyro.sample("z", dist.Normal(0.0, scales).to_event(1))
        numpyro.sample("y", dist.Normal(A @ z, 1.0).to_event(1), obs=y)

    covariance = np.linalg.inv(A.T @ A + np.diag(scales**-2))
    run = fitted(line, A, y, kind=lb.StochasticGaussian, rank=rank, noncentred=())
    assert run.converged
    error = (run.q.parameters["loc"] - covariance @ A.T @ y) / np.sqrt(np.diag(covariance))
    assert np.abs(error).max() < 0.1


def loop(y):
    """A moving average by a loop, whose carry begins with the default type."""
    size = numpyro.sample("size", dist.LogNormal(0.0, 0.3))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))

    def step(last, e):
        return e, size * (e + 0.5 * last)

    _, levels = jax.lax.scan(step, jnp.zeros(()), z)
    numpyro.sample("y", dist.Poisson(jnp.exp(levels)).to_event(1), obs=y)


def test_loops_run_in_single_precision():
    y = np.random.default_rng(0).poisson(1.5, 12)
    settings = {"kind": lb.StochasticGaussian, "rank": "diagonal"}
    single, double = (fitted(loop, y, precision=p, **settings) for p in ("float32", "float64"))
    assert abs(single.elbo - double.elbo) < 5 * (single.elbo_error + double.elbo_error)


def test_second_derivatives_in_single_precision_are_those_in_double_but_for_rounding():
    model = trace_model(loop, (np.random.default_rng(0).poisson(1.5, 12),))
    point = np.random.default_rng(1).uniform(-1, 1, (1, 13))
    found = []
    for precision in ("float32", "float64"):
        with jax.enable_x64(True):
            target = target_for(model, np.dtype(precision))
            whole = dense(target)
            found.append(second_derivatives(target, whole.groups, whole.directions, point))
    assert np.abs(found[1]).max() > 1.0
    np.testing.assert_allclose(found[0], found[1], atol=1e-4 * np.abs(found[1]).max())

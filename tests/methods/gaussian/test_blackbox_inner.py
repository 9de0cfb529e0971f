"""The Gaussian given a few scalars, and the pieces that all engines share."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from lowerbound.ascent.gaussian_step import CONVERGED, advance, begin
from lowerbound.bound.draws import cubature, normal_draws
from lowerbound.bound.fixed_draws import averaged, points
from lowerbound.methods.grid.conditional import conditioned
from lowerbound.methods.grid.gaussian_inner import gaussian_solver
from lowerbound.model import trace_model
from tests.methods.gaussian.runs import fitted


@pytest.mark.parametrize(
    "draws", [normal_draws(64, 5, 0), normal_draws(256, 20, 1), cubature(7, 0)]
)
def test_draws_are_white_and_symmetric(draws):
    size, dimension = draws.shape
    np.testing.assert_allclose(draws.mean(0), 0.0, atol=1e-14)
    np.testing.assert_allclose(draws.T @ draws / size, np.eye(dimension), atol=1e-12)
    np.testing.assert_array_equal(draws[: size // 2], -draws[size // 2 :])


def test_the_averages_are_exact_for_a_quadratic():
    rng = np.random.default_rng(0)
    A, m = rng.standard_normal((4, 4)), rng.standard_normal(4)
    P = A @ A.T + np.eye(4)
    loc, root = rng.standard_normal(4), np.tril(rng.standard_normal((4, 4))) + 2 * np.eye(4)
    draws = normal_draws(16, 4, 0)
    x = points(draws, loc, root) - m
    found = averaged(draws, -0.5 * np.einsum("ij,jk,ik->i", x, P, x), -x @ P, root)
    energy = -0.5 * ((loc - m) @ P @ (loc - m) + np.trace(root.T @ P @ root))
    entropy = 2 * np.log(2 * np.pi * np.e) + np.log(np.abs(np.diag(root))).sum()
    assert found.elbo == pytest.approx(energy + entropy, rel=1e-12)
    np.testing.assert_allclose(found.slope, -root.T @ P @ (loc - m), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.curvature, root.T @ P @ root, rtol=1e-10, atol=1e-10)


def test_one_full_step_is_exact_for_a_quadratic():
    rng = np.random.default_rng(2)
    A, m = 0.3 * rng.standard_normal((4, 4)), rng.standard_normal(4)
    P = np.eye(4) + A @ A.T
    loc, root = np.zeros(4), np.tril(0.2 * rng.standard_normal((4, 4))) + 0.8 * np.eye(4)
    draws = normal_draws(16, 4, 0)

    def at(loc, root):
        x = points(draws, loc, root) - m
        return averaged(draws, -0.5 * np.einsum("ij,jk,ik->i", x, P, x), -x @ P, root)

    state = advance(begin(loc, root), at(loc, root), 1e-12)
    np.testing.assert_allclose(state.trial_loc, m, atol=1e-12)
    np.testing.assert_allclose(
        state.trial_root @ state.trial_root.T, np.linalg.inv(P), rtol=1e-10, atol=1e-12
    )
    assert state.gain > at(state.trial_loc, state.trial_root).elbo - state.found.elbo > 0
    state = advance(state, at(state.trial_loc, state.trial_root), 1e-8)
    assert state.status == CONVERGED


def noisy_mean(y):
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    m = numpyro.sample("m", dist.Normal(0.0, sigma))
    numpyro.sample("y", dist.Normal(m, 1.0), obs=y)


def grid_of(model, *args, sites=("sigma",), **settings):
    given = conditioned(trace_model(model, args), sites, args, {})
    return gaussian_solver(given, sites, **settings)


def test_a_grid_of_scalars_is_solved_at_once():
    y = np.array([0.3, 1.2, -0.4])
    sigma = np.array([0.1, 0.5, 1.0, 4.0])
    u = np.log(sigma)
    with jax.enable_x64(True):
        solver = grid_of(noisy_mean, y)
        parameters, values = solver.on_host(u[:, None], {"sigma": sigma}, u)
        precision = 3.0 + sigma**-2.0
        np.testing.assert_allclose(parameters["loc"][:, 0], y.sum() / precision, atol=1e-3)
        np.testing.assert_allclose(parameters["scale_tril"][:, 0, 0], precision**-0.5, rtol=1e-3)
        evidence = [
            dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3) + s**2).log_prob(y)
            + dist.HalfNormal(1.0).log_prob(s)
            + jnp.log(s)
            for s in sigma
        ]
    np.testing.assert_allclose(values, np.array(evidence), atol=1e-6)


def test_a_node_has_one_answer_whatever_was_solved_before():
    y = np.array([0.3, 1.2, -0.4])
    sigma = np.exp(np.linspace(-2.0, 2.0, 9))
    u = np.log(sigma)
    with jax.enable_x64(True):
        together = grid_of(noisy_mean, y).on_host(u[:, None], {"sigma": sigma}, u)[1]
        alone = grid_of(noisy_mean, y)
        backwards = [
            alone.on_host(u[i : i + 1, None], {"sigma": sigma[i : i + 1]}, u[i : i + 1])[1][0]
            for i in range(9)[::-1]
        ]
    np.testing.assert_allclose(together, backwards[::-1], atol=1e-6)


def test_a_node_of_no_weight_is_left_early():
    y = np.array([0.3, 1.2, -0.4])
    u = np.array([0.0, -60.0])
    with jax.enable_x64(True):
        _, values = grid_of(noisy_mean, y).on_host(u[:, None], {"sigma": np.exp(u)}, u)
    assert np.isfinite(values[0])
    assert values[1] < values[0] - 30.0


def logistic(X, y):
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    beta = numpyro.sample("beta", dist.Normal(jnp.zeros(2), sigma).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=X @ beta), obs=y)


def test_a_node_of_the_grid_is_the_gaussian_of_the_conditioned_program():
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(30), rng.standard_normal(30)])
    y = (rng.random(30) < 0.5).astype(int)
    with jax.enable_x64(True):
        model = trace_model(logistic, (X, y))
        given = conditioned(model, ("sigma",), (X, y), {})  # at sigma = 1, the middle
        solver = gaussian_solver(given, ("sigma",), 512)
        node, _ = solver.on_host(np.zeros((1, 1)), {"sigma": np.ones(1)}, np.zeros(1))
    at = numpyro.handlers.condition(logistic, {"sigma": 1.0})
    host = fitted(at, X, y, draws=512, tolerance=1e-5)
    error = np.linalg.solve(
        host.q.parameters["scale_tril"], node["loc"][0] - host.q.parameters["loc"]
    )
    assert np.abs(error).max() < 0.02

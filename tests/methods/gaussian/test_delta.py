"""The delta method: closed forms in one dimension, and its expansion maximised by brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.optimize import minimize, minimize_scalar

import lowerbound as lb
from lowerbound.errors import ConvergenceWarning
from lowerbound.methods.gaussian.derivatives import hessian, third
from lowerbound.methods.gaussian.target import target_for
from lowerbound.model import trace_model
from tests.methods.gaussian import runs


def fitted(model, *args, **settings):
    return runs.fitted(model, *args, **{"kind": lb.Delta, "tolerance": 1e-8, **settings})


def counts(y):
    x = numpyro.sample("x", dist.Normal(0.0, 2.0))
    numpyro.sample("y", dist.Poisson(jnp.exp(x)), obs=y)


@pytest.mark.parametrize("y", [0, 3, 40])
def test_in_one_dimension_it_is_the_maximum_of_the_expansion(y):
    # f(x) = y x - e^x - x^2 / 8; with s^2 = -1 / f'' the expansion is f + log(s) and constants.
    def curvature(x):
        return np.exp(x) + 0.25

    def loss(x):
        return -(y * x - np.exp(x) - x**2 / 8 - 0.5 * np.log(curvature(x)))

    best = minimize_scalar(loss, bracket=(-2.0, 4.0), tol=1e-12).x
    run = fitted(counts, np.array([y]))
    np.testing.assert_allclose(run.q.parameters["loc"], [best], atol=1e-6)
    np.testing.assert_allclose(
        run.q.parameters["scale_tril"], [[curvature(best) ** -0.5]], rtol=1e-6
    )
    assert run.converged
    assert run.stop_reason == "converged: the mean is within 1e-08 standard deviations"


def test_a_gaussian_posterior_is_found_exactly():
    def normal(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    run = fitted(normal, np.array([1.0, 2.0, 6.0]))
    np.testing.assert_allclose(run.q.parameters["loc"], [9.0 / 4.0])
    np.testing.assert_allclose(run.q.parameters["scale_tril"], [[0.5]])


def logistic(X, y):
    beta = numpyro.sample("beta", dist.Normal(jnp.zeros(2), 3.0).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=X @ beta), obs=y)


def logistic_data():
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(25), rng.standard_normal(25)])
    return X, (rng.random(25) < 1 / (1 + np.exp(-(0.5 + 2 * X[:, 1])))).astype(int)


def precision_of(X, beta):
    p = 1 / (1 + np.exp(-X @ beta))
    return (X.T * (p * (1 - p))) @ X + np.eye(2) / 9


@pytest.mark.parametrize("rank", ["full", "diagonal"])
def test_in_two_dimensions_it_is_the_maximum_of_the_expansion(rank):
    X, y = logistic_data()

    def loss(beta):
        a, precision = X @ beta, precision_of(X, beta)
        if rank == "full":
            volume = -0.5 * np.linalg.slogdet(precision)[1]
        else:
            volume = -0.5 * np.log(np.diag(precision)).sum()
        return -((y * a - np.logaddexp(0, a)).sum() - beta @ beta / 18 + volume)

    best = minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-10}).x
    run = fitted(logistic, X, y, rank=rank)
    np.testing.assert_allclose(run.q.parameters["loc"], best, atol=1e-5)
    precision = precision_of(X, best)
    if rank == "full":
        root = run.q.parameters["scale_tril"]
        np.testing.assert_allclose(root @ root.T, np.linalg.inv(precision), rtol=1e-4)
    else:
        np.testing.assert_allclose(run.q.parameters["scale"] ** -2.0, np.diag(precision), rtol=1e-4)


@pytest.mark.parametrize("y", [0, 1, 3])
def test_where_the_posterior_is_skewed_its_elbo_is_above_laplaces(y):
    # The mode of a skewed density is off its mean. No theorem says so for every density; for this
    # one the ELBO of a Gaussian has a closed form.
    def elbo(run):
        m, s = run.q.parameters["loc"][0], run.q.parameters["scale_tril"][0, 0]
        return y * m - np.exp(m + s**2 / 2) - (m**2 + s**2) / 8 + np.log(s)

    delta, laplace = (fitted(counts, np.array([y]), kind=kind) for kind in (lb.Delta, lb.Laplace))
    assert elbo(delta) > elbo(laplace) + 0.01


def test_third_derivatives_are_those_of_the_hessian():
    X, y = logistic_data()
    with jax.enable_x64(True):
        target = target_for(trace_model(logistic, (X, y)))
        loc, root = np.array([0.3, 1.1]), np.array([[0.5, 0.0], [0.2, 0.7]])
        found = third(target, loc, root)
        step = 1e-5
        differences = [
            (np.trace(hessian(target, loc + e, root)) - np.trace(hessian(target, loc - e, root)))
            / (2 * step)
            for e in step * np.eye(2)
        ]
        np.testing.assert_allclose(found, differences, rtol=1e-6)
        target.compiled.update(hessian=None, third=None)  # by differences of gradients instead
        np.testing.assert_allclose(third(target, loc, root), found, rtol=1e-6)
        np.testing.assert_allclose(
            -hessian(target, loc, np.eye(2)), precision_of(X, loc), rtol=1e-7
        )


def test_where_the_expansion_has_no_maximum_the_mode_is_kept():
    # Near the edge where heavy tails make log p convex, 1 / -f'' has no bound.
    def heavy(y):
        x = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.StudentT(1.0, x, 1.0), obs=y)

    y = np.array([0.0, 0.1, 2.0])
    with pytest.warns(ConvergenceWarning) as caught:
        run = fitted(heavy, y)
    assert str(caught[0].message) == (
        "The fit stopped before it converged: the expansion of the ELBO has no maximum near the "
        "mode, which is kept.\nUse lb.Gaussian(), which averages log p over q."
    )
    mode = fitted(heavy, y, kind=lb.Laplace)
    np.testing.assert_array_equal(run.q.parameters["loc"], mode.q.parameters["loc"])
    assert np.isfinite(run.elbo)


def test_a_fit_is_explained():
    X, y = logistic_data()
    fit = lb.fit(logistic, X, y, method=lb.Delta())
    assert [row.update for row in fit.plan.rows] == ["approximated (delta method)"]

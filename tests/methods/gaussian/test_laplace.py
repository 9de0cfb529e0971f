"""Laplace's approximation: the mode and the Hessian there, and what happens where they fail."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoLaplaceApproximation
from numpyro.infer.util import potential_energy

import lowerbound as lb
from lowerbound.compiled import quickly
from lowerbound.errors import ConvergenceWarning, ImproperPosteriorError, NoModeError
from tests.laws.compilations import counted
from tests.methods.gaussian import runs


def fitted(model, *args, **settings):
    return runs.fitted(model, *args, **{"kind": lb.Laplace, **settings})


def regression(X, y):
    beta = numpyro.sample("beta", dist.Normal(jnp.zeros(X.shape[1]), 2.0).to_event(1))
    numpyro.sample("y", dist.Normal(X @ beta, 0.5), obs=y)


def logistic(X, y):
    beta = numpyro.sample("beta", dist.Normal(jnp.zeros(X.shape[1]), 3.0).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=X @ beta), obs=y)


def data(seed, rows=40, columns=4):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns)) @ (np.eye(columns) + 0.7 * np.ones((columns, columns)))
    return X, X @ rng.standard_normal(columns) + 0.5 * rng.standard_normal(rows)


def flat():
    return dist.ImproperUniform(dist.constraints.real, (), ())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_gaussian_posterior_is_found_exactly(seed):
    X, y = data(seed)
    precision = X.T @ X / 0.25 + np.eye(4) / 4.0
    marginal = 0.25 * np.eye(len(y)) + 4.0 * X @ X.T
    log_det = np.linalg.slogdet(2 * np.pi * marginal)[1]
    evidence = -0.5 * (y @ np.linalg.solve(marginal, y) + log_det)
    run = fitted(regression, X, y, seed=seed)
    root = run.q.parameters["scale_tril"]
    np.testing.assert_allclose(run.q.parameters["loc"], np.linalg.solve(precision, X.T @ y / 0.25))
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(precision), rtol=1e-9, atol=1e-12)
    assert abs(run.elbo - evidence) < 1e-8
    assert run.converged
    assert run.stop_reason == "converged: the last step of Newton's method moved nothing"


def test_independent_entries_have_the_variances_of_the_mean_field_optimum():
    X, y = data(3)
    precision = X.T @ X / 0.25 + np.eye(4) / 4.0
    run = fitted(regression, X, y, rank="diagonal")
    np.testing.assert_allclose(run.q.parameters["scale"] ** -2.0, np.diag(precision), rtol=1e-9)


def test_it_is_numpyros_own_on_a_logistic_regression():
    # NumPyro's mode is where its potential energy is lowest: there Newton's step is zero.
    X, y = data(4)
    y = (y > 0).astype(int)
    run = fitted(logistic, X, y)
    loc, root = run.q.parameters["loc"], run.q.parameters["scale_tril"]
    with jax.enable_x64(True):
        there = init_to_value(values={"beta": jnp.asarray(loc)})
        guide = AutoLaplaceApproximation(logistic, init_loc_fn=there)
        svi = SVI(logistic, guide, numpyro.optim.Adam(0.1), Trace_ELBO())
        svi.init(jax.random.key(0), X, y)
        law, slope = quickly(
            lambda u: (
                guide.get_posterior({"auto_loc": u}),
                jax.grad(lambda u: potential_energy(logistic, (X, y), {}, {"beta": u}))(u),
            )
        )(loc)
        covariance = np.asarray(law.covariance_matrix)
        step = covariance @ np.asarray(slope)
    assert np.abs(step / np.sqrt(np.diag(covariance))).max() < 1e-6
    np.testing.assert_allclose(law.loc, loc)
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-6, atol=1e-9)


def test_its_elbo_is_that_of_its_gaussian_and_below_the_best():
    # Both are averages over 1024 draws; six standard errors fail once in 1e8 runs.
    X, y = data(4)
    y = (y > 0).astype(int)
    run, best = fitted(logistic, X, y), fitted(logistic, X, y, kind=lb.Gaussian)
    draws = np.random.default_rng(0).standard_normal((20_000, 4))
    root = run.q.parameters["scale_tril"]
    beta = run.q.parameters["loc"] + draws @ root.T
    a = beta @ X.T
    log_p = (y * a - np.logaddexp(0, a)).sum(1) - 0.5 * (beta**2).sum(1) / 9
    log_p -= 2 * np.log(2 * np.pi * 9)
    log_q = -0.5 * (draws**2).sum(1) - 2 * np.log(2 * np.pi) - np.log(np.diag(root)).sum()
    ratio = log_p - log_q
    error = np.hypot(ratio.std() / np.sqrt(len(ratio)), run.elbo_error)
    assert abs(run.elbo - ratio.mean()) < 6 * error
    assert run.elbo < best.elbo + 6 * best.elbo_error


def test_a_flat_hessian_takes_the_scale_of_the_best_gaussian():
    def quartic(y):
        x = numpyro.sample("x", flat())
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.factor("f", -((x - 1.0) ** 4))
        numpyro.sample("y", dist.Normal(b, 1.0), obs=y)

    for rank in ("full", "diagonal"):
        with pytest.warns(ConvergenceWarning) as caught:
            fit = fitted(quartic, np.array([1.0, 2.0]), rank=rank)
        assert str(caught[0].message) == (
            "The fit stopped before it converged: the Hessian at the mode is flat along 'x', where "
            "the scale is that of the best Gaussian instead.\n"
            "Use lb.Gaussian(), which averages log p over q."
        )
        assert not fit.converged
        assert np.isfinite(fit.elbo)
        x = fit.sample(100)["x"]
        assert np.isfinite(x).all()
        assert len(np.unique(x)) == 100
        assert 0.3 < fit.sd("x") < 1.0  # the posterior's own deviation is 0.58
        np.testing.assert_allclose(fit.sd("b"), 3**-0.5, rtol=1e-6)


def test_a_hierarchy_without_a_mode_is_an_error():
    def hierarchy(y):
        tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
        theta = numpyro.sample("theta", dist.Normal(jnp.zeros(6), tau).to_event(1))
        numpyro.sample("y", dist.Normal(theta, 10.0).to_event(1), obs=y)

    with pytest.raises(NoModeError) as caught:
        fitted(hierarchy, np.array([3.0, -1.0, 2.0, 0.5, 1.0, -2.0]), noncentred=())
    assert str(caught.value) == (
        "The log density has no mode: it goes on rising along 'tau' on the unconstrained space, as "
        "that of a hierarchy does where its scale goes to zero.\n"
        "Expected a maximum for Laplace's approximation. Use lb.Gaussian(), which averages over "
        "the density instead."
    )


def test_a_flat_direction_is_named():
    def sums(y):
        a, b = numpyro.sample("a", flat()), numpyro.sample("b", flat())
        numpyro.sample("y", dist.Normal(a + b, 1.0), obs=y)

    with pytest.raises(ImproperPosteriorError, match="along 'a', 'b' on the unconstrained space"):
        fitted(sums, np.array([1.0, 2.0, 3.0]))


@jax.custom_vjp
def softplus(a):
    return jnp.logaddexp(0.0, a)


softplus.defvjp(lambda a: (jnp.logaddexp(0.0, a), a), lambda a, g: (g * jax.nn.sigmoid(a),))


@pytest.mark.parametrize("kind", [lb.Laplace, lb.Delta])
def test_programs_that_state_only_their_gradient_are_differenced(kind):
    X, y = data(5, columns=2)
    y = (y > 0).astype(int)

    def reverse_only(X, y):
        beta = numpyro.sample("beta", dist.Normal(jnp.zeros(2), 3.0).to_event(1))
        a = X @ beta
        numpyro.factor("y", jnp.sum(y * a - softplus(a)))

    found = fitted(reverse_only, X, y, kind=kind, tolerance=1e-7).q.parameters
    exact = fitted(logistic, X, y, kind=kind, tolerance=1e-7).q.parameters
    np.testing.assert_allclose(found["loc"], exact["loc"], rtol=1e-6)
    np.testing.assert_allclose(found["scale_tril"], exact["scale_tril"], rtol=1e-6, atol=1e-8)


def test_a_fit_is_explained_saved_and_compiled_once(tmp_path):
    X, y = data(6)
    method = lb.Laplace()
    fit = lb.fit(regression, X, y, method=method)
    assert [row.update for row in fit.plan.rows] == ["approximated (Laplace)"]
    fit.save(tmp_path / "run.lb")
    again = lb.load(tmp_path / "run.lb", regression)
    np.testing.assert_array_equal(again.mean("beta"), fit.mean("beta"))
    with counted() as compiled:
        lb.fit(regression, X + 1.0, y, method=method)
    assert not compiled


@pytest.mark.parametrize("seed", [0, 5])
def test_in_single_precision_it_comes_to_rest_where_rounding_lets_it(seed):
    """Steps whose gains are rounding once went on to the limit, for these seeds among others."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(8, 3))
    y = x @ np.ones(3) + 0.3 * rng.normal(size=8)

    def robust(x, y):
        b = numpyro.sample("b", dist.StudentT(4.0, jnp.zeros(3), 1.0).to_event(1))
        numpyro.sample("y", dist.StudentT(3.0, jnp.tanh(x @ b), 0.5), obs=y)

    double = lb.fit(robust, x, y, method=lb.Laplace())
    with lb.computing(precision="float32"):
        single = lb.fit(robust, x, y, method=lb.Laplace())
    assert single.converged
    off = np.abs(single.mean("b") - double.mean("b")) / double.sd("b")
    assert off.max() < 0.01

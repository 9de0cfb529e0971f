"""Loops that end by a condition: the same values within the limit, NaN beyond it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.experimental.ode import odeint

import lowerbound as lb
from lowerbound.compute import bounded_loops
from lowerbound.compute.bounded_loops import LEAST_STEPS, MOST_STEPS, bounded
from lowerbound.methods.gaussian.target import target_for
from lowerbound.model import trace_model


def halvings(x):
    """How often x can be halved before it is below one, by a loop in a jitted branch."""

    def count(x):
        return jax.lax.while_loop(lambda s: s[0] >= 1.0, lambda s: (s[0] / 2, s[1] + 1.0), (x, 0.0))

    return jax.lax.cond(x > 0, jax.jit(count), lambda x: (x, -1.0), x)[1]


def steps(x):
    """A loop of x steps."""
    return jax.lax.while_loop(lambda s: s < x, lambda s: s + 1.0, jnp.zeros(()))


def test_loops_within_the_limit_are_as_they_were():
    for x in (-3.0, 0.5, 1.0, 1000.0):
        assert bounded(halvings, x)(x) == halvings(x)


def test_a_loop_beyond_the_limit_is_nan_and_leaves_the_rest_of_a_batch_alone():
    most = float(MOST_STEPS)
    found = jax.vmap(bounded(steps, 1.0))(jnp.array([3.0, most - 1, most + 1, 1e30]))
    np.testing.assert_array_equal(found, [3.0, most - 1, np.nan, np.nan])


def test_the_limit_is_shared_by_the_runs_of_a_loop():
    def many(x):
        return jax.lax.scan(lambda total, row: (total + steps(row), row), 0.0, x)[0]

    rows = np.full(1000, 2.0)
    assert bounded(many, rows)(rows) == 2000.0
    rows[7] = LEAST_STEPS + 1
    assert np.isnan(bounded(many, rows)(rows))


def decay(times, y):
    """Exponential decay, by a solver."""
    rate = numpyro.sample("rate", dist.HalfCauchy(1.0))
    path = odeint(lambda c, t: -rate * c, jnp.ones(()), jnp.asarray(times), rtol=1e-8, atol=1e-8)
    numpyro.sample("y", dist.Normal(path[1:], 0.1).to_event(1), obs=y)


def test_a_stiff_point_of_a_differential_equation_is_not_finite_and_others_are_exact():
    times = np.linspace(0.0, 2.0, 6)
    y = np.exp(-0.7 * times[1:])
    with jax.enable_x64(True):
        target = target_for(trace_model(decay, (times, y), {}))
        u = np.array([-1.0, 0.0, 1.0, 25.0])[:, None]
        values, gradients = target(u)
    assert not np.isfinite(values[3])

    def exact(u):
        rate = jnp.exp(u)
        prior = dist.HalfCauchy(1.0).log_prob(rate) + u
        return prior + dist.Normal(jnp.exp(-rate * times[1:]), 0.1).log_prob(y).sum()

    with jax.enable_x64(True):
        expected = jax.vmap(jax.value_and_grad(exact))(jnp.asarray(u[:3, 0]))
    np.testing.assert_allclose(values[:3], expected[0], rtol=1e-5)
    np.testing.assert_allclose(gradients[:3, 0], expected[1], rtol=1e-4)


def test_a_grid_over_rates_ends_where_the_equation_is_stiff():
    """A scan over all scales of the rate meets values at which the solver would take for ever."""
    times = np.linspace(0.0, 2.0, 6)
    fit = lb.fit(decay, times, np.exp(-0.7 * times[1:]), progress=False)
    assert fit.converged
    assert "on a grid" in fit.plan.ladder[-1]
    np.testing.assert_allclose(fit.posterior["rate"].icdf(0.5), 0.7, atol=0.05)


def test_loops_of_an_unknown_form_run_without_a_limit(monkeypatch):
    def unknown(equation, inputs, runs):
        raise KeyError("num_consts")

    monkeypatch.setitem(bounded_loops._LOOPS, "while", unknown)
    assert bounded(steps, 1.0)(float(MOST_STEPS + 1)) == MOST_STEPS + 1

"""No fit has a bound that is not finite: programs with regions of zero density, every engine."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import norm

import lowerbound as lb
from lowerbound.errors import NoFiniteStartError, ZeroDensityError

RNG = np.random.default_rng(0)
TIMES = np.linspace(0.2, 2.0, 30)
GROWTH = np.clip(1.2 - 0.5 * TIMES, 0.0, None) ** 0.7 + 0.1 * RNG.normal(size=30)
FEW = RNG.normal(size=5) + 1.0
BETWEEN = RNG.uniform(-0.5, 0.9, 20)


def clipped_power(y=GROWTH):
    """Where the level is clipped to 0, its power is 0, 1 or infinite, and has no derivative."""
    a = numpyro.sample("a", dist.Normal(0.0, 2.0))
    p = numpyro.sample("p", dist.Normal(0.0, 1.0))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.StudentT(4.0, jnp.clip(a - 0.5 * TIMES, 0) ** p, s), obs=y)


def clipped_scan(y=GROWTH):
    """A recursion whose level is clipped, with powers of it in mean and scale."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    p = numpyro.sample("p", dist.Uniform(-0.5, 1.0))
    s = numpyro.sample("s", dist.HalfCauchy(1.0))

    def step(level, value):
        mean = jnp.clip(level + a * level**p, 0)
        density = dist.StudentT(3.0, mean, s * mean**p + 0.01).log_prob(value)
        return jnp.clip(0.5 * level + 0.5 * value, 0), density

    _, densities = jax.lax.scan(step, jnp.asarray(y[0]), y[1:])
    numpyro.factor("y", densities.sum())


def half_plane(y=FEW):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    numpyro.factor("wall", jnp.where(a + b > 1.0, 0.0, -jnp.inf))
    numpyro.sample("y", dist.StudentT(4.0, a * b, 1.0), obs=y)


def ordered(y=FEW):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.factor("order", jnp.where(jnp.all(a[1:] > a[:-1]), 0.0, -jnp.inf))
    numpyro.sample("y", dist.StudentT(4.0, jnp.exp(a[jnp.arange(5) % 3]), 1.0), obs=y)


def ball(y=FEW):
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    numpyro.factor("inside", jnp.where(jnp.sum(z**2) < 1.0, 0.0, -jnp.inf))
    numpyro.sample("y", dist.StudentT(4.0, z.sum(), 1.0), obs=y)


def bounds(y=BETWEEN):
    m = numpyro.sample("m", dist.Uniform(-3.0, 3.0))
    k = numpyro.sample("k", dist.LogNormal(0.0, 1.0))
    numpyro.sample("y", dist.Uniform(jnp.sin(m) - k, jnp.sin(m) + k, validate_args=True),
                   obs=jnp.asarray(y))  # fmt: skip


def logarithm(y=GROWTH):
    """No number, where what is under the logarithm is negative."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(jnp.log(a * TIMES + b), 0.3), obs=y)


PROGRAMS = [clipped_power, clipped_scan, half_plane, ordered, ball, bounds, logarithm]


def quietly(program, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lb.fit(program, method=method)


@pytest.mark.parametrize("method", ["auto", lb.Gaussian(), lb.Gaussian(rank="diagonal")], ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_fit_has_a_finite_bound(program, method):
    fit = quietly(program, method)
    assert np.isfinite(fit.elbo)
    assert np.isfinite(fit.elbo_error)
    assert sum(fit.elbo_terms.values()) == pytest.approx(fit.elbo)


@pytest.mark.parametrize(
    "method", [lb.StochasticGaussian(), lb.ScoreMatching(), lb.Laplace()], ids=str
)
@pytest.mark.parametrize("program", [half_plane, ball, logarithm])
def test_other_algorithms_have_one_or_say_why_not(program, method):
    try:
        fit = quietly(program, method)
    except ZeroDensityError as error:
        assert method == lb.Laplace()
        wall = {half_plane: "wall", ball: "inside"}[program]
        assert f"Site '{wall}' has log density -inf at a draw of q" in str(error)  # noqa: PT017
    else:
        assert np.isfinite(fit.elbo)


def test_a_bound_with_a_wall_is_a_bound():
    """Below the log evidence, which is that of the sum of two normal numbers above 1."""

    def program():
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.factor("wall", jnp.where(a + b > 1.0, 0.0, -jnp.inf))

    evidence = norm.logsf(1.0 / np.sqrt(2.0))
    for method in (lb.Gaussian(), lb.ScoreMatching()):
        fit = quietly(program, method)
        assert -np.inf < fit.elbo < evidence + 4.0 * fit.elbo_error


def test_a_discrete_site_that_excludes_is_measured_too():
    """Score functions, with a Gaussian beside the discrete site that meets a wall."""

    def program(y=FEW):
        a = numpyro.sample("a", dist.Normal(1.0, 1.0))
        numpyro.factor("wall", jnp.where(a > 0.0, 0.0, -jnp.inf))
        n = numpyro.sample("n", dist.Poisson(3.0))
        numpyro.sample("y", dist.Normal(jnp.sqrt(a) * n, 1.0), obs=y)

    assert np.isfinite(quietly(program, lb.ScoreFunctions()).elbo)


def test_a_gradient_that_is_nowhere_finite_is_not_called_a_density():
    def program(y=FEW):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        kept = jnp.where(a > -100.0, 0.0, jnp.sqrt(0.0 * a))
        numpyro.sample("y", dist.StudentT(4.0, a + kept, 1.0), obs=y)

    with pytest.raises(NoFiniteStartError) as caught:
        lb.fit(program, method=lb.Gaussian())
    text = str(caught.value)
    assert text.startswith("The gradient of the log density is not finite at any of ")
    assert "The log density itself is finite at some of them." in text

"""Scalars that set a scale go on a grid, found along ridges, where the rest can follow them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import lowerbound as lb
from lowerbound.ladder.rungs import chosen
from lowerbound.run.problem import Problem

YEAR = np.arange(1952.0, 2014.0)
WARMTH = 9.3 + 0.02 * (YEAR - 1983) + np.random.default_rng(1).normal(0, 1.1, 62)
TIME = np.linspace(0.0, 10.0, 15)
GROWN = 8 / (1 + np.exp(2 - 0.8 * TIME)) + np.random.default_rng(2).normal(0, 0.4, 15)


def flat(name):
    return numpyro.sample(name, dist.ImproperUniform(constraints.real, (), ()))


def trend(year, warmth):
    alpha, beta, log_sigma = flat("alpha"), flat("beta"), flat("log_sigma")
    numpyro.sample("warmth", dist.Normal(alpha + beta * year, jnp.exp(log_sigma)), obs=warmth)


def looped_trend(year, warmth):
    """The same density, behind a loop that hides that it is a linear regression."""
    alpha, beta, log_sigma = flat("alpha"), flat("beta"), flat("log_sigma")
    mean = jax.lax.map(lambda t: alpha + beta * t, year)
    numpyro.factor("warmth", dist.Normal(mean, jnp.exp(log_sigma)).log_prob(warmth).sum())


def growth(time, size):
    ceiling = numpyro.sample("ceiling", dist.HalfNormal(20.0))
    delay = numpyro.sample("delay", dist.HalfNormal(5.0))
    rate = numpyro.sample("rate", dist.HalfNormal(2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    mean = ceiling / (1 + jnp.exp(delay - rate * time))
    numpyro.sample("size", dist.Normal(mean, sigma), obs=size)


def solved_growth(time, size):
    """The same with a loop whose length is not known beforehand."""
    ceiling = numpyro.sample("ceiling", dist.HalfNormal(20.0))
    delay = numpyro.sample("delay", dist.HalfNormal(5.0))
    rate = numpyro.sample("rate", dist.HalfNormal(2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    until = jax.lax.while_loop(lambda t: t < delay, lambda t: t + rate, 0.0)
    mean = ceiling / (1 + jnp.exp(until - time))
    numpyro.sample("size", dist.Normal(mean, sigma), obs=size)


def walk(y):
    """Noise around a random walk, written as a loop over its steps."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    log_sigma = numpyro.sample("log_sigma", dist.Normal(0.0, 1.0))
    steps = numpyro.sample("steps", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
    _, level = jax.lax.scan(lambda h, e: (jnp.tanh(0.9 * h + e),) * 2, mu, steps)
    numpyro.sample("y", dist.Normal(level, jnp.exp(log_sigma)), obs=y)


def volatility(y):
    """Here the scale of the data depends on a vector: no scalar can take its place."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    steps = numpyro.sample("steps", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
    _, h = jax.lax.scan(lambda h, e: (0.9 * h + e,) * 2, 0.0, steps)
    numpyro.sample("y", dist.Normal(jnp.tanh(mu), jnp.exp(h)), obs=y)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (trend, "Given(('log_sigma',))"),
        (looped_trend, "Given(('alpha', 'beta', 'log_sigma'))"),
    ],
    ids=["a log scale on a grid", "a ridge of three scalars"],
)
def test_a_trend_over_years_has_its_student_law(model, expected):
    """With flat priors: (alpha, beta) are Student, of covariance (X'X)^-1 RSS / (n - 4).

    alpha and beta have a correlation of -0.99999, which a scan along either of them cannot see.
    """
    fit = lb.fit(model, YEAR, WARMTH)
    assert fit.method == expected
    assert fit.converged
    x = np.column_stack([np.ones_like(YEAR), YEAR])
    mean, (rss,), *_ = np.linalg.lstsq(x, WARMTH, rcond=None)
    sd = np.sqrt(np.diag(np.linalg.inv(x.T @ x)) * rss / (len(YEAR) - 4))
    for number, site in enumerate(("alpha", "beta")):
        assert abs(fit.mean(site) - mean[number]) < 1e-3 * sd[number]
        assert fit.sd(site) == pytest.approx(sd[number], rel=1e-4)


def test_the_noise_of_a_curve_is_on_a_grid():
    """q(sigma) q(z | sigma) contains the Gaussian of all sites, so that its ELBO is no lower."""
    fit = lb.fit(growth, TIME, GROWN)
    assert fit.method == "Given(('sigma',), method=Gaussian())"
    whole = lb.fit(growth, TIME, GROWN, method=lb.Gaussian())
    assert fit.elbo > whole.elbo + 2 * whole.elbo_error
    assert fit.plan.ladder[-1] == (
        "-> Gaussian: about 3 numbers on the unconstrained space, given 'sigma', the scale of the "
        "data, on a grid; expectations by quasi-Monte Carlo"
    )


def test_a_grid_of_gaussians_must_be_affordable():
    """There is none for solvers, nor where much would be left that the scalar sets no scale of."""

    def method(model, *args):
        return repr(chosen(Problem(model, args), "auto").method)

    assert method(solved_growth, TIME, GROWN) == "Gaussian()"
    assert method(walk, np.linspace(-1, 1, 10)) == "Given(('log_sigma',), method=Gaussian())"
    assert method(walk, np.linspace(-1, 1, 50)) == "Gaussian()"
    assert method(volatility, np.linspace(-1, 1, 10)) == "Integrated()"


def test_a_real_number_that_meets_the_scale_of_the_data_is_integrated():
    """q(mu) q(steps | mu) contains the Gaussian of all sites, so that its ELBO is no lower."""
    y = np.linspace(-1, 1, 10)
    fit = lb.fit(volatility, y)
    whole = lb.fit(volatility, y, method=lb.Gaussian())
    assert fit.method == "Integrated()"
    assert fit.elbo > whole.elbo - 2 * whole.elbo_error


def abilities(n, y):
    """Probabilities with a Beta law, of which only its two hyperparameters are scalars."""
    centre = numpyro.sample("centre", dist.Beta(1.0, 1.0))
    size = numpyro.sample("size", dist.Gamma(1.0, 0.05))
    with numpyro.plate("people", len(y)):
        p = numpyro.sample("p", dist.Beta(1.0 + centre * size, 1.0 + (1.0 - centre) * size))
        numpyro.sample("y", dist.Binomial(n, p), obs=y)


def marks(x, y):
    """Ordered marks: all cut points and the slope meet in every row."""
    slope = numpyro.sample("slope", dist.Normal(0.0, 2.0))
    spread = numpyro.sample("spread", dist.Uniform(0.01, 50.0))
    cuts = jnp.array([-1.0, *(numpyro.sample(f"c{k}", dist.Normal(k, 1.0)) for k in (0, 1)), 2.0])
    below = dist.Normal(slope * x[:, None], spread).cdf(cuts)
    ones = jnp.ones((len(x), 1))
    chances = jnp.diff(jnp.concatenate([0.0 * ones, below, ones], axis=1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Categorical(0.95 * jnp.maximum(chances, 0.0) + 0.01), obs=y)


def lines_of(model, *args):
    return chosen(Problem(model, args), "auto").rungs


def test_a_grid_of_two_scalars_is_preferred_whatever_bounds_the_others_have():
    *_, integrated, taken = lines_of(abilities, np.full(9, 10), np.arange(9))
    assert integrated.reason == "a grid over 'centre', 'size' does as well, with exact factors"
    assert taken.name == "conditioned"
    assert taken.reason.endswith("exact factors")


def test_few_numbers_that_all_rows_share_are_one_gaussian():
    x = np.linspace(-1.0, 1.0, 12)
    rungs = {line.name: line.reason for line in lines_of(marks, x, np.arange(12) % 5)}
    assert rungs["integrated"] == (
        "all 4 numbers together are a small Gaussian, where rows need sums over several "
        "predictors each"
    )

"""The automatic choice of a method: which rung a model gets, and that each fits and is kept."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.data import eight_schools
from lowerbound.ladder.rungs import chosen
from lowerbound.run.problem import Problem
from tests.run.models import clusters, line, mixture, regression

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
COUNTS = RNG.poisson(np.exp(0.3 + 0.5 * X[:, 0]))
SCHOOLS = eight_schools()


def half_cauchy(x, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.0))
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def schools(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(sigma)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def poisson(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Poisson(jnp.exp(x @ beta)), obs=y)


def bounded_effects(x, y=None):
    """All effects meet in every term, beside bounded coefficients; the scale can be given."""
    slope = numpyro.sample("slope", dist.Uniform(-10.0, 10.0))
    level = numpyro.sample("level", dist.Uniform(-20.0, 20.0))
    curve = numpyro.sample("curve", dist.Uniform(-10.0, 10.0))
    sigma = numpyro.sample("sigma", dist.Uniform(0.0, 5.0))
    with numpyro.plate("data", len(x)):
        eps = numpyro.sample("eps", dist.Normal(0.0, sigma))
        rate = jnp.exp(level + slope * x[:, 0] + eps)
        rate = rate + jnp.exp(curve * x[:, 1]) * jnp.exp(eps).mean()
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def recursion(y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))

    def step(level, value):
        level = jnp.tanh(a[0] * level + a[1] * value)
        return level, level

    _, levels = jax.lax.scan(step, 0.0, y[:-1])
    numpyro.sample("y", dist.Normal(levels, 1.0), obs=y[1:])


CASES = {
    "exact": (regression, line(), "CAVI()"),
    "mixture": (lambda x: mixture(x, 3), clusters()[:1], "CAVI(restarts=6)"),
    "given the noise": (half_cauchy, (X, X[:, 0] + 0.3), "Given(('sigma',))"),
    "given the spread": (schools, tuple(SCHOOLS[k] for k in ("sigma", "y")),
                         "Given(('tau',))"),
    "quadrature": (poisson, (X, COUNTS), "CAVI()"),
    "a Gaussian given the spread": (bounded_effects, (X, COUNTS),
                                    "Given(('sigma',), method=Gaussian())"),
    "a Gaussian": (recursion, (X[:, 0],), "Gaussian()"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_rung_of_a_model(name):
    model, args, expected = CASES[name]
    found = chosen(Problem(model, args), "auto")
    assert repr(found.method) == expected
    taken = [line for line in found.lines if line.startswith("->")]
    assert taken == [found.lines[-1]]


def lines(model, *args, **kwargs):
    return chosen(Problem(model, args, kwargs), "auto").lines


def test_the_ladder_in_words():
    ladder = lines(schools, **SCHOOLS)
    assert ladder == (
        "   exact: 2 factors meet that are independent in q",
        "   integrated: a grid over 'tau' does as well, with exact factors",
        "-> conditioned: 'tau' on a grid (about 65 nodes); given a node, exact factors",
    )
    ladder = lines(recursion, X[:, 0])
    assert [line.strip("-> ").split(":")[0] for line in ladder] == [
        "exact",
        "conditioned",
        "coordinate ascent",
        "augmented",
        "Gaussian",
    ]
    assert "'a' enters 'y' through" in ladder[0]


@pytest.mark.parametrize("method", ["auto", lb.Given(("tau",))])
def test_a_grid_is_not_kept(method, tmp_path):
    """No other rung is taken than that which `explain` prints: what it cannot do is an error."""
    with pytest.raises(lb.errors.ArgumentError, match="keeps no state between its steps"):
        lb.fit(schools, **SCHOOLS, method=method, checkpoint=tmp_path / "run")
    fit = lb.fit(schools, **SCHOOLS, method=lb.CAVI(), checkpoint=tmp_path / "run")
    assert fit.method == "CAVI()"


@pytest.mark.parametrize(
    "method",
    [lb.Given(("tau",)), lb.Gaussian(), lb.Given(("tau",), lb.Gaussian())],
    ids=repr,
)
def test_grids_and_gaussians_are_saved(method, tmp_path):
    fit = lb.fit(schools, **SCHOOLS, method=method)
    fit.save(tmp_path / "fit.lb")
    # Coordinates that are not centred need the model's location and scale, and so the data.
    data = SCHOOLS if repr(method) == "Gaussian()" else {}
    again = lb.load(tmp_path / "fit.lb", schools, **data)
    for site in ("mu", "tau", "theta"):
        np.testing.assert_allclose(again.mean(site), fit.mean(site), rtol=1e-12)
        np.testing.assert_allclose(again.sd(site), fit.sd(site), rtol=1e-12)
        np.testing.assert_allclose(again.sample(20)[site], fit.sample(20)[site], rtol=1e-10)
    assert sum(fit.elbo_terms.values()) == pytest.approx(fit.elbo, rel=1e-9)


def test_gaussian_and_exact_factors_agree_given_the_spread():
    """Given tau the posterior is Gaussian: both inner solvers find it, at every node."""
    exact = lb.fit(schools, **SCHOOLS)
    drawn = lb.fit(schools, **SCHOOLS, method=lb.Given(("tau",), lb.Gaussian()))
    assert drawn.elbo == pytest.approx(exact.elbo, abs=1e-5)
    np.testing.assert_allclose(drawn.sd("theta"), exact.sd("theta"), rtol=1e-4)


def test_new_rows_after_a_grid_go_on_from_a_mean_field():
    y = X[:, 0] + 0.3
    fit = lb.fit(half_cauchy, X[:30], y[:30])
    again = lb.update(fit, X[30:], y[30:])
    assert "Went on from a mean-field fit of the old rows" in again.plan.notes[-1]


def test_nested_plates_with_covariates_on_both_axes():
    """The order of stored constants is the same in every trace, whatever the arrays' identities."""
    base, last = RNG.normal(size=6), np.array([0.0, 0.0, 1.0])
    y = RNG.poisson(2.0, size=(6, 3))

    def visits(base, last, y=None):
        a = numpyro.sample("a", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
        with numpyro.plate("people", 6, dim=-2):
            person = numpyro.sample("person", dist.Normal(0.0, sigma))
            with numpyro.plate("visits", 3, dim=-1):
                log_rate = a[0] + a[1] * base[:, None] + a[2] * last + person
                numpyro.sample("y", dist.Poisson(jnp.exp(log_rate)), obs=y)

    fit = lb.fit(visits, base, last, y, method=lb.Given(("sigma",)))
    assert fit.method == "Given(('sigma',))"
    assert fit.converged
    assert fit.elbo > lb.fit(visits, base, last, y, method=lb.CAVI()).elbo


def test_a_climb_that_is_led_away_comes_back():
    """A ridge: the sum of the two shapes is badly determined, and far steps find no ground."""
    n = np.full(20, 12)
    y = np.random.default_rng(3).binomial(n, np.random.default_rng(4).beta(3.0, 9.0, size=20))

    def shapes(n, y):
        flat = dist.ImproperUniform(dist.constraints.positive, (), ())
        alpha, beta = numpyro.sample("alpha", flat), numpyro.sample("beta", flat)
        numpyro.factor("prior", -2.5 * jnp.log(alpha + beta))
        numpyro.sample("y", dist.BetaBinomial(alpha, beta, n), obs=y)

    fit = lb.fit(shapes, n, y)
    assert fit.converged
    share = fit.sample(2000)
    mean = np.mean(share["alpha"] / (share["alpha"] + share["beta"]))
    assert mean == pytest.approx(y.sum() / n.sum(), abs=0.03)

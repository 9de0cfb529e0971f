"""Discrete sites of many rows beside few numbers: summed out of a Gaussian, not factors of q."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb


def rows(n, seed):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    counts = rng.poisson(np.exp(x @ [0.3, 0.5, -0.3])) * (rng.random(n) < 0.7)
    return x, counts


def indicated(x, y):
    """Zero-inflated counts, with the indicator as a site."""
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    share = numpyro.sample("share", dist.Beta(1.0, 1.0))
    with numpyro.plate("rows", len(x)):
        counted = numpyro.sample("counted", dist.Bernoulli(share), infer={"enumerate": "parallel"})
        rate = jnp.where(counted, jnp.exp(x @ beta), 1e-6)
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def by_hand(x, y):
    """The same counts, the sum over the indicator written down."""
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    share = numpyro.sample("share", dist.Beta(1.0, 1.0))
    with numpyro.plate("rows", len(x)):
        one = dist.Poisson(jnp.exp(x @ beta)).log_prob(y)
        none = dist.Poisson(1e-6).log_prob(y)
        numpyro.factor("y", jnp.logaddexp(jnp.log(share) + one, jnp.log1p(-share) + none))


def components(x, y):
    """A mixture, whose components can be exchanged."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(x)):
        which = numpyro.sample("which", dist.Categorical(jnp.array([0.5, 0.5])))
        numpyro.sample("y", dist.Poisson(rate[which]), obs=y)


def test_rows_in_plenty_leave_coordinate_ascent():
    plan = str(lb.explain(indicated, *rows(600, 0)))
    reason = "'counted' summed out of a Gaussian loses less: there are 4 numbers, and 100 rows"
    assert f"coordinate ascent: {reason} or more for each" in plan
    assert "-> Gaussian, with 'counted' summed out" in plan


@pytest.mark.parametrize(("model", "n"), [(indicated, 200), (components, 600)])
def test_few_rows_and_components_that_may_change_places_stay(model, n):
    assert "-> coordinate ascent" in str(lb.explain(model, *rows(n, 0)))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_sum_over_an_indicator_is_that_by_hand(seed):
    data = rows(600, seed)
    fit, other = (lb.fit(model, *data, progress=False) for model in (indicated, by_hand))
    for name in ("beta", "share"):
        assert np.all(abs(fit.mean(name) - other.mean(name)) < 0.05 * other.sd(name))
        assert fit.sd(name) == pytest.approx(other.sd(name), rel=0.05)

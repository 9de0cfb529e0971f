"""Law 7: what must not matter does not: order of rows and sites, labels, units of the data."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose

import lowerbound as lb
from lowerbound.model import trace_model
from tests.laws.derived import derive
from tests.models import test_diagonal_mixture, test_poisson_mixture, test_univariate_mixture

FEW = 5  # sweeps


# --------------------------------------------------------------------------------------------------
# Rows


def permuted(array: np.ndarray, order: np.ndarray, axis: int = 0) -> np.ndarray:
    """The array with its rows in another order, when that axis is the axis of rows."""
    has_rows = array.ndim > axis and array.shape[axis] == len(order)
    return array[(slice(None),) * axis + (order,)] if has_rows else array


def test_order_of_rows(case, derived):
    """Rows, and the starting values of what belongs to them, in another order: the same ELBO."""
    if not case.rows:
        pytest.skip("the rows of this model are not exchangeable")
    args, kwargs = case.arguments(0)
    order = np.random.default_rng(5).permutation(len(args[case.rows[0]]))
    moved = tuple(permuted(a, order) if i in case.rows else a for i, a in enumerate(args))
    with jax.enable_x64(True):
        model = trace_model(case.model, moved, kwargs)
    starts = {site: permuted(values, order, axis=1) for site, values in derived.starts.items()}
    if model.concrete:  # the program looks at these data: it is another program now
        found = derive(case, (moved, kwargs)).climb_from(starts)
    else:
        found = derived.climb_from(starts, derived.compress(model))
    assert_allclose(found["reported"], derived.climb["reported"], rtol=1e-9)


# --------------------------------------------------------------------------------------------------
# Sites


def regression(x, y, intercept_first):
    sites = {
        "a": lambda: numpyro.sample("a", dist.Normal(0.0, 3.0)),
        "b": lambda: numpyro.sample("b", dist.Normal(0.0, 2.0)),
        "tau": lambda: numpyro.sample("tau", dist.Gamma(2.0, 1.0)),
    }
    order = ("a", "b", "tau") if intercept_first else ("tau", "b", "a")
    drawn = {name: sites[name]() for name in order}
    mean = drawn["a"] + drawn["b"] * x
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(mean, 1 / jnp.sqrt(drawn["tau"])), obs=y)


def test_order_of_sites():
    rng = np.random.default_rng(2)
    x = rng.normal(size=30)
    y = 1.0 + 2.0 * x + 0.5 * rng.normal(size=30)
    method = lb.CAVI(tolerance=1e-13)
    first, second = (
        lb.fit(regression, x, y, intercept_first=order, method=method) for order in (True, False)
    )
    assert_allclose(second.elbo, first.elbo, rtol=1e-9)
    for site in ("a", "b", "tau"):
        assert_allclose(second.mean(site), first.mean(site), rtol=1e-6)
        assert_allclose(second.sd(site), first.sd(site), rtol=1e-6)


# --------------------------------------------------------------------------------------------------
# Labels

MIXTURES = {
    "univariate_mixture": (test_univariate_mixture.CASE, ("mu",), "c"),
    "diagonal_mixture": (test_diagonal_mixture.CASE, ("pi", "mu", "tau"), "z"),
    "poisson_mixture": (test_poisson_mixture.CASE, ("pi", "rates"), "z"),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_labels_of_components(name):
    """Starting values with permuted components give the posterior with permuted components."""
    case, components, assignment = MIXTURES[name]
    (x, *rest), kwargs = case.arguments(0)
    start = {site: value for site, value in case.start(0).items() if site in components}
    order = np.roll(np.arange(len(start[components[-1]])), 1)

    def run(values: dict[str, np.ndarray]) -> lb.Fit:
        method = lb.CAVI(init=values, max_sweeps=FEW, tolerance=0.0)
        return lb.fit(case.model, x, *rest, method=method, **kwargs)

    first, second = run(start), run({site: value[order] for site, value in start.items()})
    assert_allclose(second.history.elbo, first.history.elbo, rtol=1e-10)
    for site in components:
        assert_allclose(second.mean(site), first.mean(site)[order], rtol=1e-8)
    probabilities = [np.asarray(fit.posterior[assignment].probs) for fit in (first, second)]
    assert_allclose(probabilities[1], probabilities[0][..., order], rtol=1e-7, atol=1e-12)


# --------------------------------------------------------------------------------------------------
# Units of the data


def mixture(x, centre, spread, rate, K=2):
    """Priors given as arrays of length one: data in other units need no other program."""
    with numpyro.plate("dimensions", x.shape[1], dim=-1), numpyro.plate("components", K, dim=-2):
        tau = numpyro.sample("tau", dist.Gamma(2.0, rate[0]))
        mu = numpyro.sample("mu", dist.Normal(centre[0], spread[0]))
    with numpyro.plate("data", len(x)):
        z = numpyro.sample("z", dist.Categorical(jnp.full(K, 1 / K)))
        numpyro.sample("x", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])).to_event(1), obs=x)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 30.0), (7.0, 0.0), (0.02, -4.0)])
def test_translation_and_scaling(scale, shift):
    """With y = s x + t and the priors likewise, the ELBO falls by n D log s and q moves along."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(40, 2)) + 3.0 * rng.integers(2, size=(40, 1))
    start = {"mu": x[:2], "tau": np.ones((2, 2))}
    prior = {"centre": np.array([1.0]), "spread": np.array([3.0]), "rate": np.array([1.0])}
    moved = {
        "centre": scale * prior["centre"] + shift,
        "spread": scale * prior["spread"],
        "rate": scale**2 * prior["rate"],
    }

    def run(x: np.ndarray, start: dict[str, np.ndarray], prior: dict[str, np.ndarray]) -> lb.Fit:
        method = lb.CAVI(init=start, max_sweeps=FEW, tolerance=0.0)
        return lb.fit(mixture, x, method=method, **prior)

    first = run(x, start, prior)
    begin = {"mu": scale * start["mu"] + shift, "tau": start["tau"] / scale**2}
    second = run(scale * x + shift, begin, moved)
    expected = first.history.elbo - x.size * np.log(scale)
    assert_allclose(second.history.elbo, expected, rtol=1e-8)
    assert_allclose(second.mean("mu"), scale * first.mean("mu") + shift, rtol=1e-7)
    assert_allclose(second.sd("mu"), scale * first.sd("mu"), rtol=1e-7)
    assert_allclose(second.mean("tau"), first.mean("tau") / scale**2, rtol=1e-7)
    probabilities = [np.asarray(fit.posterior["z"].probs) for fit in (first, second)]
    assert_allclose(probabilities[1], probabilities[0], rtol=1e-6, atol=1e-10)

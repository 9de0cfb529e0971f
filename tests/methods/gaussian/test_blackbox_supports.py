"""Gaussians on the unconstrained space: every support has its moments, marginals and draws."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

from lowerbound.compiled import quickly
from lowerbound.errors import UnsupportedModelError
from tests.methods.gaussian.runs import fitted


def supports(y):
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    p = numpyro.sample("p", dist.Beta(3.0, 2.0))
    w = numpyro.sample("w", dist.Dirichlet(jnp.array([2.0, 3.0, 4.0])))
    c = numpyro.sample("c", dist.ImproperUniform(constraints.ordered_vector, (), event_shape=(2,)))
    L = numpyro.sample("L", dist.LKJCholesky(2, 2.0))
    top = numpyro.sample("top", dist.LogNormal(0.0, 0.5))
    below = numpyro.sample("below", dist.Uniform(0.0, top))
    numpyro.factor("spread", dist.Normal(0.0, 1.0).log_prob(c).sum())
    mean = p + w @ jnp.array([1.0, 2.0, 3.0]) + c[1] - c[0] + L[1, 0] + below
    numpyro.sample("y", dist.Normal(mean, tau), obs=y)


@pytest.fixture(scope="module")
def run():
    y = np.random.default_rng(0).normal(4.0, 1.0, 30)
    return fitted(supports, y)


def test_every_support_has_moments_that_agree_with_draws(run):
    # 20,000 draws: 4.5 standard errors over 14 entries, at most once in 5,000 runs; moments of
    # "w", "c", "L" and "below" are averages over 4096 even draws, hence a slack of 2% on top.
    for seed in (0, 1):
        draws = run.q.family.sample(run.q.parameters, jax.random.key(seed), (20_000,))
        for site, values in draws.items():
            mean, variance = map(np.asarray, run.q.family.moments(run.q.parameters, site))
            values = np.asarray(values)
            assert mean.shape == variance.shape == values.shape[1:]
            error = 4.5 * values.std(0) / np.sqrt(len(values)) + 0.02 * values.std(0) + 1e-12
            assert np.all(abs(values.mean(0) - mean) < error), site
            np.testing.assert_allclose(values.var(0), variance, rtol=0.1, atol=1e-12)
    draws = {site: np.asarray(values) for site, values in draws.items()}
    assert np.all(draws["below"] < draws["top"])
    assert np.all(np.diff(draws["c"], axis=-1) > 0)
    np.testing.assert_allclose(np.sum(draws["w"], -1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("site", ["tau", "p", "w", "c", "L"])
def test_marginals_agree_with_moments(run, site):
    # 20,000 draws: 5 standard errors over at most 4 entries, once in 100,000 runs.
    with jax.enable_x64(True):
        law = run.q.family.marginal(run.q.parameters, site)

        def drawn(key):
            values = law.sample(key, (20_000,))
            return values, law.log_prob(values[:3])

        values, densities = map(np.asarray, quickly(drawn)(jax.random.key(0)))
        mean, variance = map(np.asarray, run.q.family.moments(run.q.parameters, site))
        assert np.isfinite(densities).all()
    deviation = np.sqrt(variance)
    assert np.all(abs(values.mean(0) - mean) <= (5 / np.sqrt(20_000) + 0.02) * deviation + 1e-12)


def test_a_support_that_depends_on_other_sites_has_no_marginal(run):
    with pytest.raises(UnsupportedModelError) as caught:
        run.q.family.marginal(run.q.parameters, "below")
    assert str(caught.value) == (
        "The support of site 'below' depends on other latent sites, so its marginal under a "
        "Gaussian on the unconstrained space has no closed form.\n"
        "Expected a fixed support. Use draws: fit.sample(1000)."
    )


def test_moments_of_scalars_are_exact(run):
    # The mean of a lognormal, and of a logit-normal by adaptive quadrature.
    from scipy.integrate import quad

    family, parameters = run.q.family, run.q.parameters
    deviation = np.sqrt((parameters["scale_tril"] ** 2).sum(1))
    at = {name: family.coordinates.part(name).start for name in ("tau", "p")}
    loc, sd = parameters["loc"][at["tau"]], deviation[at["tau"]]
    mean, variance = map(float, family.moments(parameters, "tau"))
    assert mean == pytest.approx(np.exp(loc + sd**2 / 2), rel=1e-12)
    assert variance == pytest.approx(mean**2 * np.expm1(sd**2), rel=1e-12)
    loc, sd = parameters["loc"][at["p"]], deviation[at["p"]]

    def moment(power):
        def integrand(e):
            density = np.exp(-0.5 * e**2) / np.sqrt(2 * np.pi)
            return density / (1 + np.exp(-loc - sd * e)) ** power

        return quad(integrand, -12, 12, epsabs=1e-13)[0]

    mean, variance = map(float, family.moments(parameters, "p"))
    assert mean == pytest.approx(moment(1), rel=1e-9)
    assert variance == pytest.approx(moment(2) - moment(1) ** 2, rel=1e-7)


def test_a_positive_site_is_exact_where_its_logarithm_is_gaussian():
    def model(y):
        tau = numpyro.sample("tau", dist.LogNormal(0.0, 1.0))
        numpyro.sample("y", dist.LogNormal(jnp.log(tau), 1.0), obs=y)

    y = np.array([2.5])
    run = fitted(model, y, tolerance=1e-8)
    assert run.q.parameters["loc"][0] == pytest.approx(np.log(2.5) / 2, abs=1e-7)
    assert run.q.parameters["scale_tril"][0, 0] == pytest.approx(0.5**0.5, rel=1e-7)
    evidence = -np.log(2.5) - 0.25 * np.log(2.5) ** 2 - 0.5 * np.log(4 * np.pi)
    assert run.elbo == pytest.approx(evidence, abs=1e-8)

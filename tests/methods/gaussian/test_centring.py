"""Centred or not: the coordinates of a hierarchy that suit a Gaussian better are found and kept."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import lowerbound as lb
from lowerbound.errors import ArgumentError, StorageError, UnsupportedModelError
from lowerbound.family.densities.noncentred_sites import mixture_size
from lowerbound.methods.gaussian.centring import LEAST, MARGIN, location_scale_sites
from lowerbound.model import trace_model
from lowerbound.run.problem import Problem
from lowerbound.run.walking import ended
from tests.laws.compilations import counted
from tests.methods.gaussian.runs import fitted

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(y, error):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, error), obs=y)


SIZES = {"a": 6, "b": 5, "c": 4, "d": 3}


def crossed(levels, count):
    total = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    for column, (name, size) in enumerate(SIZES.items()):
        tau = numpyro.sample(f"tau_{name}", dist.HalfNormal(1.0))
        effect = numpyro.sample(name, dist.Normal(0.0, tau).expand([size]).to_event(1))
        total = total + effect[levels[:, column]]
    numpyro.sample("count", dist.Poisson(jnp.exp(total)), obs=count)


def crossed_data():
    rng = np.random.default_rng(4)
    levels = np.stack([rng.integers(0, size, 60) for size in SIZES.values()], axis=1)
    spread = (0.8, 0.1, 0.4, 0.0)
    effects = [s * rng.standard_normal(n) for s, n in zip(spread, SIZES.values(), strict=True)]
    rate = np.exp(0.5 + sum(e[levels[:, i]] for i, e in enumerate(effects)))
    return levels, rng.poisson(rate)


# NUTS with non-centred effects: 2 chains of 20,000 draws after 1,500, key 0, NumPyro 0.22; at least
# 13,000 effective draws. Mean and deviation of each.
CROSSED = {
    "mean": (1.158, 0.501),
    "tau_a": (0.920, 0.310),
    "tau_b": (0.164, 0.148),
    "tau_c": (0.372, 0.260),
    "tau_d": (0.272, 0.280),
}


def chosen(model, *args, seed=0, **settings):
    problem = Problem(model, args, seed=seed)
    with jax.enable_x64(True), np.errstate(all="ignore"):
        return ended(lb.Gaussian(**settings).plan(problem).coordinates())


def test_a_funnel_is_left():
    """Eight schools, where each effect has one noisy observation; NUTS has sd(tau) = 3.2."""
    centred = fitted(schools, EFFECT, ERROR, noncentred=())
    best = fitted(schools, EFFECT, ERROR)
    assert best.elbo > centred.elbo + 0.9
    assert centred.sd("tau") < 1.2
    assert 2.2 < best.sd("tau") < 3.3
    assert "kept, centring 'theta' 0 (0: z = loc + scale * u, 1: z itself): +1." in best.notes[0]
    assert not centred.notes


@pytest.mark.parametrize("seed", [0, 1])
def test_named_sites_are_what_is_found(seed):
    """From any seed the ELBO is that of the coordinates named, within four standard errors."""
    found = fitted(schools, EFFECT, ERROR, seed=seed)
    named = fitted(schools, EFFECT, ERROR, seed=seed, noncentred=("theta",))
    assert abs(found.elbo - named.elbo) < 4 * np.hypot(found.elbo_error, named.elbo_error)
    np.testing.assert_allclose(found.mean("theta"), named.mean("theta"), atol=0.05)
    np.testing.assert_allclose(found.sd("theta"), named.sd("theta"), rtol=0.03)


def test_much_data_keep_a_hierarchy_centred():
    rng = np.random.default_rng(0)
    effects = rng.normal(0.0, 2.0, 8)

    def repeated(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
        with numpyro.plate("groups", 8):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
            numpyro.sample("y", dist.Normal(theta, 0.05), obs=y)

    y = effects + 0.05 * rng.standard_normal(8)
    found = fitted(repeated, y)
    assert "Centred coordinates kept for 'theta'; the others gave -" in found.notes[0]
    assert isinstance(found.posterior["theta"], dist.MultivariateNormal)


def test_the_coordinates_kept_have_the_largest_elbo_of_those_tried():
    choice = chosen(schools, EFFECT, ERROR)
    kept = choice.family.coordinates.noncentred
    (best,) = [t for t in choice.trials if t.begun is choice.begun]
    assert set(best.noncentred) == kept == {"theta"}
    assert {0.0, 0.5, 1.0} <= {trial.centring["theta"] for trial in choice.trials}
    assert best.elbo >= max(trial.elbo for trial in choice.trials) - LEAST


def test_crossed_effects_are_nearer_to_long_chains():
    """Four scales, of which the data leave two near zero: part of the way is best for these."""
    levels, count = crossed_data()
    centred = fitted(crossed, levels, count, noncentred=())
    best = fitted(crossed, levels, count)
    assert best.elbo > centred.elbo + MARGIN
    taus = [name for name in CROSSED if name.startswith("tau")]

    def distance(fit):
        logs = [np.log(fit.sd(name) / CROSSED[name][1]) for name in taus]
        return np.sqrt(np.mean(np.square(logs)))

    assert distance(best) < 0.85 * distance(centred)
    for name in CROSSED:
        mean, sd = CROSSED[name]
        assert abs(best.mean(name) - mean) < 0.25 * sd


def test_the_marginal_of_a_non_centred_site_is_a_mixture_with_its_moments():
    """The mean of draws may differ by 4 standard errors: one false failure in 2,000 runs."""
    fit = fitted(schools, EFFECT, ERROR)
    marginal = fit.posterior["theta"]
    assert marginal.event_shape == (8,)
    with jax.enable_x64(True):
        np.testing.assert_allclose(marginal.mean, fit.mean("theta"), atol=0.005)
        np.testing.assert_allclose(jnp.sqrt(marginal.variance), fit.sd("theta"), rtol=0.002)
    draws = np.asarray(fit.sample(20_000, seed=1)["theta"])
    error = fit.sd("theta") / np.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - fit.mean("theta")) < 4 * error)
    assert np.all(np.abs(draws.std(axis=0) / fit.sd("theta") - 1) < 0.04)


def test_sites_with_a_matrix_have_marginals_too():
    y = np.random.default_rng(3).standard_normal((3, 2))

    def effects(y):
        spread = numpyro.sample("spread", dist.HalfNormal(1.0).expand([2]).to_event(1))
        root = jnp.diag(spread) + jnp.array([[0.0, 0.0], [0.3, 0.0]])
        with numpyro.plate("groups", 3):
            z = numpyro.sample("z", dist.MultivariateNormal(jnp.zeros(2), scale_tril=root))
            numpyro.sample("y", dist.Normal(z, 2.0).to_event(1), obs=y)

    fit = fitted(effects, y, noncentred=("z",))
    draws = np.asarray(fit.sample(200_000, seed=1)["z"])
    marginal = fit.posterior["z"]
    assert marginal.event_shape == (3, 2)
    parts = marginal.base_dist.component_distribution
    weights = np.asarray(marginal.base_dist.mixing_distribution.probs)
    within = np.tensordot(weights, parts.covariance_matrix, 1)
    between = np.cov(parts.loc.T, aweights=weights, bias=True)
    covariance = within + between
    np.testing.assert_allclose(np.ravel(fit.sd("z")), np.sqrt(np.diag(covariance)), rtol=0.005)
    # A kurtosis of 25 gives a variance of 0.7 an error of 0.008: one false failure in 1,000 runs.
    np.testing.assert_allclose(covariance, np.cov(draws.reshape(-1, 6).T), atol=0.032)
    np.testing.assert_allclose(fit.mean("z"), draws.mean(axis=0), atol=0.01)


def test_which_sites_have_a_location_and_a_scale():
    def many(y):
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        numpyro.sample("fixed", dist.Normal(0.0, 1.0))
        location = numpyro.sample("location", dist.Normal(jnp.log(tau), 1.0))
        scale = numpyro.sample("scale", dist.Cauchy(0.0, tau))
        with numpyro.handlers.scale(scale=2.0):
            numpyro.sample("weighted", dist.Normal(0.0, tau))
        with numpyro.handlers.mask(mask=False):
            masked = numpyro.sample("masked", dist.Normal(0.0, tau))

        def step(state, _):
            state = numpyro.sample("chain", dist.Normal(state, tau))
            return state, None

        scan(step, 0.0, None, length=3)
        numpyro.sample("y", dist.Normal(location + scale + masked, 1.0), obs=y)

    with jax.enable_x64(True):
        found = location_scale_sites(trace_model(many, (np.ones(3),)))
    assert found == {
        "fixed": {"loc": False, "scale": False},
        "location": {"loc": True, "scale": False},
        "scale": {"loc": False, "scale": True},
    }


def test_explain_says_what_will_be_tried(capsys):
    plan = lb.explain(schools, EFFECT, ERROR, method=lb.Gaussian())
    assert plan.notes == (
        "Coordinates u with z = loc + scale * u, or between u and z, may be tried for 'theta'; "
        "those of the largest ELBO are kept.",
    )
    assert lb.explain(schools, EFFECT, ERROR, method=lb.Gaussian(noncentred=())).notes == ()


def test_single_precision_finds_the_same():
    double = fitted(schools, EFFECT, ERROR)
    single = fitted(schools, EFFECT, ERROR, precision="float32")
    assert abs(single.elbo - double.elbo) < 0.05
    assert abs(single.sd("tau") - double.sd("tau")) < 0.1


def test_other_data_compile_nothing():
    fitted(schools, EFFECT, ERROR).mean("theta")
    with counted() as compilations:
        fitted(schools, EFFECT + 1.0, ERROR).mean("theta")
    assert compilations == []


def test_a_non_centred_fit_is_saved_and_loaded_with_its_data(tmp_path):
    fit = lb.fit(schools, EFFECT, ERROR, method=lb.Gaussian(noncentred=("theta",)))
    fit.save(tmp_path / "fit.lb")
    again = lb.load(tmp_path / "fit.lb", schools, EFFECT, ERROR)
    for site in ("mu", "tau", "theta"):
        np.testing.assert_allclose(again.mean(site), fit.mean(site), rtol=1e-12)
        np.testing.assert_allclose(again.sample(20)[site], fit.sample(20)[site], rtol=1e-10)
    with pytest.raises(StorageError) as caught:
        lb.load(tmp_path / "fit.lb", schools)
    assert str(caught.value) == (
        f"{tmp_path / 'fit.lb'} holds a fit that gives 'theta' by non-centred coordinates, "
        "z = loc + scale * u, where the model computes loc and scale.\n"
        "Expected the data that the fit was made with: lb.load(path, model, *args, **kwargs)."
    )


def test_names_must_be_of_location_and_scale():
    with pytest.raises(ArgumentError) as error:
        fitted(schools, EFFECT, ERROR, noncentred=("tau",))
    where = str(error.value).split("(")[1].split(")")[0]
    assert where.startswith("test_centring.py:")
    assert str(error.value) == (
        f"Gaussian got noncentred with the site 'tau', HalfCauchy   ({where}).\n"
        "Expected names of latent sites with a location and a scale, such as Normal and StudentT, "
        "or whose logarithm has them, among mu, theta."
    )
    with pytest.raises(ArgumentError) as error:
        lb.explain(schools, EFFECT, ERROR, method=lb.Gaussian(noncentred=("gone",)))
    assert str(error.value) == (
        "Gaussian got noncentred with the site 'gone', no latent site of the model.\n"
        "Expected names of latent sites with a location and a scale, such as Normal and StudentT, "
        "or whose logarithm has them, among mu, theta."
    )


def test_settings_are_checked():
    with pytest.raises(ArgumentError) as error:
        lb.Gaussian(noncentred="all")
    assert str(error.value) == (
        "Gaussian got noncentred='all'.\n"
        'Expected "auto" or a tuple of site names, e.g. ("theta",).'
    )
    assert repr(lb.Gaussian(noncentred=("theta",))) == "Gaussian(noncentred=('theta',))"


def test_marginals_of_large_sites_are_refused():
    with pytest.raises(UnsupportedModelError) as error:
        mixture_size("theta", (20, 10))
    assert str(error.value) == (
        "Site 'theta' is non-centred and has 200 entries: their joint marginal would be a mixture "
        "of 512 Gaussians with as many covariances.\n"
        "Expected at most 197 entries. Use draws, fit.sample(1000), or fit.mean and fit.sd."
    )

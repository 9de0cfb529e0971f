"""Scalars with power-law tails: the grid has a coordinate in which these are exponential."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import lowerbound as lb
from lowerbound.family.numerics.long_tails import Eased, easing

PROBABILITIES = np.array([0.001, 0.025, 0.25, 0.5, 0.75, 0.975, 0.999])


def cauchy():
    numpyro.sample("z", dist.Cauchy(0.2, 1.0))


def student():
    numpyro.sample("z", dist.StudentT(1.5, 3.0, 10.0))


def laplace():
    numpyro.sample("z", dist.Laplace(3.0, 10.0))


LAWS = {
    cauchy: stats.cauchy(0.2, 1.0),
    student: stats.t(1.5, 3.0, 10.0),
    laplace: stats.laplace(3.0, 10.0),
}


@pytest.mark.parametrize("model", LAWS, ids=lambda model: model.__name__)
def test_quantiles_are_those_of_the_law(model):
    fit, law = lb.fit(model, progress=False), LAWS[model]
    assert fit.converged
    assert fit.elbo == pytest.approx(0.0, abs=0.01)
    assert (easing(fit.q.family.transforms[0]) is not None) == (model is not laplace)
    found = fit.posterior["z"]
    width = law.ppf(0.75) - law.ppf(0.25)
    for probability in PROBABILITIES:
        place = law.ppf(probability)
        assert abs(found.icdf(probability) - place) < 0.005 * (width + abs(place))
        assert found.log_prob(place) == pytest.approx(law.logpdf(place), abs=0.03)


def test_draws_have_the_density_that_q_says_and_outlive_a_file(tmp_path):
    fit = lb.fit(cauchy, progress=False)
    draws = fit.sample(4_000, seed=0)
    density = np.asarray(fit.q.log_prob(draws))
    assert abs(density - stats.cauchy.logpdf(draws["z"], 0.2, 1.0)).mean() < 0.02
    fit.save(tmp_path / "fit.lb")
    again = lb.load(tmp_path / "fit.lb", cauchy)
    np.testing.assert_array_equal(again.sample(50, seed=1)["z"], fit.sample(50, seed=1)["z"])


def test_an_eased_coordinate_goes_there_and_back():
    v = np.array([-300.0, -3.0, 0.0, 1e-3, 5.0, 300.0])
    with jax.enable_x64(True):
        eased = Eased(2.0, 0.5)
        u = eased(v)
        np.testing.assert_allclose(eased.inv(u), v, rtol=1e-9, atol=1e-9)
        slope = (eased(v[1:5] + 1e-4) - eased(v[1:5] - 1e-4)) / 2e-4
        volume = eased.log_abs_det_jacobian(v, u)
        np.testing.assert_allclose(volume[1:5], np.log(slope), atol=1e-7)
        assert np.isfinite(eased.log_abs_det_jacobian(1e4, np.inf))

"""Pictures of time series: paths, parts, and the steps ahead; and what is predicted there."""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import lowerbound as lb
from lowerbound.errors import ArgumentError, ShapeError, UnknownSiteError

RNG = np.random.default_rng(0)
LENGTH, STEP, NOISE = 40, 0.5, 0.4
Y = np.cumsum(STEP * RNG.normal(size=LENGTH)) + NOISE * RNG.normal(size=LENGTH)


def level(y=None, steps=None):
    def step(z, y):
        z = numpyro.sample("z", dist.Normal(z, STEP))
        return z, numpyro.sample("y", dist.Normal(z, NOISE), obs=y)

    scan(step, 0.0, y, length=steps if y is None else len(y))


def switching(y):
    rows = jnp.array([[0.9, 0.1], [0.2, 0.8]])

    def step(z, y):
        z = numpyro.sample("z", dist.Categorical(rows[z]))
        numpyro.sample("y", dist.Normal(jnp.array([-1.0, 1.0])[z], NOISE), obs=y)
        return z, None

    scan(step, 0, y)


@pytest.fixture(scope="module")
def fit():
    return lb.fit(level, Y, method=lb.Integrated())


@pytest.fixture(scope="module")
def hidden():
    return lb.fit(switching, np.sign(Y - Y.mean()), method=lb.CAVI())


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_the_steps_ahead_have_the_law_of_the_program(fit):
    drawn = fit.predictive(steps=LENGTH + 10, draws=4000)["y"]
    assert drawn.shape == (4000, LENGTH + 10)
    last, sd = float(fit.mean("z")[-1]), float(fit.sd("z")[-1])
    ahead = np.sqrt(sd**2 + STEP**2 * np.arange(1, 11) + NOISE**2)
    # 5 standard errors: one in 10^5 such tests fails by chance
    assert abs((drawn[:, LENGTH:].mean(axis=0) - last) / ahead).max() < 5 / np.sqrt(4000)
    assert abs(drawn[:, LENGTH:].std(axis=0) / ahead - 1).max() < 5 / np.sqrt(8000)


def test_a_series_that_cannot_go_on_is_said():
    def walk(y=None, steps=None):
        count = steps if y is None else len(y)
        z = numpyro.sample("z", dist.GaussianRandomWalk(STEP, num_steps=count))
        numpyro.sample("y", dist.Normal(z, NOISE), obs=y)

    fit = lb.fit(walk, Y[:5], method=lb.Integrated())
    with pytest.raises(ShapeError) as caught:
        fit.predictive(steps=8)
    assert str(caught.value) == (
        "Site 'z' has shape (5,) in the fit, and the new arguments ask for (8,).\n"
        "Expected a series that can go on: write its steps with numpyro.contrib.control_flow.scan, "
        "whose later steps follow from the earlier ones; or fit it at the longer length, with the "
        "steps to be predicted missing (numpy.ma.masked)."
    )


def test_a_forecast_has_the_data_and_what_comes_next(fit):
    (ax,) = lb.plot.forecast(fit, steps=LENGTH + 10, draws=50)
    assert ax.get_title(loc="left") == "y: 40 steps, and 10 ahead"
    median, data, _ = ax.get_lines()
    assert len(median.get_xdata()) == LENGTH + 10
    np.testing.assert_array_equal(data.get_ydata(), Y)
    with pytest.raises(UnknownSiteError, match=r"plot\.forecast got the site 'z'"):
        lb.plot.forecast(fit, steps=50, site="z")


def test_paths_of_numbers_and_of_states(fit, hidden):
    (ax,) = lb.plot.states(fit, data=Y, draws=50)
    median, data = ax.get_lines()
    assert abs(median.get_ydata() - fit.mean("z")).max() < 5 * fit.sd("z").max() / np.sqrt(50)
    np.testing.assert_array_equal(data.get_ydata(), Y)
    (ax,) = lb.plot.states(hidden, draws=50)
    (image,) = ax.get_images()
    assert image.get_array().shape == (2, LENGTH)
    np.testing.assert_allclose(image.get_array().sum(axis=0), 1.0)


def test_parts_are_panels(fit):
    axes = lb.plot.components(fit, draws=50)
    assert [ax.get_title(loc="left") for ax in axes] == ["z"]
    with pytest.raises(UnknownSiteError, match=r"plot\.components got the site 'w'"):
        lb.plot.components(fit, ["w"], draws=50)

    def coin(y):
        numpyro.sample("y", dist.Bernoulli(numpyro.sample("p", dist.Beta(1.0, 1.0))), obs=y)

    with pytest.raises(ArgumentError) as caught:
        lb.plot.states(lb.fit(coin, np.ones(3), method=lb.CAVI()))
    assert str(caught.value) == (
        "The fit has no site with an axis of steps.\n"
        "Expected a latent site whose first axis is time, as those inside scan have."
    )


def test_the_most_likely_path_is_that_of_all_paths(hidden):
    law = hidden.posterior["z"]
    path = law.likeliest
    draws = law.sample(jax.random.key(0), (200,))
    assert path.shape == (LENGTH,)
    assert float(law.log_prob(path)) >= float(law.log_prob(draws).max()) - 1e-9

"""Pictures of a posterior: intervals, densities and pairs, of two numbers or two thousand."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.errors import ArgumentError
from lowerbound.plot.elements import chosen, layers_of
from lowerbound.plot.marginal import smoothed
from lowerbound.plot.pairing import outline

RNG = np.random.default_rng(0)
SIZE = 2000
Y = RNG.normal(size=SIZE)
Y[7] = 9.0


def levels(y):
    scale = numpyro.sample("scale", dist.Gamma(2.0, 2.0))
    theta = numpyro.sample("theta", dist.Normal(0.0, 3.0).expand([len(y)]).to_event(1))
    numpyro.sample("y", dist.Normal(theta, 1 / jnp.sqrt(scale)).to_event(1), obs=y)


def switch(y):
    p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    with numpyro.plate("rows", len(y)):
        on = numpyro.sample("on", dist.Bernoulli(p))
        numpyro.sample("y", dist.Normal(3.0 * on, 1.0), obs=y)


@pytest.fixture(scope="module")
def large():
    return lb.fit(levels, Y, method=lb.CAVI(max_sweeps=5, tolerance=0.0))


@pytest.fixture(scope="module")
def small():
    return lb.fit(switch, np.array([0.1, 2.9, 3.3, -0.4]), method=lb.CAVI())


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def titles(axes):
    return [ax.get_title(loc="left") for ax in axes]


def caption(axes):
    return axes[0].get_figure(root=True).get_suptitle()


def shifted(fit, place, by):
    """Draws like those of the fit, but of one number elsewhere."""
    drawn = {name: array.copy() for name, array in fit.sample(400, seed=1).items()}
    drawn["theta"][:, place] += by
    return drawn


# --- Intervals ---


def test_two_thousand_numbers_have_twenty_lines(large):
    scale, theta = lb.plot.posterior(large)
    assert titles([scale, theta]) == ["scale", "theta"]
    labels = [text.get_text() for text in theta.get_yticklabels()]
    assert len(labels) == 20
    assert "[7]" in labels  # stands out
    assert "20 of 2,000: those that stand out most" in theta.get_title(loc="right")
    assert labels == sorted(labels, key=lambda text: int(text[1:-1]))
    assert theta.get_figure(root=True).get_size_inches()[1] < 8
    few = lb.plot.posterior(large, ["theta"], most=5)
    assert len(few[0].get_yticklabels()) == 5


def test_what_is_laid_over_chooses_the_numbers(large):
    over = {"NUTS": shifted(large, 11, 2.0)}
    axes = lb.plot.posterior(large, over=over, most=4)
    assert "[11]" in [text.get_text() for text in axes[1].get_yticklabels()]
    assert "where the densities differ most" in axes[1].get_title(loc="right")
    names = [line.get_gid() for line in axes[1].lines]
    assert names == ["q", "NUTS"]
    # Equal up to noise: what stands out is shown, as without it.
    axes = lb.plot.posterior(large, over={"NUTS": large.sample(400, seed=1)}, most=4)
    assert "[7]" in [text.get_text() for text in axes[1].get_yticklabels()]
    assert "the densities agree" in axes[1].get_title(loc="right")


def test_means_are_where_they_are_drawn(small):
    (ax,) = lb.plot.posterior(small, ["p"])
    (mark,) = ax.lines
    np.testing.assert_allclose(mark.get_xdata(), small.mean("p"), atol=0.03)


def test_small_sites_of_rows_are_shown_and_discrete_ones_on_request(small):
    assert titles(lb.plot.posterior(small)) == ["p"]
    assert titles(lb.plot.posterior(small, ["on"])) == ["on"]


def test_requests_that_mean_nothing(large, small):
    with pytest.raises(ArgumentError) as found:
        lb.plot.posterior(small, ["sigma"])
    assert str(found.value) == (
        "plot.posterior got the site 'sigma', which is no site of the fit.\n"
        "Expected names among p, on."
    )
    with pytest.raises(ArgumentError) as found:
        lb.plot.posterior(small, over=[1, 2])
    assert str(found.value) == (
        "plot.posterior got over=list.\nExpected a fit, draws by site (as NumPyro's "
        'MCMC.get_samples() gives them), or several of these by name: {"NUTS": draws}.'
    )
    with pytest.raises(ArgumentError) as found:
        lb.plot.marginals(small, over={"p": np.zeros((100, 3))})
    assert str(found.value) == (
        "plot.marginals got draws 'draws' of site 'p' with shape (3,).\n"
        "Expected an array of draws, each of shape ()."
    )
    with pytest.raises(ArgumentError) as found:
        lb.plot.marginals(small, over={"q": np.zeros(100)})
    assert str(found.value) == (
        "plot.marginals got nothing to lay over p: the others have none of them.\n"
        "Expected draws of the same sites."
    )
    with pytest.raises(ArgumentError, match=r"most=0.\nExpected an integer of at least 1."):
        lb.plot.posterior(small, most=0)
    with pytest.raises(ArgumentError, match=r"draws=5.\nExpected an integer of at least 100."):
        lb.plot.pairs(small, draws=5)
    with pytest.raises(ArgumentError, match=r"plot.pairs got dict.\nExpected a fit"):
        lb.plot.pairs({})


# --- Densities ---


def test_marginals_show_every_site_and_say_what_they_leave_out(large):
    axes = lb.plot.marginals(large, most=6, columns=3, draws=200)
    assert len(axes) == 6
    assert {title.partition("[")[0] for title in titles(axes)} == {"scale", "theta"}
    assert "6 of 2,001 numbers: those that stand out most." in caption(axes)
    for ax in axes:
        x, density = ax.lines[0].get_data()
        assert np.trapezoid(density, x) == pytest.approx(1.0, abs=0.08)


def test_discrete_numbers_have_bars(small):
    axes = lb.plot.marginals(small, ["on"], over={"again": small.sample(400, seed=3)})
    assert len(axes) == 4
    heights = [bar.get_height() for bar in axes[1].containers[0]]
    assert sum(heights) == pytest.approx(1.0)
    legend = axes[0].get_figure(root=True).legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["q", "again"]


def test_densities_do_not_leak_over_the_ends_of_a_support():
    exponential = -np.log1p(-(np.arange(4000) + 0.5) / 4000)
    grid = np.array([0.0, 0.5, 2.0])
    # The kernels are 0.09 wide, and the slope at the end is 1.
    np.testing.assert_allclose(smoothed(exponential, grid), np.exp(-grid), atol=0.09)


def test_two_modes_stay_two():
    draws = np.concatenate([RNG.normal(-5, 0.3, 2000), RNG.normal(5, 0.3, 2000)])
    middle, mode = smoothed(draws, np.array([0.0, 5.0]))
    assert middle < 1e-3 * mode


# --- Pairs ---


def test_ellipses_are_those_of_two_sds(small):
    covariance = np.array([[2.0, 0.9], [0.9, 1.0]])
    ring = outline(np.array([1.0, -1.0]), covariance) - np.array([[1.0], [-1.0]])
    np.testing.assert_allclose((ring * np.linalg.solve(covariance, ring)).sum(axis=0), 4.0)


def test_pairs_of_two_numbers_are_one_panel():
    def ends(y):
        start = numpyro.sample("start", dist.Normal(0.0, 1.0))
        end = numpyro.sample("end", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(start + end, 0.5), obs=y)

    fit = lb.fit(ends, 1.0, method=lb.CAVI(blocks=[("start",), ("end",)]))
    exact = RNG.multivariate_normal([0.44, 0.44], [[0.56, -0.44], [-0.44, 0.56]], 3000)
    axes = lb.plot.pairs(fit, over={"exact": {"start": exact[:, 0], "end": exact[:, 1]}})
    assert len(axes) == 1
    rings = {line.get_gid(): line.get_xydata() for line in axes[0].lines if line.get_gid()}
    assert list(rings) == ["q", "exact"]
    # Mean field is the smaller one, inside.
    assert np.ptp(rings["q"][:, 0]) < 0.8 * np.ptp(rings["exact"][:, 0])
    assert (axes[0].get_xlabel(), axes[0].get_ylabel()) == ("start", "end")


def test_of_many_numbers_the_correlated_ones_are_paired(large):
    axes = lb.plot.pairs(large, most=4, draws=200)
    assert len(axes) == 6  # a triangle without its diagonal
    assert "4 of 2,001 numbers:" in caption(axes)
    with pytest.raises(ArgumentError, match=r"most=1.\nExpected an integer of at least 2."):
        lb.plot.pairs(large, most=1)


def test_positive_numbers_over_orders_of_magnitude_have_a_logarithmic_axis(small):
    wide = {"p": np.clip(RNG.uniform(size=2000), 1e-3, 1)}
    layers = layers_of("plot.pairs", small, ["p"], 200, {"wide": wide})
    from lowerbound.plot.pairing import _is_wide

    (element,) = layers.elements("p")
    assert _is_wide(layers.of(element))
    assert not _is_wide({"q": RNG.normal(size=100)})


def test_one_number_has_no_pair(small):
    with pytest.raises(ArgumentError) as found:
        lb.plot.pairs(small, ["p"])
    assert str(found.value) == (
        "plot.pairs got one number, 'p'.\nExpected two or more. Use lb.plot.marginals(fit)."
    )


def test_the_choice_takes_some_of_every_site(large):
    layers = layers_of("plot.marginals", large, None, 100)
    every = [one for site in layers.shapes for one in layers.elements(site)]
    kept = chosen(every, 3)
    assert len(kept) == 3
    assert kept[0].label == "scale"
    assert chosen(every, 5000) == every


# --- The verdict ---


def test_pictures_say_how_far_the_fit_is_to_be_trusted(small):
    import dataclasses

    cure = 'lb.correct(fit, "psis")'
    for trust, colour in (("all", "#00664B"), ("means", "#855800"), ("nothing", "#A33F00")):
        verdict = lb.Verdict(trust, "the sd of 'p' is about 0.5 times that of the posterior", cure)
        one = dataclasses.replace(small, verdict=verdict)
        axes = lb.plot.posterior(one, ["p"])
        assert caption(axes).replace("\n", " ") == str(verdict)
        assert cure in caption(axes)  # code is not broken over lines
        (text,) = axes[0].get_figure(root=True).texts
        assert text.get_color() == colour

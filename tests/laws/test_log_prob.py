"""The density of q: it integrates to one, over the sites' own scales, whatever the family.

Small programs of one or two real numbers and a few discrete ones: quadrature over boxes that hold
all but 1e-5 of q, and sums over all states. A Jacobian that is dropped, or taken of the wrong side,
shows here; `tests/methods` compares E_q[log p - log q] with the ELBO for every way to fit. Nothing
is random but the seeds of the fits.
"""

import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.family.densities.nothing import Nothing
from lowerbound.family.q import Q

Y = np.array([0.3, 0.9, 0.4, 1.1, 0.2, 0.7])


def level(y):
    """A scale and a share: one is positive, the other in an interval."""
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    p = numpyro.sample("p", dist.Beta(2.0, 2.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(p, s), obs=y)


def precise(y):
    """A mean and a precision that share a factor."""
    tau = numpyro.sample("tau", dist.Gamma(3.0, 2.0))
    m = numpyro.sample("m", dist.Normal(0.0, 1 / jnp.sqrt(tau)))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(m, 1 / jnp.sqrt(tau)), obs=y)


def scaled(y):
    """A location whose scale is a site: coordinates may be non-centred."""
    s = numpyro.sample("s", dist.LogNormal(0.0, 0.5))
    m = numpyro.sample("m", dist.Normal(0.3, s))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.StudentT(5.0, m, 1.0), obs=y)


def switched(y):
    """Two switches and a number."""
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    with numpyro.plate("both", 2):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
    mean = jnp.sinh(m) * z[0] + 0.5 * z[1]
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


WIDE = (-6.0, 6.0)
CASES = {
    "a factor of two sites": (precise, lb.CAVI(), {"tau": (1e-3, 25.0), "m": (-3.0, 4.0)}),
    "independent factors": (level, lb.CAVI(), {"s": (0.02, 2.5), "p": (1e-4, 1 - 1e-4)}),
    "full": (level, lb.Gaussian(rank="full"), {"s": (0.01, 2.5), "p": (1e-4, 1 - 1e-4)}),
    "diagonal": (level, lb.Gaussian(rank="diagonal"), {"s": (0.01, 2.5), "p": (1e-4, 1 - 1e-4)}),
    "low rank": (level, lb.Gaussian(rank=1), {"s": (0.01, 2.5), "p": (1e-4, 1 - 1e-4)}),
    "non-centred": (scaled, lb.Gaussian(noncentred=("m",)), {"s": (0.01, 9.0), "m": WIDE}),
    "given a scalar": (level, lb.Given(("s",)), {"s": (0.02, 4.0), "p": (1e-4, 1 - 1e-4)}),
    "scalars alone": (level, lb.Given(("s", "p")), {"s": (0.02, 4.0), "p": (1e-4, 1 - 1e-4)}),
    "summed out": (switched, lb.Gaussian(), {"m": WIDE}),
    "score functions": (switched, lb.ScoreFunctions(), {"m": WIDE}),
    "some sites": (switched, lb.Over(("m",)), {"m": WIDE}),
}
POINTS = 200


@cache
def fitted(name):
    model, method, _ = CASES[name]
    return lb.fit(model, Y, method=method)


def midpoints(low, high):
    edges = np.linspace(low, high, POINTS + 1)
    return (edges[1:] + edges[:-1]) / 2, (high - low) / POINTS


@pytest.mark.parametrize("name", CASES)
def test_q_integrates_to_one(name):
    fit, boxes = fitted(name), CASES[name][2]
    axes = {site: midpoints(*box) for site, box in boxes.items()}
    grid = np.meshgrid(*(points for points, _ in axes.values()), indexing="ij")
    values = {site: a.ravel() for site, a in zip(axes, grid, strict=True)}
    volume = np.prod([width for _, width in axes.values()])
    states = [{}]
    if "z" in fit.sites:
        states = [{"z": np.array(z)} for z in itertools.product((0, 1), repeat=2)]
    total = 0.0
    for state in states:
        given = {n: np.broadcast_to(v, (grid[0].size, *v.shape)) for n, v in state.items()}
        total += np.exp(fit.q.log_prob({**values, **given})).sum() * volume
    assert total == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("name", CASES)
def test_a_draw_and_its_density_are_of_one_law(name):
    """The mean of 1 / q over draws inside a box, of one state, is the volume of the box.

    4000 draws with two seeds and five standard errors: wrong with probability 1e-5 over all cases.
    """
    q = fitted(name).q
    for seed in (0, 1):
        draws = {n: np.asarray(a) for n, a in q.sample(4000, jax.random.key(seed)).items()}
        real = [n for n in draws if n not in q.values]
        inside, volume = np.ones(4000, bool), 1.0
        for site in real:
            low, high = np.quantile(draws[site], [0.2, 0.8])
            inside &= (draws[site] > low) & (draws[site] < high)
            volume *= high - low
        for site in q.values:  # the likeliest state: of rare ones, few draws say little
            likely, counts = np.unique(draws[site], axis=0, return_counts=True)
            inside &= (draws[site] == likely[counts.argmax()]).all(axis=1)
        each = np.where(inside, np.exp(-q.log_prob(draws)), 0.0)
        error = each.std() / np.sqrt(len(each))
        # The box is one of quantiles of the draws themselves.
        assert each.mean() == pytest.approx(volume, abs=5 * error + 0.02 * volume)


def test_what_a_discrete_site_cannot_be_has_no_density():
    q = fitted("summed out").q
    found = q.log_prob({"m": np.zeros(2), "z": np.array([[0, 1], [0, 2]])})
    assert np.isfinite(found[0])
    assert found[1] == -np.inf


def test_nothing_has_no_density():
    assert Q(Nothing(), {}).log_prob({}) == 0.0

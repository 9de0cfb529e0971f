"""Draws by NumPy are draws of the factor: their statistics have its means."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from lowerbound.family.factors.free import Free
from lowerbound.family.factors.gaussian import MultivariateNormal, Normal
from lowerbound.family.factors.normal_gamma import NormalGamma
from lowerbound.family.factors.precision import Gamma, Wishart
from lowerbound.family.factors.simplex import Beta, Dirichlet
from lowerbound.family.host_draws import all_drawn, gaussian_draws
from lowerbound.joint.terms.expression import Z

COUNT = 20_000
MATRIX = np.array([[2.0, 0.6], [0.6, 1.0]])


def naturals():
    yield Normal((2,)), {"x": np.array([1.0, -3.0]), "x2": np.array([-0.5, -2.0])}
    yield MultivariateNormal((), 2), {"x": np.array([1.0, -1.0]), "xx": -MATRIX / 2}
    for power in (1.0, -1.0, -2.0):
        shape = np.array([4.5, 9.0])
        yield Gamma((2,), power), {"log": power * shape - 1, "power": np.array([-2.0, -0.5])}
    yield Beta((2,)), {"log": np.array([-0.7, 3.0]), "log1m": np.array([1.0, 0.0])}
    yield Dirichlet((), 3), {"log": np.array([-0.9, 0.5, 4.0])}
    yield Free((2,), (("log", Z), Z), ((), ()), ((), ()), lower=0.0), {
        "s0": np.array([1.5, 4.0]), "s1": np.array([-2.0, -0.5]),
    }  # fmt: skip
    px = np.array([1.0, -1.0])
    yield (
        NormalGamma((), (2,), full=True),
        {"log": np.array(4.0), "power": np.array(-6.0), "px": px, "pxx": -MATRIX / 2},
    )


@pytest.mark.parametrize("case", list(naturals()), ids=lambda case: repr(case[0]))
def test_statistics_of_draws_have_the_means_of_the_factor(case):
    family, natural = case
    with jax.enable_x64(True):
        given = {k: jnp.asarray(a) for k, a in natural.items()}
        (values,) = all_drawn([family], [given], COUNT, 0)
        found = jax.vmap(family.statistics)({k: jnp.asarray(a) for k, a in values.items()})
        means = family.mean(given)
    for name, expected in means.items():
        drawn = np.asarray(found[name])
        error = drawn.std(axis=0) / np.sqrt(COUNT)
        # Five standard errors: one failure in some million.
        assert np.all(np.abs(drawn.mean(axis=0) - np.asarray(expected)) < 5 * error + 1e-12), name


def test_a_factor_without_such_draws_says_so():
    assert all_drawn([Wishart((), 2)], [{}], 10, 0) is None


ROOT = np.array([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [-0.3, 0.4, 0.7]])
SCALE, FACTOR = np.array([0.5, 2.0, 1.0]), np.array([[1.0], [-0.5], [0.2]])
GAUSSIANS = [
    ({"scale_tril": ROOT}, ROOT @ ROOT.T),
    ({"scale": SCALE}, np.diag(SCALE**2)),
    ({"scale": SCALE, "factor": FACTOR}, np.diag(SCALE**2) + FACTOR @ FACTOR.T),
]


@pytest.mark.parametrize(("spread", "covariance"), GAUSSIANS)
def test_draws_of_a_gaussian_have_its_moments_and_its_density(spread, covariance):
    loc = np.array([1.0, -2.0, 0.5])
    u, log_q = gaussian_draws({"loc": loc, **spread}, 0, COUNT)
    law = multivariate_normal(loc, covariance)
    np.testing.assert_allclose(log_q[:50], law.logpdf(u[:50]), rtol=1e-10)
    # Five standard errors of some means and of squares.
    sds = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(u.mean(axis=0) - loc) < 5 * sds / np.sqrt(COUNT))
    error = np.sqrt(covariance**2 + np.outer(sds, sds) ** 2) / np.sqrt(COUNT)
    assert np.all(np.abs(np.cov(u.T) - covariance) < 5 * error)


def test_a_gaussian_by_its_precision_has_no_root_here():
    assert gaussian_draws({"loc": np.zeros(2), "band": np.ones((2, 1))}, 0, 10) is None

"""A place with other names for its components is brought back, where log p knows no names."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.trust.against import against
from lowerbound.trust.optima.relabelled import aligned

RNG = np.random.default_rng(0)
ANSWERS = RNG.integers(0, 3, (12, 4))
X = np.concatenate([RNG.normal(-3, 1, 8), RNG.normal(0, 1, 6), RNG.normal(3, 1, 9)])


def answers(y):
    """A table of classes by answers, whose two axes are of one length."""
    with numpyro.plate("classes", 3):
        zeta = numpyro.sample("zeta", dist.Dirichlet(jnp.ones(3)))
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("items", len(y), dim=-2):
        c = numpyro.sample("c", dist.Categorical(pi))
        with numpyro.plate("positions", y.shape[1]):
            numpyro.sample("y", dist.Categorical(zeta[c]), obs=y)


def mixture(x):
    w = numpyro.sample("w", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("components", 3):
        m = numpyro.sample("m", dist.Normal(0.0, 5.0))
    with numpyro.plate("rows", len(x)):
        z = numpyro.sample("z", dist.Categorical(w))
        numpyro.sample("x", dist.Normal(m[z], 1.0), obs=x)


def named(x):
    """The same, but for priors that tell the components apart."""
    w = numpyro.sample("w", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    with numpyro.plate("components", 3):
        m = numpyro.sample("m", dist.Normal(jnp.array([-3.0, 0.0, 3.0]), 1.0))
    with numpyro.plate("rows", len(x)):
        z = numpyro.sample("z", dist.Categorical(w))
        numpyro.sample("x", dist.Normal(m[z], 1.0), obs=x)


def judged(model, data):
    with lb.computing(verdicts=False):
        fit = lb.fit(model, data, method=lb.CAVI())
    judge = against(fit)
    drawn = judge.drawn(64)
    return judge, drawn.vectors.mean(axis=0), drawn.vectors.std(axis=0)


def moved(judge, home, axes, order):
    """The place with entries of each site along its axis in another order."""
    values = judge.values(home[None])
    found = {site: np.take(array, order, axes[site]) for site, array in values.items()}
    with jax.enable_x64(True):
        return np.asarray(judge.placed(found)[0], float)[0]


@pytest.mark.parametrize(
    ("model", "data", "axes"),
    [(answers, ANSWERS, {"zeta": 1, "pi": 1}), (mixture, X, {"w": 1, "m": 1})],
    ids=["answers", "mixture"],
)
def test_every_order_is_brought_back(model, data, axes):
    judge, home, sds = judged(model, data)
    for order in ([1, 0, 2], [1, 2, 0], [2, 1, 0]):
        place = moved(judge, home, axes, order)
        assert np.abs((place - home) / sds).max() > 1
        np.testing.assert_allclose(aligned(judge, home, place, sds), home, atol=1e-8)


def test_a_place_whose_components_have_names_stays():
    judge, home, sds = judged(named, X)
    place = moved(judge, home, {"w": 1, "m": 1}, [1, 2, 0])
    assert aligned(judge, home, place, sds) is place

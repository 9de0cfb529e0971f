"""Coordinates of sites of location and scale: a change of variables, and one that can be undone."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from lowerbound.compiled import quickly
from lowerbound.model import trace_model
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.noncentred import centring_name

Y = np.array([[1.0, -0.5, 0.3], [0.2, 2.0, -1.0]])


def plated(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
    spread = numpyro.sample("spread", dist.HalfNormal(2.0))
    with numpyro.plate("columns", 3, dim=-1), numpyro.plate("rows", 2, dim=-2):
        z = numpyro.sample("z", dist.Normal(mean, spread))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def heavy(y):
    spread = numpyro.sample("spread", dist.Gamma(2.0, jnp.ones(3)).to_event(1))
    z = numpyro.sample("z", dist.StudentT(4.0, 1.0, spread).expand([2, 3]).to_event(2))
    numpyro.sample("y", dist.Normal(z, 1.0).to_event(2), obs=y)


def nested(y):
    """Two levels, both of which may be non-centred, the upper by its own scale."""
    spread = numpyro.sample("spread", dist.HalfNormal(2.0))
    mean = numpyro.sample("mean", dist.Laplace(0.0, spread).expand([3]).to_event(1))
    z = numpyro.sample("z", dist.Normal(mean, jnp.exp(0.3 * mean)).expand([2, 3]).to_event(2))
    numpyro.sample("y", dist.Normal(z, 1.0).to_event(2), obs=y)


def correlated(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0).expand([3]).to_event(1))
    root = jnp.diag(spread) + jnp.array([[0.0, 0, 0], [0.4, 0, 0], [-0.2, 0.3, 0]])
    with numpyro.plate("rows", 2):
        z = numpyro.sample("z", dist.MultivariateNormal(mean, scale_tril=root))
        numpyro.sample("y", dist.Normal(z, 1.0).to_event(1), obs=y)


def walk(y):
    spread = numpyro.sample("spread", dist.HalfNormal(1.0).expand([2]).to_event(1))
    z = numpyro.sample("z", dist.GaussianRandomWalk(spread, num_steps=3).to_event(1))
    numpyro.sample("y", dist.Normal(z, 1.0).to_event(2), obs=y)


def positive(y):
    """Scales of rows around a common one: their logarithms have a location and a scale."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    z = numpyro.sample("z", dist.LogNormal(mean, spread).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(0.0, z[:, None]).expand([2, 3]).to_event(2), obs=y)


MODELS = {
    "plated": (plated, ("z",)),
    "heavy": (heavy, ("z",)),
    "nested": (nested, ("mean", "z")),
    "upper": (nested, ("mean",)),
    "correlated": (correlated, ("z",)),
    "walk": (walk, ("z",)),
    "positive": (positive, ("z",)),
}
CASES = [
    (name, c)
    for name in MODELS
    for c in (None, 0.3, 1.0)
    if not (name == "correlated" and c == 0.3)  # a matrix: centred, or not
]


def coordinates_of(name, c):
    function, sites = MODELS[name]
    model = trace_model(function, (Y,))
    numbers = {} if c is None else {centring_name(site): np.asarray(c) for site in sites}
    return model, Coordinates.of(model, sites), {**model.arguments.data, **numbers}


@pytest.mark.parametrize(("name", "c"), CASES)
def test_coordinates_are_a_change_of_variables(name, c):
    """The density of u is that of z times the Jacobian; u(z(u)) = u; and u = z where c = 1."""
    with jax.enable_x64(True):
        model, coordinates, data = coordinates_of(name, c)
        plain = Coordinates.of(model)

        def flat(vector):
            values = coordinates.constrain(vector, data)
            return jnp.concatenate([jnp.ravel(values[site]) for site in coordinates.shapes])

        def laws(vector):
            values = coordinates.constrain(vector, data)
            volume = jnp.linalg.slogdet(jax.jacfwd(flat)(vector))[1]
            expected = model.log_density(values, model.arguments.data) + volume
            back = coordinates.unconstrain(values, data)
            centred = plain.log_density(vector, data)
            return coordinates.log_density(vector, data), expected, back, centred

        vectors = np.random.default_rng(0).standard_normal((5, coordinates.size))
        ours, expected, back, centred = quickly(jax.vmap(laws))(vectors)
    np.testing.assert_allclose(ours, expected, rtol=1e-11)
    np.testing.assert_allclose(back, vectors, atol=1e-9)
    if c == 1.0:
        np.testing.assert_allclose(ours, centred, rtol=1e-11)
    else:
        assert np.all(np.abs(ours - centred) > 1e-6)


def test_the_prior_of_non_centred_coordinates_is_standard():
    """At the median of the prior u is 0, and at one deviation of all it is 1 where it is Normal."""
    with jax.enable_x64(True):
        _, coordinates, data = coordinates_of("plated", None)
        normal = np.repeat([[0.0], [1.0], [-2.0]], coordinates.size, axis=1)
        found = quickly(jax.vmap(lambda row: coordinates.prior(row, data)))(normal)
        part = coordinates.part("z")
    np.testing.assert_allclose(found[:, part], normal[:, part], atol=1e-9)


def test_non_centred_sites_have_no_bijection_of_their_own():
    with jax.enable_x64(True):
        _, coordinates, data = coordinates_of("nested", None)
        assert coordinates.transform("z") is None
        assert coordinates.transform("spread") is not None
        assert coordinates.parents("z", data) == ("spread", "mean")
        assert coordinates.parents("mean", data) == ("spread",)
        assert coordinates.is_real(coordinates.part("z").start)
        _, coordinates, data = coordinates_of("positive", None)
        assert not coordinates.is_real(coordinates.part("z").start)

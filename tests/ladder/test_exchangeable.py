"""Whether components can be exchanged, where much of the space has no density."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from lowerbound.ladder.exchangeable import exchangeable
from lowerbound.model import trace_model


def thresholds(y):
    """Two groups whose names the data know; cut points out of order have no density."""
    location = numpyro.sample("location", dist.Normal(0, 1).expand([2]))
    cut = numpyro.sample("cut", dist.Normal(jnp.array([-1.0, 0.0, 1.0]), 0.1).to_event(1))
    ordered = jnp.all(cut[1:] > cut[:-1] + 0.3)
    numpyro.factor("order", jnp.where(ordered, 0.0, -jnp.inf))
    numpyro.sample("y", dist.Normal(location, 1.0), obs=y)


def halves(x):
    """Two components without names, where both are below a limit."""
    place = numpyro.sample("place", dist.Normal(0, 1).expand([2]))
    numpyro.factor("limit", jnp.where(jnp.all(place < 0.4), 0.0, -jnp.inf))
    law = dist.MixtureSameFamily(dist.Categorical(jnp.ones(2) / 2), dist.Normal(place, 1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", law, obs=x)


def nowhere(x):
    z = numpyro.sample("z", dist.Normal(0, 1).expand([2]))
    numpyro.factor("none", -jnp.inf)
    numpyro.sample("x", dist.Normal(z, 1.0), obs=x)


@pytest.mark.parametrize(
    ("model", "data", "expected"),
    [
        (thresholds, np.array([0.3, -0.7]), False),
        (halves, np.array([-1.0, 0.2, -0.4]), True),
        (nowhere, np.zeros(2), False),
    ],
)
def test_it_is_seen_where_the_density_is_positive(model, data, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert exchangeable(trace_model(model, (data,), {})) is expected

"""Plates of which a program takes some rows at random hold all of them in a fit."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density

import lowerbound as lb
from lowerbound.model import trace_model

RNG = np.random.default_rng(3)
X = RNG.normal(size=(40, 3))
Y = X @ np.array([1.0, -0.5, 0.2]) + 0.5 * RNG.normal(size=40)
COUNTS = RNG.poisson(3.0, size=(12, 5))


def by_index(x, y, subsample_size=None):
    beta = numpyro.sample("beta", dist.Normal(jnp.zeros(3), 1.0))
    with numpyro.plate("rows", len(y), subsample_size=subsample_size) as rows:
        numpyro.sample("y", dist.Normal(x[rows] @ beta, 0.5), obs=y[rows])


def by_subsample(x, y, subsample_size=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0], subsample_size=subsample_size):
        batch = numpyro.subsample(x, event_dim=1)
        numpyro.sample("y", dist.Normal(batch @ beta, 0.5), obs=numpyro.subsample(y, event_dim=0))


def with_locals(counts, subsample_size=None):
    shape = numpyro.sample("shape", dist.Gamma(2.0, 1.0))
    with numpyro.plate("rows", len(counts), subsample_size=subsample_size, dim=-2) as rows:
        rate = numpyro.sample("rate", dist.Gamma(2.0, shape))
        with numpyro.plate("columns", counts.shape[1], dim=-1):
            numpyro.sample("n", dist.Poisson(rate), obs=counts[rows])


PROGRAMS = {
    "by index": (by_index, (X, Y)),
    "by subsample": (by_subsample, (X, Y)),
    "with locals": (with_locals, (COUNTS,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_density_is_that_of_all_rows(name):
    program, data = PROGRAMS[name]
    model = trace_model(program, data, {"subsample_size": 7})
    draw = model.draw(jax.random.key(1))
    with jax.enable_x64(True):
        expected, _ = log_density(program, data, {}, draw)
        found = model.log_density(draw, model.arguments.data)
    assert float(found) == pytest.approx(float(expected), rel=1e-12)
    assert [(p.name, p.taken, p.size) for p in model.subsampled] == [("rows", 7, len(data[0]))]
    assert trace_model(program, data).subsampled == ()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fit_is_that_of_the_whole_plate_and_its_plan_says_so(name, capsys):
    program, data = PROGRAMS[name]
    part, whole = lb.fit(program, *data, subsample_size=7), lb.fit(program, *data)
    assert part.elbo == pytest.approx(whole.elbo, rel=1e-10)
    site = next(iter(whole.posterior))
    np.testing.assert_allclose(part.mean(site), whole.mean(site), rtol=1e-8)
    note = f"Plate 'rows' holds all of its {len(data[0])} rows, where the program draws 7 of them."
    assert note in str(part.plan)
    assert "holds all" not in str(whole.plan)

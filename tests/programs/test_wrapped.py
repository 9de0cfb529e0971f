"""Programs inside NumPyro's handlers, and with plates of some rows: what their fits can do."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import lowerbound as lb

RNG = np.random.default_rng(3)
X = RNG.normal(size=60)
Y = 0.5 * X + 0.7 * RNG.normal(size=60)
B = (RNG.random(60) < 1 / (1 + np.exp(-X))).astype(int)


def line(x, y):
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(b * x, s), obs=y)


def some_rows(x, y):
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", 60, subsample_size=20):
        law = dist.Bernoulli(logits=b * numpyro.subsample(x, 0))
        numpyro.sample("y", law, obs=numpyro.subsample(y, 0))


def some_indices(x, y):
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", 60, subsample_size=20) as rows:
        numpyro.sample("y", dist.Bernoulli(logits=b * x[rows]), obs=y[rows])


PROGRAMS = {
    "seed": (handlers.seed(line, rng_seed=0), Y),
    "seed within": (handlers.block(handlers.seed(line, rng_seed=0), hide=["none"]), Y),
    "subsample": (some_rows, B),
    "indices": (some_indices, B),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_replicated_data_are_all_rows_drawn_anew(name):
    """A seed around the program gave every draw the same noise, a plate of 20 rows these alone."""
    program, y = PROGRAMS[name]
    fit = lb.fit(program, X, y, progress=False)
    drawn = np.asarray(fit.predictive(seed=0)["y"], float)
    assert drawn.shape == (1000, 60)
    away = drawn - drawn.mean(axis=0)
    around = np.corrcoef(away[:, :2].T)[0, 1]
    assert abs(around) < 0.3  # each row has noise of its own
    assert away.std(axis=0).min() > 0.15  # and each draw
    assert lb.check(fit).trust == "all"
    assert lb.plot.predictive(fit) is not None


@pytest.mark.parametrize("handler", ["condition", "do"])
def test_a_site_that_a_handler_fixes_is_fixed(handler):
    data = {"s": jax.numpy.asarray(0.7)}
    fixed = getattr(handlers, handler)(line, data=data)
    fit = lb.fit(fixed, X, Y, progress=False)
    precision = 1.0 + (X @ X) / 0.49
    assert set(fit.sites) == ({"b"} if handler == "condition" else {"b", "s"})  # as it would be
    assert fit.mean("b") == pytest.approx((X @ Y) / 0.49 / precision, rel=1e-6)

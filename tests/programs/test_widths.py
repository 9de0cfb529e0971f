"""Numbers of any width give the answers of the same numbers of 64 bits."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.model import trace_model

RNG = np.random.default_rng(0)
TRIALS = np.resize([5, 10, 25, 35], 60)
COUNTS = RNG.binomial(TRIALS, 0.7)
GROUP = np.resize([0, 1, 2], 60)
FLAGS = RNG.integers(0, 2, 60)
NARROW = [np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32, np.uint64]


def ponds(n, y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.5))
    with numpyro.plate("ponds", len(n)):
        a = numpyro.sample("a", dist.Normal(mu, 1.0))
        numpyro.sample("y", dist.Binomial(n, logits=a), obs=y)


def rates(group, y):
    with numpyro.plate("groups", 3):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 0.1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Poisson(rate[group]), obs=y)


@pytest.mark.parametrize("dtype", NARROW)
def test_counts_are_data_of_64_bits(dtype):
    found = trace_model(ponds, (TRIALS.astype(dtype), COUNTS.astype(dtype)))
    assert {array.dtype for array in found.arguments.data.values()} == {np.dtype(np.int64)}


@pytest.mark.parametrize(
    ("program", "first", "method"),
    [(ponds, TRIALS, "auto"), (ponds, TRIALS, lb.Gaussian()), (rates, GROUP, "auto")],
    ids=["ponds", "ponds by a Gaussian", "rates"],
)
def test_a_fit_of_narrow_integers(program, first, method):
    wide = lb.fit(program, first, COUNTS, method=method)
    narrow = lb.fit(program, first.astype(np.int32), COUNTS.astype(np.uint8), method=method)
    assert narrow.elbo == wide.elbo
    site = next(iter(wide.posterior))
    np.testing.assert_array_equal(narrow.mean(site), wide.mean(site))


def test_flags_are_counts_of_zero_and_one():
    def coin(y):
        p = numpyro.sample("p", dist.Beta(2.0, 2.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Bernoulli(p), obs=y)

    fits = [lb.fit(coin, FLAGS.astype(dtype)) for dtype in (np.int64, np.int8, bool)]
    assert fits[0].elbo == fits[1].elbo == fits[2].elbo


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.int8, jnp.float32])
def test_constants_that_the_program_makes(dtype):
    trials, counts = jnp.asarray(TRIALS, dtype), jnp.asarray(COUNTS, dtype)

    def closed_over(scale):
        mu = numpyro.sample("mu", dist.Normal(0.0, scale[0]))
        with numpyro.plate("ponds", 60):
            a = numpyro.sample("a", dist.Normal(mu, 1.0))
            numpyro.sample("y", dist.Binomial(trials, logits=a), obs=counts)

    narrow = lb.fit(closed_over, np.array([1.5]))
    assert narrow.elbo == pytest.approx(lb.fit(ponds, TRIALS, COUNTS).elbo, rel=1e-12)


def test_integers_that_the_program_counts_out():
    def program(y, dtype):
        total = jnp.arange(5, 5 + len(y), dtype=dtype)
        p = numpyro.sample("p", dist.Beta(1.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Binomial(total, p), obs=y)

    y = np.array([2, 4, 5, 3, 6])
    fits = [lb.fit(program, y.astype(t), t) for t in (np.int64, np.int32)]
    assert fits[0].elbo == pytest.approx(fits[1].elbo, rel=1e-12)
    total = np.arange(5, 10)
    assert fits[1].mean("p") == pytest.approx((1 + y.sum()) / (2 + total.sum()), rel=1e-9)


def test_minibatches_of_narrow_integers():
    method = lb.SVI(batch_size=20, steps=30)
    fits = [lb.fit(rates, GROUP.astype(t), COUNTS.astype(t), method=method) for t in (int, "i4")]
    assert fits[0].elbo == pytest.approx(fits[1].elbo, rel=1e-12)

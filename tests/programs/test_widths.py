"""Numbers of any width give the answers of the same numbers of 64 bits."""

from __future__ import annotations

import jax
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


# --- Loops and branches of JAX with types of 32 bits ---

SERIES = RNG.normal(size=8)


def scanned(y, dtype):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    _, path = jax.lax.scan(lambda c, v: (0.5 * c + m * v,) * 2, jnp.zeros((), dtype), y)
    numpyro.sample("y", dist.Normal(path, 1.0), obs=y)


def repeated(y, dtype):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    total = jax.lax.fori_loop(0, 3, lambda i, c: c + m, jnp.zeros((), dtype))
    numpyro.sample("y", dist.Normal(total, 1.0), obs=y)


def branched(y, dtype):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    bent = jax.lax.cond(m > 0, lambda: 2.0 * m, lambda: jnp.zeros((), dtype))
    numpyro.sample("y", dist.StudentT(3.0, bent, 1.0), obs=y)


def looped(y, dtype):
    scale = numpyro.sample("scale", dist.HalfNormal(2.0))
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    start = (jnp.zeros((), jnp.int32 if dtype == jnp.float32 else int), jnp.ones((), dtype))
    _, power = jax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * m), start)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(power, scale), obs=y)


@pytest.mark.parametrize("program", [scanned, repeated, branched])
def test_types_that_a_loop_or_a_branch_fixes(program):
    narrow, wide = (lb.fit(program, SERIES, t) for t in (jnp.float32, float))
    assert narrow.elbo == pytest.approx(wide.elbo, abs=1e-4)
    assert narrow.mean("m") == pytest.approx(wide.mean("m"), abs=1e-3 * wide.sd("m"))
    assert narrow.sd("m") == pytest.approx(wide.sd("m"), rel=1e-3)
    note = (
        "The program fixes types of 32 bits in a loop or a branch: what it computes itself is in "
        "single precision."
    )
    assert note in narrow.plan.notes
    assert note not in wide.plan.notes


def test_a_loop_that_ends_by_a_condition():
    densities = [trace_model(looped, (SERIES, t)) for t in (jnp.float32, float)]
    with jax.enable_x64(True):
        point = {"scale": jnp.asarray(0.7), "m": jnp.asarray(0.3)}
        values = [float(model.log_density(point, {"y": SERIES})) for model in densities]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


def test_a_loop_whose_shapes_differ_is_an_error_of_the_program():
    def model(y):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        path, _ = jax.lax.scan(lambda c, v: (jnp.stack([c, c]), None), m, y)
        numpyro.sample("y", dist.Normal(path, 1.0), obs=y)

    with pytest.raises(lb.errors.ShapeError, match="Shapes do not fit together"):
        trace_model(model, (SERIES,))

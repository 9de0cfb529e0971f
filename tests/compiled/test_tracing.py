"""What a program closes over stays the user's: their own JAX code finds it as it was."""

from __future__ import annotations

import functools
import gc

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.compiled import traced

GROUPS = np.array([0, 1, 2, 0, 1, 2, 0, 1])


def arrays(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(8, 3))
    return x, x @ np.ones(3) + 0.3 * rng.normal(size=8)


def linear(x, y):
    b = numpyro.sample("b", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
    numpyro.sample("y", dist.Normal(jnp.dot(x, b), 0.5), obs=y)


def linear_rows(x, y):
    b = numpyro.sample("b", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(x @ b, 0.5), obs=y)


def scaled(x, y):
    b = numpyro.sample("b", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(x @ b, s), obs=y)


def grouped(x, y):
    t = numpyro.sample("t", dist.HalfNormal(1.0))
    with numpyro.plate("groups", 3):
        a = numpyro.sample("a", dist.Normal(0.0, t))
    numpyro.sample("y", dist.Normal(a[GROUPS] + x[:, 0], 1.0), obs=y)


def twisted(x, y):
    b = numpyro.sample("b", dist.StudentT(4.0, jnp.zeros(3), 1.0).to_event(1))
    numpyro.sample("y", dist.StudentT(3.0, jnp.tanh(x @ b), 0.5), obs=y)


def mixed(x, y):
    with numpyro.plate("components", 2):
        m = numpyro.sample("m", dist.Normal(0.0, 3.0))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.4, 0.6])))
        numpyro.sample("y", dist.Normal(m[z], 1.0), obs=y)


def usable(array):
    """The array in the user's own single precision, in a jitted function and out of one."""
    whole = jnp.sum(array)
    return float(whole), float(jax.jit(lambda scale: scale * jnp.sum(array))(2.0)) / 2


@pytest.mark.parametrize(
    ("model", "method"),
    [
        (linear, lb.CAVI()),
        (scaled, "auto"),
        (grouped, "auto"),
        (twisted, lb.Gaussian()),
        (twisted, lb.Laplace()),
        (mixed, "auto"),
    ],
    ids=["sweeps", "grid", "hierarchy", "Gaussian", "Laplace", "mixture"],
)
def test_arrays_that_a_program_closes_over_are_left_as_they_were(model, method):
    x, y = arrays(seed=0)
    fit = lb.fit(lambda: model(x, y), method=method)
    fit.sample(5)
    fit.predictive(draws=5)
    gc.collect()
    for array in (x, y):
        np.testing.assert_allclose(usable(array), array.sum(), rtol=1e-5)
    given = lb.fit(model, *arrays(seed=0), method=method)
    assert fit.elbo == pytest.approx(given.elbo, rel=1e-6)


class Station:
    """A program that is a method, and one that is an object."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def program(self):
        linear(self.x, self.y)

    def __call__(self):
        linear(self.x, self.y)


WAYS = {
    "closure": lambda x, y: lambda: linear(x, y),
    "partial": lambda x, y: functools.partial(linear, x, y=y),
    "default": lambda x, y: lambda held=(x, {"y": y}): linear(held[0], held[1]["y"]),
    "method": lambda x, y: Station(x, y).program,
    "object": Station,
    "handler": lambda x, y: numpyro.handlers.block(functools.partial(linear, x, y), hide=["none"]),
    "helper": lambda x, y: (lambda inner: lambda: inner())(lambda: linear(x, y)),
}


@pytest.mark.parametrize("way", WAYS)
def test_arrays_that_jax_knows_in_single_precision_are_doubles_in_a_fit(way):
    x, y = arrays(seed=3)
    known = jax.jit(lambda scale: scale * (jnp.sum(x) + jnp.sum(y)))
    before = known(1.0)  # and JAX keeps that form for as long as there is `known`
    fit = lb.fit(WAYS[way](x, y), method=lb.CAVI())
    given = lb.fit(linear, *arrays(seed=3), method=lb.CAVI())
    # In single precision it would be another from the seventh digit on.
    np.testing.assert_allclose(fit.elbo, given.elbo, rtol=1e-14)
    assert known(1.0) == before


def counted(x, y):
    """Rows whose terms are no parabolas: their expectations are compiled."""
    t = numpyro.sample("t", dist.HalfNormal(1.0))
    b = numpyro.sample("b", dist.Normal(jnp.zeros(3), t).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.StudentT(4.0, x @ b, 0.5), obs=y)


@pytest.mark.parametrize(
    "method",
    [lb.Integrated(points=8), lb.Gaussian(), lb.Given(("t",)), lb.SVI(batch_size=4, steps=3)],
    ids=lambda method: method.name,
)
@pytest.mark.filterwarnings("ignore::lowerbound.errors.ConvergenceWarning")
def test_arguments_that_jax_knows_in_single_precision_are_doubles_too(method):
    """NUTS of the same data has met them so, and keeps that for as long as there are its draws."""
    x, y = arrays(seed=3)
    known = jax.jit(lambda scale: scale * (jnp.sum(x) + jnp.sum(y)))
    before = known(1.0)
    model = linear_rows if isinstance(method, lb.SVI) else counted
    fit = lb.fit(model, x, y, method=method)
    assert fit.elbo == lb.fit(model, *arrays(seed=3), method=method).elbo
    assert fit.predictive(x, None, draws=2)["y"].shape == (2, 8)
    assert known(1.0) == before


GLOBAL_X, GLOBAL_Y = arrays(seed=4)


def of_globals():
    likelihood()


def likelihood():
    linear(GLOBAL_X, GLOBAL_Y)


def test_arrays_of_a_module_are_doubles_too():
    known = jax.jit(lambda scale: scale * jnp.sum(GLOBAL_X))
    known(1.0)
    assert lb.fit(of_globals).elbo == lb.fit(linear, *arrays(seed=4)).elbo


@pytest.mark.parametrize("method", [lb.CAVI(), lb.Gaussian()], ids=["CAVI", "Gaussian"])
def test_in_single_precision_too(method):
    x, y = arrays(seed=1)
    with lb.computing(precision="float32"):
        first, again = (lb.fit(lambda: linear(x, y), method=method) for _ in range(2))
    assert again.elbo == first.elbo
    np.testing.assert_allclose(usable(x), x.sum(), rtol=1e-5)


def test_programs_that_are_kept_share_one_copy():
    x, _ = arrays(seed=2)
    with jax.enable_x64(True):
        one, other = (traced(lambda b, n=n: n * jnp.dot(x, b))(jnp.ones(3)) for n in (1.0, 2.0))
    assert one.consts[0] is other.consts[0]
    assert not np.shares_memory(one.consts[0], x)
    x[0] = 0.0
    with jax.enable_x64(True):
        (changed,) = traced(lambda b: jnp.dot(x, b))(jnp.ones(3)).consts
    np.testing.assert_array_equal(changed, x)

"""Programs with a loop of Python over their rows: they cost what a plate does."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose

from lowerbound.compiled import abreast, equations, traced
from lowerbound.compiled.host import hosted
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import multi_affine
from lowerbound.joint.energy.summands import energy
from lowerbound.joint.traced_program import inputs_of, split_inputs, trace_program
from lowerbound.model import trace_model

LENGTH = 60
Y = np.random.default_rng(0).normal(size=LENGTH).cumsum() / 4
N = np.arange(LENGTH) % 7


def autoregression(y):
    a, s = numpyro.sample("a", dist.Normal(0, 1)), numpyro.sample("s", dist.HalfNormal(1))
    c = numpyro.sample("c", dist.Normal(0, 2))
    for t in range(2, len(y)):
        numpyro.sample(f"y_{t}", dist.Normal(c + a * y[t - 1] - 0.1 * y[t - 2], s), obs=y[t])


def counts(n):
    b = numpyro.sample("b", dist.Normal(0, 1).expand([2]))
    for t in range(LENGTH):
        rate = jnp.exp(b[0] + b[1] * t / LENGTH)
        numpyro.sample(f"n_{t}", dist.Poisson(rate), obs=n[t])


def two_kinds(y):
    """Rows of two kinds in turn, one of them masked now and then."""
    s = numpyro.sample("s", dist.Gamma(2, 2))
    m = numpyro.sample("m", dist.Normal(0, 1))
    for t, one in enumerate(y):
        if t % 2:
            numpyro.sample(f"y_{t}", dist.Normal(m, s**-0.5).mask(y[t] > -0.5), obs=one)
        else:
            numpyro.sample(f"y_{t}", dist.StudentT(4.0, m, 1.0), obs=one)


def walk(y):
    """Every state is a site of its own."""
    s = numpyro.sample("s", dist.Gamma(2, 2))
    x = numpyro.sample("x_0", dist.Normal(0, 1))
    for t in range(1, len(y)):
        x = numpyro.sample(f"x_{t}", dist.Normal(0.9 * x, 0.5))
        numpyro.sample(f"y_{t}", dist.Normal(x, s**-0.5), obs=y[t])


PROGRAMS = {"autoregression": (autoregression, Y), "counts": (counts, N)}
PROGRAMS |= {"two kinds": (two_kinds, Y), "walk": (walk, Y)}


@pytest.fixture(scope="module", params=PROGRAMS)
def model(request):
    function, data = PROGRAMS[request.param]
    with jax.enable_x64(True):
        yield trace_model(function, (data,))


def density(model):
    def log_p(values, inputs):
        return model.log_density(values, *split_inputs(model, inputs))

    return log_p


def drawn(model):
    """Values that every site may have, positive ones."""
    rng = np.random.default_rng(3)
    return {name: rng.uniform(0.2, 1.0, site.shape) for name, site in model.latent.items()}


def evaluated(closed, values, inputs):
    """By NumPy: to compile a program of many operations takes long."""
    run = hosted(closed)
    assert run is not None
    return run(*jax.tree.leaves((values, inputs)))


def test_the_density_is_as_short_as_that_of_a_plate_and_the_same(model):
    values, inputs = drawn(model), inputs_of(model)
    closed = traced(density(model))(values, inputs)
    short = abreast(closed)
    # Sites of their own are inputs of the program: each is put into the array of all.
    assert equations(short.jaxpr) < 120 + len(values)
    assert equations(closed.jaxpr) > 5 * LENGTH
    assert_allclose(evaluated(short, values, inputs), evaluated(closed, values, inputs), rtol=1e-12)


def test_its_gradient_is_the_same(model):
    values, inputs = drawn(model), inputs_of(model)
    slope = jax.grad(density(model))
    closed = traced(slope)(values, inputs)
    short, long = (evaluated(program, values, inputs) for program in (abreast(closed), closed))
    for one, other in zip(short, long, strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_rows_that_depend_on_the_same_sites_are_one_site_of_the_derivation(model):
    program = trace_program(model)
    rows = {name: fixed["batch_shape"] for name, fixed in program.static.items()}
    if "x_0" in model.latent:
        assert all(shape == () for shape in rows.values())
    else:
        observed = {name: shape for name, shape in rows.items() if name in model.observed}
        assert len(observed) == (2 if "m" in rows else 1)
        assert sum(shape[0] for shape in observed.values()) == len(model.observed)


def test_the_energy_of_many_sites_has_few_terms_and_is_log_p():
    with jax.enable_x64(True):
        model = trace_model(walk, (Y,))
        joint = multi_affine(model)
        assert len(joint.blocks) == 2
        assert len(joint.summands) < 20
        values, inputs = drawn(model), inputs_of(model)
        arrays = joint.compress(inputs)
        point = MeanField.of(joint.blocks).statistics(values, arrays)
        found = energy(joint.summands, arrays, point)
        assert_allclose(found, density(model)(values, inputs), rtol=1e-10)

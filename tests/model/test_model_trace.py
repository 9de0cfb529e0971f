"""What the records say of a program: sites, plates, supports, the local/global split."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan

from lowerbound.model import Plate, trace_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 2))
Y = RNG.normal(size=6)


def line_of(text: str) -> str:
    """The place of a line of this file, as records print it."""
    with open(__file__) as file:
        number = next(i for i, line in enumerate(file, start=1) if text in line)
    return f"test_model_trace.py:{number}"


def mixture(x, K):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0).expand([2]).to_event(1))  # the means
    with numpyro.plate("rows", len(x)):
        c = numpyro.sample("c", dist.Categorical(pi))
        numpyro.deterministic("centre", mu[c])
        numpyro.sample("x", dist.Normal(mu[c], 1.0).to_event(1), obs=x)


def test_sites_of_a_mixture():
    model = trace_model(mixture, (X,), {"K": 3})
    components, rows = Plate("components", 3, -1), Plate("rows", 6, -1)
    assert [
        (s.name, s.kind, s.distribution, s.batch_shape, s.event_shape, s.plates)
        for s in model.sites
    ] == [
        ("pi", "latent", "Dirichlet", (), (3,), ()),
        ("mu", "latent", "Normal", (3,), (2,), (components,)),
        ("c", "latent", "CategoricalProbs", (6,), (), (rows,)),
        ("centre", "deterministic", "Deterministic", (6, 2), (), (rows,)),
        ("x", "observed", "Normal", (6,), (2,), (rows,)),
    ]
    assert list(model.latent) == ["pi", "mu", "c"]
    assert list(model.observed) == ["x"]
    assert list(model.deterministic) == ["centre"]
    assert model.data_plate == rows
    assert model.local == ("c",)
    assert model.latent["mu"].where == line_of("# the means")
    assert model.latent["mu"].shape == (3, 2)
    assert model.latent["c"].categories == 3
    np.testing.assert_array_equal(model.latent["c"].support_values, [0, 1, 2])
    assert model.latent["pi"].support is dist.constraints.simplex
    assert not model.concrete
    assert model.concrete == ()


def test_records_are_frozen():
    model = trace_model(mixture, (X,), {"K": 2})
    for record in (model, model.sites[0], model.arguments, model.data_plate):
        with pytest.raises(dataclasses.FrozenInstanceError):
            record.name = "other"


def test_plates_are_listed_outermost_first():
    def model(counts):
        with numpyro.plate("documents", counts.shape[0], dim=-2):
            theta = numpyro.sample("theta", dist.Normal(0.0, 1.0))
            with numpyro.plate("words", counts.shape[1], dim=-1):
                z = numpyro.sample("z", dist.Bernoulli(logits=theta))
                numpyro.sample("counts", dist.Poisson(1.0 + z), obs=counts)

    counts = RNG.poisson(2.0, size=(4, 5))
    found = trace_model(model, (counts,))
    assert [plate.name for plate in found.observed["counts"].plates] == ["documents", "words"]
    # Both plates hold the observations; the rows of the argument are documents.
    assert found.data_plate == Plate("documents", 4, -2)
    assert found.local == ("theta", "z")
    assert found.latent["theta"].batch_shape == (4, 1)


def test_data_plate_prefers_the_rows_of_an_argument_over_the_outermost_plate():
    def model(y):
        with numpyro.plate("replicates", 3, dim=-2), numpyro.plate("rows", len(y), dim=-1):
            mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    assert trace_model(model, (Y,)).data_plate == Plate("rows", 6, -1)


def test_no_data_plate_when_observed_sites_share_none():
    def model(x, y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("a", len(x)):
            numpyro.sample("x", dist.Normal(mu, 1.0), obs=x)
        with numpyro.plate("b", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    found = trace_model(model, (Y[:4], Y))
    assert found.data_plate is None
    assert found.local == ()


def test_factors_are_observed_units_and_do_not_decide_the_data_plate():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.factor("penalty", -jnp.abs(mu))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    found = trace_model(model, (Y,))
    penalty = found.observed["penalty"]
    assert (penalty.distribution, penalty.is_factor) == ("Unit", True)
    assert found.data_plate == Plate("rows", 6, -1)


def test_an_argument_that_is_none_makes_its_site_latent():
    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("rows", len(x)):
            z = numpyro.sample("z", dist.Normal(x @ w, 1.0), obs=y)
            numpyro.sample("v", dist.Normal(z, 1.0), obs=x[:, 0])

    assert set(trace_model(model, (X,)).latent) == {"w", "z"}
    assert set(trace_model(model, (X, Y)).latent) == {"w"}


def test_finite_discrete_supports():
    def model(y, size):
        with numpyro.plate("rows", len(y)):
            a = numpyro.sample("a", dist.Bernoulli(logits=jnp.zeros(6)))
            b = numpyro.sample("b", dist.DiscreteUniform(2, 5))
            c = numpyro.sample("c", dist.Binomial(size, jnp.full(6, 0.5)))
            n = numpyro.sample("n", dist.Binomial(size[0] + 1, 0.5))
            d = numpyro.sample("d", dist.Binomial(c, 0.5))
            e = numpyro.sample("e", dist.Poisson(1.0))
            numpyro.sample("y", dist.Normal(a + b + c + d + e + n, 1.0), obs=y)

    latent = trace_model(model, (Y, np.full(6, 4))).latent
    found = {
        name: None if site.support_values is None else site.support_values.tolist()
        for name, site in latent.items()
    }
    assert found == {
        "a": [0, 1],
        "b": [2, 3, 4, 5],
        "c": [0, 1, 2, 3, 4],
        "n": [0, 1, 2, 3, 4, 5],
        "d": None,  # its size is another latent
        "e": None,  # infinitely many
    }
    assert latent["b"].categories == 4
    assert latent["d"].support is None


def test_supports_that_depend_on_latents_are_unknown():
    def model(y):
        high = numpyro.sample("high", dist.HalfNormal(9.0))
        mu = numpyro.sample("mu", dist.Uniform(0.0, high))
        nu = numpyro.sample("nu", dist.Uniform(-1.0, jnp.ones(2)).to_event(1))
        numpyro.sample("y", dist.Normal(mu + nu.sum(), 1.0), obs=y)

    latent = trace_model(model, (Y,)).latent
    assert latent["mu"].support is None
    assert latent["high"].support is dist.constraints.positive
    np.testing.assert_array_equal(latent["nu"].support.upper_bound, [1.0, 1.0])


def test_lines_are_found_through_handlers_partial_and_scan():
    def step(previous, y):
        z = numpyro.sample("z", dist.Normal(previous, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)
        return z, None

    def model(y, scale):
        start = numpyro.sample("start", dist.Normal(0.0, scale))  # the start
        scan(step, start, y)  # the scan

    program = partial(handlers.scope(model, prefix="m"), scale=2.0)
    found = trace_model(program, (Y,))
    assert found.latent["m/start"].where == line_of("# the start")
    assert found.latent["m/z"].where == line_of("# the scan")
    assert found.latent["m/z"].batch_shape == (6,)


def test_a_parameter_that_is_fixed_is_a_constant():
    def model(y):
        scale = numpyro.param("scale", 1.0)
        mu = numpyro.sample("mu", dist.Normal(0.0, scale))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    found = trace_model(handlers.substitute(model, data={"scale": 2.0}), (Y,))
    assert [site.name for site in found.sites] == ["mu", "y"]


def test_a_program_that_inspects_one_argument_keeps_the_others_as_data():
    def model(group, y):
        with numpyro.plate("groups", len(np.unique(group))):
            mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu[group], 1.0), obs=y)

    group = np.array([0, 0, 1, 1, 2, 2])
    found = trace_model(model, (group, Y))
    assert found.concrete
    assert found.concrete == ("group",)
    assert found.latent["mu"].shape == (3,)
    with jax.enable_x64(True):
        densities = found.run({"mu": jnp.arange(3.0)}, {"group": None, "y": jnp.zeros(6)})
        expected = dist.Normal(0.0, 1.0).log_prob(group)
        np.testing.assert_allclose(densities["y"].log_prob(), expected, rtol=1e-12)


def test_a_program_that_inspects_all_its_arguments():
    def model(x, y):
        if jnp.mean(x) > jnp.mean(y):
            x, y = y, x
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu * x, 1.0), obs=y)

    assert trace_model(model, (Y, Y + 1.0)).concrete == ("x", "y")


def test_tracing_changes_no_global_state():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    trace_model(model, (Y,))
    assert not jax.config.jax_enable_x64
    assert jnp.zeros(1).dtype == jnp.float32
    assert not handlers.trace(lambda: None).get_trace()


def test_tracing_leaks_no_tracer():
    with jax.checking_leaks():
        trace_model(mixture, (X,), {"K": 3})

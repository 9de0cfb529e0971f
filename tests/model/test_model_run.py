"""Law: the site densities that `Model.run` returns sum to NumPyro's own log density."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from scipy.stats import norm

import lowerbound as lb
from lowerbound.compiled import quickly
from lowerbound.model import Model, trace_model
from lowerbound.model.program import Given, execute

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 3))
Y = RNG.normal(size=7)
COUNTS = RNG.poisson(2.0, size=(7, 4))
BITS = RNG.integers(0, 2, size=7)
KEEP = np.array([True, False, True, True, False, True, True])


class Case(NamedTuple):
    program: Callable[..., Any]
    args: tuple[Any, ...]


def regression(x, y=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    tau = numpyro.sample("tau", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("n", x.shape[0]):
        mean = numpyro.deterministic("mean", x @ w)
        numpyro.sample("y", dist.Normal(mean, tau**-0.5), obs=y)


def no_plate(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def mixture(x):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("k", 3):
        mu = numpyro.sample("mu", dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
        precision = numpyro.sample("precision", dist.Wishart(5.0, jnp.eye(3)))
    with numpyro.plate("n", len(x)):
        c = numpyro.sample("c", dist.Categorical(pi))
        density = dist.MultivariateNormal(mu[c], precision_matrix=precision[c])
        numpyro.sample("x", density, obs=x)


def crossed(y, counts):
    rows = numpyro.plate("rows", counts.shape[0], dim=-2)
    columns = numpyro.plate("columns", counts.shape[1], dim=-1)
    with rows:
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    with columns:
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with rows, columns:
        numpyro.sample("counts", dist.Poisson(jnp.exp(0.1 * (a + b))), obs=counts)
    numpyro.sample("y", dist.Normal(a[:, 0], 1.0).to_event(1), obs=y)


def masked_by_handler(y, keep):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("n", len(y)), handlers.mask(mask=keep):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def masked_by_distribution(counts, keep):
    rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0).expand([4]).to_event(1))
    # An impossible value stands where the mask excludes it.
    counts = jnp.where(keep[:, None], counts, -1)
    with numpyro.plate("n", len(counts)):
        numpyro.sample("counts", dist.Poisson(rate).to_event(1).mask(keep), obs=counts)


def masked_inside_event(x, keep):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    inside = jnp.stack([keep, ~keep, keep], axis=-1)
    with handlers.mask(mask=keep):
        numpyro.sample("x", dist.Normal(mu, 1.0).expand([7, 3]).mask(inside).to_event(1), obs=x)


def masked_latent(y, keep):
    with numpyro.plate("n", len(y)), handlers.mask(mask=keep):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def obs_mask(y, keep):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("n", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y, obs_mask=keep)


def scaled(x):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("n", len(x)), handlers.scale(scale=2.5):
        numpyro.sample("x", dist.Normal(mu, 1.0).expand([3]).to_event(1), obs=x)


def with_factors(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.factor("prior", -jnp.abs(mu))
    with numpyro.plate("n", len(y)):
        numpyro.factor("potential", -jnp.square(y - mu))
        numpyro.factor("constant", -mu)


def matrix_sites(x):
    with numpyro.plate("d", 3), numpyro.plate("k", 2):
        loading = numpyro.sample("loading", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([3]).to_event(1))
    with numpyro.plate("n", len(x)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("x", dist.Normal(z @ loading, scale).to_event(1), obs=x)


def discrete(bits):
    p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    with numpyro.plate("n", len(bits)):
        z = numpyro.sample("z", dist.Bernoulli(p))
        size = numpyro.sample("size", dist.DiscreteUniform(2, 5))
        count = numpyro.sample("count", dist.Binomial(4, jnp.full(7, 0.3)))
        numpyro.sample("bits", dist.Bernoulli(logits=0.3 * z + 0.1 * size - count), obs=bits)


def flat_priors(x, y):
    w = numpyro.sample("w", dist.ImproperUniform(dist.constraints.real_vector, (), (3,)))
    with numpyro.plate("k", 2):
        numpyro.sample("order", dist.ImproperUniform(dist.constraints.ordered_vector, (), (4,)))
    simplex = dist.ImproperUniform(dist.constraints.simplex, (2,), (3,)).to_event(1)
    numpyro.sample("simplex", simplex)
    sigma = numpyro.sample("sigma", dist.ImproperUniform(dist.constraints.positive, (), ()))
    numpyro.sample("y", dist.Normal(x @ w, sigma), obs=y)


def state_space(y):
    start = numpyro.sample("start", dist.Normal(0.0, 1.0))

    def step(previous, observed):
        z = numpyro.sample("z", dist.Normal(previous, 0.5))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=observed)
        return z, None

    scan(step, start, y)


def degenerate(y):
    fixed = numpyro.sample("fixed", dist.Delta(2.0))
    mu = numpyro.sample("mu", dist.Normal(fixed, 1.0))
    with numpyro.plate("n", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def inspects_data(y):
    # Python needs the values here, once through NumPy, once through JAX.
    levels = int(jnp.max(y)) + 1 if jnp.all(y >= 0) else 0
    with numpyro.plate("levels", levels):
        p = numpyro.sample("p", dist.Uniform(0.0, 1.0))
    for i, count in enumerate(np.bincount(y)):
        numpyro.factor(f"count_{i}", count * jnp.log(p[i]))


def missing_rows(x):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("n", len(x)):
        numpyro.sample("x", dist.Normal(mu, 1.0).expand([3]).to_event(1), obs=x)


CASES = {
    case.program.__name__: case
    for case in [
        Case(regression, (X, Y)),
        Case(no_plate, (Y,)),
        Case(mixture, (X,)),
        Case(crossed, (Y, COUNTS)),
        Case(masked_by_handler, (Y, KEEP)),
        Case(masked_by_distribution, (COUNTS, KEEP)),
        Case(masked_inside_event, (X, KEEP)),
        Case(masked_latent, (Y, KEEP)),
        Case(obs_mask, (Y, KEEP)),
        Case(scaled, (X,)),
        Case(with_factors, (Y,)),
        Case(matrix_sites, (X,)),
        Case(discrete, (BITS,)),
        Case(flat_priors, (X, Y)),
        Case(state_space, (Y,)),
        Case(degenerate, (Y,)),
        Case(inspects_data, (BITS,)),
        Case(missing_rows, (np.ma.array(X, mask=np.repeat(~KEEP[:, None], 3, axis=1)),)),
    ]
}


@functools.cache
def traced(name: str) -> Model:
    return trace_model(CASES[name].program, CASES[name].args)


@pytest.mark.parametrize("name", CASES)
def test_site_densities_sum_to_the_log_density_of_numpyro(name):
    model = traced(name)
    with jax.enable_x64(True):

        @jax.jit
        def both(key, data):
            latents = model.draw(key)
            densities = model.run(latents, data)
            for site, density in densities.items():
                assert density.log_prob().shape == density.batch_shape, site
            total = sum(jnp.sum(density.log_prob()) for density in densities.values())
            return total, model.log_density(latents, data)

        for seed in range(3):
            total, expected = both(jax.random.key(seed), model.arguments.data)
            assert np.isfinite(expected)
            np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_records_agree_with_the_run(name):
    model = traced(name)
    with jax.enable_x64(True):
        latents = jax.eval_shape(model.draw, jax.random.key(0))
        densities = {}

        def run(latents, data):
            densities.update(model.run(latents, data))
            return latents

        jax.make_jaxpr(run)(latents, model.arguments.data)
    assert list(densities) == [s.name for s in model.sites if s.kind != "deterministic"]
    assert set(latents) == set(model.latent)
    for name, density in densities.items():
        site = {**model.latent, **model.observed}[name]
        assert density.batch_shape == site.batch_shape
        assert density.event_shape == site.event_shape
        assert type(density.distribution).__name__ == site.distribution
        assert (name not in latents) or latents[name].shape == site.shape


def test_run_stages_no_random_numbers():
    model = traced("mixture")
    with jax.enable_x64(True):
        latents = jax.eval_shape(model.draw, jax.random.key(0))
        jaxpr = jax.make_jaxpr(lambda z, data: {k: d.value for k, d in model.run(z, data).items()})(
            latents, model.arguments.data
        )
    assert not [e for e in jaxpr.eqns if "random" in e.primitive.name]


def test_run_reads_another_data_set_of_another_length():
    model = traced("missing_rows")
    rows = np.array([1, 2])
    with jax.enable_x64(True):
        latents = {"mu": jnp.array(0.3)}
        data = {"x": model.arguments.data["x"][rows]}
        missing = {"x": model.missing["x"][rows]}
        run = quickly(lambda *given: model.run(*given)["x"].log_prob())
        expected = norm.logpdf(X[2], 0.3).sum()
        found = run(latents, data, missing)
        np.testing.assert_allclose(found, [0.0, expected], rtol=1e-12)
        value = quickly(model.log_density)(latents, data, missing)
        np.testing.assert_allclose(value, expected + norm.logpdf(0.3), rtol=1e-12)


def test_run_asks_for_every_latent_value():
    model = traced("no_plate")
    with pytest.raises(KeyError, match="no value given for latent site 'mu'"):
        model.run({}, model.arguments.data)


def test_draws_depend_on_the_key_and_map_over_keys():
    model = traced("flat_priors")
    with jax.enable_x64(True):
        draws = jax.vmap(model.draw)(jax.random.split(jax.random.key(0), 4))
        assert draws["order"].shape == (4, 2, 4)
        assert np.all(np.diff(draws["order"], axis=-1) > 0)
        np.testing.assert_allclose(draws["simplex"].sum(-1), 1.0)
        assert len(np.unique(draws["sigma"])) == 4
        assert np.all(draws["sigma"] > 0)
    old = model.draw(jax.random.PRNGKey(0))
    new = model.draw(jax.random.key(0))
    np.testing.assert_array_equal(old["w"], new["w"])
    assert new["w"].dtype == np.float64


def test_deterministic_values():
    model = traced("regression")
    with jax.enable_x64(True):
        latents = {"w": jnp.array([1.0, 2.0, 3.0]), "tau": jnp.array(1.0)}
        values = model.deterministic_values(latents, model.arguments.data)
    np.testing.assert_allclose(values["mean"], X @ [1.0, 2.0, 3.0])


def test_values_given_to_the_steps_of_a_scan_may_be_numpy_arrays():
    def chain(y):
        def step(before, y):
            z = numpyro.sample("z", dist.Categorical(jnp.array([0.3, 0.7])))
            numpyro.sample("y", dist.Normal(z + 0.5 * before, 1.0), obs=y)
            return z, None

        scan(step, 0, y)

    y, z = np.array([0.1, 1.2, -0.3]), np.array([0, 1, 1])
    model = trace_model(chain, (y,))
    given = handlers.substitute(chain, data={"z": z})
    with jax.enable_x64(True), model._mode():
        messages = execute(given, (y,), {}, Given({}))
        found = messages["y"]["fn"].log_prob(messages["y"]["value"]).sum()
    expected = norm.logpdf(y, z + 0.5 * np.array([0, 0, 1])).sum()
    assert float(found) == pytest.approx(expected)


def test_a_value_that_the_program_substitutes_itself_gives_way():
    """NumPyro's samplers put theirs in its place; the derivation was said to be at fault."""

    def inner(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        s = numpyro.sample("s", dist.HalfNormal(1.0))
        numpyro.sample("y", dist.Normal(mu, s), obs=y)

    y = np.array([0.3, -1.2, 2.0, 0.7])
    substituted = numpyro.handlers.substitute(inner, data={"s": jnp.asarray(0.5)})
    fits = [lb.fit(program, y, progress=False) for program in (inner, substituted)]
    assert fits[0].elbo == pytest.approx(fits[1].elbo, abs=1e-9)
    assert fits[0].mean("s") == pytest.approx(fits[1].mean("s"))

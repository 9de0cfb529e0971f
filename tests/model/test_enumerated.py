"""Discrete sites summed out: the density, its slope and p(z | x, theta) are those of enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp

from lowerbound.errors import UnsupportedModelError
from lowerbound.model import trace_model
from lowerbound.model.enumerated import discrete_sites, enumerated

Y = np.array([-1.2, 0.3, 2.1, 0.4])
COUNTS = np.array([0, 3, 0, 1])


def mixture(y):
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-1.0, 0.0, 2.0]), 1.0).to_event(1))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))
        numpyro.sample("y", dist.StudentT(4.0, mu[z], 1.0), obs=y)


def two_sites(y):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))
        outlier = numpyro.sample("outlier", dist.Bernoulli(0.1 + 0.2 * z))
        numpyro.sample("y", dist.Cauchy(m * z, 1.0 + 3.0 * outlier), obs=y)


def one_for_all(y):
    rates = numpyro.sample("rates", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    change = numpyro.sample("change", dist.DiscreteUniform(1, 3))
    after = jnp.arange(len(y)) >= change
    numpyro.sample("y", dist.Poisson(jnp.exp(jnp.where(after, rates[1], rates[0]))), obs=y)


def zero_inflated(y):
    rate = numpyro.sample("rate", dist.Normal(0.0, 1.0))
    share = numpyro.sample("share", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        empty = numpyro.sample("empty", dist.Bernoulli(logits=share))
        numpyro.sample("y", dist.Poisson(jnp.exp(rate) * (1 - empty)), obs=y)


def event(y):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        on = numpyro.sample("on", dist.Bernoulli(0.3).expand([2]).to_event(1))
        numpyro.sample("y", dist.StudentT(3.0, m * on.sum(axis=-1), 1.0 + on[:, 0]), obs=y)


def inclusion(y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("columns", 3):
        use = numpyro.sample("use", dist.Bernoulli(0.4))
    X = jnp.arange(12.0).reshape(4, 3) % 5
    numpyro.sample("y", dist.StudentT(3.0, X @ (beta * use), 1.0), obs=y)


def nested(y):
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 1.0).to_event(1))
    with numpyro.plate("rows", 2, dim=-2):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.4, 0.6])))
        with numpyro.plate("columns", 2, dim=-1):
            numpyro.sample("y", dist.StudentT(4.0, mu[z], 1.0), obs=y.reshape(2, 2))


def effects(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        b = numpyro.sample("b", dist.LogNormal(mu * z, 1.0 + z))
        numpyro.deterministic("double", 2 * b)
        numpyro.deterministic("chosen", b * z)
        numpyro.sample("y", dist.StudentT(4.0, b, 1.0), obs=y)


def factors(y):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        numpyro.factor("pull", -jnp.abs(m - z * y))
    w = numpyro.sample("w", dist.Categorical(jnp.array([0.1, 0.2, 0.7])))
    numpyro.factor("push", -(jnp.abs(m - w) ** 1.5))
    numpyro.sample("all", dist.StudentT(3.0, m, 1.0), obs=y)


def chain(y):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    before = 0
    for t in range(4):
        before = numpyro.sample(f"z{t}", dist.Bernoulli(0.2 + 0.6 * before))
        numpyro.sample(f"y{t}", dist.StudentT(4.0, m * before, 1.0), obs=y[t])


def alike(y):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        numpyro.factor("neighbours", m * (z == jnp.roll(z, 1)))
        numpyro.sample("y", dist.StudentT(4.0, z, 1.0), obs=y)


MODELS = [
    (mixture, Y),
    (mixture, np.ma.masked_array(Y, [False, True, False, False])),
    (two_sites, Y[:3]),
    (one_for_all, COUNTS),
    (zero_inflated, COUNTS),
    (event, Y[:3]),
    (inclusion, Y),
    (nested, Y),
    (effects, Y),
    (factors, Y),
    (chain, Y),
    (alike, Y),
]
IDS = [f"{model.__name__}{number}" for number, (model, _) in enumerate(MODELS)]


def assignments(model):
    """Every joint value of the discrete sites: their indices, and their values."""
    sites = [model.latent[name] for name in discrete_sites(model)]
    cells = [
        np.arange(len(s.support_values))
        for s in sites
        for _ in range(max(1, np.prod(s.shape, dtype=int)))
    ]
    rows = np.array(list(itertools.product(*cells)))
    indices, start = {}, 0
    for site in sites:
        size = int(np.prod(site.shape, dtype=int))
        indices[site.name] = rows[:, start : start + size].reshape((-1, *site.shape))
        start += size
    return indices, {s.name: np.asarray(s.support_values)[indices[s.name]] for s in sites}


@pytest.fixture(params=MODELS, ids=IDS)
def case(request):
    """A model, values of its continuous sites, its summation, and the log densities of all z."""
    program, y = request.param
    with jax.enable_x64(True):
        model = trace_model(program, (y,))
        drawn = model.draw(jax.random.key(3))
        theta = {n: v for n, v in drawn.items() if n not in discrete_sites(model)}
        indices, values = assignments(model)
        data = model.arguments.data

        def brute(theta):
            return jax.vmap(lambda z: model.log_density({**theta, **z}, data))(values)

        yield model, theta, enumerated(model), indices, brute


def test_the_density_is_the_sum_over_all_values(case):
    model, theta, summation, _, brute = case
    summed = summation.summed()
    assert list(summed.latent) == list(theta)
    found = summed.log_density(theta, summed.arguments.data)
    np.testing.assert_allclose(found, logsumexp(brute(theta)), rtol=1e-12)


def test_the_slope_is_finite_and_that_of_the_sum(case):
    model, theta, summation, _, brute = case
    summed = summation.summed()
    slopes = jax.grad(lambda t: summed.log_density(t, summed.arguments.data))(theta)
    expected = jax.jacfwd(lambda t: logsumexp(brute(t)))(theta)
    for name, slope in slopes.items():
        assert np.isfinite(slope).all()
        if not summation.guarded:  # enumeration itself has no slope at impossible values
            np.testing.assert_allclose(slope, expected[name], rtol=1e-9, atol=1e-9)


def test_probabilities_and_draws_are_those_of_enumeration(case):
    """A frequency of 4000 draws is off by 5 standard errors less than once in a million times."""
    model, theta, summation, indices, brute = case
    share = np.asarray(jax.nn.softmax(brute(theta)))
    weights = summation.log_weights(theta, model.arguments.data)
    probabilities = summation.probabilities(weights)
    keys = jax.random.split(jax.random.key(0), 4000)
    draws = jax.vmap(lambda key: summation.draw(weights, key))(keys)
    assert list(probabilities) == list(draws) == list(discrete_sites(model))
    for name, found in probabilities.items():
        chosen = np.eye(found.shape[-1])[indices[name]]
        np.testing.assert_allclose(found, np.tensordot(share, chosen, 1), atol=1e-12)
        np.testing.assert_allclose(found.sum(axis=-1), 1.0, rtol=1e-12)
        frequency = np.eye(found.shape[-1])[draws[name]].mean(axis=0)
        error = 5 * np.sqrt(found * (1 - found) / 4000) + 1e-9
        assert (abs(frequency - found) <= error).all()


def test_sites_that_meet_are_drawn_jointly():
    """The share of each joint value of two sites; off by 5 standard errors once in a million."""
    with jax.enable_x64(True):
        model = trace_model(two_sites, (Y[:1],))
        theta = {"m": jnp.asarray(1.5)}
        summation = enumerated(model)
        weights = summation.log_weights(theta, model.arguments.data)
        (log_weights,) = weights
        exact = np.asarray(jax.nn.softmax(log_weights[:, 0])).reshape(3, 2)
        keys = jax.random.split(jax.random.key(1), 4000)
        drawn = jax.vmap(lambda key: summation.draw(weights, key))(keys)
    pairs = np.zeros((3, 2))
    np.add.at(pairs, (np.asarray(drawn["z"])[:, 0], np.asarray(drawn["outlier"])[:, 0]), 1 / 4000)
    assert (abs(pairs - exact) <= 5 * np.sqrt(exact * (1 - exact) / 4000)).all()
    apart = exact.sum(axis=1, keepdims=True) * exact.sum(axis=0)
    assert abs(exact - apart).max() > 0.05  # else the test could not tell


def test_what_does_not_depend_on_discrete_sites_stays():
    with jax.enable_x64(True):
        summed = enumerated(trace_model(factors, (Y,))).summed()
        assert [s.name for s in summed.sites] == ["m", "all", "sum over z", "sum over w"]
        summation = enumerated(trace_model(effects, (Y,)))
    assert summation.moved == ("b",)
    assert list(summation.summed().deterministic) == ["double"]


def refusal(program, *args):
    with pytest.raises(UnsupportedModelError) as caught, jax.enable_x64(True):
        enumerated(trace_model(program, args))
    return str(caught.value), program.__code__.co_firstlineno


def test_unbounded_counts_are_refused():
    def model(y):
        n = numpyro.sample("n", dist.Poisson(3.0))
        numpyro.sample("y", dist.StudentT(3.0, n, 1.0), obs=y)

    text, line = refusal(model, Y)
    assert text == (
        f"Site 'n' is discrete and unbounded: Poisson   (test_enumerated.py:{line + 1}).\n"
        "Expected finitely many values, known beforehand, that can be summed over. Sum the site "
        "out of the model yourself, or bound it, as dist.Categorical does."
    )


def test_values_that_depend_on_other_sites_are_refused():
    def model(y):
        n = numpyro.sample("n", dist.Categorical(jnp.array([0.5, 0.5])))
        k = numpyro.sample("k", dist.Binomial(n + 1, 0.5))
        numpyro.sample("y", dist.StudentT(3.0, k, 1.0), obs=y)

    text, line = refusal(model, Y)
    assert text.splitlines()[0] == (
        "Site 'k' is discrete and whose values depend on other latent sites: BinomialProbs   "
        f"(test_enumerated.py:{line + 2})."
    )


def test_a_long_chain_is_refused():
    def model(y):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        with numpyro.plate("time", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.5))
            numpyro.factor("stay", jnp.where(z == jnp.roll(z, 1), 1.0, -1.0))
            numpyro.sample("y", dist.StudentT(3.0, m * z, 1.0), obs=y)

    text, line = refusal(model, np.arange(30.0))
    row = text.split()[1]
    assert text == (
        f"Row {row} of site 'stay' depends on 'z' in other rows   (test_enumerated.py:{line + 4}).\n"
        "Expected rows that do not affect each other, to sum over the values of each by itself. "
        "Sum over a chain of states by the forward algorithm (jax.lax.scan), and state the result "
        "by numpyro.factor."
    )


def test_too_many_states_are_refused():
    def model(y):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([60]).to_event(1))
        with numpyro.plate("columns", 60):
            use = numpyro.sample("use", dist.Bernoulli(0.4))
        numpyro.sample("y", dist.StudentT(3.0, jnp.sum(beta * use), 1.0), obs=y)

    text, line = refusal(model, Y)
    assert text == (
        "Discrete site 'use' has about 10^18 states together in a row of site 'y'   "
        f"(test_enumerated.py:{line + 4}).\n"
        "Expected at most 1000 to sum over. Sum some of them out of the model yourself, or let "
        "rows depend on fewer of them."
    )


def test_sites_of_different_plates_that_meet_are_refused():
    def model(y):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        regime = numpyro.sample("regime", dist.Bernoulli(0.5))
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.5))
            numpyro.sample("y", dist.StudentT(3.0, m * z + regime, 1.0), obs=y)

    text, line = refusal(model, np.arange(30.0))
    assert text == (
        "Discrete sites of different shapes meet in site 'y': 'regime' scalar, 'z' (30,)   "
        f"(test_enumerated.py:{line + 5}).\n"
        "Expected discrete sites that meet to have one value in each row of the same plate. Sum "
        "some of them out of the model yourself."
    )


def test_a_support_that_discrete_values_decide_is_refused():
    def model(y):
        k = numpyro.sample("k", dist.Bernoulli(0.5))
        b = numpyro.sample("b", dist.Uniform(0.0, 1.0 + k))
        numpyro.sample("y", dist.StudentT(3.0, b, 1.0), obs=y)

    text, line = refusal(model, Y)
    assert text == (
        "The support of site 'b' is not fixed, and the site depends on the discrete 'k'   "
        f"(test_enumerated.py:{line + 2}).\n"
        "Expected a support that is the same for all discrete values. Sum them out of the model "
        "yourself."
    )

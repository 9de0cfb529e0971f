"""Discrete sites summed out: density, slope and p(z | x, theta) are those of enumeration."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp

from lowerbound.compiled import quickly
from lowerbound.cost import numbers_computed
from lowerbound.errors import UnsupportedModelError
from lowerbound.model import trace_model
from lowerbound.rewrite.summing.enumerated import enumerated
from tests.laws.enumeration import (
    DRAWS,
    check_density,
    check_probabilities_and_draws,
    check_slope,
    compared,
)

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
        numpyro.sample("y", dist.Poisson(jnp.where(empty == 1, 0.0, jnp.exp(rate))), obs=y)


def present(y):
    rate = numpyro.sample("rate", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        here = numpyro.sample("here", dist.Bernoulli(0.4))
        numpyro.sample("y", dist.Poisson(jnp.exp(rate) * here), obs=y)


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


def annotators(y):
    """A reader who attends (s = 0) says the truth c: the two exclude values of each other."""
    idle = numpyro.sample("idle", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    said = jax.nn.sigmoid(numpyro.sample("said", dist.Normal(0.0, 1.0)))
    with numpyro.plate("items", 2, dim=-2):
        c = numpyro.sample("c", dist.Categorical(jnp.array([0.3, 0.7])))
        with numpyro.plate("readers", 3, dim=-1):
            s = numpyro.sample("s", dist.Bernoulli(logits=idle))
            anything = jnp.stack([said, 1 - said])
            probs = jnp.where(s[..., None] == 0, jax.nn.one_hot(c, 2), anything)
            numpyro.sample("y", dist.Categorical(probs), obs=y)


def which_model(y):
    """One choice for all rows, and a choice in each."""
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    heavy = numpyro.sample("heavy", dist.Bernoulli(0.4))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))
        numpyro.sample("y", dist.StudentT(2.0 + 9.0 * (1 - heavy), m * z, 1.0), obs=y)


def visits(y):
    """A place may be empty, and a visit may not take place: a count says that neither is so."""
    rate = numpyro.sample("rate", dist.Normal(0.0, 1.0))
    with numpyro.plate("places", 2, dim=-2):
        here = numpyro.sample("here", dist.Bernoulli(0.4))
        with numpyro.plate("visits", 2, dim=-1):
            seen = numpyro.sample("seen", dist.Bernoulli(0.5))
            numpyro.sample("y", dist.Poisson(jnp.exp(rate) * here * seen), obs=y.reshape(2, 2))


def answers(y):
    """Two skills of every person, and all answers to a question in one vector."""
    guess = numpyro.sample("guess", dist.Normal(-1.0, 1.0))
    with numpyro.plate("people", 4):
        first = numpyro.sample("first", dist.Bernoulli(0.5))
        second = numpyro.sample("second", dist.Bernoulli(0.3))
    for k, able in enumerate((first, first * second)):
        chance = dist.Bernoulli(jnp.where(able == 1, 0.9, jax.nn.sigmoid(guess)))
        numpyro.sample(f"y{k}", chance.to_event(1), obs=y[k])


def blurred(y):
    """A vector each of whose elements depends on all states: no rows."""
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
    numpyro.sample("y", dist.Normal(m * (z + jnp.roll(z, 2)), 1.0).to_event(1), obs=y)


MODELS = [
    (annotators, np.array([[0, 0, 1], [1, 1, 1]])),
    (which_model, Y),
    (visits, COUNTS[[0, 1, 0, 2]]),  # an empty place is impossible in one row, and some visits
    (mixture, Y),
    (mixture, np.ma.masked_array(Y, [False, True, False, False])),
    (two_sites, Y[:3]),
    (one_for_all, COUNTS),
    (zero_inflated, COUNTS),
    (present, COUNTS[[1, 3]]),  # one state of every row is impossible
    (event, Y[:3]),
    (inclusion, Y),
    (nested, Y),
    (effects, Y),
    (factors, Y),
    (chain, Y),
    (alike, Y),
    (answers, np.array([[0, 1, 1, 1], [0, 0, 1, 0]])),
    (blurred, Y),
]
IDS = [f"{model.__name__}{number}" for number, (model, _) in enumerate(MODELS)]


@pytest.fixture(scope="module", params=MODELS, ids=IDS)
def case(request):
    """All that is compared of one model, by enumeration and by summation, compiled together."""
    program, y = request.param
    return compared(program, (y,))


def test_the_density_is_the_sum_over_all_values(case):
    summation, theta, _, found = case
    assert set(theta) | set(summation.names) == set(summation.model.latent)
    check_density(found)


def test_the_slope_is_that_of_the_sum(case):
    _, theta, _, found = case
    check_slope(theta, found)


def test_probabilities_and_draws_are_those_of_enumeration(case):
    _, _, indices, found = case
    check_probabilities_and_draws(indices, found)


def test_a_model_is_summed_once():
    with jax.enable_x64(True):
        model = trace_model(mixture, (Y,))
        assert enumerated(model) is enumerated(model)
        assert enumerated(trace_model(mixture, (Y,))) is not enumerated(model)


def test_sites_that_meet_are_drawn_jointly():
    """The share of each joint value of two sites; off by 5 standard errors once in a million."""
    with jax.enable_x64(True):
        model = trace_model(two_sites, (Y[:1],))
        summation = enumerated(model)

        def both(theta, data, key):
            weights = summation.conditional(theta, data)
            keys = jax.random.split(key, DRAWS)
            drawn = jax.vmap(lambda key: summation.draw(weights, key))(keys)
            return jax.nn.softmax(jnp.ravel(weights[0])), drawn

        theta = {"m": np.asarray(1.5)}
        exact, drawn = quickly(both)(theta, model.arguments.data, jax.random.key(1))
    exact = np.asarray(exact).reshape(3, 2)
    pairs = np.zeros((3, 2))
    np.add.at(pairs, (np.asarray(drawn["z"])[:, 0], np.asarray(drawn["outlier"])[:, 0]), 1 / DRAWS)
    assert (abs(pairs - exact) <= 5 * np.sqrt(exact * (1 - exact) / DRAWS)).all()
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
        f"Site 'n' is discrete and is unbounded: Poisson   (test_enumerated.py:{line + 1}).\n"
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
        "Site 'k' is discrete and has values that depend on latent sites: BinomialProbs   "
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
        f"Row {row} of site 'stay' depends on 'z' in other rows   "
        f"(test_enumerated.py:{line + 4}).\n"
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
        with numpyro.plate("rows", y.shape[0], dim=-2):
            r = numpyro.sample("r", dist.Bernoulli(0.5))
        with numpyro.plate("columns", y.shape[1], dim=-1):
            c = numpyro.sample("c", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.StudentT(3.0, m * r + c, 1.0), obs=y)

    text, line = refusal(model, np.arange(30.0).reshape(6, 5))
    assert text == (
        "Discrete sites of different shapes meet in site 'y': 'r' (6, 1), 'c' (5,)   "
        f"(test_enumerated.py:{line + 6}).\n"
        "Expected discrete sites that meet to have one value in each row of the same plate. Sum "
        "some of them out of the model yourself."
    )


def test_elements_of_one_event_are_rows_of_their_own():
    def model(y):
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Categorical(jnp.full(3, 1 / 3)))
        numpyro.sample("y", dist.Normal(z, 1.0).to_event(1), obs=y)

    found = enumerated(trace_model(model, (np.zeros(200),)))
    assert [group.states for group in found.groups] == [3]
    assert found.groups[0].rows == (200,)


def test_a_site_that_all_rows_share():
    def model(y):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        regime = numpyro.sample("regime", dist.Bernoulli(0.3))
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.4))
            numpyro.sample("y", dist.Normal(m * z + 0.1 * regime, 1.0), obs=y)

    y = np.linspace(-1.0, 2.0, 30)
    with jax.enable_x64(True):
        summed = enumerated(trace_model(model, (y,))).summed()
        found = summed.log_density({"m": jnp.asarray(0.8)}, summed.arguments.data)

    def density(values):
        return np.exp(-0.5 * values**2) / np.sqrt(2 * np.pi)

    rows = [np.prod(0.4 * density(y - 0.8 - r) + 0.6 * density(y - r)) for r in (0.0, 0.1)]
    expected = np.log(density(0.8)) + np.log(0.7 * rows[0] + 0.3 * rows[1])
    np.testing.assert_allclose(found, expected, rtol=1e-10)


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


# ---------------------------------------------------------------------------------------------
# What rows share is computed once
# ---------------------------------------------------------------------------------------------


def sums_of_components(y):
    """Each component has a normaliser that is a long sum."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))
        norm = logsumexp(-((jnp.linspace(-9.0, 9.0, 501) - mu[z][..., None]) ** 2), axis=-1)
        numpyro.factor("log p", -((y - mu[z]) ** 2) - norm)


def wants_every_row(y):
    """The entries of a site are counted by the program."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))
        assert z.shape == (len(y),)
        numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)


def in_two_plates(y):
    """One state for each column; the densities have rows as well."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("columns", 2, dim=-1):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))
        with numpyro.plate("rows", len(y), dim=-2):
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=np.stack([y, y[::-1]], axis=-1))


@pytest.mark.parametrize(
    ("program", "once"),
    [(mixture, True), (two_sites, True), (sums_of_components, True), (in_two_plates, True),
     (wants_every_row, False)],
)  # fmt: skip
def test_a_shared_state_is_given_once_where_the_program_allows_it(program, once):
    with jax.enable_x64(True):
        model = trace_model(program, (Y,))
        summation = enumerated(model)
        assert [group.once for group in summation.groups] == [once]
        rng = np.random.default_rng(4)
        theta = {n: rng.standard_normal(s.shape) for n, s in summation.summed().latent.items()}
        apart = tuple(replace(group, once=False) for group in summation.groups)
        found = quickly(summation.conditional)(theta, model.arguments.data)
        each = quickly(replace(summation, groups=apart).conditional)(theta, model.arguments.data)
        np.testing.assert_allclose(found[0], each[0], rtol=1e-12)


def test_what_depends_on_the_state_alone_is_computed_once():
    y = np.resize(Y, 200)
    with jax.enable_x64(True):
        model = trace_model(sums_of_components, (y,))
        summation = enumerated(model)
        apart = tuple(replace(group, once=False) for group in summation.groups)

        def computed(summation):
            closed = jax.make_jaxpr(summation.conditional)({"mu": np.zeros(3)}, {"y": y})
            return numbers_computed(closed.jaxpr)

        assert 50 * computed(summation) < computed(replace(summation, groups=apart))

"""Chains of discrete states summed out: by the forward algorithm as by enumeration of all paths."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan

from lowerbound.compiled import quickly
from lowerbound.cost import numbers_computed
from lowerbound.errors import LongSumError, UnsupportedModelError
from lowerbound.model import trace_model
from lowerbound.rewrite.summing import enumerated as finding
from lowerbound.rewrite.summing.chain import Chain
from lowerbound.rewrite.summing.enumerated import enumerated
from tests.laws.enumeration import (
    check_density,
    check_probabilities_and_draws,
    check_slope,
    compared,
)

Y = np.array([-1.2, 0.3, 2.1, 0.4, -0.5, 1.0])
PAIRS = np.stack([Y[:4], Y[2:]])


def parameters(states):
    """Rows of transition probabilities, and the mean of what is observed in every state."""
    p = numpyro.sample("p", dist.Normal(0.0, 1.0).expand([states, states]).to_event(2))
    return p, numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([states]).to_event(1))


def two_before(y):
    """What is observed depends on the state, a pull on two of them, a transition on three."""
    p, mu = parameters(2)

    def step(carry, y):
        before, x = carry
        new = numpyro.sample("x", dist.Categorical(logits=p[before] * (1 + x)))
        numpyro.factor("pull", mu[0] * (new == x) * y)
        numpyro.sample("y", dist.StudentT(4.0, mu[new], 1.0), obs=y)
        return (x, new), None

    scan(step, (0, 1), y)


def rarely(y):
    """The row before matters in one state of three, if the row's own is another."""
    p, mu = parameters(3)

    def step(before, y):
        x = numpyro.sample("x", dist.Categorical(logits=p[before]))
        numpyro.sample("y", dist.StudentT(4.0, mu[x] + (before == 2) * (x == 1), 1.0), obs=y)
        return x, None

    scan(step, 0, y)


def backward(y):
    """No loop: a site with a row for every time, and a factor of it and the row after it."""
    p, mu = parameters(2)
    with numpyro.plate("times", len(y)):
        x = numpyro.sample("x", dist.Categorical(logits=mu))
        after = jnp.concatenate([x[1:], jnp.zeros(1, x.dtype)])
        numpyro.factor("pair", p[after, x])
        numpyro.sample("y", dist.StudentT(4.0, mu[x], 1.0), obs=y)


def begins_by_a_draw(y):
    p, mu = parameters(2)
    style = numpyro.sample("style", dist.Bernoulli(0.3))

    def step(x, y):
        x = numpyro.sample("x", dist.Categorical(logits=p[x] * (1 + style)))
        numpyro.sample("y", dist.StudentT(4.0, mu[x], 1.0), obs=y)
        return x, None

    scan(step, style, y)


def never_back(y):
    """Transitions that cannot be: a state is never left for one below it."""
    p, mu = parameters(3)

    def step(x, y):
        logits = jnp.where(jnp.arange(3) >= x, p[x], -jnp.inf)
        x = numpyro.sample("x", dist.Categorical(logits=logits))
        numpyro.sample("y", dist.StudentT(4.0, mu[x], 1.0), obs=y)
        return x, None

    scan(step, 0, y)


def side_by_side(y, first=None):
    """Two chains, of which one is shorter; `first` is where each begins."""
    p, mu = parameters(2)

    def step(carry, y):
        x, t = carry
        with numpyro.plate("chains", len(y)), handlers.mask(mask=t < jnp.array([4, 3])):
            x = numpyro.sample("x", dist.Categorical(logits=p[x]))
            numpyro.sample("y", dist.StudentT(4.0, mu[x], 1.0), obs=y)
        return (x, t + 1), None

    first = jnp.zeros(len(y), jnp.int32) if first is None else first
    scan(step, (first, 0), y.T)


def begin_apart(y):
    side_by_side(y, jnp.array([0, 1]))


CASES = [  # program, data, the reach of its terms, whether chains share what they are given
    (backward, Y, {"x": 0, "pair": 1, "y": 0}, False),
    (two_before, Y, {"x": 2, "pull": 1, "y": 0}, False),
    (rarely, Y[:5], {"x": 1, "y": 1}, False),
    (begins_by_a_draw, Y, {"style": 0, "x": 1, "y": 0}, False),
    (never_back, Y[:5], {"x": 1, "y": 0}, False),
    (side_by_side, PAIRS, {"x": 1, "y": 0}, True),
    (begin_apart, PAIRS, {"x": 1, "y": 0}, False),
]


@pytest.fixture(scope="module", params=CASES, ids=[case[0].__name__ for case in CASES])
def case(request):
    """A program whose paths are few enough to enumerate, summed as though they were not."""
    program, y, reach, once = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finding, "MOST_STATES", 20)
        return *compared(program, (y,)), reach, once


def test_every_term_has_its_own_reach(case):
    summation, _, _, _, reach, once = case
    (group,) = summation.groups
    assert isinstance(group, Chain)
    assert dict(group.reach) == reach
    assert group.lag == max(reach.values())
    assert group.once == once


def test_the_sum_is_that_over_all_paths(case):
    _, theta, indices, found, _, _ = case
    check_density(found)
    check_slope(theta, found)
    check_probabilities_and_draws(indices, found)


def test_a_longer_reach_gives_the_same_weights(case):
    summation, theta, _, _, _, _ = case
    (group,) = summation.groups
    longest = replace(summation, groups=(replace(group, reach={}),))

    def both(theta, data):
        return summation.conditional(theta, data)[0], longest.conditional(theta, data)[0]

    with jax.enable_x64(True):
        found, expected = quickly(both)(theta, summation.model.arguments.data)
    # Before the first row there is no state, and the first of the states stands for all.
    for states in group.random(np.random.default_rng(1), 20):
        there = group.windows(states, group.lag)
        np.testing.assert_allclose(found[there], expected[there], rtol=1e-12)


def wide(y):
    """Many numbers are observed in every row, and they depend on its own state."""
    p, mu = parameters(8)

    def step(x, y):
        x = numpyro.sample("x", dist.Categorical(logits=p[x]))
        numpyro.sample("y", dist.StudentT(4.0, mu[x], 1.0).expand([len(y)]).to_event(1), obs=y)
        return x, None

    scan(step, 0, y)


def test_a_term_is_computed_within_its_reach():
    y = np.resize(Y, (10, 1000))
    with jax.enable_x64(True):
        summation = enumerated(trace_model(wide, (y,)))
        (group,) = summation.groups
        assert group.reach == {"x": 1, "y": 0}

        def computed(group):
            some = replace(summation, groups=(group,))
            theta = {"p": np.zeros((8, 8)), "mu": np.zeros(8)}
            return numbers_computed(jax.make_jaxpr(some.conditional)(theta, {"y": y}).jaxpr)

        assert 4 * computed(group) < computed(replace(group, reach={}))


def of_many_states(y):
    p = numpyro.sample("p", dist.Normal(0.0, 1.0).expand([12, 12]).to_event(2))

    def step(carry, y):
        before, x = carry
        new = numpyro.sample("x", dist.Categorical(logits=p[before] + p[x]))
        numpyro.sample("y", dist.Normal(0.3 * new, 1.0), obs=y)
        return (x, new), None

    scan(step, (0, 1), y)


def test_many_windows_of_few_densities_are_summed():
    """12^3 windows; the forward algorithm over pairs of states, in NumPy."""
    p = np.random.default_rng(2).normal(size=(12, 12))
    with jax.enable_x64(True):
        summed = enumerated(trace_model(of_many_states, (Y,))).summed()
        found = quickly(summed.log_density)({"p": p}, {"y": Y}) - dist.Normal().log_prob(p).sum()
        law = jax.nn.softmax(p[:, None] + p[None], axis=-1)
        seen = np.exp(dist.Normal(0.3 * np.arange(12.0), 1.0).log_prob(Y[:, None]))
    alpha = np.zeros((12, 12))
    alpha[0, 1] = 1.0
    for here in seen:
        alpha = np.einsum("ab,abc->bc", alpha, law) * here
    np.testing.assert_allclose(found, np.log(alpha.sum()), rtol=1e-10)


def test_windows_of_too_many_densities_are_refused(monkeypatch):
    monkeypatch.setattr(finding, "MOST_DENSITIES", 10_000)
    with pytest.raises(UnsupportedModelError) as caught, jax.enable_x64(True):
        enumerated(trace_model(of_many_states, (Y,)))
    line = of_many_states.__code__.co_firstlineno + 9  # of the scan
    assert str(caught.value) == (
        f"Row 2 of site 'x' depends on 'x' in other rows   (test_chain.py:{line}).\n"
        "If these are the 2 rows before, there are 1728 windows of states, and 10368 densities in "
        "the 6 rows. Expected at most 10000 to sum over. Let the sites have fewer states, or sum "
        "over them by the forward algorithm (jax.lax.scan), and state the result by numpyro.factor."
    )


def test_whoever_has_little_time_tries_few_windows_and_another_finds_the_sum():
    with jax.enable_x64(True):
        model = trace_model(of_many_states, (Y,))
        with pytest.raises(LongSumError, match="to sum over"):
            enumerated(model, 10_000)
        assert enumerated(model).groups[0].lag == 2
        assert enumerated(model, 10_000).groups[0].lag == 2  # it is known

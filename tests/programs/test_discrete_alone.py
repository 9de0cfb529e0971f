"""Programs whose latent sites are all discrete: the posterior is a sum over their values."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from scipy import stats

import lowerbound as lb
from lowerbound import errors
from tests.laws.compilations import counted


def mystery(hair):
    auburn = numpyro.sample("auburn", dist.Bernoulli(0.3))
    pipe = numpyro.sample("pipe", dist.Bernoulli(jnp.where(auburn == 1, 0.9, 0.2)))
    p = jnp.where(auburn == 1, 0.5, 0.05) * jnp.where(pipe == 1, 1.0, 0.5)
    numpyro.sample("hair", dist.Bernoulli(p), obs=hair)


def two_dice(total):
    a = numpyro.sample("a", dist.DiscreteUniform(1, 6))
    b = numpyro.sample("b", dist.DiscreteUniform(1, 6))
    numpyro.sample("total", dist.Delta(a + b), obs=total)


def near_sum(total):
    a = numpyro.sample("a", dist.DiscreteUniform(1, 6))
    b = numpyro.sample("b", dist.DiscreteUniform(1, 6))
    numpyro.sample("total", dist.Normal(1.0 * (a + b), 0.4), obs=total)


MYSTERY = {(0, 0): 0.7 * 0.8 * 0.025, (0, 1): 0.7 * 0.2 * 0.05, (1, 0): 0.3 * 0.1 * 0.25}
MYSTERY[1, 1] = 0.3 * 0.9 * 0.5
DICE = list(itertools.product(range(1, 7), repeat=2))
CASES = {
    mystery: (1, MYSTERY),
    two_dice: (9, {(a, b): (a + b == 9) / 36 for a, b in DICE}),
    near_sum: (4.3, {(a, b): stats.norm.pdf(4.3, a + b, 0.4) / 36 for a, b in DICE}),
}


def test_draws_for_other_data_run_what_the_first_have_compiled():
    def groups(y):
        k = numpyro.sample("k", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
        with numpyro.plate("rows", len(y)):
            c = numpyro.sample("c", dist.Bernoulli(0.3))
            numpyro.sample("y", dist.Normal(k + 2.0 * c, 1.0), obs=y)

    first, other = np.array([0.1, 2.3, 1.4]), np.array([3.9, 2.2, 4.1])
    lb.fit(groups, first).sample(20)
    with counted() as compilations:
        fit = lb.fit(groups, other)
        drawn = fit.sample(20)
    assert not compilations
    assert drawn["c"].shape == (20, 3)
    # k = 2 and c = (1, 0, 1) are by far the likeliest.
    assert (drawn["k"] == 2).mean() > 0.5
    assert (drawn["c"].mean(axis=0) > 0.5).tolist() == [True, False, True]


@pytest.mark.parametrize("program", CASES, ids=lambda p: p.__name__)
def test_small_nets(program):
    observed, joint = CASES[program]
    fit = lb.fit(program, observed)
    values, weights = np.array(list(joint)), np.array(list(joint.values()))
    posterior = weights / weights.sum()
    assert fit.elbo == pytest.approx(np.log(weights.sum()), abs=1e-10)
    assert fit.answer.exact
    for number, site in enumerate(list(fit.sites)):
        mean = posterior @ values[:, number]
        spread = np.sqrt(posterior @ (values[:, number] - mean) ** 2)
        assert fit.mean(site) == pytest.approx(mean, abs=1e-9)
        assert fit.sd(site) == pytest.approx(spread, abs=1e-7)
    if program is two_dice:  # draws keep what is certain
        draws = fit.sample(200, seed=1)
        assert (draws["a"] + draws["b"] == 9).all()


def by_delta(n):
    a = numpyro.sample("a", dist.Poisson(3.0))
    b = numpyro.sample("b", dist.Poisson(4.0))
    numpyro.sample("n", dist.Delta(a + b), obs=n)


def by_factor(n):
    a = numpyro.sample("a", dist.Poisson(3.0))
    b = numpyro.sample("b", dist.Poisson(4.0))
    numpyro.factor("n", jnp.where(a + b == n, 0.0, -jnp.inf))


@pytest.mark.parametrize("program", [by_delta, by_factor])
def test_counts_that_a_sum_ties(program):
    fit = lb.fit(program, 7)
    assert fit.elbo == pytest.approx(stats.poisson.logpmf(7, 7.0), abs=1e-9)
    assert fit.mean("a") == pytest.approx(3.0, abs=1e-7)
    assert fit.sd("a") == pytest.approx(np.sqrt(7 * 12 / 49), abs=1e-6)


def test_counts_behind_counts_take_as_many_values_as_they_need():
    def abundance(y):
        with numpyro.plate("places", len(y)):
            n = numpyro.sample("n", dist.Poisson(80.0))
            numpyro.sample("y", dist.Binomial(n, 0.3), obs=y)

    y = np.array([15, 29, 22])
    fit = lb.fit(abundance, y, method=lb.Enumeration())
    assert fit.elbo == pytest.approx(stats.poisson.logpmf(y, 24.0).sum(), abs=1e-8)
    np.testing.assert_allclose(fit.mean("n"), y + 56.0, atol=1e-5)
    np.testing.assert_allclose(fit.sd("n"), np.sqrt(56.0), atol=1e-4)


def test_a_chain_of_known_probabilities_is_smoothed():
    start, centres = np.array([0.6, 0.4]), np.array([-1.0, 1.5])
    moves = np.array([[0.8, 0.2], [0.3, 0.7]])
    y = np.array([-0.5, 0.4, 1.2, 0.9, -1.4])

    def model(y):
        def step(before, y):
            probs = jnp.where(before < 0, start, jnp.asarray(moves)[before])
            z = numpyro.sample("z", dist.Categorical(probs))
            numpyro.sample("y", dist.Normal(jnp.asarray(centres)[z], 1.0), obs=y)
            return z, None

        scan(step, jnp.array(-1), y)

    seen = stats.norm.pdf(y[:, None], centres)
    paths = np.array(list(itertools.product((0, 1), repeat=len(y))))
    weights = np.array(
        [
            start[p[0]] * np.prod(moves[p[:-1], p[1:]]) * np.prod(seen[np.arange(len(y)), p])
            for p in paths
        ]
    )
    fit = lb.fit(model, y)
    assert fit.elbo == pytest.approx(np.log(weights.sum()), abs=1e-9)
    np.testing.assert_allclose(fit.mean("z"), weights @ paths / weights.sum(), atol=1e-8)


def skills_of_people(answers):
    """Two skills of each person, in loops of Python that stack them: pairs, not all in one."""
    people = answers.shape[1]
    skills = [
        jnp.array([numpyro.sample(f"skill_{s}_{p}", dist.Bernoulli(0.5)) for p in range(people)])
        for s in range(2)
    ]
    for question, has in enumerate([skills[0], skills[1], skills[0] * skills[1]]):
        for p in range(people):
            right = dist.Bernoulli(0.9 * has[p] + 0.2 * (1 - has[p]))
            numpyro.sample(f"right_{question}_{p}", right, obs=answers[question, p])


def test_sites_that_a_loop_stacks_are_summed_where_they_meet():
    answers = np.random.default_rng(0).integers(0, 2, (3, 9))
    fit = lb.fit(skills_of_people, answers)
    assert fit.method == "Enumeration()"
    evidence = 0.0
    for p in range(answers.shape[1]):
        pairs = np.array(list(itertools.product((0, 1), repeat=2)))
        has = np.stack([pairs[:, 0], pairs[:, 1], pairs[:, 0] * pairs[:, 1]])
        right = 0.9 * has + 0.2 * (1 - has)
        weights = 0.25 * np.where(answers[:, p, None] == 1, right, 1 - right).prod(axis=0)
        evidence += np.log(weights.sum())
        for s in range(2):
            mean = (weights * pairs[:, s]).sum() / weights.sum()
            assert float(fit.mean(f"skill_{s}_{p}")) == pytest.approx(mean, abs=1e-6)
    assert fit.elbo == pytest.approx(evidence, abs=1e-6)


def test_data_that_no_value_explains():
    with pytest.raises(errors.ImpossibleDataError):
        lb.fit(two_dice, 13, method=lb.Enumeration())


def test_continuous_sites_are_refused():
    def model(y):
        p = numpyro.sample("p", dist.Beta(2.0, 2.0))
        z = numpyro.sample("z", dist.Bernoulli(p))
        numpyro.sample("y", dist.Normal(1.0 * z, 1.0), obs=y)

    with pytest.raises(errors.UnsupportedModelError) as caught:
        lb.fit(model, 0.3, method=lb.Enumeration())
    assert str(caught.value) == (
        "lb.Enumeration sums over discrete sites alone; 'p' is continuous.\n"
        "Use method=lb.Gaussian(), which sums discrete sites out of log p beside them."
    )

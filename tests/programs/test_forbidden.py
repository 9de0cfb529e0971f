"""Log potentials of -inf among the data: states that are forbidden, and all others as they are."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import nn
from numpyro.contrib.control_flow import scan
from scipy.special import betaln, logsumexp
from scipy.stats import norm

import lowerbound as lb
from lowerbound import errors
from lowerbound.model import trace_model

NEVER = -np.inf
Y = np.random.default_rng(0).normal(size=6) + np.repeat([0.0, 3.0], 3)
CENTRES = np.array([-2.0, 0.0, 2.0])
BY_ROW = np.array([[0.0, NEVER, 0.3]] * 3 + [[NEVER, 0.0, -0.2]] * 3)
FORWARD = np.array([[0.0, 0.5, NEVER], [NEVER, 0.0, 0.2], [NEVER, NEVER, 0.0]])
EVEN = np.full(3, 1 / 3)


def likelihood(z, y):
    numpyro.sample("y", dist.Normal(jnp.asarray(CENTRES)[z], 1.0), obs=y)


def in_a_plate(potential, y):
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Categorical(EVEN))
        numpyro.factor("allowed", potential[jnp.arange(len(y)), z])
        likelihood(z, y)


def summed(potential, y):
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Categorical(EVEN))
        likelihood(z, y)
    numpyro.factor("allowed", potential[jnp.arange(len(y)), z].sum())


def as_logits(potential, y):
    with numpyro.plate("rows", len(y)):
        likelihood(numpyro.sample("z", dist.Categorical(logits=potential)), y)


def rows(program) -> np.ndarray:
    """The log joint of every row and state."""
    prior = BY_ROW - logsumexp(BY_ROW, axis=1, keepdims=True)
    log_prior = prior if program is as_logits else BY_ROW - np.log(3.0)
    return log_prior + norm.logpdf(Y[:, None], CENTRES)


@pytest.mark.parametrize("program", [in_a_plate, summed, as_logits])
def test_states_of_rows(program):
    fit = lb.fit(program, BY_ROW, Y)
    joint = rows(program)
    assert fit.elbo == pytest.approx(logsumexp(joint, axis=1).sum(), rel=1e-9)
    expected = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    np.testing.assert_allclose(fit.posterior["z"].probs, expected, atol=1e-9)
    assert np.all(np.isfinite(BY_ROW[np.arange(6), np.asarray(fit.sample(200)["z"])]))


def neighbours(potential, y):
    centre = numpyro.sample("centre", dist.Normal(0.0, 0.1))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Categorical(EVEN))
        numpyro.sample("y", dist.Normal(centre + jnp.asarray(CENTRES)[z], 1.0), obs=y)
    numpyro.factor("order", potential[z[:-1], z[1:]].sum())


def chain(potential, y):
    centre = numpyro.sample("centre", dist.Normal(0.0, 0.1))

    def step(z, y):
        z = numpyro.sample(
            "z", dist.Categorical(logits=potential[z]), infer={"enumerate": "parallel"}
        )
        numpyro.sample("y", dist.Normal(centre + jnp.asarray(CENTRES)[z], 1.0), obs=y)
        return z, None

    scan(step, 0, y)


@pytest.mark.parametrize("program", [neighbours, chain])
def test_transitions(program):
    y = Y[1:5]
    fit = lb.fit(program, FORWARD, y)
    paths = np.array(list(itertools.product(range(3), repeat=4)))
    if program is chain:
        step = FORWARD - logsumexp(FORWARD, axis=1, keepdims=True)
        prior = step[0, paths[:, 0]] + step[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    else:
        prior = FORWARD[paths[:, :-1], paths[:, 1:]].sum(axis=1) - 4 * np.log(3.0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    centres = 0.1 * nodes[:, None, None] + CENTRES[paths]
    joint = prior + norm.logpdf(y, centres).sum(axis=2)
    exact = logsumexp(joint, b=(weights / weights.sum())[:, None])
    assert fit.elbo == pytest.approx(exact, abs=1e-3)
    drawn = np.asarray(fit.sample(100)["z"])
    assert np.all(np.isfinite(FORWARD[drawn[:, :-1], drawn[:, 1:]]))


def unknown_weights(potential):
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
    z = numpyro.sample("z", dist.Categorical(p))
    numpyro.factor("allowed", potential[z])


def test_of_one_site_whose_probabilities_are_latent():
    fit = lb.fit(unknown_weights, np.array([0.0, 0.0, NEVER]))
    assert -1.0 < fit.elbo <= np.log(2 / 3)
    np.testing.assert_allclose(fit.posterior["z"].probs, [0.5, 0.5, 0.0], atol=1e-6)


def test_the_same_program_with_other_numbers():
    """What was derived for finite potentials is not used for infinite ones."""
    finite = lb.fit(in_a_plate, np.where(np.isinf(BY_ROW), -2.0, BY_ROW), Y)
    fit = lb.fit(in_a_plate, BY_ROW, Y)
    assert fit.elbo == pytest.approx(logsumexp(rows(in_a_plate), axis=1).sum(), rel=1e-9)
    assert finite.elbo > fit.elbo


def test_a_row_without_a_state():
    nowhere = np.where(np.arange(6)[:, None] == 4, NEVER, BY_ROW)
    with pytest.raises(errors.ExcludedError) as caught:
        trace_model(in_a_plate, (nowhere, Y))
    assert str(caught.value) == (
        "Site 'allowed', allowed[4], is impossible, log 0, at all values of the discrete sites "
        "that were tried, because of -inf in 'potential'.\n"
        "Expected a finite number for at least one value. Check which states the potentials "
        "exclude."
    )


def test_an_observation_at_infinity_is_none():
    def heavy(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Laplace(mu, 1.0), obs=y)

    with pytest.raises(errors.InfiniteDataError, match=r"-inf at y\[1\]"):
        trace_model(heavy, (np.array([1.0, NEVER]),))


def test_a_latent_factor_of_a_forbidden_one():
    def tempered(logits, y):
        s = numpyro.sample("s", dist.Gamma(2.0, 2.0))
        numpyro.sample("y", dist.Categorical(logits=s * logits), obs=y)

    with pytest.raises(errors.NaNSlopeError) as caught:
        trace_model(tempered, (FORWARD, np.array([1, 2, 2])))
    assert str(caught.value) == (
        "Argument 'logits' holds 4 -inf, the first at logits[0, 2], shape (3, 3). The log density "
        "leaves them out, but its slope in site 's' does not: there 0 * inf is NaN.\n"
        "Expected no -inf in what a latent site is computed with. Put numbers there before: "
        "logits = jnp.where(jnp.isinf(logits), -1e+30, logits)."
    )


def total_of_two(y):
    """At every total the two states exclude values of each other."""
    p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    with numpyro.plate("rows", len(y)):
        i = numpyro.sample("i", dist.Bernoulli(p))
        j = numpyro.sample("j", dist.Categorical(EVEN))
        numpyro.sample("y", dist.Categorical(nn.one_hot(i + j, 4)), obs=y)


def test_states_that_a_total_ties():
    y = np.array([0, 1, 2, 2, 1, 0, 0, 3])
    logs = [
        betaln(1 + sum(i), 9 - sum(i)) - 8 * np.log(3.0)
        for i in itertools.product((0, 1), repeat=8)
        if all(0 <= total - one <= 2 for total, one in zip(y, i, strict=True))
    ]
    fit = lb.fit(total_of_two, y)
    assert fit.elbo == pytest.approx(logsumexp(logs), abs=0.01)
    draws = fit.sample(50)
    assert np.all(draws["i"] + draws["j"] == y)

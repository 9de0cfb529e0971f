"""Chains of discrete states in NumPyro's scan: summed out, in the types of their authors."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from scipy.special import logsumexp
from scipy.stats import dirichlet, norm

import lowerbound as lb
from lowerbound import errors
from lowerbound.compiled import quickly
from lowerbound.model import trace_model
from lowerbound.rewrite.summing import summation
from lowerbound.rewrite.summing.enumerated import enumerated

RNG = np.random.default_rng(0)
Y = RNG.normal(size=6)
P = RNG.dirichlet(np.ones(3), size=3)
MU = RNG.normal(size=3)
START = np.array([0.2, 0.3, 0.5])
HISTORY = np.array([[1, 0, 1, 0, 0, 0], [0, 1, 1, 0, 1, 0], [0, 0, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1]])


def rows(name):
    return numpyro.sample(name, dist.Dirichlet(jnp.ones((3, 3))).to_event(1))


def means():
    return numpyro.sample("mu", dist.Normal(0.0, 2.0).expand([3]).to_event(1))


def hidden(y, dtype=jnp.int32, reverse=False, **infer):
    p, mu = rows("p"), means()

    def step(x, y):
        x = numpyro.sample("x", dist.Categorical(p[x]), infer=infer)
        numpyro.sample("y", dist.Normal(mu[x], 1.0), obs=y)
        return x, x

    scan(step, jnp.zeros((), dtype), y, reverse=reverse)


def annotated(y):
    hidden(y, int, enumerate="parallel")


def backward(y):
    hidden(y, reverse=True)


def first_drawn_outside(y):
    p, mu = rows("p"), means()
    x0 = numpyro.sample("x0", dist.Categorical(jnp.array(START)))

    def step(x, y):
        x = numpyro.sample("x", dist.Categorical(p[x]))
        numpyro.sample("y", dist.Normal(mu[x], 1.0), obs=y)
        return x, None

    scan(step, x0, y)


def second_order(y):
    p, mu = rows("p"), means()

    def step(carry, y):
        before, x = carry
        new = numpyro.sample("x", dist.Categorical(0.5 * (p[before] + p[x])))
        numpyro.sample("y", dist.Normal(mu[new], 1.0), obs=y)
        return (x, new), None

    scan(step, (jnp.int32(0), jnp.int32(1)), y, history=2)


def second_order_density(p, mu, y):
    total = []
    for states in itertools.product(range(3), repeat=len(y)):
        path = (0, 1, *states)
        parts = [0.5 * (p[a] + p[b])[c] for a, b, c in zip(path, path[1:], path[2:], strict=False)]
        total.append(np.log(parts).sum() + norm.logpdf(y, mu[list(states)]).sum())
    return logsumexp(total)


def forward(start):
    def density(p, mu, y):
        alpha = start
        for value in y:
            alpha = (alpha @ p) * norm.pdf(value, mu)
        return np.log(alpha.sum())

    return density


@pytest.mark.parametrize(
    ("program", "density"),
    [
        (hidden, forward(np.eye(3)[0])),
        (annotated, forward(np.eye(3)[0])),
        (backward, lambda p, mu, y: forward(np.eye(3)[0])(p, mu, y[::-1])),
        (first_drawn_outside, forward(START)),
        (second_order, second_order_density),
    ],
)
def test_the_sum_over_a_chain_is_that_of_the_forward_algorithm(program, density):
    summation = enumerated(trace_model(program, (Y,)))
    summed = summation.summed()
    with jax.enable_x64(True):
        theta = {"p": jnp.asarray(P), "mu": jnp.asarray(MU)}
        found = float(quickly(summed.log_density)(theta, summed.arguments.data))
    prior = 3 * np.log(2.0) + norm.logpdf(MU, 0.0, 2.0).sum()
    np.testing.assert_allclose(found - prior, density(P, MU, Y), rtol=1e-10)


def test_probabilities_of_a_chain_are_those_of_all_paths():
    summation = enumerated(trace_model(first_drawn_outside, (Y,)))
    paths = np.array(list(itertools.product(range(3), repeat=7)))
    logs = np.log(START)[paths[:, 0]] + np.log(P)[paths[:, :-1], paths[:, 1:]].sum(1)
    logs += norm.logpdf(Y, MU[paths[:, 1:]]).sum(1)
    share = np.exp(logs - logsumexp(logs))
    with jax.enable_x64(True):
        theta = {"p": jnp.asarray(P), "mu": jnp.asarray(MU)}
        keys = jax.random.split(jax.random.key(0), 4000)

        def both(theta, data, keys):
            weights = summation.conditional(theta, data)
            draws = jax.vmap(lambda key: summation.draw(weights, key))(keys)
            return summation.probabilities(weights), draws

        found, draws = quickly(both)(theta, summation.model.arguments.data, keys)
    for name, columns in (("x0", paths[:, 0]), ("x", paths[:, 1:])):
        exact = np.tensordot(share, columns[..., None] == np.arange(3), 1)
        np.testing.assert_allclose(found[name], exact, atol=1e-10)
        drawn = np.mean(np.asarray(draws[name])[..., None] == np.arange(3), axis=0)
        # 5 standard errors: one in 10^5 such tests fails by chance
        np.testing.assert_allclose(drawn, exact, atol=5 * 0.5 / np.sqrt(4000))
    # neighbours are drawn together
    drawn = np.asarray(draws["x"])
    pairs = np.mean((drawn[:, 1:] == 0) & (drawn[:, :-1] == 1), axis=0)
    exact = share @ ((paths[:, 2:] == 0) & (paths[:, 1:-1] == 1))
    np.testing.assert_allclose(pairs, exact, atol=5 * 0.5 / np.sqrt(4000))


def test_states_that_are_summed_a_few_at_a_time(monkeypatch):
    summed = enumerated(trace_model(hidden, (Y,))).summed()
    with jax.enable_x64(True):
        theta = {"p": jnp.asarray(P), "mu": jnp.asarray(MU)}

        def found():
            return quickly(jax.value_and_grad(lambda t: summed.log_density(t, {"y": Y})))(theta)

        at_once = found()
        monkeypatch.setattr(summation, "MOST_NUMBERS", 25)
        apart = found()
    for one, other in zip(jax.tree.leaves(at_once), jax.tree.leaves(apart), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def capture(history):
    animals = history.shape[0]
    rho = numpyro.sample("rho", dist.Uniform(0.0, 1.0))

    def step(carry, y):
        seen, z = carry
        phi = numpyro.sample("phi", dist.Beta(2.0, 2.0))
        with numpyro.plate("animals", animals, dim=-1), handlers.mask(mask=seen):
            alive = seen * phi * z + (1 - seen)
            z = numpyro.sample(
                "z", dist.Bernoulli(dist.util.clamp_probs(alive)), infer={"enumerate": "parallel"}
            )
            numpyro.sample("y", dist.Bernoulli(dist.util.clamp_probs(rho * z)), obs=y)
        return (seen | y.astype(bool), z), None

    start = jnp.ones(animals, dtype=jnp.int32)
    scan(step, (history[:, 0].astype(bool), start), jnp.swapaxes(history[:, 1:], 0, 1))


def capture_density(history, rho, phi):
    total = 0.0
    for animal in history:
        seen, alpha = bool(animal[0]), np.array([0.0, 1.0])
        for y, survives in zip(animal[1:], phi, strict=True):
            if seen:
                alive = alpha[1] * survives
                alpha = np.array([alpha.sum() - alive, alive])
                alpha = alpha * np.where(y, [0.0, rho], [1.0, 1 - rho])
            else:  # a mask takes the density of the state out: each value counts 1
                alpha = np.full(2, alpha.sum())
            seen = seen or bool(y)
        total += np.log(alpha.sum())
    return total


def test_animals_are_chains_apart():
    model = trace_model(capture, (HISTORY.astype(np.int32),))
    summed = enumerated(model).summed()
    assert [site.name for site in summed.latent.values()] == ["rho", "phi"]
    rho, phi = 0.4, np.array([0.3, 0.8, 0.6, 0.9, 0.5])
    with jax.enable_x64(True):
        theta = {"rho": jnp.asarray(rho), "phi": jnp.asarray(phi)}
        found = float(quickly(summed.log_density)(theta, summed.arguments.data))
    prior = np.log(6.0 * phi * (1.0 - phi)).sum()  # Beta(2, 2); that of rho is 1
    np.testing.assert_allclose(found - prior, capture_density(HISTORY, rho, phi), rtol=1e-6)


def choirs(sequences, lengths):
    """Sequences of several lengths, two factors of the state, in the shapes of an enumeration."""
    count, _, tones = sequences.shape
    p = numpyro.sample("p", dist.Dirichlet(0.9 * jnp.eye(2) + 0.1).to_event(1))
    q = numpyro.sample("q", dist.Beta(1.0, 1.0).expand([2, 2, tones]).to_event(3))

    def step(carry, y):
        w, x, t = carry
        masked = handlers.mask(mask=(t < lengths)[..., None])
        with numpyro.plate("sequences", count, dim=-2), masked:
            w = numpyro.sample("w", dist.Categorical(p[w]), infer={"enumerate": "parallel"})
            x = numpyro.sample("x", dist.Categorical(p[1 - x]), infer={"enumerate": "parallel"})
            with numpyro.plate("tones", tones, dim=-1) as tone:
                numpyro.sample("y", dist.Bernoulli(q[w, x, tone]), obs=y)
        return (w, x, t + 1), None

    start = jnp.zeros((count, 1), dtype=jnp.int32)
    scan(step, (start, start, 0), jnp.swapaxes(sequences, 0, 1))


def test_sequences_of_several_lengths():
    sequences, lengths = RNG.integers(0, 2, size=(3, 4, 2)), np.array([4, 2, 3])
    summed = enumerated(trace_model(choirs, (sequences, lengths))).summed()
    p, q = RNG.dirichlet(np.ones(2), size=2), RNG.uniform(0.1, 0.9, size=(2, 2, 2))
    total = 0.0
    for y, length in zip(sequences, lengths, strict=True):
        alpha = np.zeros((2, 2))
        alpha[0, 0] = 1.0
        for value in y[:length]:
            alpha = np.einsum("wx,wv,xz->vz", alpha, p, p[::-1])
            alpha = alpha * np.prod(np.where(value, q, 1 - q), axis=-1)
        masked = np.log(4.0) * (4 - length)  # of each state that a mask takes out, each value
        total += np.log(alpha.sum()) + masked
    with jax.enable_x64(True):
        theta = {"p": jnp.asarray(p), "q": jnp.asarray(q)}
        found = float(quickly(summed.log_density)(theta, summed.arguments.data))
    prior = dirichlet.logpdf(p[0], [1.0, 0.1]) + dirichlet.logpdf(p[1], [0.1, 1.0])
    np.testing.assert_allclose(found - prior, total, rtol=1e-9)


def stays(y):
    stay = numpyro.sample("stay", dist.Beta(8.0, 2.0))

    def step(z, y):
        z = numpyro.sample("z", dist.Bernoulli(jnp.where(z == 1, stay, 1 - stay)))
        numpyro.sample("y", dist.Normal(2.0 * z, 1.0), obs=y)
        return z, None

    scan(step, jnp.ones((), jnp.int32), y)


def on_a_line(y):
    """Places of `stay`, and their shares in the posterior."""
    grid = np.linspace(0.0005, 0.9995, 1000)
    logs = 7 * np.log(grid) + np.log1p(-grid)
    logs += [np.log(_chain(s, y)) for s in grid]
    return grid, np.exp(logs - logsumexp(logs))


def test_states_given_a_scalar_have_the_shares_of_all_paths():
    y = np.array([1.5, 2.2, 0.1, -0.4, 1.0])
    grid, weights = on_a_line(y)
    fit = lb.fit(stays, y)
    assert next(row.family for row in fit.plan.rows if row.site == "z").startswith("Markov chain")
    expected = np.zeros(5)
    for path in itertools.product((0, 1), repeat=5):
        same = np.array([1, *path[:-1]]) == path
        likelihood = norm.pdf(y, 2.0 * np.array(path)).prod()
        law = grid ** same.sum() * (1 - grid) ** (5 - same.sum()) * likelihood
        given = np.array([_chain(s, y) for s in grid])
        expected += np.array(path) * (weights @ (law / given))
    np.testing.assert_allclose(fit.mean("z"), expected, atol=2e-3)


def test_a_fit_of_fifty_steps():
    states = np.repeat([1, 0, 1, 0, 1], 10)
    y = 2.0 * states + np.random.default_rng(1).normal(size=50)
    grid, weights = on_a_line(y)
    fit = lb.fit(stays, y)
    mean = weights @ grid
    sd = np.sqrt(weights @ grid**2 - mean**2)
    assert fit.mean("stay") == pytest.approx(mean, abs=0.02 * sd)
    assert fit.sd("stay") == pytest.approx(sd, rel=0.05)
    assert np.mean((fit.mean("z") > 0.5) == states) > 0.9
    assert fit.sample(10)["z"].shape == (10, 50)


def _chain(stay, y):
    transition = np.array([[stay, 1 - stay], [1 - stay, stay]])
    alpha = np.array([0.0, 1.0])
    for value in y:
        alpha = (alpha @ transition) * norm.pdf(value, [0.0, 2.0])
    return alpha.sum()


def test_carried_values_keep_the_types_of_their_author():
    def model(y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))

        def step(carry, y):
            level, count = carry
            level = numpyro.sample("level", dist.Normal(0.9 * level, scale))
            numpyro.sample("y", dist.Normal(level, 1.0), obs=y)
            return (level, count + 1), None

        scan(step, (jnp.float32(0.0), jnp.zeros((), jnp.int32)), y)

    found = trace_model(model, (Y,))
    with jax.enable_x64(True):
        levels = jnp.asarray(RNG.normal(size=6))
        theta = {"scale": jnp.asarray(0.7), "level": levels}
        value = quickly(found.log_density)(theta, {"y": Y})
    before = 0.9 * np.concatenate([[0.0], levels[:-1]])
    expected = norm.logpdf(levels, before, 0.7).sum() + norm.logpdf(Y, levels).sum()
    expected += np.log(2) + norm.logpdf(0.7)
    np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_a_state_that_depends_on_all_before_it_is_no_chain():
    def model(y):
        p = numpyro.sample("p", dist.Beta(1.0, 1.0))

        def step(total, y):
            z = numpyro.sample("z", dist.Bernoulli(p / (1.0 + total)))
            numpyro.sample("y", dist.Normal(1.0 * z, 1.0), obs=y)
            return total + z, None

        scan(step, 0, y)

    with pytest.raises(errors.UnsupportedModelError) as caught:
        enumerated(trace_model(model, (np.resize(Y, 20),)))
    assert str(caught.value).startswith("Row 1 of site 'z' depends on 'z' in other rows   (")

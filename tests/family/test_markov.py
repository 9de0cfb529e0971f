"""Chains of states: every path weighed, weights without bound, and programs that write a chain."""

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
from scipy.stats import norm

import lowerbound as lb
from lowerbound.compiled import quickly
from lowerbound.family import MarkovChain
from lowerbound.joint import multi_affine
from lowerbound.joint.terms.impossible import IMPOSSIBLE
from lowerbound.model import trace_model

RNG = np.random.default_rng(0)
P = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])
CENTRES = np.array([-1.0, 0.5, 2.0])
Y = RNG.normal(size=5)


def weighed(indicator: np.ndarray, pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every path, and its log weight."""
    length, dim = indicator.shape
    paths = np.array(list(itertools.product(range(dim), repeat=length)))
    steps = np.arange(length)
    logs = indicator[steps, paths].sum(1)
    return paths, logs + pair[steps[:-1], paths[:, :-1], paths[:, 1:]].sum(1)


@pytest.mark.parametrize("forbidden", [0.0, IMPOSSIBLE, -np.inf])
def test_sums_over_paths(forbidden):
    """Also where transitions are impossible, and where states differ by thousands of nats."""
    family = MarkovChain((), 5, 3)
    indicator, pair = 1e3 * RNG.normal(size=(5, 3)), RNG.normal(size=(4, 3, 3))
    pair[:, 0, 1] += forbidden
    natural = {"indicator": indicator, "pair": pair, "absent": np.array(2.0)}

    @quickly
    def found(natural):
        mean = family.mean(natural)
        slope = jax.grad(lambda i: family.log_normalizer({**natural, "indicator": i}))
        return {
            "A": family.log_normalizer(natural),
            "mean": mean,
            "slope": slope(natural["indicator"]),
            "entropy": family.entropy(natural, mean),
            "path": family.likeliest(natural),
            "draws": family.sample(natural, jax.random.key(0), (50,))["z"],
            "proper": family.in_domain(natural),
        }

    with jax.enable_x64(True):
        got = found(natural)
    paths, logs = weighed(indicator, pair)
    share = np.exp(logs - logsumexp(logs))
    np.testing.assert_allclose(got["A"], logsumexp(logs) - 2.0 * np.log(3.0), rtol=1e-12)
    exact = np.tensordot(share, paths[..., None] == np.arange(3), 1)
    np.testing.assert_allclose(got["mean"]["indicator"], exact, atol=1e-9)
    np.testing.assert_allclose(got["slope"], exact, atol=1e-9)
    kept = share[share > 0]
    entropy = -(kept * np.log(kept)).sum() - 2.0 * np.log(3.0)
    np.testing.assert_allclose(got["entropy"], entropy, atol=1e-8)
    np.testing.assert_array_equal(got["path"], paths[np.argmax(logs)])
    assert got["proper"]
    if forbidden:
        draws = np.asarray(got["draws"])
        assert not np.any((draws[:, :-1] == 0) & (draws[:, 1:] == 1))


def test_no_path_is_no_density():
    family = MarkovChain((2,), 2, 2)
    pair = jnp.array([[[[0.0, 0.0], [0.0, 0.0]]], [[[-jnp.inf] * 2] * 2]])
    natural = {"indicator": jnp.zeros((2, 2, 2)), "pair": pair, "absent": jnp.zeros(2)}
    np.testing.assert_array_equal(family.in_domain(natural), [True, False])


# ---------------------------------------------------------------------------------------------
# Programs that write a chain of known parameters: the posterior is the chain


def scanned(y):
    def step(before, y):
        z = numpyro.sample("z", dist.Categorical(jnp.asarray(P)[before]))
        numpyro.sample("y", dist.Normal(jnp.asarray(CENTRES)[z], 1.0), obs=y)
        return z, None

    scan(step, 0, y)


def reversed_scan(y):
    def step(before, y):
        z = numpyro.sample("z", dist.Categorical(jnp.asarray(P)[before]))
        numpyro.sample("y", dist.Normal(jnp.asarray(CENTRES)[z], 1.0), obs=y)
        return z, None

    scan(step, 0, y[::-1], reverse=True)


def looped(y):
    z = 0
    for t, value in enumerate(y):
        z = numpyro.sample(f"z_{t}", dist.Categorical(jnp.asarray(P)[z]))
        numpyro.sample(f"y_{t}", dist.Normal(jnp.asarray(CENTRES)[z], 1.0), obs=value)


def sliced(y):
    """Potentials instead of conditionals: row t of z meets row t + 1."""
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.full(3, 1 / 3)))
        numpyro.sample("y", dist.Normal(jnp.asarray(CENTRES)[z], 1.0), obs=y)
    numpyro.factor("first", jnp.log(jnp.asarray(P)[0, z[0]]))
    numpyro.factor("steps", jnp.log(jnp.asarray(P))[z[:-1], z[1:]].sum())


def autoregressive(y):
    """What is observed depends on the state and on the row before it."""

    def step(carry, y):
        before, last = carry
        z = numpyro.sample("z", dist.Categorical(jnp.asarray(P)[before]))
        numpyro.sample("y", dist.Normal(jnp.asarray(CENTRES)[z] + 0.5 * last, 1.0), obs=y)
        return (z, y), None

    scan(step, (0, 0.0), y)


def densities(program: object) -> np.ndarray:
    moved = Y - 0.5 * np.concatenate([[0.0], Y[:-1]]) if program is autoregressive else Y
    return norm.logpdf(moved[:, None], CENTRES)


@pytest.mark.parametrize("program", [scanned, reversed_scan, looped, sliced, autoregressive])
def test_a_chain_of_known_parameters_is_exact(program):
    fit = lb.fit(program, Y)
    indicator = densities(program)
    indicator[0] += np.log(P[0])
    paths, logs = weighed(indicator, np.broadcast_to(np.log(P), (4, 3, 3)))
    evidence = logsumexp(logs) - (5 * np.log(3.0) if program is sliced else 0.0)
    assert fit.elbo == pytest.approx(evidence, rel=1e-10)
    assert fit.plan.rows[0].family.startswith("Markov chain")
    assert str(fit.plan.ladder[-1]).startswith("-> exact: no term joins two factors")
    share = np.exp(logs - logsumexp(logs))
    exact = np.tensordot(share, paths[..., None] == np.arange(3), 1)
    if program is looped:
        probs = np.stack([fit.posterior[f"z_{t}"].probs for t in range(5)])
    else:
        probs = fit.posterior["z"].probs
    np.testing.assert_allclose(probs, exact, atol=1e-10)  # NumPyro numbers steps as they run


def ragged(x, lengths):
    """Sequences of several lengths, the ends of which a mask takes out."""
    steps = x.shape[1]

    def step(before, now):
        t, x = now
        with numpyro.plate("sequences", len(lengths)), handlers.mask(mask=t < lengths):
            z = numpyro.sample("z", dist.Categorical(jnp.asarray(P)[before]))
            numpyro.sample("x", dist.Normal(jnp.asarray(CENTRES)[z], 1.0), obs=x)
        return z, None

    scan(step, jnp.zeros(len(lengths), int), (jnp.arange(steps), x.T))


def test_steps_that_are_masked_count_for_nothing():
    x, lengths = RNG.normal(size=(3, 4)), np.array([4, 2, 3])
    fit = lb.fit(ragged, x, lengths)
    evidence = 0.0
    for row, length in zip(x, lengths, strict=True):
        alpha = np.eye(3)[0]
        for value in row[:length]:
            alpha = (alpha @ P) * norm.pdf(value, CENTRES)
        evidence += np.log(alpha.sum())
    assert fit.elbo == pytest.approx(evidence, rel=1e-10)
    assert fit.posterior["z"].probs.shape == (4, 3, 3)
    law = fit.posterior["z"]
    path = np.asarray(law.sample(jax.random.key(0)))
    assert path.shape == (4, 3)
    assert -50.0 < float(law.log_prob(path)) < 0.0


def second_order(y):
    def step(carry, y):
        two, one = carry
        z = numpyro.sample("z", dist.Categorical(0.5 * (jnp.asarray(P)[two] + jnp.asarray(P)[one])))
        numpyro.sample("y", dist.Normal(jnp.asarray(CENTRES)[z], 1.0), obs=y)
        return (one, z), None

    scan(step, (0, 0), y)


def grid(y):
    """Neighbours along both axes: no chain."""
    with numpyro.plate("all", 9):
        flat = numpyro.sample("z", dist.Categorical(jnp.full(2, 0.5)))
    z = flat.reshape(3, 3)
    numpyro.factor("rows", y[0] * (z[1:] == z[:-1]).sum())
    numpyro.factor("columns", 1.0 * (z[:, 1:] == z[:, :-1]).sum())


@pytest.mark.parametrize("program", [second_order, grid])
def test_what_is_no_chain_keeps_its_factors(program):
    joint = multi_affine(trace_model(program, (Y,)))
    assert all(block.kind != "markov_chain" for block in joint.blocks)


def test_a_law_of_paths_knows_its_likeliest():
    rng = np.random.default_rng(3)
    chain = MarkovChain((2,), 4, 3)
    natural = {
        "indicator": jnp.asarray(rng.normal(size=(2, 4, 3))),
        "pair": jnp.asarray(rng.normal(size=(2, 3, 3, 3))),
        "absent": jnp.zeros(2),
    }
    law = chain.marginals(natural)["z"]
    paths = np.array(list(itertools.product(range(3), repeat=4)))
    densities = law.log_prob(jnp.asarray(paths)[:, None])
    best = paths[np.asarray(densities).argmax(axis=0)]
    np.testing.assert_array_equal(law.likeliest, best)
    np.testing.assert_array_equal(MarkovChain.likeliest(natural), best)
    np.testing.assert_array_equal(law.on_axis(0).likeliest, best.T)

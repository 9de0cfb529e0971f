"""Discrete sites that cannot be summed out: gradients from draws, and fits by them."""

import importlib
import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp, softmax

import lowerbound as lb
from lowerbound.errors import ArgumentError, UnsupportedModelError
from lowerbound.methods.score.finite_program import score_program
from lowerbound.methods.score.logit_gradients import (
    draw_cells,
    local_gradient,
    local_targets,
    score_gradient,
    without_others,
)
from lowerbound.model import trace_model
from tests.laws.compilations import counted

score = importlib.import_module("lowerbound.methods.score.score_functions")
WEIGHTS = np.random.default_rng(0).normal(size=(5, 8))
COUNTS = np.random.default_rng(1).poisson(2.0, size=8)


def units(y):
    """Five units that meet in a rate, and one that meets in nothing but its own prior and data."""
    z = numpyro.sample("z", dist.Bernoulli(0.3 * jnp.ones(5)).to_event(1))
    k = numpyro.sample("k", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
    numpyro.sample("y", dist.Poisson(jnp.exp(z @ WEIGHTS)).to_event(1), obs=y)
    numpyro.sample("x", dist.Normal(jnp.exp(0.3 * k), 1.0), obs=2.0)


def states():
    """All states of `units`, the last column k, and their log densities."""
    all_states = np.array([[*z, k] for z in itertools.product([0, 1], repeat=5) for k in range(3)])
    z, k = all_states[:, :5], all_states[:, 5]
    log_p = (z * np.log(0.3) + (1 - z) * np.log(0.7)).sum(1) + np.log([0.2, 0.5, 0.3])[k]
    log_p += stats.poisson.logpmf(COUNTS, np.exp(z @ WEIGHTS)).sum(1)
    return all_states, log_p + stats.norm.logpdf(2.0, np.exp(0.3 * k), 1.0)


def weights_of(z, k):
    """Probabilities under q of all states."""
    every, _ = states()
    each = [z[i, every[:, i]] for i in range(5)]
    return np.prod(each, axis=0) * k[every[:, 5]]


def exact_gradient(logits):
    """That of E_q[log p], by summing over all states."""
    every, log_p = states()
    z, k = softmax(logits["z"].reshape(5, 2), axis=1), softmax(logits["k"].ravel())
    mass = weights_of(z, k) * log_p
    of_z = np.array([[(mass * ((every[:, i] == v) - z[i, v])).sum() for v in range(2)]
                     for i in range(5)])  # fmt: skip
    of_k = np.array([(mass * ((every[:, 5] == v) - k[v])).sum() for v in range(3)])
    return np.concatenate([of_z.ravel(), of_k])


@pytest.fixture(scope="module")
def estimates():
    """For each estimator, many independent estimates of the gradient at one q, from 4 draws each.

    The entries of `units` are not in a plate, so its rows have one cell for each entry.
    """
    with jax.enable_x64(True):
        program = score_program(trace_model(units, (COUNTS,)))
        rng = np.random.default_rng(4)
        logits = {"z": jnp.asarray(rng.normal(size=(5, 2))), "k": jnp.asarray(rng.normal(size=3))}
        logits = {s.name: logits[s.name].reshape((*s.rows, s.cells, -1)) for s in program.discrete}

        def estimate(key):
            cells = draw_cells(logits, key, 4)
            vectors = jnp.zeros((4, 0))
            terms = jax.vmap(lambda c, v: program.terms(c, v, program.data))(cells, vectors)
            tried = jax.vmap(lambda c, v: local_targets(program, c, v, program.data))
            targets = jax.tree.map(lambda a: a.mean(axis=0), tried(cells, vectors))
            found = {
                "plain": score_gradient(program, logits, cells, terms, plain=True),
                "blanket": score_gradient(program, logits, cells, terms, plain=False),
                "local": local_gradient(logits, targets),
            }
            return {n: jnp.concatenate([g["z"].ravel(), g["k"].ravel()]) for n, g in found.items()}

        keys = jax.random.split(jax.random.key(0), 3 * 2000).reshape(3, 2000)
        found = jax.jit(jax.vmap(lambda k: jax.lax.map(estimate, k, batch_size=500)))(keys)
        exact = exact_gradient({n: np.asarray(a) for n, a in logits.items()})
    return {n: np.asarray(a) for n, a in found.items()}, exact


@pytest.mark.parametrize("name", ["plain", "blanket", "local"])
def test_gradients_are_those_of_enumeration_on_average(estimates, name):
    # 13 entries and 3 seeds, within 5 standard errors: fails once in 40,000 runs of all three.
    found, exact = estimates
    for seed in range(3):
        each = found[name][seed]
        error = each.std(axis=0) / np.sqrt(len(each))
        assert np.all(abs(each.mean(axis=0) - exact) < 5 * error + 1e-12)


def test_blankets_and_control_variates_take_noise_away_and_local_expectations_more(estimates):
    # Variances from 6,000 estimates are right to a few percent.
    found, _ = estimates
    spread = {name: each.reshape(-1, 13).var(axis=0) for name, each in found.items()}
    assert np.all(spread["blanket"] < 0.5 * spread["plain"])
    assert np.all(spread["local"] < spread["blanket"])
    # k meets no other unit: its local expectation is exact, whatever the others are.
    assert np.all(spread["local"][10:] < 1e-20)
    assert np.all(spread["blanket"][10:] < 0.01 * spread["plain"][10:])


def test_the_control_variate_of_a_draw_does_not_contain_it():
    f = np.array([1.0, 5.0, -2.0, 3.5])
    expected = [f[i] - np.delete(f, i).mean() for i in range(4)]
    with jax.enable_x64(True):
        np.testing.assert_allclose(without_others(jnp.asarray(f)), expected)


@cache
def mean_field():
    """The best product of factors of `units`: coordinate ascent by enumeration, 6 starts."""
    every, log_p = states()
    rng, best = np.random.default_rng(0), (-np.inf, None)
    for _ in range(6):
        z, k = rng.dirichlet([1, 1], size=5), np.ones(3) / 3
        for _ in range(40):
            for i in range(5):
                others = weights_of(np.where(np.arange(5)[:, None] == i, 1.0, z), k)
                target = [(others * log_p)[every[:, i] == v].sum() for v in range(2)]
                z[i] = np.exp(target - logsumexp(target))
            others = weights_of(z, np.ones(3))
            target = [(others * log_p)[every[:, 5] == v].sum() for v in range(3)]
            k = np.exp(target - logsumexp(target))
        q = weights_of(z, k)
        elbo = (q * (log_p - np.log(np.maximum(q, 1e-300)))).sum()
        best = max(best, (elbo, np.concatenate([z[:, 1], k])), key=lambda one: one[0])
    return best


@pytest.mark.parametrize("local", [True, False])
def test_the_fit_is_the_best_product_of_factors(local, monkeypatch):
    # Over 20 seeds the worst error of a probability was 0.008 with local expectations and 0.03 by
    # score functions; the limits are twice these and more. The ELBO is within 6 standard errors.
    if not local:
        monkeypatch.setattr(score, "MOST_WORK", 0.0)
    elbo, wanted = mean_field()
    method = lb.ScoreFunctions(starts=3)
    for seed in (0, 1):
        fit = lb.fit(units, COUNTS, method=method, seed=seed)
        found = np.concatenate([fit.mean("z"), fit.posterior["k"].probs])
        assert np.abs(found - wanted).max() < (0.02 if local else 0.06)
        assert abs(fit.elbo - elbo) < 6 * fit.elbo_error + 0.01
        assert fit.converged
    how = "local expectations" if local else "score function"
    assert [row.update for row in fit.plan.rows] == [f"estimated ({how})"] * 2


def hidden(y):
    """Units that meet in a rate with a real number: no exact update, and 2^12 states in a sum."""
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    z = numpyro.sample("z", dist.Bernoulli(0.3 * jnp.ones(12)).to_event(1))
    numpyro.deterministic("on", jnp.sum(z))
    numpyro.sample("y", dist.Poisson(jnp.exp(b + z @ LARGE)).to_event(1), obs=y)


LARGE = np.random.default_rng(3).normal(size=(12, 30)) * 0.7
TRUE = np.arange(12) % 3 == 0
MANY = np.random.default_rng(4).poisson(np.exp(0.4 + TRUE @ LARGE))


def test_the_ladder_ends_in_score_functions_and_the_fit_is_like_others(tmp_path, capsys):
    plan = lb.explain(hidden, MANY)
    assert plan.ladder[-2].startswith(
        "   Gaussian, with 'z' summed out: Discrete site 'z' has 4096 states together in a row of "
        "site 'y'"
    )
    assert plan.ladder[-1] == (
        "-> score functions: every entry of 'z' by itself, a Gaussian of the rest; expectations by "
        "draws"
    )
    assert "estimated (local expectations)" in capsys.readouterr().out
    fit = lb.fit(hidden, MANY)
    assert fit.converged
    assert fit.method == "ScoreFunctions()"
    # The data of thirty counts decide every unit.
    np.testing.assert_array_equal(fit.mean("z").round(), TRUE)
    assert abs(fit.mean("b") - 0.4) < 4 * fit.sd("b")
    draws = fit.sample(2000)
    assert draws["z"].shape == (2000, 12)
    np.testing.assert_array_equal(draws["on"], draws["z"].sum(axis=1))
    # Six standard errors of an average over 2000 draws of a probability.
    assert np.abs(draws["z"].mean(axis=0) - fit.mean("z")).max() < 6 * 0.5 / np.sqrt(2000)
    assert list(fit.summary().index) == ["b", *(f"z[{i}]" for i in range(12)), "on"]
    assert abs(sum(fit.elbo_terms.values()) - fit.elbo) < 1e-8
    fit.save(tmp_path / "run.lb")
    again = lb.load(tmp_path / "run.lb", hidden)
    np.testing.assert_array_equal(again.mean("z"), fit.mean("z"))
    np.testing.assert_array_equal(again.sd("b"), fit.sd("b"))
    with counted() as compiled:
        lb.fit(hidden, MANY[::-1].copy())
    assert not compiled


def test_counts_without_an_end_get_as_many_values_as_they_need():
    # Rows are independent and p is known: the best product of factors is the posterior.
    def thinned(y):
        with numpyro.plate("rows", len(y)):
            n = numpyro.sample("n", dist.Poisson(60.0))
            numpyro.sample("y", dist.Binomial(total_count=n, probs=0.3), obs=y)

    y = np.array([9, 14, 20])
    fit = lb.fit(thinned, y, method=lb.ScoreFunctions(starts=2))
    n = np.arange(1000)[:, None]
    log_p = stats.poisson.logpmf(n, 60.0) + stats.binom.logpmf(y, n, 0.3)
    posterior = np.exp(log_p - logsumexp(log_p, axis=0))
    assert abs(fit.elbo - logsumexp(log_p, axis=0).sum()) < 1e-6
    np.testing.assert_allclose(fit.mean("n"), (n * posterior).sum(axis=0), rtol=1e-6)
    probs = fit.posterior["n"].probs
    np.testing.assert_allclose(probs, posterior[: probs.shape[1]].T, atol=1e-7)
    assert fit.sample(50)["n"].shape == (50, 3)


def test_rows_are_tried_at_once_only_where_they_do_not_meet():
    def apart(y):
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.4))
            numpyro.sample("y", dist.Normal(jnp.exp(z), 1.0), obs=y)

    def together(y):
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.4))
            numpyro.sample("y", dist.Normal(jnp.exp(z + jnp.roll(z, 1)), 1.0), obs=y)

    y = np.linspace(0.0, 3.0, 6)
    assert score_program(trace_model(apart, (y,))).flips == 2
    assert score_program(trace_model(together, (y,))).flips == 12


def test_what_is_impossible_gets_no_probability():
    def one_of_two(y):
        z = numpyro.sample("z", dist.Bernoulli(0.5 * jnp.ones(2)).to_event(1))
        numpyro.factor("not both", jnp.where(z.sum() == 2, -jnp.inf, 0.0))
        numpyro.sample("y", dist.Normal(3.0 * z[0] + jnp.exp(z[1]), 1.0), obs=y)

    fit = lb.fit(one_of_two, np.array(4.0), method=lb.ScoreFunctions(starts=3))
    draws = fit.sample(1000)["z"]
    assert np.isfinite(fit.elbo)
    assert np.all(draws.sum(axis=1) < 2)
    assert fit.mean("z")[0] > 0.9


def test_what_score_functions_cannot_do_is_refused():
    def real(y):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(m, 1.0), obs=y)

    with pytest.raises(ArgumentError) as caught:
        lb.fit(real, np.array([1.0, 2.0]), method=lb.ScoreFunctions())
    assert str(caught.value) == (
        "ScoreFunctions got a model without discrete latent sites.\n"
        "Expected a discrete site, such as dist.Bernoulli. Use lb.Gaussian()."
    )

    def shares(y):
        n = numpyro.sample("n", dist.Multinomial(5, jnp.ones(3) / 3))
        numpyro.sample("y", dist.Normal(jnp.exp(n.sum() + n[0]), 1.0), obs=y)

    line = shares.__code__.co_firstlineno + 1
    with pytest.raises(UnsupportedModelError) as caught:
        lb.fit(shares, np.array([1.0, 2.0]), method=lb.ScoreFunctions())
    assert str(caught.value) == (
        "Site 'n' is discrete and has no known factor: MultinomialProbs   "
        f"(test_score.py:{line}).\n"
        "Expected finitely many values, known beforehand, or counts 0, 1, ... such as those of "
        "dist.Poisson. Sum the site out of the model yourself."
    )
    # A Gaussian of the rest names no way out that is none.
    with pytest.raises(UnsupportedModelError) as caught:
        lb.fit(shares, np.array([1.0, 2.0]), method=lb.Gaussian())
    assert "ScoreFunctions" not in str(caught.value)


def test_a_gaussian_names_score_functions_as_the_way_out():
    with pytest.raises(UnsupportedModelError) as caught:
        lb.fit(hidden, MANY, method=lb.Gaussian())
    assert str(caught.value).endswith(
        " Or use method=lb.ScoreFunctions(), which takes discrete sites entry by entry."
    )
    with pytest.raises(UnsupportedModelError, match="ScoreFunctions"):
        lb.explain(hidden, MANY, method=lb.Laplace())

"""What has probability zero: exact posteriors of programs that exclude values, by enumeration."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import digamma, gammaln, logsumexp
from scipy.stats import binom, poisson

import lowerbound as lb
from lowerbound.errors import CertificateError, ImpossibleDataError
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import certificate, inputs_of, multi_affine
from lowerbound.joint.templates import conjugate
from lowerbound.joint.templates.table import TEMPLATES
from lowerbound.model import trace_model

TOSSES = np.array([0, 1, 1, 0, 1, 1, 1, 0, 1, 1])
COUNTS = np.array([0, 3, 1, 0, 2, 1, 0, 0, 4, 1])
TABLE = np.array([[0.0, 1.0], [0.5, 0.5]])  # the first coin never shows tails


def by_probs(y):
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("rows", len(y)):
        c = numpyro.sample("c", dist.Categorical(p))
        numpyro.sample("y", dist.Categorical(jnp.asarray(TABLE)[c]), obs=y)


def by_logits(y):
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("rows", len(y)):
        c = numpyro.sample("c", dist.Categorical(p))
        numpyro.sample("y", dist.Categorical(logits=jnp.log(jnp.asarray(TABLE))[c]), obs=y)


def by_data(y, table):
    """The zeros are in an argument, and not known when the program is read."""
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("rows", len(y)):
        c = numpyro.sample("c", dist.Categorical(p))
        numpyro.sample("y", dist.Categorical(table[c]), obs=y)


def by_factor(y):
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("rows", len(y)):
        c = numpyro.sample("c", dist.Categorical(p))
        allowed = (c == 1) | (y == 1)
        numpyro.factor("y", jnp.where(allowed, jnp.where(c == 1, jnp.log(0.5), 0.0), -jnp.inf))


def by_branch(y):
    """The value that is left out has another density of latent sites, not a number."""
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("rows", len(y)):
        c = numpyro.sample("c", dist.Categorical(p).mask(False))
        score = jnp.log(p)[c] + jnp.where(c == 1, jnp.log(0.5), 0.0)
        numpyro.factor("y", jnp.where((y == 0) & (c == 0), -jnp.inf, score))


def by_log_of_data(y, table):
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("rows", len(y)):
        c = numpyro.sample("c", dist.Categorical(p))
        numpyro.factor("y", jnp.log(table)[c, y])


def by_where_of_data(y, table):
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("rows", len(y)):
        c = numpyro.sample("c", dist.Categorical(p))
        numpyro.factor("y", jnp.where(c == 1, jnp.log(table[1, y]), jnp.log1p(table[0, y] - 1)))


def by_guards(y, table):
    """What the program itself asks of a logarithm has the answer that it has in NumPyro."""
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
    logs = jnp.log(table)
    counted = jnp.isneginf(logs).sum() + (~jnp.isfinite(logs)).sum() + (logs == -jnp.inf).sum()
    logs = jnp.where(jnp.isfinite(logs), logs, -jnp.inf)
    with numpyro.plate("rows", len(y)):
        c = numpyro.sample("c", dist.Categorical(p))
        numpyro.factor("y", logs[c, y])
    numpyro.factor("none", counted - 3.0)


def coordinate_ascent_by_hand(y, sweeps=500):
    """q(p) q(c) of the two coins, with plain loops; the ELBO."""
    with np.errstate(divide="ignore"):
        log_table = np.log(TABLE)[:, y].T
    concentration = np.ones(2)
    for _ in range(sweeps):
        log_p = digamma(concentration) - digamma(concentration.sum())
        scores = log_p + log_table
        r = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
        concentration = 1.0 + r.sum(axis=0)
    log_p = digamma(concentration) - digamma(concentration.sum())
    scores = log_p + log_table
    divergence = (
        gammaln(concentration.sum()) - gammaln(concentration).sum() - gammaln(2.0)
        + (concentration - 1.0) @ log_p
    )  # fmt: skip
    return logsumexp(scores, axis=1).sum() - divergence, concentration / concentration.sum()


GIVEN = [by_data, by_log_of_data, by_where_of_data, by_guards]


@pytest.mark.parametrize("program", [by_probs, by_logits, by_factor, by_branch, *GIVEN])
def test_an_excluded_value_has_no_weight(program):
    """Whichever way the zeros are written, the fixed point is the one of plain loops."""
    more = (TABLE,) if program in GIVEN else ()
    fit = lb.fit(program, TOSSES, *more, method=lb.CAVI(tolerance=1e-13))
    elbo, mean = coordinate_ascent_by_hand(TOSSES)
    np.testing.assert_allclose(fit.elbo, elbo, rtol=1e-9)
    np.testing.assert_allclose(fit.mean("p"), mean, rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(fit.mean("c"))[TOSSES == 0], 1.0)


# --------------------------------------------------------------------------------------------------
# Zero-inflated counts in several spellings: the ELBO is the evidence


def inflated_poisson(y):
    p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(p))
        numpyro.sample("y", dist.Poisson(rate * (1 - z)), obs=y)


def inflated_where(y):
    p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(p))
        numpyro.sample("y", dist.Poisson(jnp.where(z == 1, 0.0, rate)), obs=y)


def inflated_binomial(y):
    p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    rate = numpyro.sample("rate", dist.Beta(2.0, 2.0))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(p))
        numpyro.sample("y", dist.Binomial(5, rate * (1 - z)), obs=y)


def evidence(y, prior, mass, top):
    """Log of the integral over p and the rate of prod_n (p 1[y=0] + (1-p) f(y | rate))."""
    p = (np.arange(400) + 0.5) / 400
    rate = (np.arange(4000) + 0.5) / 4000 * top
    logs = np.log(prior(rate)) + np.zeros((400, 1))
    for value, count in zip(*np.unique(y, return_counts=True), strict=True):
        alone = (1 - p)[:, None] * mass(value, rate)
        logs += count * np.log(alone + p[:, None] * (value == 0))
    weights = np.exp(logs - logs.max())
    total = logs.max() + np.log(weights.sum()) - np.log(400) + np.log(top / 4000)
    return total, (weights.sum(axis=1) @ p) / weights.sum(), weights.sum(0) @ rate / weights.sum()


@pytest.mark.parametrize("program", [inflated_poisson, inflated_where, inflated_binomial])
def test_zero_inflated_counts(program):
    binomial = program is inflated_binomial
    fit = lb.fit(program, COUNTS)
    if binomial:
        exact = evidence(COUNTS, lambda r: 6 * r * (1 - r), lambda y, r: binom.pmf(y, 5, r), 1.0)
    else:
        exact = evidence(COUNTS, lambda r: r * np.exp(-r), lambda y, r: poisson.pmf(y, r), 12.0)
    np.testing.assert_allclose(fit.elbo, exact[0], atol=2e-3)
    np.testing.assert_allclose([fit.mean("p"), fit.mean("rate")], exact[1:], rtol=2e-3)


def test_a_zero_inflated_regression_by_quadrature():
    """Coordinate ascent where the rate is exp of a predictor: rows with counts are not empty."""

    def program(y, x):
        p = numpyro.sample("p", dist.Beta(1.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(p))
            numpyro.sample("y", dist.Poisson(jnp.exp(b[0] + b[1] * x) * (1 - z)), obs=y)

    fit = lb.fit(program, COUNTS, np.linspace(-1.0, 1.0, len(COUNTS)))
    empty = np.asarray(fit.mean("z"))
    assert np.isfinite(fit.elbo)
    np.testing.assert_array_equal(empty[COUNTS > 0], 0.0)
    assert (empty[COUNTS == 0] > 0.2).all()


# --------------------------------------------------------------------------------------------------
# Sites that exclude values of each other


def added(y):
    """The data are a + b, surely: a product of factors can say that of one pair of values only."""
    a_share = numpyro.sample("a_share", dist.Beta(2.0, 1.0))
    b_share = numpyro.sample("b_share", dist.Beta(1.0, 2.0))
    table = jnp.eye(3)[jnp.array([[0, 1], [1, 2]])]
    with numpyro.plate("rows", len(y)):
        a = numpyro.sample("a", dist.Bernoulli(a_share))
        b = numpyro.sample("b", dist.Bernoulli(b_share))
        numpyro.sample("y", dist.Categorical(table[a, b]), obs=y)


def annotated(labels):
    """A reader who attends says the truth; others say anything."""
    readers = labels.shape[1]
    with numpyro.plate("readers", readers, dim=-1):
        attention = numpyro.sample("attention", dist.Beta(2.0, 2.0))
    with numpyro.plate("items", labels.shape[0], dim=-2):
        truth = numpyro.sample("truth", dist.Categorical(jnp.array([0.4, 0.6])))
        with numpyro.plate("each", readers, dim=-1):
            attends = numpyro.sample("attends", dist.Bernoulli(attention))
            said = jnp.where(attends[..., None] == 1, jax.nn.one_hot(truth, 2), 0.5)
            numpyro.sample("labels", dist.Categorical(said), obs=labels)


SUMS = np.array([0, 1, 2, 2, 1, 0, 2])
LABELS = np.array([[0, 0, 1], [1, 1, 1], [1, 0, 1], [0, 0, 0]])


def test_sites_that_exclude_each_other_are_summed_out():
    fit = lb.fit(added, SUMS)
    grid = (np.arange(400) + 0.5) / 400
    a, b = grid[:, None], grid
    rows = {0: (1 - a) * (1 - b), 1: a * (1 - b) + (1 - a) * b, 2: a * b}
    density = 2 * a * 2 * (1 - b) * np.prod([rows[y] for y in SUMS], axis=0)
    exact = np.log(density.mean())
    assert exact - 0.03 < fit.elbo < exact + 1e-6  # a Gaussian of two numbers loses a little
    means = [(density * a).sum() / density.sum(), (density * b).sum() / density.sum()]
    np.testing.assert_allclose([fit.mean("a_share"), fit.mean("b_share")], means, atol=0.01)
    # y = 0 and y = 2 leave no choice
    np.testing.assert_allclose(np.asarray(fit.mean("a"))[SUMS == 2], 1.0, atol=1e-9)
    assert "exclude values of each other" in str(lb.explain(added, SUMS))


def test_readers_and_items_are_summed_out_in_turn():
    fit = lb.fit(annotated, LABELS)
    grid = (np.arange(60) + 0.5) / 60
    chance = {True: grid + (1 - grid) / 2, False: (1 - grid) / 2}
    prior = 6 * grid * (1 - grid)
    items = []
    for row in LABELS:
        by_truth = []
        for truth, share in enumerate((0.4, 0.6)):
            f = [chance[bool(said == truth)] for said in row]
            by_truth.append(share * f[0][:, None, None] * f[1][:, None] * f[2])
        items.append(by_truth)
    weights = np.prod([sum(one) for one in items], axis=0)
    weights *= prior[:, None, None] * prior[:, None] * prior
    exact = np.log(weights.mean())
    assert exact - 0.05 < fit.elbo < exact + 1e-6
    first = (weights * (items[0][1] / sum(items[0]))).sum() / weights.sum()
    np.testing.assert_allclose(np.asarray(fit.mean("truth"))[0], first, atol=0.02)
    assert "summed out" in str(fit.plan)


# --------------------------------------------------------------------------------------------------
# The certificate can fail


def derived(program, *args):
    model = trace_model(program, args)
    joint = multi_affine(model)
    return joint, inputs_of(model), MeanField.of(joint.blocks).statistics


@pytest.mark.parametrize("program", [by_probs, inflated_poisson])
def test_a_wrong_derivation_is_found_beside_hard_zeros(program):
    """At a random point some row is impossible: the fault is seen where none is."""
    with jax.enable_x64(True):
        joint, data, statistics = derived(program, TOSSES)
        certificate(joint, data, statistics)()

        def wrong(values, arrays):
            found = statistics(values, arrays)
            return ({name: 1.01 * array for name, array in found[0].items()}, *found[1:])

        with pytest.raises(CertificateError):
            certificate(joint, data, wrong)()


def test_a_derivation_that_excludes_another_value_is_found(monkeypatch):
    template = TEMPLATES["CategoricalProbs"]

    def wrong(x, probs):
        return template.density(conjugate.add(1.0, conjugate.times(x, -1.0)), probs)

    with jax.enable_x64(True):
        model = trace_model(by_probs, (TOSSES,))
        changed = replace(template, density=wrong)
        monkeypatch.setitem(TEMPLATES, "CategoricalProbs", changed)
        joint = multi_affine(model)
        with pytest.raises(CertificateError):
            certificate(joint, inputs_of(model), MeanField.of(joint.blocks).statistics)()


def test_impossible_data_are_named():
    def program(y):
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
        with numpyro.plate("rows", len(y)):
            c = numpyro.sample("c", dist.Categorical(p))
            numpyro.sample("y", dist.Categorical(jnp.array([[1.0, 0.0], [1.0, 0.0]])[c]), obs=y)

    with pytest.raises(ImpossibleDataError, match=r"value of 'c'.*'y' has density zero"):
        lb.fit(program, TOSSES)


# --------------------------------------------------------------------------------------------------
# Scales that underflow


@pytest.mark.parametrize("power", [0.25, 0.5])
def test_a_scale_that_underflows(power):
    """A centred Gaussian process by basis functions, of which the rough ones have scale 0."""
    x = np.linspace(-1.0, 1.0, 40)
    y = np.sin(3 * x) + 0.1 * np.random.default_rng(0).normal(size=40)
    frequencies = np.arange(1, 21) * np.pi / 1.6
    basis = np.sin(np.outer(x + 1, frequencies))

    def program(y):
        length = numpyro.sample("length", dist.LogNormal(0.0, 0.7))
        scale = jnp.exp(-power * length**2 * frequencies**2)
        with numpyro.plate("basis", 20):
            beta = numpyro.sample("beta", dist.Normal(0.0, scale))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Normal(basis @ beta, 0.3), obs=y)

    fit = lb.fit(program, y)
    grid = np.linspace(-5.0, 3.0, 801)
    logs = []
    for u in grid:
        scale = np.exp(-power * np.exp(u) ** 2 * frequencies**2)
        covariance = (basis * scale**2) @ basis.T + 0.09 * np.eye(40)
        root = np.linalg.cholesky(covariance)
        half = np.linalg.solve(root, y)
        logs.append(-0.5 * half @ half - np.log(np.diag(root)).sum() - 20 * np.log(2 * np.pi))
    logs = np.asarray(logs) - 0.5 * (grid / 0.7) ** 2 - np.log(0.7) - 0.5 * np.log(2 * np.pi)
    weights = np.exp(logs - logs.max())
    np.testing.assert_allclose(fit.elbo, logs.max() + np.log(weights.sum() * 0.01), atol=1e-4)
    mean = (weights @ np.exp(grid)) / weights.sum()
    np.testing.assert_allclose(fit.mean("length"), mean, rtol=1e-3)

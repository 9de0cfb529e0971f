"""Coordinate ascent on augmented programs equals the algorithms written by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.bound.augmentation import augmentation_gap
from lowerbound.errors import ArgumentError
from lowerbound.model import trace_model
from lowerbound.rewrite.augment import augmented
from tests.oracles import augmented as oracle


def ascend(function, choices, *args, **settings):
    """The augmented program, traced, and its fit; the certificate is checked on the way."""
    method = lb.CAVI(**{"tolerance": 1e-13, **settings})
    program = augmented(function, choices)
    with jax.enable_x64(True):
        model = trace_model(program, args)
    return model, lb.fit(program, *args, method=method)


def rows(seed, n=60):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.normal(size=n)])
    return rng, x, x @ [0.3, 1.2]


def regression(likelihood):
    def model(x, y):
        beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([x.shape[1]]).to_event(1))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", likelihood(x @ beta), obs=y)

    return model


logistic = regression(lambda a: dist.Bernoulli(logits=a))


def covariance(fit):
    with jax.enable_x64(True):
        return np.asarray(fit.posterior["beta"].covariance_matrix)


SWEEPS = 100


def assert_equal(likelihood, choice, answer, x, y):
    """The bound of the last sweeps and q(beta) equal those of the oracle."""
    model = regression(likelihood)
    _, fit = ascend(model, {"y": choice}, x, y, tolerance=0.0, max_sweeps=SWEEPS)
    np.testing.assert_allclose(fit.elbo, answer.elbo[-1], rtol=1e-11)
    np.testing.assert_allclose(fit.mean("beta"), answer.mean, rtol=1e-8)
    np.testing.assert_allclose(covariance(fit), answer.covariance, rtol=1e-8)
    assert np.all(np.diff(fit.history.elbo) >= -1e-9)
    return fit


@pytest.mark.parametrize("seed", [0, 1])
def test_logistic_regression_equals_jaakkola_and_jordan(seed):
    rng, x, a = rows(seed)
    y = (rng.uniform(size=len(a)) < 1 / (1 + np.exp(-a))).astype(int)
    answer = oracle.jaakkola_jordan(x, y, 2.0, SWEEPS)
    fit = assert_equal(lambda a: dist.Bernoulli(logits=a), "jaakkola-jordan", answer, x, y)
    xi = np.sqrt(oracle.squares(x, answer.mean, answer.covariance))
    np.testing.assert_allclose(fit.mean("y:omega"), np.tanh(xi / 2) / (2 * xi), rtol=1e-8)


def test_student_regression_equals_the_hand_written_one():
    rng, x, a = rows(2)
    y = a + rng.standard_t(4.0, size=len(a))
    answer = oracle.student(x, y, 4.0, 2.0, SWEEPS)
    assert_equal(lambda a: dist.StudentT(4.0, a, 1.0), "scale-mixture", answer, x, y)


def test_laplace_regression_equals_the_hand_written_one():
    rng, x, a = rows(3)
    y = a + rng.laplace(size=len(a))
    answer = oracle.laplace(x, y, 0.7, 2.0, SWEEPS)
    assert_equal(lambda a: dist.Laplace(a, 0.7), "scale-mixture", answer, x, y)


def test_a_marginalised_mixture_equals_the_one_with_its_assignments():
    rng = np.random.default_rng(4)
    y = np.concatenate([rng.normal(-2.0, 1.0, 30), rng.normal(2.0, 1.0, 30)])

    def parameters():
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(2)))
        with numpyro.plate("components", 2):
            return share, numpyro.sample("mu", dist.Normal(0.0, 5.0))

    def marginalised(y):
        share, mu = parameters()
        law = dist.MixtureSameFamily(dist.Categorical(probs=share), dist.Normal(mu, 1.0))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", law, obs=y)

    def assigned(y):
        share, mu = parameters()
        with numpyro.plate("data", len(y)):
            c = numpyro.sample("c", dist.Categorical(probs=share))
            numpyro.sample("y", dist.Normal(mu[c], 1.0), obs=y)

    start = {"mu": np.array([-1.0, 1.0])}
    _, fit = ascend(marginalised, {"y": "indicator"}, y, init=start)
    _, same = ascend(assigned, {}, y, init=start)
    np.testing.assert_allclose(fit.history.elbo, same.history.elbo, rtol=1e-12)
    np.testing.assert_allclose(fit.mean("mu"), same.mean("mu"), rtol=1e-10)
    np.testing.assert_allclose(
        fit.posterior["y:indicator"].probs, same.posterior["c"].probs, rtol=1e-8, atol=1e-12
    )


def test_a_half_cauchy_scale_is_bounded_by_its_evidence():
    """One normal mean, tau half-Cauchy: log p(y) by quadrature over log tau."""
    rng = np.random.default_rng(5)
    y = rng.normal(0.0, 1.5, size=25)

    def model(y):
        tau = numpyro.sample("tau", dist.HalfCauchy(2.0))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Normal(0.0, tau), obs=y)

    _, fit = ascend(model, {"tau": "scale-mixture"}, y)
    u = np.linspace(-4.0, 4.0, 4001)
    log_joint = (
        np.log(2 / np.pi / 2.0) - np.log1p(np.exp(2 * u) / 4.0) + u
        - len(y) * (u + 0.5 * np.log(2 * np.pi)) - 0.5 * np.sum(y**2) * np.exp(-2 * u)
    )  # fmt: skip
    weights = np.exp(log_joint - log_joint.max())
    evidence = log_joint.max() + np.log(weights.sum() * (u[1] - u[0]))
    assert evidence - 0.05 < fit.elbo < evidence
    mean = np.sum(weights * np.exp(u)) / weights.sum()
    np.testing.assert_allclose(fit.mean("tau"), mean, rtol=0.02)


COUNTS = {
    "binomial": (lambda a: dist.Binomial(5, logits=a), "polya-gamma"),
    "negative binomial": (lambda a: dist.NegativeBinomialLogits(3.5, a), "polya-gamma"),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_with_logits(name):
    """The gap makes up the whole difference to the ELBO of q(beta) by Gauss-Hermite."""
    law, choice = COUNTS[name]
    rng, x, a = rows(6)
    y = rng.binomial(5, 1 / (1 + np.exp(-a)))
    model, fit = ascend(regression(law), {"y": choice}, x, y)
    original = trace_model(regression(law), (x, y))
    gap = augmentation_gap(original, model, fit.q.family, fit.q.parameters, draws=400)
    node, weight = np.polynomial.hermite_e.hermegauss(40)
    m, V = np.asarray(fit.mean("beta")), covariance(fit)
    sd = np.sqrt(np.einsum("ni,ij,nj->n", x, V, x))
    with jax.enable_x64(True):
        at = law((x @ m)[:, None] + sd[:, None] * node).log_prob(y[:, None])
    expected = np.sum(np.asarray(at) * weight) / np.sqrt(2 * np.pi)
    kl = 0.5 * ((np.trace(V) + m @ m) / 4.0 - 2 + 2 * np.log(4.0) - np.linalg.slogdet(V)[1])
    # A seed is fixed; 5 standard errors fail by chance once in two million.
    assert abs(gap.nats - (expected - kl - fit.elbo)) < 5 * gap.standard_error
    assert 0 < gap.standard_error < 0.1


def test_softmax_bounds_are_ordered():
    """Both are bounds that never fall, and the Poisson one is far the tighter."""
    rng, x, a = rows(7)
    y = (a + rng.logistic(size=len(a)) > 0).astype(int) + (a > 1.0)

    def model(x, y):
        beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([2, 2]).to_event(2))
        logits = jnp.concatenate([x @ beta, jnp.zeros((len(y), 1))], axis=-1)
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Categorical(logits=logits), obs=y)

    original = trace_model(model, (x, y))
    gaps = {}
    for choice in ("poisson", "bouchard"):
        traced, fit = ascend(model, {"y": choice}, x, y, tolerance=1e-8)
        assert np.all(np.diff(fit.history.elbo) >= -1e-8)
        gap = augmentation_gap(original, traced, fit.q.family, fit.q.parameters, draws=400)
        gaps[choice] = gap.nats
    assert 0 < gaps["poisson"] < 3.0
    assert gaps["bouchard"] > 10.0


def test_missing_entries_have_no_part():
    rng, x, a = rows(8)
    y = (rng.uniform(size=len(a)) < 1 / (1 + np.exp(-a))).astype(int)
    hidden = np.arange(len(y)) < 10
    _, fit = ascend(logistic, {"y": "polya-gamma"}, x, np.ma.masked_array(y, hidden))
    _, rest = ascend(logistic, {"y": "polya-gamma"}, x[10:], y[10:])
    np.testing.assert_allclose(fit.elbo, rest.elbo, rtol=1e-9)
    np.testing.assert_allclose(fit.mean("beta"), rest.mean("beta"), rtol=1e-6)


def test_the_gap_needs_the_same_program():
    rng, x, a = rows(9, n=20)
    y = (rng.uniform(size=len(a)) < 0.5).astype(int)
    model, fit = ascend(logistic, {"y": "polya-gamma"}, x, y, tolerance=1e-8)

    def other(y):
        numpyro.sample("alpha", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Bernoulli(logits=jnp.zeros(len(y))), obs=y)

    with pytest.raises(ArgumentError) as caught:
        augmentation_gap(trace_model(other, (y,)), model, fit.q.family, fit.q.parameters)
    assert str(caught.value) == (
        "The augmented model lacks the latent sites alpha.\n"
        "Expected the two models to be one program, without and with auxiliary sites."
    )

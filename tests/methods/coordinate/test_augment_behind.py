"""Fits of programs augmented by what a parameter is computed from; predictions of augmented fits.

Each equals the fit of the program with the auxiliary site written out, sweep by sweep.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from scipy.special import gammaln
from scipy.special import logsumexp as log_sum
from scipy.stats import t as student_t

import lowerbound as lb
from tests.models import test_probit_regression as probit_case
from tests.oracles import probit as probit_oracle

SWEEPS = 15


def sweeps(model, *args, augment=None, init=None, **kwargs):
    """A fixed number of sweeps, from a given start."""
    method = lb.CAVI(init=init or "auto", tolerance=0.0, max_sweeps=SWEEPS)
    method = lb.Augmented(augment, method) if augment else method
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lb.errors.ConvergenceWarning)
        return lb.fit(model, *args, method=method, **kwargs)


def assert_same(ours, theirs, *sites, constant=0.0):
    np.testing.assert_allclose(ours.history.elbo, theirs.history.elbo + constant, rtol=1e-11)
    assert (np.diff(ours.history.elbo) >= -1e-9).all()
    for site in sites:
        np.testing.assert_allclose(ours.mean(site), theirs.mean(site), rtol=1e-8)
        np.testing.assert_allclose(ours.sd(site), theirs.sd(site), rtol=1e-8)


# --------------------------------------------------------------------------------------------------
# Probit


def regression(law):
    def model(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([x.shape[1]]).to_event(1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", law(x @ beta), obs=y)

    return model


def probit_law(a):
    return dist.Bernoulli(probs=norm.cdf(a))


probit = regression(probit_law)
PROBIT = {"y": "truncated-normal"}


def test_probit_sweeps_equal_those_of_albert_and_chib():
    (x, y), _ = probit_case.arguments(0)
    start = probit_case.start(0)
    fit = sweeps(probit, x, y, augment=PROBIT, init={"beta": start["beta"]})
    by_hand = probit_oracle.trajectory(x, y, 2.0, start)
    steps = [next(by_hand) for _ in range(SWEEPS)]
    np.testing.assert_allclose(fit.history.elbo, [s.elbo for s in steps], rtol=1e-11)
    np.testing.assert_allclose(fit.mean("beta"), steps[-1].sites["beta"].mean, rtol=1e-9)


def test_the_probit_bound_is_below_the_quadrature_by_the_gap():
    """The gap is estimated: 5 standard errors, once in two million for a seed."""
    (x, y), _ = probit_case.arguments(1)
    fit = lb.fit(probit, x, y, method=lb.Augmented(PROBIT, lb.CAVI(tolerance=1e-12)))
    best = lb.fit(probit, x, y, method=lb.CAVI())
    assert fit.elbo < best.elbo < probit_oracle.evidence(x, y, 2.0)
    m, V = np.asarray(fit.mean("beta")), covariance(fit)
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    sd = np.sqrt(np.einsum("ni,ij,nj->n", x, V, x))
    a = (x @ m)[:, None] + sd[:, None] * node
    with jax.enable_x64(True):
        each = np.asarray(jax.scipy.special.log_ndtr((2 * y[:, None] - 1) * a))
    expected = np.sum(each * weight) / np.sqrt(2 * np.pi)
    kl = 0.5 * ((np.trace(V) + m @ m) / 4.0 - 2 + 2 * np.log(4.0) - np.linalg.slogdet(V)[1])
    numbers = fit.notes[-1].split("program is ")[1].split(" nats")[0].split(" +- ")
    gap, error = map(float, numbers)
    assert (
        abs(gap - (expected - kl - fit.elbo)) < 5 * 1.5 * error + 0.005 * gap
    )  # one digit is told


def covariance(fit):
    with jax.enable_x64(True):
        return np.asarray(fit.posterior["beta"].covariance_matrix)


# --------------------------------------------------------------------------------------------------
# Sums


def test_a_mixture_by_hand_equals_the_one_with_its_assignments():
    rng = np.random.default_rng(4)
    y = np.concatenate([rng.normal(-2.0, 1.0, 20), rng.normal(2.0, 1.0, 30)])

    def parameters():
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(2)))
        with numpyro.plate("components", 2):
            return share, numpyro.sample("mu", dist.Normal(0.0, 5.0))

    def by_hand(y):
        share, mu = parameters()
        each = jnp.log(share) + dist.Normal(mu, 1.0).log_prob(y[:, None])
        numpyro.factor("y", logsumexp(each, axis=-1).sum())

    def assigned(y):
        share, mu = parameters()
        with numpyro.plate("data", len(y)):
            c = numpyro.sample("c", dist.Categorical(probs=share))
            numpyro.sample("y", dist.Normal(mu[c], 1.0), obs=y)

    start = {"mu": np.array([-1.0, 1.0])}
    ours = sweeps(by_hand, y, augment={"y": "indicator"}, init=start)
    assert_same(ours, sweeps(assigned, y, init=start), "mu", "share")


def test_poisson_factorisation_equals_the_one_with_its_counts():
    rng = np.random.default_rng(5)
    x = rng.poisson(rng.gamma(1.0, 1.0, size=(8, 2)) @ rng.gamma(1.0, 1.0, size=(2, 6)))

    def factors(x):
        theta = numpyro.sample("theta", dist.Gamma(0.8, 0.5).expand([8, 2]).to_event(2))
        return theta, numpyro.sample("beta", dist.Gamma(0.8, 0.5).expand([6, 2]).to_event(2))

    def plain(x):
        theta, beta = factors(x)
        numpyro.sample("x", dist.Poisson(theta @ beta.T).to_event(2), obs=x)

    def written_out(x):
        theta, beta = factors(x)
        z = numpyro.sample("z", dist.Poisson(theta[:, None, :] * beta).to_event(3))
        numpyro.sample("x", dist.Delta(z.sum(-1)).to_event(2), obs=x)

    start = {"theta": rng.gamma(2.0, 0.5, (8, 2)), "beta": rng.gamma(2.0, 0.5, (6, 2))}
    ours = sweeps(plain, x, augment={"x": "indicator"}, init=start)
    assert_same(ours, sweeps(written_out, x, init=start), "theta", "beta")


def test_topics_of_counts_equal_topics_of_words():
    """The counts have a multinomial coefficient more than their words in order."""
    rng = np.random.default_rng(6)
    topics = rng.dirichlet(np.full(5, 0.5), 2)
    counts = np.stack([rng.multinomial(12, p @ topics) for p in rng.dirichlet([1, 1], 6)])
    words = np.stack([np.repeat(np.arange(5), row) for row in counts])

    def of_counts(x):
        phi = numpyro.sample("phi", dist.Dirichlet(jnp.full((2, 5), 0.5)).to_event(1))
        with numpyro.plate("documents", len(x)):
            theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(2)))
            numpyro.sample("x", dist.Multinomial(x.sum(-1), probs=theta @ phi), obs=x)

    def of_words(w):
        phi = numpyro.sample("phi", dist.Dirichlet(jnp.full((2, 5), 0.5)).to_event(1))
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones((6, 2))).to_event(1))
        with numpyro.plate("documents", 6, dim=-2), numpyro.plate("words", 12, dim=-1):
            numpyro.sample("w", dist.Categorical(probs=(theta @ phi)[:, None, :]), obs=w)

    start = {"phi": rng.dirichlet(np.ones(5), 2), "theta": rng.dirichlet(np.ones(2), 6)}
    ours = sweeps(of_counts, counts, augment={"x": "indicator"}, init=start)
    theirs = sweeps(of_words, words, augment={"w": "indicator"}, init=start)
    constant = np.sum(gammaln(counts.sum(1) + 1)) - np.sum(gammaln(counts + 1))
    assert_same(ours, theirs, "phi", "theta", constant=constant)


def test_the_ladder_takes_counts_where_no_gaussian_is_affordable():
    x = np.random.default_rng(7).poisson(2.0, size=(60, 50))

    def model(x):
        theta = numpyro.sample("theta", dist.Gamma(1.0, 1.0).expand([60, 2]).to_event(2))
        beta = numpyro.sample("beta", dist.Gamma(1.0, 1.0).expand([2, 50]).to_event(2))
        numpyro.sample("x", dist.Poisson(theta @ beta).to_event(2), obs=x)

    def rooted(x):
        theta = numpyro.sample("theta", dist.Gamma(1.0, 1.0).expand([60, 2]).to_event(2))
        beta = numpyro.sample("beta", dist.Gamma(1.0, 1.0).expand([2, 50]).to_event(2))
        numpyro.sample("x", dist.Poisson(jnp.sqrt(theta @ beta)).to_event(2), obs=x)

    assert lb.explain(model, x).ladder[-1] == (
        "-> augmented: {'x': 'indicator'}: every update is exact"
    )
    assert "   augmented: Site 'x' is a Poisson whose rate is not seen to be a sum of products" in (
        lb.explain(rooted, x).ladder
    )


def test_student_errors_around_assigned_centres_have_proper_weights():
    """At the start of a mixture rows weigh more or less than one, which weights must not see."""
    rng = np.random.default_rng(8)
    y = np.concatenate([rng.normal(-3.0, 1.0, 30), 3.0 + rng.standard_t(4.0, 40)])

    def model(y):
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(2)))
        with numpyro.plate("components", 2):
            mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        with numpyro.plate("data", len(y)):
            c = numpyro.sample("c", dist.Categorical(probs=share))
            numpyro.sample("y", dist.StudentT(4.0, mu[c], 1.0), obs=y)

    fit = lb.fit(model, y, method=lb.Augmented({"y": "scale-mixture"}, lb.CAVI()))
    assert (np.diff(fit.history.elbo) >= -1e-9).all()
    np.testing.assert_allclose(np.sort(fit.mean("mu")), [-3.0, 3.0], atol=0.6)


# --------------------------------------------------------------------------------------------------
# Minibatches


def batch_of_all(model, *args, init, augment):
    """One step of size 1 on all rows."""
    given = lb.Details(init=init)
    method = lb.SVI(
        batch_size=len(args[0]), steps=1, delay=1.0, forgetting=0.7, monitor=None, details=given
    )
    return lb.fit(model, *args, method=lb.Augmented(augment, method))


def test_a_full_batch_of_step_one_is_the_coordinate_update():
    (x, y), _ = probit_case.arguments(2)
    start = probit_case.start(2)
    fit = batch_of_all(probit, x, y, init={"beta": start["beta"]}, augment=PROBIT)
    first = next(probit_oracle.trajectory(x, y, 2.0, start))
    np.testing.assert_allclose(fit.mean("beta"), first.sites["beta"].mean, rtol=1e-9)
    np.testing.assert_allclose(fit.sd("beta"), first.sites["beta"].sd, rtol=1e-9)


def test_minibatches_choose_an_augmentation_and_say_so():
    (x, y), _ = probit_case.arguments(3)
    method = lb.SVI(batch_size=10, steps=5, monitor=None)
    line = (
        "augment={'y': 'truncated-normal'}: chosen by the plan, because 'beta' enters 'y' through "
        "log Phi(1 beta)."
    )
    fit = lb.fit(probit, x, y, method=method)
    assert fit.answer.augment == PROBIT
    assert fit.plan.notes[-1] == line
    assert lb.explain(probit, x, y=y, method=method).notes[-1] == line

    # What was decided stays: a site that is to be left as it is gets no augmentation.
    with pytest.raises(lb.errors.NotConjugateError, match=r"enters site 'y' through log Phi"):
        lb.fit(probit, x, y, method=lb.Augmented({"y": "none"}, method))

    def counts(x, y):
        beta = numpyro.sample("beta", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Poisson(jnp.exp(x @ beta)), obs=y)

    with pytest.raises(lb.errors.NotConjugateError):
        lb.fit(counts, x, y, method=method)


# --------------------------------------------------------------------------------------------------
# Predictions of augmented fits are those of the original program

DRAWS = 2000
LAWS = {  # law, augmentation, held-out rows, and whether to predict the old rows or new ones
    "student": (lambda a: dist.StudentT(4.0, a, 1.0), "scale-mixture", [-3.0, 0.5, 6.0], False),
    "counts": (lambda a: dist.NegativeBinomialLogits(3.5, a), "polya-gamma", [0, 2, 5], True),
    "probit": (probit_law, "truncated-normal", [0, 1, 1], True),
}


def standardised(law, y, a):
    """Numbers of mean 0 and variance 1 where y has the law at a."""
    if isinstance(law(a), dist.StudentT):
        return np.sqrt(12) * (student_t.cdf(y - a, 4.0) - 0.5)
    with jax.enable_x64(True):
        return (y - np.asarray(law(a).mean)) / np.sqrt(np.asarray(law(a).variance))


@pytest.mark.parametrize("name", LAWS)
def test_predictions_are_those_of_the_original_program(name):
    """Draws of y given those of beta that they belong to: 6 standard errors, once in 10^7."""
    law, choice, held_out, fresh = LAWS[name]
    rng = np.random.default_rng(9)
    x = np.column_stack([np.ones(15), rng.normal(size=15)])
    new = np.column_stack([np.ones(3), [-2.0, 0.0, 2.0]])
    y = rng.integers(0, 2, size=15)
    fit = lb.fit(regression(law), x, y, method=lb.Augmented({"y": choice}, lb.CAVI()))
    beta = fit.sample(DRAWS, seed=1)["beta"]
    drawn = fit.predictive(*((new,) if fresh else ()), draws=DRAWS, seed=1)["y"]
    found = standardised(law, drawn, beta @ (new if fresh else x).T)
    for moment, expected in ((found, 0.0), (found**2, 1.0)):
        error = moment.std(axis=0) / np.sqrt(DRAWS)
        assert (abs(moment.mean(axis=0) - expected) < 6 * error).all()
    with jax.enable_x64(True):
        each = np.asarray(law(jnp.asarray(beta @ new.T)).log_prob(np.asarray(held_out)))
    expected = log_sum(each, axis=0) - np.log(DRAWS)
    error = np.exp(each - expected).std(axis=0) * np.sqrt(2 / DRAWS)
    found = fit.log_predictive(new, np.asarray(held_out), draws=DRAWS, seed=6)
    assert (abs(found - expected) < 6 * error).all()

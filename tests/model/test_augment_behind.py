"""Augmentations of what a parameter was computed from: the auxiliary site summed out gives it back.

The density of the original program at random values of its latent sites must be the sum (or the
integral) of that of the augmented one over the auxiliary site, however the program is written.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import erf, erfc, logsumexp, ndtr
from jax.scipy.stats import norm
from numpyro import handlers

from lowerbound.errors import AugmentationError
from lowerbound.model import trace_model
from lowerbound.rewrite.augment import augmented


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def messages(program, values):
    with numpyro.validation_enabled(False):
        return handlers.trace(handlers.seed(handlers.substitute(program, values), 0)).get_trace()


def log_density(program, values):
    """The log density of all sites together."""
    found = [m for m in messages(program, values).values() if m["type"] == "sample"]
    with numpyro.validation_enabled(False):
        return sum(jnp.sum(m["fn"].log_prob(m["value"])) for m in found)


def summed(program, values, name, states):
    """Log sum over the states of an auxiliary site of the augmented density."""
    each = jax.vmap(lambda state: log_density(program, {**values, name: state}))
    return np.logaddexp.reduce(np.asarray(each(jnp.stack(list(states)))))


# --------------------------------------------------------------------------------------------------
# Probit

LINKS = {
    "norm.cdf": norm.cdf,
    "ndtr": ndtr,
    "erf": lambda a: 0.5 * (1 + erf(a / jnp.sqrt(2.0))),
    "erfc": lambda a: 0.5 * erfc(-a / np.sqrt(2.0)),
    "complement": lambda a: 1 - norm.cdf(-a),
    "Normal.cdf": lambda a: dist.Normal(0.5, 2.0).cdf(2.0 * a + 0.5),
    "jitted": jax.jit(norm.cdf),
}


@pytest.mark.parametrize("link", LINKS)
def test_probit_latents_have_the_predictor_as_their_mean(link):
    """Also far in the tails, where the probability itself has lost it to rounding."""
    a = np.array([-30.0, -9.0, -1.2, 0.0, 0.3, 6.0, 30.0])

    def program():
        mean = numpyro.sample("a", dist.Normal(jnp.zeros(7), 1.0).to_event(1))
        with numpyro.plate("rows", 7):
            numpyro.sample("y", dist.Bernoulli(probs=LINKS[link](mean)), obs=np.ones(7, int))

    rewritten = augmented(program, {"y": "truncated-normal"})
    drawn = np.linspace(-1.0, 1.0, 7)
    found = messages(rewritten, {"a": a, "y:latent": drawn})
    law = found["y:latent"]["fn"]
    np.testing.assert_allclose(law.base_dist.loc if hasattr(law, "base_dist") else law.loc, a)
    np.testing.assert_array_equal(found["y"]["fn"].mean, drawn > 0)


# --------------------------------------------------------------------------------------------------
# Log-sums written by hand

X = np.array([0.3, -1.0, 2.0])


def terms(share, mu):
    return jnp.log(share) + dist.Normal(mu, 1.0).log_prob(X[:, None])


FACTORS = {
    "logsumexp": lambda w, m: logsumexp(terms(w, m), axis=-1).sum(),
    "other axis": lambda w, m: jnp.sum(jax.nn.logsumexp(terms(w, m).T, axis=0)),
    "more beside": lambda w, m: logsumexp(terms(w, m), -1).sum() - m.sum() + 2.0,
    "logaddexp": lambda w, m: jnp.logaddexp(terms(w, m)[:, 0], terms(w, m)[:, 1]).sum(),
    "plain": lambda w, m: jnp.log(jnp.sum(jnp.exp(terms(w, m)), axis=1)).sum(),
    "product": lambda w, m: jnp.log(
        jnp.sum(w * jnp.exp(dist.Normal(m, 1.0).log_prob(X[:, None])), axis=1)
    ).sum(),
    "masked": lambda w, m: jnp.where(
        np.array([True, False, True]), logsumexp(terms(w, m), -1), 0.0
    ).sum(),
}


@pytest.mark.parametrize("form", FACTORS)
def test_indicators_of_a_factor_sum_out(form):
    def program():
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(2)))
        mu = numpyro.sample("mu", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
        numpyro.factor("f", FACTORS[form](share, mu))

    values = {"share": jnp.array([0.3, 0.7]), "mu": jnp.array([-0.5, 1.5])}
    states = [jnp.array(s) for s in itertools.product((0, 1), repeat=3)]
    found = summed(augmented(program, {"f": "indicator"}), values, "f:indicator", states)
    np.testing.assert_allclose(found, log_density(program, values), rtol=1e-12)


def test_a_factor_in_a_plate_has_local_indicators():
    def program(x):
        mu = numpyro.sample("mu", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
        with numpyro.plate("data", len(x)):
            numpyro.factor("f", logsumexp(dist.Normal(mu, 1.0).log_prob(x[:, None]), -1))

    model = trace_model(augmented(program, {"f": "indicator"}), (X,))
    assert model.data_plate.name == "data"
    assert model.local == ("f:indicator",)


# --------------------------------------------------------------------------------------------------
# Sums of products

RATES = {
    "matmul": lambda t, b: t @ b,
    "einsum": lambda t, b: jnp.einsum("uk,ki->ui", t, b),
    "sum": lambda t, b: (t[:, :, None] * b).sum(1),
    "transposed": lambda t, b: (b.T @ t.T).T,
    "function inside": lambda t, b: jax.nn.softplus(t) @ b,
    "spread": lambda t, b: (t @ b)[:, None, :].squeeze(1),
    "exposure": lambda t, b: np.array([[2.0], [3.0]]) * (t @ b),
    "quotient": lambda t, b: (t @ b) / np.array([2.0, 5.0]),
}
COUNTS = np.array([[2, 0], [1, 1]])


@pytest.mark.parametrize("form", RATES)
def test_allocated_counts_sum_out(form):
    def program():
        theta = numpyro.sample("theta", dist.Gamma(jnp.ones((2, 2)), 1.0).to_event(2))
        beta = numpyro.sample("beta", dist.Gamma(jnp.ones((2, 2)), 1.0).to_event(2))
        numpyro.sample("x", dist.Poisson(RATES[form](theta, beta)).to_event(2), obs=COUNTS)

    rng = np.random.default_rng(0)
    values = {"theta": rng.gamma(2.0, size=(2, 2)), "beta": rng.gamma(2.0, size=(2, 2))}
    found = summed(augmented(program, {"x": "indicator"}), values, "x:counts", splits(COUNTS))
    np.testing.assert_allclose(found, log_density(program, values), rtol=1e-12)


def splits(counts):
    """All ways to split counts in two."""
    each = [range(n + 1) for n in counts.ravel()]
    for first in itertools.product(*each):
        one = np.reshape(first, counts.shape)
        yield jnp.stack([one, counts - one], axis=-1)


@pytest.mark.parametrize("name", ["indicator", "allocation"])
def test_multinomial_counts_sum_out(name):
    def program():
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones((2, 2))).to_event(1))
        phi = numpyro.sample("phi", dist.Dirichlet(jnp.ones((2, 2))).to_event(1))
        with numpyro.plate("documents", 2):
            law = dist.Multinomial(COUNTS.sum(-1), probs=theta @ phi)
            numpyro.sample("x", law, obs=COUNTS)

    rng = np.random.default_rng(1)
    values = {"theta": rng.dirichlet([1, 1], 2), "phi": rng.dirichlet([1, 1], 2)}
    found = summed(augmented(program, {"x": name}), values, "x:counts", splits(COUNTS))
    np.testing.assert_allclose(found, log_density(program, values), rtol=1e-12)


@pytest.mark.parametrize("own", [False, True], ids=["shared topics", "topics of a document"])
def test_words_sum_out(own):
    words, documents = np.array([0, 2, 1]), np.array([0, 1, 1])

    def program():
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones((2, 2))).to_event(1))
        shape = (2, 2, 3) if own else (2, 3)
        phi = numpyro.sample("phi", dist.Dirichlet(jnp.ones(shape)).to_event(len(shape) - 1))
        mine = theta[documents]
        probs = jnp.einsum("nk,nkv->nv", mine, phi[documents]) if own else mine @ phi
        with numpyro.plate("words", 3):
            numpyro.sample("w", dist.Categorical(probs=probs), obs=words)

    rng = np.random.default_rng(2)
    phi = rng.dirichlet([1, 1, 1], (2, 2) if own else 2)
    values = {"theta": rng.dirichlet([1, 1], 2), "phi": phi}
    states = [jnp.array(s) for s in itertools.product((0, 1), repeat=3)]
    found = summed(augmented(program, {"w": "indicator"}), values, "w:indicator", states)
    np.testing.assert_allclose(found, log_density(program, values), rtol=1e-12)


# --------------------------------------------------------------------------------------------------
# What cannot be read


def message(law, choice, value=None):
    def program():
        a = numpyro.sample("a", dist.Gamma(jnp.ones(3), 1.0).to_event(1))
        with numpyro.plate("rows", 3):
            if law is None:
                numpyro.factor("y", jnp.sin(a))
            else:
                numpyro.sample("y", law(a), obs=value)

    with pytest.raises(AugmentationError) as caught:
        trace_model(augmented(program, {"y": choice}))
    text = str(caught.value)
    return text[: text.index("test_augment_behind.py")] + text[text.index(").") :]


OBSERVED = np.array([0, 1, 1])


def test_a_probability_that_is_no_probit():
    found = message(lambda a: dist.Bernoulli(probs=a / (1 + a)), "truncated-normal", OBSERVED)
    assert found == (
        "Site 'y' is a BernoulliProbs whose probability is not seen to be Phi(a)   ().\n"
        "Expected probs = jax.scipy.stats.norm.cdf(a) of latent sites. For Bernoulli(logits=a), "
        "take 'polya-gamma'; else leave 'y' out of augment."
    )


def test_a_latent_probit():
    assert message(lambda a: dist.Bernoulli(probs=norm.cdf(a)), "albert-chib") == (
        "Site 'y' is a latent BernoulliProbs   ().\nExpected an observed site: y cuts the normal "
        "latent. Give the site an observation, or leave it out of augment."
    )


def test_a_factor_without_log_sums():
    assert message(None, "indicator") == (
        "Site 'y' is a factor in which no log-sum is seen   ().\nExpected "
        "jax.scipy.special.logsumexp(terms, axis=-1) of latent sites, or a sum of such. Leave 'y' "
        "out of augment."
    )


def test_a_rate_that_is_no_sum():
    assert message(dist.Poisson, "indicator", OBSERVED) == (
        "Site 'y' is a Poisson whose rate is not seen to be a sum of products   ().\nExpected a "
        "product of matrices, e.g. rate = theta @ beta. Leave 'y' out of augment."
    )


def test_latent_counts():
    assert message(dist.Poisson, "allocation") == (
        "Site 'y' is a latent Poisson   ().\nExpected an observed site: its counts are what is "
        "allocated. Give the site an observation, or leave it out of augment."
    )


def test_a_log_sum_that_is_not_of_the_rows():
    def program():
        a = numpyro.sample("a", dist.Normal(jnp.zeros((2, 4)), 1.0).to_event(2))
        with numpyro.plate("rows", 3):
            numpyro.factor("y", logsumexp(a, axis=-1).sum() + jnp.zeros(3))

    with pytest.raises(AugmentationError) as caught:
        trace_model(augmented(program, {"y": "indicator"}))
    text = str(caught.value)
    assert text[: text.index("test_augment_behind.py")] + text[text.index(").") :] == (
        "Site 'y' has shape (3,), and a log-sum of shape (2,) in it   ().\nExpected one log-sum "
        "for each of its entries: add other dimensions up before the factor, or put the factor "
        "outside the plate."
    )

"""Programs with parameters that no exact update covers, and data for them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

SIDE = 4


def module(name, make, call):
    """A network as `flax_module` registers it: a tree of arrays under one name."""
    held = numpyro.param(f"{name}$params")
    if held is None:
        key = numpyro.prng_key()
        held = make(jax.random.key(0) if key is None else key)
        numpyro.param(f"{name}$params", held)
    return lambda *args: call(held, *args)


def layers(*sizes):
    """Weights of a perceptron."""

    def make(key):
        keys = jax.random.split(key, len(sizes) - 1)
        return {
            f"Dense_{n}": {
                "kernel": jax.random.normal(keys[n], (a, b)) / np.sqrt(a),
                "bias": jnp.zeros(b),
            }
            for n, (a, b) in enumerate(itertools.pairwise(sizes))
        }

    return make


def perceptron(held, x):
    for n in range(len(held)):
        layer = held[f"Dense_{n}"]
        x = (jnp.tanh(x) if n else x) @ layer["kernel"] + layer["bias"]
    return x


def autoencoder(x, width=2):
    """A variational autoencoder without its encoder."""
    decode = module("decoder", layers(width, 8, x.shape[1]), perceptron)
    with numpyro.plate("rows", len(x)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
        numpyro.sample("x", dist.Bernoulli(logits=decode(z)).to_event(1), obs=x)


def topics(counts, K=2):
    """A product of experts over words (ProdLDA): softmax of a mixture of topics."""
    decode = module("decoder", layers(K, counts.shape[1]), perceptron)
    with numpyro.plate("documents", len(counts)):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(K)))
        total = counts.sum(-1)
        numpyro.sample("counts", dist.Multinomial(total, logits=decode(theta)), obs=counts)


def loadings(x, K=2):
    """Probabilistic PCA: its parameters have a maximum-likelihood estimate in closed form."""
    D = x.shape[1]
    W = numpyro.param("W", lambda key: jax.random.normal(key, (D, K)))
    mu = numpyro.param("mu", jnp.zeros(D))
    s = numpyro.param("s", 1.0, constraint=constraints.positive)
    with numpyro.plate("rows", len(x)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([K]).to_event(1))
        numpyro.sample("x", dist.Normal(mu + z @ W.T, s).to_event(1), obs=x)


def logistic(x, y):
    """Logistic regression whose prior scale is a parameter."""
    s = numpyro.param("s", 1.0, constraint=constraints.positive)
    w = numpyro.sample("w", dist.Normal(0.0, s).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def groups(y):
    """Two kinds of rows, summed out, under a mean that no rule expresses."""
    share = numpyro.param("share", jnp.array([0.5, 0.5]), constraint=constraints.simplex)
    m = numpyro.sample("m", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y)):
        kind = numpyro.sample("kind", dist.Categorical(share))
        numpyro.sample("y", dist.Normal(3.0 * jnp.sinh(m[kind] / 3.0), 1.0), obs=y)


def squares(seed, count=60):
    """Images of a bright square somewhere, as rows of pixels."""
    rng = np.random.default_rng(seed)
    grid = np.arange(SIDE)
    corner = rng.integers(0, SIDE - 1, size=(count, 2))
    inside = [(grid >= corner[:, [a]]) & (grid <= corner[:, [a]] + 1) for a in (0, 1)]
    bright = inside[0][:, :, None] & inside[1][:, None, :]
    return (rng.uniform(size=bright.shape) < np.where(bright, 0.95, 0.05)).reshape(count, -1) * 1.0


def factors(seed, count=80, D=4, K=2):
    rng = np.random.default_rng(seed)
    return 1.0 + rng.normal(size=(count, K)) @ rng.normal(size=(K, D)) + rng.normal(size=(count, D))


def labels(seed, count=60):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 3))
    return x, (rng.uniform(size=count) < 1 / (1 + np.exp(-x @ [1.0, -2.0, 0.5]))).astype(int)

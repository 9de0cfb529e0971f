"""Latent Dirichlet allocation with one topic per word (alg:cavi_lda), on a toy corpus."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound as lb

VOCABULARY = np.array(
    ["gene", "dna", "cell", "protein", "orbit", "star", "planet", "galaxy", "data", "model"]
)
BIOLOGY = np.array([5, 5, 4, 4, 0, 0, 0, 0, 1, 1]) / 20
ASTRONOMY = np.array([0, 0, 0, 0, 5, 5, 4, 4, 1, 1]) / 20


def topics(words, K, V):
    with numpyro.plate("topics", K):
        beta = numpyro.sample("beta", dist.Dirichlet(0.1 * jnp.ones(V)))
    with numpyro.plate("documents", words.shape[0], dim=-2):
        theta = numpyro.sample("theta", dist.Dirichlet(0.5 * jnp.ones(K)))
        with numpyro.plate("positions", words.shape[1], dim=-1):
            z = numpyro.sample("z", dist.Categorical(theta))
            numpyro.sample("words", dist.Categorical(beta[z]), obs=words)


def main(documents=30, length=40, restarts=5):
    random = np.random.default_rng(0)
    laws = random.dirichlet([0.4, 0.4], documents) @ np.stack([BIOLOGY, ASTRONOMY])
    words = np.stack([random.choice(len(VOCABULARY), size=length, p=law) for law in laws])
    fit = lb.fit(topics, words, K=2, V=len(VOCABULARY), method=lb.CAVI(restarts=restarts))
    print(fit)
    for k, topic in enumerate(fit.mean("beta")):
        print(f"topic {k}: {' '.join(VOCABULARY[np.argsort(-topic)[:5]])}")
    return fit


if __name__ == "__main__":
    main()

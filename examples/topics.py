"""Latent Dirichlet allocation (alg:cavi_lda): as a NumPyro program, and as an estimator.

The program has one topic per word and serves any method of the library; the estimator works on
sparse counts. On a toy corpus both find the same topics and the same ELBO. The estimator then goes
on to a corpus of descriptions of Debian packages.
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound as lb
from lowerbound.data import debian_descriptions
from lowerbound.estimators import Inference, LatentDirichletAllocation

VOCABULARY = np.array(
    ["gene", "dna", "cell", "protein", "orbit", "star", "planet", "galaxy", "data", "model"]
)
BIOLOGY = np.array([5, 5, 4, 4, 0, 0, 0, 0, 1, 1]) / 20
ASTRONOMY = np.array([0, 0, 0, 0, 5, 5, 4, 4, 1, 1]) / 20
ETA, ALPHA = 0.1, 0.5  # of topics and of documents


def topics(words, K, V):
    with numpyro.plate("topics", K):
        beta = numpyro.sample("beta", dist.Dirichlet(ETA * jnp.ones(V)))
    with numpyro.plate("documents", words.shape[0], dim=-2):
        theta = numpyro.sample("theta", dist.Dirichlet(ALPHA * jnp.ones(K)))
        with numpyro.plate("positions", words.shape[1], dim=-1):
            z = numpyro.sample("z", dist.Categorical(theta))
            numpyro.sample("words", dist.Categorical(beta[z]), obs=words)


def toy(documents, length, restarts):
    """Words of documents that mix two topics, by the program and by the estimator."""
    random = np.random.default_rng(0)
    laws = random.dirichlet([0.4, 0.4], documents) @ np.stack([BIOLOGY, ASTRONOMY])
    words = np.stack([random.choice(len(VOCABULARY), size=length, p=law) for law in laws])
    fit = lb.fit(topics, words, K=2, V=len(VOCABULARY), method=lb.CAVI(restarts=restarts))
    print(fit)
    for k, topic in enumerate(fit.mean("beta")):
        print(f"topic {k}: {' '.join(VOCABULARY[np.argsort(-topic)[:5]])}")

    counts = np.stack([np.bincount(row, minlength=len(VOCABULARY)) for row in words])
    lda = LatentDirichletAllocation(
        2,
        inference=Inference("cavi", tolerance=1e-9),
        topic_prior=ETA,
        document_prior=ALPHA,
        vocabulary=VOCABULARY,
    ).fit(counts)
    print(f"\nELBO of the program {fit.elbo:.3f}, of the estimator {lda.result_.elbo:.3f}")
    return fit, lda


def packages(K, max_passes):
    """Topics of package descriptions, judged on descriptions that were not learned from."""
    counts, words = debian_descriptions()
    train, test = counts[:2800], counts[2800:]
    inference = Inference(max_passes=max_passes)
    lda = LatentDirichletAllocation(K, inference=inference, vocabulary=words).fit(train)
    print(f"\n{lda.reason_}\nStopped: {lda.result_.stop_reason}.")
    for k in np.argsort(-lda.topic_weights_):
        print(f"topic {k} ({lda.topic_weights_[k]:.0%}): {' '.join(lda.topics(8)[k])}")
    score, perplexity = lda.score(test), lda.perplexity(test)
    print(f"held-out score {score:.3f} nats per token, perplexity {perplexity:.0f}")
    print(lda.quality(train))
    return lda


def main(documents=30, length=40, restarts=5, K=10, max_passes=None):
    fit, counted = toy(documents, length, restarts)
    return fit, counted, packages(K, max_passes)


if __name__ == "__main__":
    main()

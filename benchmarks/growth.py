"""A Dirichlet-process mixture that finds its components, beside scikit-learn's with ten starts.

python -m benchmarks.growth [--rows 100000] [--seeds 10] [--peer]

Rows of 12 clusters in 8 dimensions, truncation at 50. Both ELBOs are those of one program: what
scikit-learn has found is where coordinate ascent starts, and ends. Seconds are the processor's.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound.names as lb
from benchmarks.timing import verdict

D, CLUSTERS, MOST = 8, 12, 50


def process(x: Any, K: int) -> None:
    """Sticks, and components with diagonal Normal-Gamma priors (Appendix B of the paper)."""
    with numpyro.plate("sticks", K - 1):
        v = numpyro.sample("v", dist.Beta(1.0, 5.0))
    left = jnp.concatenate([jnp.ones(1), jnp.cumprod(1 - v)])
    with numpyro.plate("components", K, dim=-2), numpyro.plate("axes", x.shape[1], dim=-1):
        tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 10 / jnp.sqrt(tau)))
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(jnp.concatenate([v, jnp.ones(1)]) * left))
        numpyro.sample("x", dist.Normal(mu[c], 1 / jnp.sqrt(tau[c])).to_event(1), obs=x)


def planted(rows: int, seed: int) -> np.ndarray:
    """Clusters of unequal sizes and widths."""
    random = np.random.default_rng(seed)
    centres = 3 * random.normal(size=(CLUSTERS, D))
    widths = random.uniform(0.5, 1.5, size=(CLUSTERS, D))
    z = random.choice(CLUSTERS, rows, p=random.dirichlet(np.full(CLUSTERS, 5.0)))
    return centres[z] + widths[z] * random.normal(size=(rows, D))


def worked(function: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = function()
    return time.process_time() - began, found


def used(fit: lb.Fit) -> int:
    return int((np.asarray(fit.posterior["c"].probs).sum(0) >= 0.5).sum())


def of_peer(x: np.ndarray, seed: int) -> tuple[float, float, int]:
    """Processor seconds, the ELBO to which its clusters lead, and how many there are."""
    from sklearn.mixture import BayesianGaussianMixture

    peer = BayesianGaussianMixture(
        n_components=MOST,
        covariance_type="diag",
        weight_concentration_prior=5.0,
        n_init=10,
        max_iter=300,
        random_state=seed,
    )
    seconds, _ = worked(lambda: peer.fit(x))
    method = lb.CAVI(init={"c": peer.predict(x)})
    return seconds, lb.fit(process, x, K=MOST, method=method).elbo, len(np.unique(peer.predict(x)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--peer", action="store_true", help="scikit-learn, on the first seed")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    right = 0
    for seed in range(asked.seeds):
        x, elbos, times = planted(asked.rows, seed), [], []
        for start in ("one", "all"):
            seconds, fit = worked(
                lambda x=x, start=start, seed=seed: lb.fit(
                    process, x, K=MOST, method=lb.Growing(start=start), seed=seed
                )
            )
            right += used(fit) == CLUSTERS
            elbos.append(fit.elbo)
            times.append(seconds)
            print(
                f"seed {seed}, from {start}: {used(fit)} components, ELBO {fit.elbo:.2f}, "
                f"{len(fit.history.moves)} moves, {seconds:.1f} s",
                flush=True,
            )
        if asked.peer and seed == 0:
            seconds, elbo, number = of_peer(x, seed)
            print(f"seed {seed}, scikit-learn: {number} components, {elbo:.2f}, {seconds:.1f} s")
            gap, ratio = min(elbos) - elbo, seconds / max(times)
            print(f"  ELBO above it: {gap:.2f}, {verdict(gap, 0.0, at_most=False)}")
            print(f"  its seconds / ours: {ratio:.2f}, {verdict(ratio, 1.0, at_most=False)}")
    total = 2 * asked.seeds
    met = verdict(right, total, at_most=False)
    print(f"fits that find the {CLUSTERS} clusters: {right} of {total}, {met}")


if __name__ == "__main__":
    main()

"""Ten restarts against one: the paper's simulation (2-D, K = 5, n = 1000), full covariances."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound.names as lb
from benchmarks.timing import alternate, ratio, verdict
from lowerbound.data import paper_mixture

SWEEPS, SKIPPED = 136, 8  # the loop's first chunk, of 8 sweeps, is left out


def model(x, K=5, b0=0.01, nu0=4.0):
    """A full-covariance mixture: q(mu, Lambda) is Normal-Wishart."""
    n, D = x.shape
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K):
        precision = numpyro.sample("precision", dist.Wishart(nu0, scale_matrix=0.5 * jnp.eye(D)))
        mu = numpyro.sample(
            "mu", dist.MultivariateNormal(jnp.zeros(D), precision_matrix=b0 * precision)
        )
    with numpyro.plate("data", n):
        z = numpyro.sample("z", dist.Categorical(pi))
        numpyro.sample("x", dist.MultivariateNormal(mu[z], precision_matrix=precision[z]), obs=x)


def main() -> None:
    x = paper_mixture(seed=0)["x"]
    methods = {
        count: lb.CAVI(restarts=count, tolerance=0.0, max_sweeps=SWEEPS) for count in (1, 10)
    }

    def sweep(count: int) -> float:
        seconds = lb.fit(model, x, method=methods[count]).history.seconds
        return float(seconds[-1] - seconds[SKIPPED - 1]) / (SWEEPS - SKIPPED)

    runs = {"one": lambda: sweep(1), "ten": lambda: sweep(10)}
    for run in runs.values():
        run()
    seconds = alternate(runs, 9)
    for name, values in seconds.items():
        print(
            f"{name} restart{'s' * (name == 'ten'):1s}: {1e3 * np.median(values):6.2f} ms per sweep"
        )
    cost = ratio(seconds["ten"], seconds["one"])
    print(f"ten / one: {cost:.2f}   {verdict(cost, 3.0)}")

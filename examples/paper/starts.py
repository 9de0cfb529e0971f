"""Figure 2 (fig:init): ten starts of coordinate ascent for a mixture, ten curves of the ELBO.

What one sees: every curve climbs, by plateaus, and not all end at the same value: with five
clusters in the plane eight of ten find one optimum, and two end hundreds of nats below it. Starts
by k-means++ (the default) are there sooner than the paper's draws from one Gaussian, and no more
often.
"""

import argparse
from pathlib import Path

import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound as lb
from lowerbound.data import paper_mixture

matplotlib.use("agg")
import matplotlib.pyplot as plt


def mixture(x, K):
    """The diagonal mixture of Appendix B."""
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K, dim=-2), numpyro.plate("axes", x.shape[1], dim=-1):
        tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 10 / jnp.sqrt(tau)))
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(pi))
        numpyro.sample("x", dist.Normal(mu[c], 1 / jnp.sqrt(tau[c])).to_event(1), obs=x)


def scattered(x, K, seed):
    """The paper's start: means drawn from a Gaussian with the mean and variance of the data."""
    random = np.random.default_rng(seed)
    mu = x.mean(axis=0) + x.std(axis=0) * random.normal(size=(K, x.shape[1]))
    return {"pi": np.full(K, 1 / K), "mu": mu, "tau": np.broadcast_to(1 / x.var(axis=0), mu.shape)}


def main(n=1000, K=5, starts=10, output="output/paper"):
    """Fit from every start, draw; returns the ELBOs at the end, by kind of start."""
    x = paper_mixture(n=n)["x"]
    kinds = {
        "drawn from one Gaussian (the paper)": [
            lb.fit(mixture, x, K=K, method=lb.CAVI(init=scattered(x, K, seed)), seed=seed)
            for seed in range(starts)
        ],
        "k-means++ (the default)": [
            lb.fit(mixture, x, K=K, method=lb.CAVI(), seed=seed) for seed in range(starts)
        ],
    }
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    ends = {}
    for ax, (kind, fits) in zip(axes, kinds.items(), strict=True):
        ends[kind] = np.sort([fit.elbo for fit in fits])[::-1]
        for number, fit in enumerate(fits):
            curve = fit.history.elbo
            colour = lb.plot.COLOURS[number % len(lb.plot.COLOURS)]
            ax.plot(np.arange(1, len(curve) + 1), curve, color=colour, lw=1.3)
            ax.plot(len(curve), curve[-1], "o", color=colour, ms=4)
        ax.set_title(kind, fontsize=10, loc="left")
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:.0f}")
        ax.set_xlabel("sweep", fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)
        distinct = 1 + int(np.sum(-np.diff(ends[kind]) > 0.1))
        print(f"{kind}: {distinct} different optima in {starts} starts, ELBO {ends[kind].round(1)}")
    axes[0].set_ylabel("ELBO (nats)", fontsize=9)
    path = Path(output) / "starts.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"Wrote {path}")
    return ends


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000, help="points to fit")
    parser.add_argument("--output", default="output/paper")
    main(**vars(parser.parse_args()))

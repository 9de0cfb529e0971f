"""The evidence of a mixture, a sum of K^n terms (eq:gmm-marginal), beside the ELBO.

What one sees: the sum is out of reach beyond a dozen points, while the ELBO takes milliseconds, and
it stays below the evidence. Nearly all of the gap is log K! nats, whatever n: there are K! ways to
name the components, and q holds one of them.
"""

import argparse
import itertools
import math
from pathlib import Path

import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound as lb

matplotlib.use("agg")
import matplotlib.pyplot as plt

WIDTH = 5.0  # sd of the prior of a mean


def mixture(x, K):
    """The mixture of section 2.1: unit variance, equal weights."""
    with numpyro.plate("components", K):
        mu = numpyro.sample("mu", dist.Normal(0.0, WIDTH))
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(np.full(K, 1 / K)))
        numpyro.sample("x", dist.Normal(mu[c], 1.0), obs=x)


def log_evidence(x, K):
    """Log p(x), by all K^n assignments; given one, every component is a Gaussian integral."""
    assignments = np.array(list(itertools.product(range(K), repeat=len(x))))
    total = np.full(len(assignments), -len(x) * math.log(K))
    for k in range(K):
        own = assignments == k
        count, sums, squares = own.sum(1), own @ x, own @ x**2
        precision = count + 1 / WIDTH**2
        total += 0.5 * (sums**2 / precision - squares - np.log(precision * WIDTH**2))
        total -= 0.5 * count * math.log(2 * math.pi)
    return float(np.logaddexp.reduce(total)), len(assignments)


def main(K=3, most=11, output="output/paper"):
    """Sum, fit and draw for growing n; returns rows of n, terms, evidence and ELBO."""
    random = np.random.default_rng(1)
    x = np.resize([-6.0, 0.0, 6.0], most) + random.normal(size=most)
    rows = []
    print("  n    terms  log evidence      ELBO     gap")
    for n in range(K, most + 1, 2):
        exact, terms = log_evidence(x[:n], K)
        fit = lb.fit(mixture, x[:n], K=K, method=lb.CAVI(restarts=20))
        rows.append((n, terms, exact, fit.elbo))
        print(f"{n:>3}  {terms:>7,}  {exact:>12.3f}  {fit.elbo:>8.3f}  {exact - fit.elbo:>6.3f}")
    print(f"log K! = {math.log(math.factorial(K)):.3f}")

    n, _, exact, elbo = np.array(rows).T
    figure, ax = plt.subplots(figsize=(4.8, 3.4), layout="constrained")
    ax.plot(n, exact - elbo, "o-", color=lb.plot.COLOURS[0], label="log evidence - ELBO")
    ax.axhline(math.log(math.factorial(K)), ls="--", color="#8C8C8C", label="log K!")
    ax.set(xlabel="points", ylabel="nats", ylim=(0.0, None), xticks=n)
    ax.legend(frameon=False, fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    path = Path(output) / "evidence.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"Wrote {path}")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=11, help="points of the largest set")
    parser.add_argument("--output", default="output/paper")
    main(**vars(parser.parse_args()))

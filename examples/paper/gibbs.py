"""The Gibbs connection (section 2.4): one gradient gives the coordinate update and the conditional.

At means the gradient of the energy is the coordinate update (eq:exp-fam-cavi), at drawn values it
is the natural parameter of the complete conditional (eq:ef-conditional), from which a Gibbs sampler
draws. What one sees: mean field and the sampler agree about the means, and mean field has too
little spread for each, as it holds the others fixed on average instead of moving them.
"""

import argparse
from pathlib import Path

import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound as lb

matplotlib.use("agg")
import matplotlib.pyplot as plt


def effects(group, y, groups):
    """Effects of groups around a common level, with precisions that are not known."""
    level = numpyro.sample("level", dist.Normal(0.0, 10.0))
    between = numpyro.sample("between", dist.Gamma(2.0, 1.0))
    within = numpyro.sample("within", dist.Gamma(2.0, 1.0))
    with numpyro.plate("groups", groups):
        effect = numpyro.sample("effect", dist.Normal(level, 1 / jnp.sqrt(between)))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(effect[group], 1 / jnp.sqrt(within)), obs=y)


def main(groups=8, rows=6, draws=8000, output="output/paper"):
    """Fit by mean field, sample from the same derivation, draw; returns both."""
    random = np.random.default_rng(3)
    group = np.repeat(np.arange(groups), rows)
    y = 1.0 + random.normal(size=groups)[group] + random.normal(size=len(group))
    sites = ("level", "effect", "between", "within")
    blocks = [[name] for name in sites]  # a factor of its own for every site
    fit = lb.fit(effects, group, y, groups, method=lb.CAVI(blocks=blocks))
    gibbs = lb.correct(fit, "gibbs", draws=draws)

    print("               mean field       Gibbs")
    for name in ("level", "between", "within"):
        q, p = (f"{f.mean(name):.2f} +- {f.sd(name):.2f}" for f in (fit, gibbs))
        print(f"{name:>8}    {q:>14}  {p:>14}")

    figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
    q, p = fit.sample(draws), gibbs.sample(draws)
    for ax, name in zip(axes, ("level", "between", "within"), strict=True):
        edges = np.linspace(*np.quantile(p[name], [0.002, 0.998]), 40)
        ax.hist(p[name], edges, density=True, color=lb.plot.COLOURS[3], alpha=0.5, label="Gibbs")
        colour = lb.plot.COLOURS[2]
        ax.hist(q[name], edges, density=True, histtype="step", color=colour, lw=1.8, label="CAVI")
        ax.set_title(name, fontsize=10, loc="left")
        ax.set_yticks([])
        ax.spines[["top", "right", "left"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=8)
    path = Path(output) / "gibbs.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"Wrote {path}")
    return fit, gibbs


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=8000)
    parser.add_argument("--output", default="output/paper")
    main(**vars(parser.parse_args()))

"""The paper's simulation study (section 3.4, fig:gmm_2d): a mixture of five Gaussians in the plane.

Prints what is derived, the climb of the ELBO and the recovered components, and writes the paper's
Figure 3 and a page about the fit to output/demo/.
"""

import argparse
import itertools
from pathlib import Path

import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd

import lowerbound as lb
from lowerbound.data import paper_mixture
from lowerbound.reporting import course

matplotlib.use("agg")
import matplotlib.pyplot as plt


def mixture(x, K):
    """Normal-Wishart components, Dirichlet weights, one assignment per point."""
    D = x.shape[1]
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K):
        precision = numpyro.sample("precision", dist.Wishart(D + 2.0, rate_matrix=jnp.eye(D)))
        prior = dist.MultivariateNormal(jnp.zeros(D), precision_matrix=0.01 * precision)
        mu = numpyro.sample("mu", prior)
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(pi))
        component = dist.MultivariateNormal(mu[c], precision_matrix=precision[c])
        numpyro.sample("x", component, obs=x)


def match(means, truth):
    """The order of the fitted components that brings them nearest to the true ones."""
    gaps = np.linalg.norm(truth[:, None] - means, axis=-1)
    orders = itertools.permutations(range(len(means)), len(truth))
    return list(min(orders, key=lambda order: gaps[np.arange(len(truth)), order].sum()))


def recovered(fit, data):
    """A table of the true components and the fitted ones matched to them."""
    order = match(fit.mean("mu"), data["means"])
    covariances = np.linalg.inv(fit.mean("precision"))[order]
    sides = {
        "true": (data["weights"], data["means"], data["covariances"]),
        "fitted": (fit.mean("pi")[order], fit.mean("mu")[order], covariances),
    }
    rows = {}
    for k, (side, (weights, means, spread)) in itertools.product(range(len(order)), sides.items()):
        sd = np.sqrt(np.diag(spread[k]))
        correlation = spread[k, 0, 1] / sd.prod()
        rows[f"{k + 1} {side}"] = [weights[k], *means[k], *sd, correlation]
    columns = ["weight", "mean 1", "mean 2", "sd 1", "sd 2", "correlation"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).round(3)


def climb(snapshots, held_out, width=40):
    """The ELBO as lines of text with bars, and the held-out log predictive beside it."""
    values = np.array([snapshot.elbo for snapshot in snapshots.values()])
    share = (values - values.min()) / max(np.ptp(values), 1e-12)
    lines = [f"{'sweep':>7}  {'ELBO':>10}  {'':<{width}}  held-out"]
    for k, value, part, score in zip(snapshots, values, share, held_out, strict=True):
        bar = "█" * round(1 + (width - 1) * part)
        lines.append(f"{k:>7}  {value:>10.2f}  {bar:<{width}}  {score:>8.3f}")
    return "\n".join(lines)


def figure(snapshots, held_out, x, labels):
    """The paper's Figure 3: ellipses along the sweeps, the ELBO, the held-out log predictive."""
    sweeps = list(snapshots)
    chosen = [sweeps[round(i)] for i in np.linspace(0, len(sweeps) - 1, 6)]
    panels = {
        f"sweep {k}" + (" (converged)" if k == sweeps[-1] else ""): snapshots[k] for k in chosen
    }
    whole = plt.figure(figsize=(9, 9.6), layout="constrained")
    top, bottom = whole.subfigures(2, 1, height_ratios=[6.6, 3])
    lb.plot.mixture(panels, x, labels, axes=top.subplots(2, 3, sharex=True, sharey=True))
    left, right = bottom.subplots(1, 2)
    lb.plot.elbo(snapshots[sweeps[-1]], ax=left)
    left.set_title("Evidence lower bound", fontsize=10, loc="left")
    right.plot(sweeps, held_out, "o-", color=lb.plot.COLOURS[1], lw=1.8, ms=4)
    right.set_title("Average log predictive, held-out points", fontsize=10, loc="left")
    right.set_xlabel("sweep", fontsize=9)
    right.set_ylabel("nats per point", fontsize=9)
    right.spines[["top", "right"]].set_visible(False)
    right.tick_params(labelsize=8)
    return whole


def main(n=1000, restarts=10, output="output/demo"):
    K, held = 5, n // 5
    data = paper_mixture(seed=0, n=n + held)
    x, x_held = data["x"][:n], data["x"][n:]

    lb.explain(mixture, x, K=K)
    fit = lb.fit(mixture, x, K=K, method=lb.CAVI(restarts=restarts), seed=0)
    print(f"\n{fit}\n\nThe run: {course(fit)}")

    # One start that leads there, watched: more sweeps from one seed go further along one path.
    # These are stopped on purpose, and nobody is to trust them: no verdicts.
    with lb.computing(verdicts=False):
        alone = (lb.fit(mixture, x, K=K, method=lb.CAVI(), seed=seed) for seed in range(50))
        watched = next(one for one in alone if one.elbo > fit.elbo - 0.1)
        seed, total = watched.seed, len(watched.history.elbo)
        sweeps = [int(k) for k in np.unique(np.geomspace(1, total - 1, 12).round())]
        methods = {k: lb.CAVI(max_sweeps=k, tolerance=0.0) for k in sweeps}
        snapshots = {
            k: lb.fit(mixture, x, K=K, method=method, seed=seed) for k, method in methods.items()
        } | {total: watched}
    held_out = [float(s.log_predictive(x_held).mean()) for s in snapshots.values()]

    print(f"\nOne start, by sweep: the ELBO (nats), and the average log predictive of {held}")
    print(f"held-out points (nats)\n\n{climb(snapshots, held_out)}")
    table = recovered(fit, data)
    print(f"\nThe components, true and recovered\n\n{table.to_string()}")

    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = figure(snapshots, held_out, x, data["labels"][:n])
    drawn.savefig(folder / "paper_mixture.png", dpi=150)
    caption = (
        f"{n} points coloured by true component, with the 2-sigma ellipses of the fitted "
        "components along the sweeps of one start (faint where their weight is small); the ELBO; "
        f"the average log predictive of {held} held-out points."
    )
    page = lb.report(
        fit,
        folder / "index.html",
        title="A mixture of five Gaussians, by coordinate ascent",
        tables={"The components, true and recovered": table},
        figures={caption: drawn},
    )
    plt.close(drawn)
    print(f"\nWrote {folder / 'paper_mixture.png'} and {page}")
    return fit


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000, help="points to fit")
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--output", default="output/demo", help="folder of the figure and the page")
    main(**vars(parser.parse_args()))

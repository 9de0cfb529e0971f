"""Figures 4 to 6 (fig:histo, fig:clusters, fig:image_logpred): thirty clusters of images.

Each image is a vector of 576 numbers, three histograms of 192 bins. Without a file of counts (an
array `counts` (n, 576) and one of pixels `npix` (n,)) images are simulated, and the run says so.
NUTS samples the same model with the assignments summed out, from its default start, within as many
seconds as told. What one sees: coordinate ascent is at its best held-out density within seconds,
while NUTS is on its way; clusters are images of like colours.
"""

import argparse
import functools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import lowerbound as lb

matplotlib.use("agg")
import matplotlib.pyplot as plt

BINS = 192


def mixture(x, K):
    """The diagonal mixture of Appendix B at the paper's priors."""
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.full(K, 1.0 / K)))
    with numpyro.plate("components", K, dim=-2), numpyro.plate("dimensions", x.shape[1], dim=-1):
        tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 1 / jnp.sqrt(tau)))
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(pi), infer={"enumerate": "parallel"})
        numpyro.sample("x", dist.Normal(mu[c], 1 / jnp.sqrt(tau[c])).to_event(1), obs=x)


def summed(x, K):
    """The same with the assignments summed out, as NUTS needs it."""
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.full(K, 1.0 / K)))
    with numpyro.plate("components", K, dim=-2), numpyro.plate("dimensions", x.shape[1], dim=-1):
        tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 1 / jnp.sqrt(tau)))
    with numpyro.plate("data", len(x)):
        numpyro.factor("x", log_density(x, pi, mu, tau))


def log_density(x, pi, mu, tau):
    """Log p(x_i | pi, mu, tau), (n,), by products of matrices."""
    square = (x**2) @ tau.T - 2 * x @ (tau * mu).T + jnp.sum(tau * mu**2, axis=1)
    constant = 0.5 * jnp.sum(jnp.log(tau), axis=1) - 0.5 * x.shape[1] * jnp.log(2 * jnp.pi)
    return jax.nn.logsumexp(jnp.log(pi) + constant - 0.5 * square, axis=1)


def loaded(path, rows):
    """Shares of pixels (2 rows, 576): of the file, or of simulated images of thirty palettes."""
    if path is not None and Path(path).exists():
        with np.load(path) as file:
            order = np.random.default_rng(0).permutation(len(file["npix"]))[: 2 * rows]
            return file["counts"][order] / file["npix"][order][:, None]
    print("No file of histograms: images are simulated from thirty palettes.")
    random = np.random.default_rng(0)
    centres, widths = random.uniform(0, 1, (30, 3)), random.uniform(0.05, 0.2, (30, 3))
    bins = (np.arange(BINS) + 0.5) / BINS
    palettes = np.exp(-0.5 * ((bins - centres[..., None]) / widths[..., None]) ** 2) + 0.02
    palettes = (palettes / palettes.sum(axis=2, keepdims=True)).reshape(30, -1)
    whole = palettes[random.integers(30, size=2 * rows)]
    return random.gamma(20_000 * whole) / 20_000


def standardised(shares, rows):
    """Square roots of shares, standardised by the training rows: those, and the held-out ones."""
    whole = np.sqrt(shares)
    train, test = whole[:rows], whole[rows:]
    mean, sd = train.mean(axis=0), train.std(axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    return (train - mean) / sd, (test - mean) / sd


def ascent(x, test, K):
    """Seconds of sweeps and held-out log predictive per image along them, and the last fit."""
    total = len(lb.fit(mixture, x, K=K, method=lb.CAVI()).history.elbo)  # compiled from here on
    stops = [int(k) for k in np.unique(np.geomspace(1, max(total - 1, 1), 6).round())]
    # More sweeps from one seed go further along one path.
    methods = [*(lb.CAVI(max_sweeps=most, tolerance=0.0) for most in stops), lb.CAVI()]
    fits = [lb.fit(mixture, x, K=K, method=method) for method in methods]
    path = [(one.history.seconds[-1], one.log_predictive(test).mean()) for one in fits]
    return np.array(path), fits[-1]


def sampled(x, test, K, seconds):
    """Seconds of NUTS and held-out log predictive of the draws so far, in windows of draws."""
    kernel = NUTS(functools.partial(summed, K=K), max_tree_depth=6)
    mcmc = MCMC(kernel, num_warmup=20, num_samples=20, progress_bar=False, jit_model_args=True)
    density = jax.jit(log_density)
    began, kept, path, state = time.perf_counter(), [], [], None
    while time.perf_counter() - began < seconds:
        if state is not None:
            mcmc.post_warmup_state = state
        mcmc.run(jax.random.key(len(path)), jnp.asarray(x, jnp.float32))
        state, draws = mcmc.last_state, mcmc.get_samples()
        kept += [
            density(jnp.asarray(test, jnp.float32), draws["pi"][s], draws["mu"][s], draws["tau"][s])
            for s in range(0, 20, 5)
        ]
        half = jnp.stack(kept[len(kept) // 2 :])  # the first half is forgotten
        value = (jax.nn.logsumexp(half, axis=0) - jnp.log(len(half))).mean()
        path.append((time.perf_counter() - began, float(value)))
    return np.array(path)


def histograms(ax, shares):
    """The three channels of one image, as in Figure 4."""
    for colour, part in zip(("#C03020", "#208040", "#2050B0"), np.split(shares, 3), strict=True):
        ax.fill_between(np.linspace(0, 1, BINS), part, color=colour, alpha=0.45, lw=0)
    ax.set(yticks=[], xticks=[0, 1], xlim=(0, 1))
    ax.spines[["top", "right", "left"]].set_visible(False)


def colour_of(shares):
    """The mean of every channel, as a colour."""
    return np.array([part @ np.linspace(0, 1, BINS) / part.sum() for part in np.split(shares, 3)])


def drawn(shares, labels, paths, output):
    """Two images' histograms, mean colours of images in six clusters, and the race."""
    figure = plt.figure(figsize=(9.5, 5.6), layout="constrained")
    grid = figure.add_gridspec(2, 3, width_ratios=[1, 1, 1.6])
    for place, row in enumerate(np.random.default_rng(2).choice(len(labels), 2, replace=False)):
        ax = figure.add_subplot(grid[place, 0])
        histograms(ax, shares[row])
        ax.set_title("an image's channels", fontsize=10, loc="left")
    ax = figure.add_subplot(grid[:, 1])
    largest = np.argsort(-np.bincount(labels))[:6]
    for line, k in enumerate(largest):
        own = np.flatnonzero(labels == k)[:9]
        for place, row in enumerate(own):
            ax.add_patch(plt.Rectangle((place, -line), 0.92, 0.85, color=colour_of(shares[row])))
    ax.set(xlim=(-0.1, 9), ylim=(-5.1, 1), xticks=[], yticks=[])
    ax.set_title("mean colours of nine images\nin each of six clusters", fontsize=10, loc="left")
    ax.spines[:].set_visible(False)
    ax = figure.add_subplot(grid[:, 2])
    for number, (name, path) in enumerate(paths.items()):
        if len(path):
            ax.plot(*path.T, "o-", ms=4, color=lb.plot.COLOURS[number], label=name)
    ax.set_xscale("log")
    ax.set_xlabel("seconds", fontsize=9)
    ax.set_title("held-out log predictive, nats per image", fontsize=10, loc="left")
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    ax.spines[["top", "right"]].set_visible(False)
    path = Path(output) / "images.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"Wrote {path}")


def main(rows=2000, K=30, seconds=120.0, images=None, output="output/paper"):
    """Fit, sample, draw; returns the two paths."""
    shares = loaded(images, rows)
    x, test = standardised(shares, rows)
    path, fit = ascent(x, test, K)
    labels = np.asarray(fit.posterior["c"].probs).argmax(axis=-1)
    print(f"CAVI: {path[-1, 0]:.1f} s of sweeps, held out {path[-1, 1]:.2f} nats per image,")
    print(f"{len(np.unique(labels))} of {K} clusters have images")
    chain = sampled(x, test, K, seconds) if seconds > 0 else np.zeros((0, 2))
    if len(chain):
        print(f"NUTS: {chain[-1, 0]:.1f} s, held out {chain[-1, 1]:.2f} nats per image")
    drawn(shares[:rows], labels, {"coordinate ascent": path, "NUTS": chain}, output)
    return path, chain


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2000, help="to fit, and as many held out")
    parser.add_argument("--seconds", type=float, default=120.0, help="of NUTS; 0 leaves it out")
    parser.add_argument("--images", help="an .npz file of counts (n, 576) and npix (n,)")
    parser.add_argument("--output", default="output/paper")
    main(**vars(parser.parse_args()))

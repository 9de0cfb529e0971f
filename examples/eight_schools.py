"""Eight schools: a scale with a half-Cauchy prior on a grid, and the effects given it."""

import argparse
from pathlib import Path

import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound as lb
from lowerbound.data import eight_schools


def hierarchy(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(sigma)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def figure(fits):
    """The density of tau under each q, and draws of one effect against tau."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = drawn.subplots(1, 2)
    grid = np.linspace(0.05, 20, 400)
    for name, fit in fits.items():
        left.plot(grid, np.exp(fit.posterior["tau"].log_prob(grid)), label=name)
    left.set(xlabel="tau", ylabel="density", ylim=(0, None))
    left.legend()
    draws = fits["conditioned on tau"].sample(1000)
    right.plot(draws["tau"], draws["theta"][:, 0], ".", markersize=2)
    right.set(xlabel="tau", ylabel="effect of the first school", xscale="log")
    return drawn


def main(output="output/eight_schools"):
    data = eight_schools()
    lb.explain(hierarchy, **data)
    fit = lb.fit(hierarchy, **data)  # automatic: tau on a grid
    mean_field = lb.fit(hierarchy, **data, method=lb.CAVI())
    fits = {"conditioned on tau": fit, "mean field": mean_field}
    print()
    for name, one in fits.items():
        print(f"{name}: ELBO {one.elbo:.2f}, tau {one.mean('tau'):.2f} +- {one.sd('tau'):.2f}")
    print(f"\n{fit.summary(['mu', 'tau', 'theta']).round(2)}")

    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = figure(fits)
    drawn.savefig(folder / "eight_schools.png", dpi=150)
    caption = "The density of tau under two q; draws of one effect against tau, conditioned on tau."
    page = lb.report(fit, folder / "index.html", title="Eight schools", figures={caption: drawn})
    print(f"\nWrote {folder / 'eight_schools.png'} and {page}")
    return fit, mean_field


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default="output/eight_schools", help="folder of the page")
    main(**vars(parser.parse_args()))

"""Figure 1 (fig:accuracy): mean field on a correlated Gaussian posterior, and the cure.

What one sees: q has the right means and the variances 1 / Lambda_ii of the conditionals, which are
smaller than those of the posterior the more its two numbers depend on each other. Linear response
gives the covariance of the posterior back, exactly, as the posterior is Gaussian.
"""

import argparse
from pathlib import Path

import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound as lb

matplotlib.use("agg")
import matplotlib.pyplot as plt


def regression(X, y):
    """Two coefficients with a flat prior and unit noise: the posterior is N(beta_hat, (X'X)^-1)."""
    first = numpyro.sample("first", dist.ImproperUniform(dist.constraints.real, (), ()))
    second = numpyro.sample("second", dist.ImproperUniform(dist.constraints.real, (), ()))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(X[:, 0] * first + X[:, 1] * second, 1.0), obs=y)


def ellipse(mean, covariance, sds=2.0):
    """The contour at so many standard deviations, (2, 200)."""
    angle = np.linspace(0.0, 2 * np.pi, 200)
    circle = sds * np.stack([np.cos(angle), np.sin(angle)])
    return np.asarray(mean)[:, None] + np.linalg.cholesky(covariance) @ circle


def main(correlation=0.9, n=50, output="output/paper"):
    """Fit, correct, draw; returns the covariances of posterior, q and corrected q."""
    random = np.random.default_rng(0)
    # Columns whose correlation is minus that of the posterior of their coefficients.
    Q = np.linalg.qr(random.normal(size=(n, 2)))[0]
    X = Q @ np.linalg.cholesky([[1.0, -correlation], [-correlation, 1.0]]).T
    y = X @ [1.0, 1.0] + random.normal(size=n)

    exact = np.linalg.inv(X.T @ X)
    # Sites that meet in one quadratic form share a factor by default; here each has its own.
    apart = lb.CAVI(blocks=[["first"], ["second"]])
    fit = lb.fit(regression, X, y, method=apart)
    corrected = lb.correct(fit, "linear-response")
    mean = np.array([fit.mean("first"), fit.mean("second")])
    q = np.diag([fit.sd("first") ** 2, fit.sd("second") ** 2])
    draws = corrected.sample(20_000)
    response = np.cov(draws["first"], draws["second"])

    print(f"Correlation {correlation}: sds of the posterior {np.sqrt(np.diag(exact)).round(3)},")
    print(f"of mean field {np.sqrt(np.diag(q)).round(3)}, by linear response", end=" ")
    print(np.sqrt(np.diag(response)).round(3))
    print(f"The verdict of mean field: {fit.verdict}")

    figure, ax = plt.subplots(figsize=(4.4, 4), layout="constrained")
    ax.plot(*ellipse(mean, exact), color=lb.plot.COLOURS[3], lw=2, label="posterior")
    ax.plot(*ellipse(mean, q), color=lb.plot.COLOURS[2], lw=2, label="mean field")
    ax.plot(*ellipse(mean, response), ":", color="black", lw=1.6, label="linear response")
    ax.set(xlabel="first", ylabel="second", aspect="equal")
    ax.legend(frameon=False, fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    path = Path(output) / "accuracy.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"Wrote {path}")
    return exact, q, response


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--correlation", type=float, default=0.9)
    parser.add_argument("--output", default="output/paper")
    main(**vars(parser.parse_args()))

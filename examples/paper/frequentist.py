"""Frequentist properties of variational posteriors (section 5.2): consistency and coverage.

Data are simulated from fixed parameters, n rows at a time, and fitted again and again. For three
cases that section 5.2 names it prints, as n grows, the bias and the root mean squared error of the
variational posterior mean, the sd of q beside the sd of the estimates, and how many of the 50, 80
and 95% intervals of q hold the truth. It draws the errors and the coverage.

- linear: coefficients with normal priors and an inverse gamma variance, as independent factors
  (You, Ormerod and Mueller 2014).
- Poisson mixed model: one predictor and a random intercept, Gaussian given the scale (Hall, Ormerod
  and Wand 2011); n counts the groups, of five rows each.
- mixture: two components that overlap, by mean field (Wang and Titterington 2005, 2006), and again
  with the covariances of linear response (section 5.4).

What one sees: all estimates are consistent, with errors that shrink as 1 / sqrt(n), and intervals
of the linear and of the mixed model hold what they should. Those of mean field on the mixture do
not, whatever n (95% intervals hold about 79%); linear response puts them right (about 94%).
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd

import lowerbound as lb
from lowerbound.calibration.ranks import INTERVALS, quantity, uniform_ranks

matplotlib.use("agg")
import matplotlib.pyplot as plt

DRAWS = 199  # of q, among which the truth is ranked


# --- The three cases: a program, the truth, data of size n, and how they are fitted ---


def linear(X, y):
    sigma2 = numpyro.sample("sigma2", dist.InverseGamma(1.0, 1.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("data", len(X)):
        numpyro.sample("y", dist.Normal(X @ beta, jnp.sqrt(sigma2)), obs=y)


def mixed(x, group, groups, y):
    b = numpyro.sample("b", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(2.0))
    with numpyro.plate("groups", groups):
        u = numpyro.sample("u", dist.Normal(0.0, s))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Poisson(jnp.exp(b[0] + b[1] * x + u[group])), obs=y)


def mixture(x):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(2)))
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(pi))
        numpyro.sample("x", dist.Normal(mu[c], 1.0), obs=x)


@dataclass(frozen=True)
class Case:
    """A truth by number, and what fits data of size n: (rng, n) -> draws of q by number."""

    truth: dict[str, float]
    sizes: tuple[int, ...]
    fitted: object


def fit_linear(rng, n):
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    y = X @ np.array([1.0, 0.5, -0.5]) + rng.normal(0.0, 1.0, n)
    method = lb.CAVI(blocks=[("beta",), ("sigma2",)])
    draws = lb.fit(linear, X, y, method=method).sample(DRAWS, seed=n)
    return {"beta[1]": draws["beta"][:, 1], "sigma2": draws["sigma2"]}


def fit_mixed(rng, n):
    group = np.repeat(np.arange(n), 5)
    x = rng.normal(size=len(group))
    y = rng.poisson(np.exp(0.5 + 0.5 * x + rng.normal(0.0, 0.6, n)[group]))
    draws = lb.fit(mixed, x, group, n, y, method=lb.Integrated()).sample(
        DRAWS, seed=n, sites=("b", "s")
    )
    return {"b[0]": draws["b"][:, 0], "b[1]": draws["b"][:, 1], "s": draws["s"]}


def fit_mixture(rng, n, how=None):
    x = rng.normal(np.where(rng.uniform(size=n) < 0.35, -1.25, 1.25))
    fit = lb.fit(mixture, x, method=lb.CAVI(restarts=2, tolerance=1e-10))
    if how is not None:
        fit = lb.correct(fit, how, draws=400)
    draws = fit.sample(DRAWS, seed=n, sites=("mu", "pi"))
    low = int(np.argmin(draws["mu"].mean(axis=0)))  # components have no names
    return {"mu, lower": draws["mu"][:, low], "weight": draws["pi"][:, low]}


MIXTURE = {"mu, lower": -1.25, "weight": 0.35}
CASES = {
    "linear": Case({"beta[1]": 0.5, "sigma2": 1.0}, (20, 40, 80, 160, 320, 640), fit_linear),
    "Poisson mixed": Case({"b[0]": 0.5, "b[1]": 0.5, "s": 0.6}, (10, 20, 40, 80, 160), fit_mixed),
    "mixture": Case(MIXTURE, (50, 100, 200, 400, 800, 1600), fit_mixture),
    "mixture, linear response": Case(
        MIXTURE,
        (50, 100, 200, 400, 800, 1600),
        lambda rng, n: fit_mixture(rng, n, "linear-response"),
    ),
}


# --- The study ---


def study(name, replications, sizes=None, seed=0):
    """One row for each n and number: bias, error, widths and coverage over the replications."""
    case, rows = CASES[name], []
    for n in sizes or case.sizes:
        means, sds, ranks, failed = [], [], [], 0
        for r in range(replications):
            rng = np.random.default_rng([seed, n, r])
            try:
                draws = case.fitted(rng, n)
            except lb.errors.LowerboundError:
                failed += 1
                continue
            means.append([draws[one].mean() for one in case.truth])
            sds.append([draws[one].std() for one in case.truth])
            found = [uniform_ranks(np.array(t), draws[one], rng) for one, t in case.truth.items()]
            ranks.append([float(u) for u in found])
        if failed:
            print(f"{name}, n = {n}: {failed} of {replications} data sets could not be fitted")
        for number, (one, truth) in enumerate(case.truth.items()):
            estimates = np.array(means)[:, number]
            coverage = quantity(one, np.array(ranks)[:, number]).coverage
            rows.append(
                {
                    "case": name,
                    "number": one,
                    "n": n,
                    "data sets": len(estimates),
                    "bias": estimates.mean() - truth,
                    "error": np.sqrt(np.mean((estimates - truth) ** 2)),
                    "sd of q / of estimates": np.mean(np.array(sds)[:, number]) / estimates.std(),
                    **{f"in {level:.0%}": coverage[level] for level in INTERVALS},
                }
            )
    return pd.DataFrame(rows)


def figure(table):
    """Errors by n on logarithmic scales, beside slopes of -1/2; coverage by n with its noise."""
    names = list(dict.fromkeys(table["case"]))
    whole, axes = plt.subplots(
        2, len(names), figsize=(2.5 * len(names) + 0.6, 4.8), squeeze=False, layout="constrained"
    )
    for column, name in enumerate(names):
        top, bottom = axes[:, column]
        own = table[table["case"] == name]
        for number, (one, rows) in enumerate(own.groupby("number", sort=False)):
            colour, n = lb.plot.COLOURS[number], rows["n"].to_numpy()
            top.loglog(n, rows["error"], "o-", color=colour, ms=4, lw=1.5, label=one)
            top.loglog(n, rows["error"].iloc[0] * np.sqrt(n[0] / n), ":", color=colour, lw=1)
            for level, style in zip(INTERVALS, (":", "--", "-"), strict=True):
                bottom.semilogx(n, rows[f"in {level:.0%}"], style, color=colour, lw=1.5)
        for level in INTERVALS:
            noise = 2 * np.sqrt(level * (1 - level) / own["data sets"].min())
            bottom.axhspan(level - noise, level + noise, color="#E6E6E6", lw=0, zorder=0)
        bottom.set(ylim=(0.2, 1.0), yticks=INTERVALS, xlabel="n")
        bottom.set_yticklabels([f"{level:.0%}" for level in INTERVALS])
        ticks = sorted(set(own["n"]))[::2]
        for ax in (top, bottom):
            ax.set_xticks(ticks, [str(n) for n in ticks])
            ax.minorticks_off()
            ax.spines[["top", "right"]].set_visible(False)
            ax.tick_params(labelsize=8)
        top.set_yticks([0.03, 0.1, 0.3], ["0.03", "0.1", "0.3"])
        top.set_title(name, fontsize=9, loc="left")
        top.legend(frameon=False, fontsize=7, loc="lower left")
    axes[0, 0].set_ylabel("root mean squared error", fontsize=9)
    axes[1, 0].set_ylabel("intervals that hold the truth", fontsize=9)
    return whole


def main(replications=40, sizes=None, cases=tuple(CASES), output="output/paper"):
    """Run the cases; `sizes` replaces the sizes of all of them."""
    with lb.computing(verdicts=False):
        table = pd.concat([study(name, replications, sizes) for name in cases])
    print(table.round(3).to_string(index=False))
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = figure(table)
    drawn.savefig(folder / "frequentist.png", dpi=150)
    plt.close(drawn)
    print(f"\nWrote {folder / 'frequentist.png'}")
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=40, help="data sets for each n")
    parser.add_argument("--full", action="store_true", help="400 data sets for each n")
    parser.add_argument("--output", default="output/paper", help="folder of the figure")
    given = parser.parse_args()
    main(400 if given.full else given.replications, output=given.output)

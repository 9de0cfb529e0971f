"""Regression with automatic relevance determination (Appendix A): which columns matter."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound as lb


def regression(X, y=None):
    tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
    with numpyro.plate("columns", X.shape[1]):
        alpha = numpyro.sample("alpha", dist.Gamma(0.1, 0.1))
        beta = numpyro.sample("beta", dist.Normal(0.0, 1 / jnp.sqrt(tau * alpha)))
    with numpyro.plate("data", len(X)):
        numpyro.sample("y", dist.Normal(X @ beta, 1 / jnp.sqrt(tau)), obs=y)


def main(n=300, columns=8):
    random = np.random.default_rng(0)
    truth = np.zeros(columns)
    truth[:3] = [2.0, -1.0, 0.5]
    X = random.normal(size=(n, columns))
    y = X @ truth + random.normal(size=n)
    lb.explain(regression, X, y, method=lb.CAVI())
    fit = lb.fit(regression, X, y, method=lb.CAVI())
    print(f"\n{fit.summary(['beta']).assign(truth=truth).round(2)}")
    print(f"\n1 / E[alpha], large for the columns that matter: {(1 / fit.mean('alpha')).round(2)}")
    draws = fit.predictive(X[:2])["y"]  # y is left out: it is drawn for the new rows
    print(f"Predicted y: {draws.mean(axis=0).round(2)} +- {draws.std(axis=0).round(2)}")
    return fit


if __name__ == "__main__":
    main()

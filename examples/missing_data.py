"""Missing entries: hand over a masked array; they are integrated out, and can be drawn."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound as lb


def factors(x, K):
    """Probabilistic PCA: every column a linear function of K factors."""
    n, D = x.shape
    tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
    W = numpyro.sample("W", dist.Normal(0.0, jnp.ones((D, K))).to_event(2))
    with numpyro.plate("rows", n, dim=-2):
        with numpyro.plate("factors", K, dim=-1):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        with numpyro.plate("columns", D, dim=-1):
            numpyro.sample("x", dist.Normal(z @ W.T, 1 / jnp.sqrt(tau)), obs=x)


def main(n=100, D=6, K=2):
    random = np.random.default_rng(0)
    complete = random.normal(size=(n, K)) @ random.normal(size=(K, D))
    complete += 0.1 * random.normal(size=(n, D))
    hidden = random.random((n, D)) < 0.2
    fit = lb.fit(factors, np.ma.masked_array(complete, mask=hidden), K=K)
    print(f"{fit}\n")
    draws = fit.sample(500)["x"][:, hidden]
    error = np.sqrt(np.mean((draws.mean(axis=0) - complete[hidden]) ** 2))
    print(f"{hidden.sum()} hidden entries: root mean square error {error:.2f},")
    print(f"against {complete[hidden].std():.2f} without the model")
    return fit


if __name__ == "__main__":
    main()

"""Small models and data shared by the tests of `fit`."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist


def mixture(x, K):
    """A diagonal mixture with unknown precisions (paper, appendix B)."""
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K):
        tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0).expand([x.shape[1]]).to_event(1))
        mu = numpyro.sample("mu", dist.Normal(0.0, 1 / jnp.sqrt(0.1 * tau)).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        z = numpyro.sample("z", dist.Categorical(pi))
        numpyro.sample("x", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])).to_event(1), obs=x)


def regression(x, y=None):
    """Linear regression with a Normal-Gamma prior; its posterior is exact."""
    tau = numpyro.sample("tau", dist.Gamma(3.0, 2.0))
    with numpyro.plate("columns", x.shape[1]):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1 / jnp.sqrt(tau)))
    mean = numpyro.deterministic("mean", x @ beta)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1 / jnp.sqrt(tau)), obs=y)


def clusters(seed=0, n=60):
    """Three well separated clusters in the plane, and their labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    centres = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
    return centres[labels] + rng.normal(size=(n, 2)) * 0.7, labels


def line(seed=0, n=40):
    """Rows of a regression with two columns."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return x, x @ np.array([1.0, -2.0]) + 0.5 * rng.normal(size=n)

"""Programs with a scale for every coefficient, and the laws that are known of them."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

RNG = np.random.default_rng(3)
X = RNG.normal(size=(9, 4))
Y = X @ [1.0, 0.0, -0.5, 0.0] + 0.5 * RNG.normal(size=9)
HEARD = (Y > 0).astype(int)
HALVES = np.arange(9) % 2
CELLS = np.linspace(-2.0, 4.0, 12)


def centred(x, y=None):
    tau = numpyro.sample("tau", dist.HalfCauchy(0.5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    with numpyro.plate("columns", x.shape[1]):
        lam = numpyro.sample("lam", dist.HalfCauchy(1.0))
        beta = numpyro.sample("beta", dist.Normal(0.0, tau * lam))
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def noncentred(x, y=None):
    tau = numpyro.sample("tau", dist.HalfCauchy(0.5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    with numpyro.plate("columns", x.shape[1]):
        lam = numpyro.sample("lam", dist.HalfCauchy(1.0))
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x @ (tau * lam * beta), sigma), obs=y)


def uneven(x, y=None):
    # The noise of two halves: not all weights move together
    tau = numpyro.sample("tau", dist.HalfCauchy(0.5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0).expand([2]))
    lam = numpyro.sample("lam", dist.HalfCauchy(jnp.ones(x.shape[1])))
    beta = numpyro.sample("beta", dist.Normal(0.0, tau * lam))
    numpyro.sample("y", dist.Normal(x @ beta, sigma[HALVES]), obs=y)


def binary(x, y=None):
    tau = numpyro.sample("tau", dist.HalfCauchy(0.5))
    lam = numpyro.sample("lam", dist.HalfCauchy(jnp.ones(x.shape[1])))
    beta = numpyro.sample("beta", dist.Normal(0.0, jnp.ones(x.shape[1])))
    numpyro.sample("y", dist.Bernoulli(logits=x @ (tau * lam * beta)), obs=y)


def robust(x, y=None):
    tau = numpyro.sample("tau", dist.HalfCauchy(0.5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    lam = numpyro.sample("lam", dist.HalfCauchy(jnp.ones(x.shape[1])))
    beta = numpyro.sample("beta", dist.Normal(0.0, tau * lam))
    numpyro.sample("y", dist.StudentT(3.0, x @ beta, sigma), obs=y)


def cells(y=None):
    """Twelve means with a half-Cauchy scale each: the posterior is a product over cells."""
    with numpyro.plate("cells", 12):
        lam = numpyro.sample("lam", dist.HalfCauchy(1.0))
        beta = numpyro.sample("beta", dist.Normal(0.0, lam))
        numpyro.sample("y", dist.Normal(beta, 1.0), obs=y)


def moments_of_cells(y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and sd of beta given y, and the mean of log lam, by sums over log lam."""
    log = np.linspace(-16.0, 16.0, 20_001)
    lam = np.exp(log)
    share = lam**2 / (1.0 + lam**2)
    density = -0.5 * y[:, None] ** 2 / (1.0 + lam**2) - 0.5 * np.log1p(lam**2)
    weights = np.exp(density) * lam / (1.0 + lam**2)
    weights /= weights.sum(axis=1, keepdims=True)
    mean = y * (weights @ share)
    square = weights @ share + y**2 * (weights @ share**2)
    return mean, np.sqrt(square - mean**2), weights @ log

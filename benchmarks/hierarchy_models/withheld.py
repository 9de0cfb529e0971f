"""Two programs of shrinkage that were written first and not fitted until the rest was done."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program


def correlated(rng: np.random.Generator) -> Data:
    common = rng.normal(size=(120, 1))
    x, beta = 0.8 * rng.normal(size=(120, 24)) + 0.6 * common, np.zeros(24)
    beta[[0, 3, 8, 15]] = [1.5, -1.0, 0.6, 0.3]
    return {"x": x, "y": 2.0 + x @ beta + rng.normal(0, 0.8, 120)}


def horseshoe_plus(x, y=None):
    # Two half-Cauchys a column; scales relative to the noise
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 5.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(0.1))
    with numpyro.plate("columns", x.shape[1]):
        outer = numpyro.sample("outer", dist.HalfCauchy(1.0))
        local = numpyro.sample("local", dist.HalfCauchy(outer))
        beta = numpyro.sample("beta", dist.Normal(0.0, sigma * tau * local))
    numpyro.sample("y", dist.Normal(alpha + x @ beta, sigma), obs=y)


def infections(rng: np.random.Generator) -> Data:
    x, beta = rng.normal(size=(180, 18)), np.zeros(18)
    beta[[2, 6, 11]] = [0.9, -0.6, 0.3]
    mean = np.exp(0.8 + x @ beta)
    return {"x": x, "y": rng.poisson(mean * rng.gamma(3.0, 1 / 3.0, 180))}


def horseshoe_overdispersed(x, y=None):
    # Negative binomial counts, a regularised horseshoe, not centred
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 2.0))
    phi = numpyro.sample("phi", dist.Gamma(2.0, 0.5))
    tau = numpyro.sample("tau", dist.HalfCauchy(0.1))
    slab = numpyro.sample("slab", dist.InverseGamma(2.0, 4.0))
    local = numpyro.sample("local", dist.HalfCauchy(1.0).expand([18]).to_event(1))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([18]).to_event(1))
    shrunk = jnp.sqrt(slab * local**2 / (slab + tau**2 * local**2))
    mean = jnp.exp(alpha + x @ (tau * shrunk * z))
    numpyro.sample("y", dist.NegativeBinomial2(mean, phi), obs=y)


PROGRAMS = {
    "horseshoe_plus": Program(horseshoe_plus, correlated),
    "horseshoe_overdispersed": Program(horseshoe_overdispersed, infections),
}

"""Classes: logistic regressions (unscaled, sparse), ordered and multinomial logits."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import transforms

from benchmarks.stress_models.program import Data, Program, flat, flat_ordered


def wells(rng: np.random.Generator) -> Data:
    n = 500
    distance = rng.gamma(1.7, 28.0, n)
    arsenic = 0.5 + rng.gamma(1.0, 1.2, n)
    schooling = rng.integers(0, 18, n).astype(float)
    logit = -0.2 - 0.009 * distance + 0.47 * arsenic + 0.04 * schooling
    switched = rng.binomial(1, 1 / (1 + np.exp(-logit)))
    return {"distance": distance, "arsenic": arsenic, "schooling": schooling, "switched": switched}


def logistic_unscaled(distance, arsenic, schooling, switched=None):
    alpha, beta = flat("alpha"), flat("beta", 4)
    x = jnp.stack([distance, arsenic, schooling, distance * arsenic], 1)
    numpyro.sample("switched", dist.Bernoulli(logits=alpha + x @ beta), obs=switched)


def probit_unscaled(distance, arsenic, schooling, switched=None):
    beta = numpyro.sample("beta", dist.StudentT(7, 0, 2.5).expand([4]).to_event(1))
    x = jnp.stack([jnp.ones(len(distance)), distance, arsenic, schooling], 1)
    probability = dist.Normal(0, 1).cdf(x @ beta)
    numpyro.sample("switched", dist.Bernoulli(probability), obs=switched)


def wine(rng: np.random.Generator) -> Data:
    x = rng.normal(0, 1, (200, 3))
    latent = x @ [1.0, -0.5, 0.2] + rng.logistic(0, 1, 200)
    return {"x": x, "grade": np.searchsorted([-2.0, -0.5, 0.8, 2.2], latent)}


def ordered_logit(x, grade=None):
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([3]).to_event(1))
    cuts = flat_ordered("cuts", 4)
    numpyro.sample("grade", dist.OrderedLogistic(x @ beta, cuts), obs=grade)


def ordered_logit_normal(x, grade=None):
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([3]).to_event(1))
    base = dist.Normal(0, 3).expand([4]).to_event(1)
    cuts = numpyro.sample("cuts", dist.TransformedDistribution(base, transforms.OrderedTransform()))
    with numpyro.plate("bottles", len(x)):
        numpyro.sample("grade", dist.OrderedLogistic(x @ beta, cuts), obs=grade)


def transport(rng: np.random.Generator) -> Data:
    x = rng.normal(0, 1, (200, 3))
    logits = np.column_stack(
        [0.5 + x @ [1.0, -0.5, 0.0], -0.3 + x @ [0.2, 0.8, -0.6], np.zeros(200)]
    )
    return {"x": x, "choice": np.argmax(logits + rng.gumbel(size=(200, 3)), 1)}


def multinomial_logit(x, choice=None):
    alpha = numpyro.sample("alpha", dist.Normal(0, 5).expand([2]).to_event(1))
    beta = numpyro.sample("beta", dist.Normal(0, 2.5).expand([3, 2]).to_event(2))
    logits = jnp.concatenate([alpha + x @ beta, jnp.zeros((len(x), 1))], 1)
    numpyro.sample("choice", dist.Categorical(logits=logits), obs=choice)


def genes(rng: np.random.Generator) -> Data:
    x = rng.normal(0, 1, (100, 50))
    logit = x[:, 0] * 3.0 - x[:, 1] * 2.5
    return {"x": x, "ill": rng.binomial(1, 1 / (1 + np.exp(-logit)))}


def horseshoe_logistic(x, ill=None):
    tau = numpyro.sample("tau", dist.HalfCauchy(0.2))
    lam = numpyro.sample("lam", dist.HalfCauchy(jnp.ones(50)).to_event(1))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([50]).to_event(1))
    alpha = numpyro.sample("alpha", dist.Normal(0, 2))
    slab = numpyro.sample("slab", dist.InverseGamma(2.0, 8.0))
    shrunk = jnp.sqrt(slab * lam**2 / (slab + tau**2 * lam**2))
    beta = numpyro.deterministic("beta", z * shrunk * tau)
    numpyro.sample("ill", dist.Bernoulli(logits=alpha + x @ beta), obs=ill)


PROGRAMS = {
    "logistic_unscaled": Program(logistic_unscaled, wells),
    "probit_unscaled": Program(probit_unscaled, wells),
    "ordered_logit": Program(ordered_logit, wine),
    "ordered_logit_normal": Program(ordered_logit_normal, wine),
    "multinomial_logit": Program(multinomial_logit, transport),
    "horseshoe_logistic": Program(horseshoe_logistic, genes),
}

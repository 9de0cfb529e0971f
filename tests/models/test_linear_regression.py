"""Regressions with the intercept and the slopes as separate sites."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_exact, assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import evidence as closed
from tests.oracles.expectations import Moments
from tests.oracles.regression import Regression

PRIOR = np.diag([9.0, 4.0, 4.0])


def model(x, y=None, sd=0.8):
    """Known noise: every Gaussian site joins one block, and the evidence is exact."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 3.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 2.0).expand([x.shape[1]]).to_event(1))
    loc = intercept + jax.vmap(lambda row: jnp.dot(row, slope))(x)
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Normal(loc, sd), obs=y)


def unknown_noise(x, y=None):
    """The noise precision is latent, the sd built as sqrt(1 / tau)."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 3.0))
    slope = numpyro.sample("slope", dist.MultivariateNormal(jnp.zeros(2), 4.0 * jnp.eye(2)))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    sigma = numpyro.deterministic("sigma", jnp.sqrt(1 / tau))
    with numpyro.plate("data", x.shape[0]):
        loc = intercept + slope[0] * x[:, 0] + slope[1] * x[:, 1]
        numpyro.sample("y", dist.Normal(loc, sigma), obs=y)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(30, 2))
    return (x, 1.0 + x @ [0.5, -1.5] + 0.8 * rng.normal(size=30)), {}


def start(seed: int) -> dict[str, np.ndarray]:
    return {"intercept": np.array(0.5), "slope": np.array([1.0, 0.0])}


def design(x) -> np.ndarray:
    return np.column_stack([np.ones(len(x)), x])


def evidence(x, y) -> float:
    return closed.linear_gaussian(y, design(x), PRIOR, 0.8**2)


def regression(x, y) -> Regression:
    return Regression(design(x), y, PRIOR, (2.0, 1.0), {"intercept": 0, "slope": slice(1, 3)})


def oracle(start, x, y):
    return regression(x, y).trajectory(start)


def unknown_noise_evidence(x, y) -> float:
    return regression(x, y).evidence()


CASE = Case("linear_regression", model, arguments, rows=(0, 1), evidence=evidence, exact=True)
UNKNOWN_NOISE = Case(
    "linear_regression_unknown_noise",
    unknown_noise,
    arguments,
    rows=(0, 1),
    start=start,
    oracle=oracle,
    evidence=unknown_noise_evidence,
)


def test_posterior_and_evidence_are_exact():
    (x, y), _ = arguments(0)
    X = design(x)
    V = np.linalg.inv(np.linalg.inv(PRIOR) + X.T @ X / 0.8**2)
    mean, sd = V @ X.T @ y / 0.8**2, np.sqrt(np.diag(V))
    posterior = {"intercept": Moments(mean[0], sd[0]), "slope": Moments(mean[1:], sd[1:])}
    assert_exact(CASE, posterior)


def test_sweeps_with_unknown_noise_equal_the_hand_written_ones():
    assert_sweeps_equal(UNKNOWN_NOISE)

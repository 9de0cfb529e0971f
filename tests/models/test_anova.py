"""Group effects against a reference level: concatenation and jnp.where."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_exact
from tests.models.case import Arguments, Case
from tests.oracles import evidence as closed
from tests.oracles.expectations import Moments


def model(group, treated, y=None, levels=3):
    base = numpyro.sample("base", dist.Normal(0.0, 5.0))
    lift = numpyro.sample("lift", dist.Normal(0.0, 1.0))
    raw = numpyro.sample("raw", dist.Normal(0.0, 2.0).expand([levels - 1]).to_event(1))
    effect = jnp.concatenate([jnp.zeros(1), raw])
    loc = jnp.where(treated, base + lift, base) + effect[group]
    with numpyro.plate("data", group.shape[0]):
        numpyro.sample("y", dist.Normal(loc, 0.9), obs=y)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    group, treated = rng.integers(3, size=30), rng.random(30) < 0.5
    y = np.array([0.0, 1.0, -1.0])[group] + 0.7 * treated + 2.0 + 0.9 * rng.normal(size=30)
    return (group, treated, y), {}


PRIOR = np.diag([25.0, 1.0, 4.0, 4.0])


def design(group, treated) -> np.ndarray:
    return np.column_stack([np.ones(len(group)), treated, np.eye(3)[group][:, 1:]])


def evidence(group, treated, y) -> float:
    return closed.linear_gaussian(y, design(group, treated), PRIOR, 0.9**2)


CASE = Case("anova", model, arguments, rows=(0, 1, 2), evidence=evidence, exact=True)


def test_posterior_and_evidence_are_exact():
    (group, treated, y), _ = arguments(0)
    X = design(group, treated)
    V = np.linalg.inv(np.linalg.inv(PRIOR) + X.T @ X / 0.9**2)
    mean, sd = V @ X.T @ y / 0.9**2, np.sqrt(np.diag(V))
    columns = {"base": 0, "lift": 1, "raw": slice(2, 4)}
    assert_exact(CASE, {name: Moments(mean[at], sd[at]) for name, at in columns.items()})

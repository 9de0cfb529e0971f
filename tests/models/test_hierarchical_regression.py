"""Regression with intercepts and slopes that vary by group around latent group means."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles.regression import varying_lines


def model(x, group, y=None, groups=4):
    mu_a = numpyro.sample("mu_a", dist.Normal(0.0, 5.0))
    mu_b = numpyro.sample("mu_b", dist.Normal(0.0, 5.0))
    tau_a = numpyro.sample("tau_a", dist.Gamma(2.0, 1.0))
    tau_b = numpyro.sample("tau_b", dist.Gamma(2.0, 1.0))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    with numpyro.plate("groups", groups):
        a = numpyro.sample("a", dist.Normal(mu_a, 1 / jnp.sqrt(tau_a)))
        b = numpyro.sample("b", dist.Normal(mu_b, 1 / jnp.sqrt(tau_b)))
    with numpyro.plate("data", x.shape[0]):
        line = numpyro.deterministic("line", a[group] + b[group] * x)
        numpyro.sample("y", dist.Normal(line, 1 / jnp.sqrt(tau)), obs=y)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    group, x = np.arange(40) % 4, rng.normal(size=40)
    a, b = rng.normal(1.0, 0.7, size=4), rng.normal(-2.0, 0.7, size=4)
    return (x, group, a[group] + b[group] * x + 0.5 * rng.normal(size=40)), {"groups": 4}


def start(seed: int) -> dict[str, np.ndarray]:
    points = {name: np.array(1.0) for name in ("mu_a", "mu_b", "tau_a", "tau_b", "tau")}
    return points | {"a": np.zeros(4), "b": np.zeros(4)}


def oracle(start, x, group, y, groups):
    return varying_lines(x, group, y, groups, start)


CASE = Case(
    "hierarchical_regression",
    model,
    arguments,
    rows=(0, 1, 2),
    start=start,
    oracle=oracle,
    blocks=[("mu_a",), ("mu_b",), ("tau_a",), ("tau_b",), ("tau",), ("a",), ("b",)],
)


def test_sweeps_of_the_full_factorisation_equal_the_hand_written_ones():
    assert_sweeps_equal(CASE)

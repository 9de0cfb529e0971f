"""Counts in groups: log rates by quadrature, and a free-form factor for the scale of effects."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound as lb
from tests.models.case import Arguments, Case

GROUPS = 3


def model(x, group, y):
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    effect = numpyro.sample("effect", dist.Normal(0.0, tau).expand([GROUPS]).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Poisson(jnp.exp(slope * x + effect[group])), obs=y)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    x, group = rng.normal(size=18), np.arange(18) % GROUPS
    log_rate = 0.6 * x + np.array([-0.5, 0.2, 0.9])[group]
    return (x, group, rng.poisson(np.exp(log_rate))), {}


def start(seed: int) -> dict[str, np.ndarray]:
    return {"tau": np.array(0.7), "slope": np.array(0.1), "effect": np.array([0.1, 0.2, -0.3])}


CASE = Case("poisson_effects", model, arguments, rows=(0, 1, 2), adds_up=False, start=start)


def test_conditioning_on_the_scale_raises_the_bound():
    """Mean field ignores how the effects shrink with the scale."""
    args, _ = arguments(0)
    alone, given = (lb.fit(model, *args, method=m) for m in (lb.CAVI(), lb.Given(("tau",))))
    assert given.elbo > alone.elbo + 0.01
    assert alone.sd("tau") < given.sd("tau")


def test_the_plan_names_both_kinds_of_factor():
    args, _ = arguments(0)
    updates = {row.site: row.update for row in lb.explain(model, *args, method="cavi").rows}
    assert updates["slope"] == updates["effect"] == "natural gradient (quadrature)"
    assert updates["tau"] == "exact (quadrature)"

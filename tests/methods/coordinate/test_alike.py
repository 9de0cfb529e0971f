"""Free-form factors of one form are updated together: no number changes, the program is shorter."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.ascent import State
from lowerbound.compiled import quickly
from lowerbound.compute.engine import engine_for
from lowerbound.compute.prior_state import from_prior
from lowerbound.joint import inputs_of
from lowerbound.model import trace_model

Y = np.random.default_rng(0).normal(size=(3, 5)) * np.array([[0.3], [1.0], [4.0]])


def scales(y: Any) -> None:
    """Two scales of one form, and one of another."""
    priors = {"a": dist.HalfNormal(1.0), "b": dist.HalfNormal(1.0), "c": dist.Uniform(0.0, 9.0)}
    found = {name: numpyro.sample(name, prior) for name, prior in priors.items()}
    for (name, scale), row in zip(found.items(), y, strict=True):
        mean = numpyro.sample(f"mean_{name}", dist.Normal(0.0, 1.0))
        numpyro.sample(f"y_{name}", dist.Normal(mean, scale).expand([5]).to_event(1), obs=row)


def test_a_sweep_of_groups_equals_updates_one_by_one_with_the_bound_of_its_end() -> None:
    with jax.enable_x64(True):
        model = trace_model(scales, (Y,))
        engine = engine_for(model, np.dtype(float))
        sweep, blocks = engine.sweep, engine.joint.blocks
        sites = [{blocks[n].sites[0] for n in group} for group in sweep.together]
        assert {"a", "b"} in sites
        arrays = engine.prepare(inputs_of(model))
        state = quickly(lambda: from_prior(engine, arrays))()

        def singly(state: State) -> State:
            for number in sweep.order:
                state, _ = sweep.update(arrays, state, number)
            return state

        together, bound = quickly(lambda s: sweep(arrays, s))(state)
        apart = quickly(singly)(state)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), together, apart)
        # The bound that the sweep returns, in passing, is that of its end, site by site.
        terms = engine.by_site(arrays, together)
        np.testing.assert_allclose(sum(map(float, terms.values())), bound, rtol=1e-10)

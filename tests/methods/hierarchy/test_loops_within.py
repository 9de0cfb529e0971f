"""Loops within loops are opened at one go, or not at all."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.methods.hierarchy import finding_theta
from lowerbound.methods.hierarchy.finding_theta import predictors_of
from lowerbound.methods.hierarchy.reading.recurring import loops
from lowerbound.model import trace_model


def outbreak(y, steps):
    """Two numbers that are moved on several times between rows: by products, which have levels."""
    rate = numpyro.sample("rate", dist.LogNormal(0.0, 0.5))
    lost = numpyro.sample("lost", dist.LogNormal(0.0, 0.5))
    first = numpyro.sample("first", dist.Normal(0.0, 1.0))

    def row(state, _):
        def step(state, _):
            one, other = state
            moved = 0.05 * rate * one * other
            return (one - moved, other + moved - 0.05 * lost * other), None

        state, _ = jax.lax.scan(step, state, None, length=steps)
        return state, state[1]

    begun = 5.0 + 0.0 * first, jnp.exp(first)
    _, seen = jax.lax.scan(row, begun, None, length=len(y))
    numpyro.sample("y", dist.Poisson(seen + 0.1), obs=y)


def test_the_copies_of_a_loop_within_another_have_no_levels_together(monkeypatch):
    passes = []
    original = finding_theta.in_plain_terms
    counted = lambda *args: passes.append(1) or original(*args)  # noqa: E731
    monkeypatch.setattr(finding_theta, "in_plain_terms", counted)
    with jax.enable_x64(True):
        predictors_of(trace_model(outbreak, (np.arange(6), 4), {}, None))
    assert len(passes) == 3  # one more for the outer loop, one for the inner, whatever the rows


def test_the_steps_of_inner_loops_count_where_a_loop_is_long(monkeypatch):
    unrolled = []
    original = loops._Scan.unrolled
    counted = lambda *args: unrolled.append(1) or original(*args)  # noqa: E731
    monkeypatch.setattr(loops._Scan, "unrolled", counted)
    with jax.enable_x64(True):
        predictors_of(trace_model(outbreak, (np.arange(60), 30), {}, None))
    assert not unrolled

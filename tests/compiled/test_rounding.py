"""Rounding otherwise: what is lost in a program changes, what is not stays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowerbound.compiled.rounding import UNITS, rounded_otherwise

PROGRAMS = {
    "a probability next to one": (lambda x: jnp.log1p(-jax.scipy.stats.norm.cdf(x)).sum(), 6.5),
    "a difference of squares": (lambda x: ((x + 1.0) ** 2 - x**2 - 2.0 * x).sum(), 1e9),
    "in a loop": (
        lambda x: jax.lax.scan(lambda c, _: (c + x.sum() - c, c), 0.0, None, length=3)[0],
        1e-12,
    ),
}


def changed(function, x):
    with jax.enable_x64(True):
        x = np.full(3, x)
        closed = jax.make_jaxpr(function)(x)
        here = float(function(x))
        return [
            abs(float(one(x)[0]) - here) / max(abs(here), 1e-3) for one in rounded_otherwise(closed)
        ]


@pytest.mark.parametrize("name", ["a probability next to one", "a difference of squares"])
def test_what_is_lost_changes(name):
    function, x = PROGRAMS[name]
    assert min(changed(function, x)) > 1e-9


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_not_lost_stays(name):
    function, _ = PROGRAMS[name]
    assert max(changed(function, 0.3)) < 100 * UNITS * np.finfo(float).eps


def test_integers_comparisons_and_zeros_are_exact():
    def function(x):
        whole = jnp.floor(x + 2.5)
        return jnp.where(
            (whole >= 2.9) & (x - x == 0.0), jnp.sum(jnp.arange(4)) * 1.0, jnp.nan
        ).sum()

    assert max(changed(function, 0.7)) < 1e-14

"""A function in two parts is the function, and the second part factors nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.compiled import in_two

Array = Any


def draw(parameters: dict[str, Array], key: Array) -> dict[str, Array]:
    root = jnp.linalg.cholesky(parameters["a"] + 3 * jnp.eye(3))
    noise = jax.random.normal(key, (3,))
    return {"x": parameters["m"] + root @ noise, "m": parameters["m"], "one": jnp.ones(2)}


def test_the_parts_make_the_whole_and_factors_are_of_the_first() -> None:
    a = np.random.default_rng(0).normal(size=(3, 3))
    given, key = {"a": a @ a.T, "m": np.arange(3.0)}, jax.random.key(0)
    prepare, finish = in_two(draw, given, key)
    other = {"a": 2 * (a @ a.T), "m": np.ones(3)}
    for own in (given, other):
        found, expected = finish(prepare(own), key), draw(own, key)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-6)
    prepared = prepare(given)
    assert "cholesky" in str(jax.make_jaxpr(prepare)(given))
    assert "cholesky" not in str(jax.make_jaxpr(finish)(prepared, key))
    assert sum(np.size(p) for p in prepared) == 12  # the factor and the mean, no constants

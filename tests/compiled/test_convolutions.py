"""Convolutions of doubles are sums: those of XLA, and programs that have them end."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowerbound.compiled import jit
from lowerbound.compiled.convolutions import by_sums, is_double_convolution
from lowerbound.compiled.rewriting import Rewriting

rng = np.random.default_rng(0)
SETTINGS = {
    "one axis": ((3, 2, 20), (4, 2, 5), {}),
    "strides": ((3, 2, 20), (4, 2, 5), {"window_strides": (3,)}),
    "kernel as wide": ((1, 1, 7), (1, 1, 7), {"padding": [(6, 6)]}),
    "less than nothing around": ((2, 1, 20), (1, 1, 3), {"padding": [(-2, 4)]}),
    "dilated": (
        (2, 1, 12),
        (2, 1, 3),
        {"padding": [(1, 2)], "lhs_dilation": (2,), "rhs_dilation": (3,)},
    ),
    "groups of channels": ((2, 6, 9), (4, 3, 4), {"feature_group_count": 2}),
    "groups of rows": ((6, 2, 9), (4, 2, 4), {"batch_group_count": 2}),
    "images": ((2, 3, 8, 9), (5, 3, 3, 2), {"window_strides": (2, 1), "padding": [(1, 0), (2, 1)]}),
    "channels last": (
        (2, 8, 9, 3),
        (3, 2, 3, 5),
        {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "window_strides": (1, 1)},
    ),
    "nothing left": ((2, 1, 3), (1, 1, 5), {}),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("dtype", [float, complex])
def test_every_convolution_is_that_of_xla(name, dtype):
    left, right, settings = SETTINGS[name]
    data, kernel = (rng.normal(size=shape).astype(dtype) for shape in (left, right))
    settings = {"window_strides": (1,) * (len(left) - 2), "padding": "VALID"} | settings

    def convolution(data, kernel):
        return jax.lax.conv_general_dilated(data, kernel, **settings)

    with jax.enable_x64(True):
        found = np.asarray(jit(convolution)(data, kernel))
        expected = np.asarray(jax.jit(convolution)(data, kernel))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_batches_and_slopes_of_convolve_are_those_of_xla(axes):
    series, delay = rng.normal(size=(5, 30)), rng.normal(size=(5, 6))
    inputs = [a if axis == 0 else a[0] for a, axis in zip((series, delay), axes, strict=True)]

    def loss(series, delay):
        return jnp.sum(jnp.convolve(series, delay)[:30] ** 3)

    slopes = jax.vmap(jax.grad(loss, argnums=(0, 1)), in_axes=axes)
    with jax.enable_x64(True):
        found, expected = jit(slopes)(*inputs), jax.jit(slopes)(*inputs)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("dtype", "replaced"), [(float, True), (np.float32, False)])
def test_single_precision_stays(dtype, replaced):
    with jax.enable_x64(True):
        closed = jax.make_jaxpr(jnp.convolve)(np.ones(9, dtype), np.ones(3, dtype))
    assert Rewriting(is_double_convolution, by_sums).touches(closed.jaxpr) == replaced


FAULT = """
import jax, jax.numpy as jnp, numpy as np
from lowerbound.compiled import jit
delay = np.ones(12) / 12
weights = np.ones(14) / 14

def reported(first, step, steps, start, shape, key):
    growth = jnp.concatenate([first[None], first + step * jnp.cumsum(steps)])
    def day(past, rate):
        new = rate * jnp.dot(past[::-1], weights)
        return jnp.concatenate([past[1:], new[None]]), new
    infections = jax.lax.scan(day, jnp.full(14, 1.0) * start, jnp.exp(growth))[1]
    mean = jnp.convolve(infections, delay, mode="full")[:60] * 0.3
    return jax.random.gamma(key, shape, (60,)) * mean

with jax.enable_x64(True):
    draw = np.random.default_rng(0)
    growths = draw.normal(size=100) * 0.1, np.full(100, 0.1), draw.normal(size=(100, 59))
    others = np.full(100, 50.0), draw.uniform(5.0, 40.0, 100)
    keys = jax.random.split(jax.random.key(0), 100)
    found = jit(jax.vmap(reported))(*growths, *others, keys)
    assert found.shape == (100, 60)
    print("ended", np.all(np.isfinite(found)))
"""


def test_a_delay_after_a_scan_beside_draws_is_no_segmentation_fault():
    found = subprocess.run(
        [sys.executable, "-c", FAULT], capture_output=True, text=True, timeout=300, check=False
    )
    assert found.stdout.strip() == "ended True", (found.returncode, found.stderr[-2000:])

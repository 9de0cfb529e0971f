"""Real models as people write them: every posteriordb port traces, and its densities add up."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowerbound.model import trace_model

# The ports read their files without closing them.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "posteriordb"


@pytest.fixture(scope="module")
def ports():
    if not (FOLDER / "ports").is_dir():
        pytest.skip("the posteriordb ports are not beside the repository")
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("ports")
    finally:
        sys.path.remove(str(FOLDER))


def test_every_port_traces(ports):
    for name in ports.names():
        port = ports.load(name)
        model = trace_model(port.model, (), port.data)
        with jax.enable_x64(True):
            draw = jax.eval_shape(model.draw, jax.random.key(0))
        assert not model.concrete, name
        assert {k: v.shape for k, v in draw.items()} == {
            k: s.shape for k, s in model.latent.items()
        }


@pytest.mark.parametrize(
    "name",
    [
        "hmm_example-hmm_example",
        "seeds_data-seeds_stanified_model",
    ],
)
def test_densities_of_a_port_sum_to_its_log_density(ports, name):
    port = ports.load(name)
    model = trace_model(port.model, (), port.data)
    with jax.enable_x64(True):

        @jax.jit
        def both(latents, data):
            densities = model.run(latents, data).values()
            return sum(jnp.sum(d.log_prob()) for d in densities), model.log_density(latents, data)

        total, expected = both(model.draw(jax.random.key(0)), model.arguments.data)
    np.testing.assert_allclose(total, expected, rtol=1e-12)

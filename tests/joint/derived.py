"""Log densities of a model's sites: as derived, at a point, and by NumPyro itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers

from lowerbound.joint.certificate import QUICK_COMPILE, random_point
from lowerbound.joint.derive import Derivation, derive, trace_program
from lowerbound.joint.value import Poison
from lowerbound.model import trace_model
from tests.joint.evaluate import evaluate_value, map_arrays


def derivation_of(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Derivation:
    """The terms of every site's log density; data are constants known while deriving."""
    traced = trace_model(model, args, kwargs)
    data = {name: jnp.asarray(array) for name, array in traced.arguments.data.items()}
    return derive(trace_program(traced), data)


def check_densities(model: Callable[..., Any], *args: Any, seed: int = 0) -> dict[str, Any]:
    """Assert that each site's derived density is NumPyro's; returns the values and poisons."""
    traced = trace_model(model, args)
    data = dict(traced.arguments.data)
    program = trace_program(traced)
    rng = np.random.default_rng(seed)
    latents = {latent.name: latent for latent in program.latents}
    points = {name: random_point(latent, rng, {}) for name, latent in latents.items()}
    skeleton: dict[str, Any] = {}

    @partial(jax.jit, compiler_options=QUICK_COMPILE)
    def both(values: dict[str, Any], arrays: dict[str, Any]) -> Any:
        skeleton.update(derive(program, arrays).densities)
        found: list[Any] = []
        for value in skeleton.values():
            map_arrays(value, found.append)
        return found, site_log_densities(model, args, values)

    with numpyro.validation_enabled(False):
        found, expected = both(points, data)
    numbers = iter(found)
    densities = {
        site: map_arrays(value, lambda _: np.asarray(next(numbers)))
        for site, value in skeleton.items()
    }
    for site, value in densities.items():
        if not isinstance(value, Poison):
            density = evaluate_value(value, points, latents)
            np.testing.assert_allclose(density, expected[site], rtol=1e-9, atol=1e-9, err_msg=site)
    return densities


def site_log_densities(
    model: Callable[..., Any], args: tuple[Any, ...], values: Mapping[str, Any]
) -> dict[str, Any]:
    """log p of every site at a point, by NumPyro's own `log_prob`."""
    program = handlers.seed(handlers.substitute(model, dict(values)), 0)
    found: dict[str, Any] = {}
    for name, site in handlers.trace(program).get_trace(*args).items():
        if site["type"] == "sample":
            density = site["fn"].log_prob(site["value"])
            scale = 1.0 if site["scale"] is None else site["scale"]
            found[name] = jnp.sum(density * scale)
    return found

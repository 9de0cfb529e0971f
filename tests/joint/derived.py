"""Log densities of a model's sites: as derived, at a point, and by NumPyro itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions.util import sum_rightmost

from lowerbound.joint.certificate import random_point
from lowerbound.joint.derive import Derivation, derive, trace_program
from lowerbound.joint.value import Poison
from lowerbound.model import trace_model
from tests.joint.evaluate import evaluate_value


def derivation_of(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Derivation:
    """The terms of every site's log density; data are constants known while deriving."""
    traced = trace_model(model, args, kwargs)
    data = {name: jnp.asarray(array) for name, array in traced.arguments.data.items()}
    return derive(trace_program(traced), data)


def check_densities(model: Callable[..., Any], *args: Any, seed: int = 0) -> dict[str, Any]:
    """Assert that each site's derived density is NumPyro's; returns the values and poisons."""
    traced = trace_model(model, args)
    data = {name: jnp.asarray(array) for name, array in traced.arguments.data.items()}
    program = trace_program(traced)
    found = derive(program, data)
    rng = np.random.default_rng(seed)
    latents = {latent.name: latent for latent in program.latents}
    points = {name: random_point(latent, rng, {}) for name, latent in latents.items()}
    expected = site_log_densities(model, args, points)
    for site, value in found.densities.items():
        if not isinstance(value, Poison):
            density = evaluate_value(value, points, latents)
            np.testing.assert_allclose(density, expected[site], rtol=1e-9, atol=1e-9, err_msg=site)
    return dict(found.densities)


def site_log_densities(
    model: Callable[..., Any], args: tuple[Any, ...], points: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """log p of every site at the point, by NumPyro's own `log_prob`."""
    values = {name: jnp.asarray(point) for name, point in points.items()}
    program = handlers.seed(handlers.substitute(model, values), 0)
    sites = handlers.trace(program).get_trace(*args)
    totals: dict[str, float] = {}
    for name, site in sites.items():
        if site["type"] == "sample":
            density = site["fn"].log_prob(site["value"])
            if site["scale"] is not None:
                density = density * site["scale"]
            totals[name] = float(sum_rightmost(density, jnp.ndim(density)))
    return totals

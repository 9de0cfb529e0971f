"""Log densities of a model's sites: as derived, at a point, and by NumPyro itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers

from lowerbound.compiled import quickly
from lowerbound.joint.derive import derive
from lowerbound.joint.points import random_point
from lowerbound.joint.terms.value import Poison
from lowerbound.joint.traced_program import trace_program
from lowerbound.model import trace_model
from tests.joint.evaluate import evaluate_value, map_arrays


class Densities:
    """A model's densities at a random point: derived from traced data, and NumPyro's."""

    def __init__(self, model: Callable[..., Any], *args: Any, seed: int = 0) -> None:
        self.model, self.args = model, args
        traced = trace_model(model, args)
        self.program = trace_program(traced)
        self.data = dict(traced.arguments.data)
        self.latents = {latent.name: latent for latent in self.program.latents}
        rng = np.random.default_rng(seed)
        self.points = {n: random_point(latent, rng) for n, latent in self.latents.items()}
        self.derived: dict[str, Any] = {}  # values and poisons
        self.expected: dict[str, Any] = {}

    def check(self) -> dict[str, Any]:
        """Assert that each site's derived density is NumPyro's; returns values and poisons."""
        for site, value in self.derived.items():
            if not isinstance(value, Poison):
                found = evaluate_value(value, self.points, self.latents)
                wanted = self.expected[site]
                np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9, err_msg=site)
        return self.derived


def evaluate_densities(cases: Sequence[Densities]) -> None:
    """Derive all models, and run NumPyro's densities, under one compilation."""

    def everything(points: list[Any], data: list[Any]) -> Any:
        results = []
        for case, values, arrays in zip(cases, points, data, strict=True):
            case.derived = dict(derive(case.program, arrays).densities)
            found: list[Any] = []
            for value in case.derived.values():
                map_arrays(value, found.append)
            results.append((found, site_log_densities(case.model, case.args, values)))
        return results

    run = quickly(everything)
    with numpyro.validation_enabled(False):
        results = run([c.points for c in cases], [c.data for c in cases])
    for case, (found, expected) in zip(cases, results, strict=True):
        case.derived = _with_numbers(case.derived, iter(found))
        case.expected = expected


def _with_numbers(skeleton: dict[str, Any], numbers: Iterator[Any]) -> dict[str, Any]:
    return {
        site: map_arrays(value, lambda _: np.asarray(next(numbers)))
        for site, value in skeleton.items()
    }


def check_densities(model: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """Assert that each site's derived density is NumPyro's; returns the values and poisons."""
    case = Densities(model, *args)
    evaluate_densities([case])
    return case.check()


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

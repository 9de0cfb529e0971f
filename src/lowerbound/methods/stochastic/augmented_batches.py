"""Stochastic fits of augmented programs, where minibatches need the augmentation to add up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax

from lowerbound.errors import AugmentationError, NotConjugateError
from lowerbound.methods.stochastic.svi import derived_batch, explain_svi, run_svi
from lowerbound.methods.values import SVI
from lowerbound.result.fitted import Fit
from lowerbound.result.plan import Plan
from lowerbound.rewrite.augment import augmented, possible


@dataclass(frozen=True)
class FoundAugmentation:
    """Augmentations under which batches add up, and what keeps them from it without."""

    choices: dict[str, str]
    reason: str

    def noted(self, plan: Plan) -> Plan:
        """The plan with a line that says so."""
        line = f"augment={self.choices}: chosen by the plan, because {self.reason}."
        return replace(plan, notes=(*plan.notes, line))


def augmented_batches(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: SVI,
    *rest: Any,
) -> Fit:
    """Minibatches of the program with `method.augment`."""
    choices = dict(method.augment or {})
    fitted = run_svi(augmented(function, choices), args, kwargs, method, *rest)
    return replace(fitted, function=function, augment=choices)


def explain_batches(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], method: SVI
) -> Plan:
    """The plan of a stochastic fit, with the augmentation that it would choose."""
    plan = explain_svi(function, args, kwargs, method)
    if not plan.residuals or method.augment:
        return plan
    found = augmentation_of_batches(function, args, kwargs, method)
    if found is None:
        return plan
    return found.noted(explain_svi(augmented(function, found.choices), args, kwargs, method))


def augmentation_of_batches(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], method: SVI
) -> FoundAugmentation | None:
    """The first augmentations, of the sites that need one, under which every update is exact."""
    with jax.enable_x64(True):
        reading, joint = derived_batch(function, args, kwargs, method)
        residuals = joint.structure.residuals
        kinds = {site.name: site.distribution for site in reading.model.sites}
        sites = list(dict.fromkeys(residual.site for residual in residuals))
        for names in itertools.product(*(possible(kinds[site]) for site in sites)):
            choices = dict(zip(sites, names, strict=True))
            try:
                program = augmented(function, choices)
                _, other = derived_batch(program, args, kwargs, method)
            except (AugmentationError, NotConjugateError):
                continue
            if not other.structure.residuals:
                first = residuals[0]
                verb = "enters" if len(first.latents) == 1 else "enter"
                latents = ", ".join(f"'{name}'" for name in first.latents)
                reason = f"{latents} {verb} '{first.site}' through {first.operation}"
                return FoundAugmentation(choices, reason)
    return None

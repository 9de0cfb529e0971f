"""lambda <- (1 - step) * lambda + step * d energy / d mu."""

from __future__ import annotations

from collections.abc import Mapping

from jax import Array

from lowerbound.family.exponential import Natural


def step_towards(
    natural: Mapping[str, Array], target: Mapping[str, Array], step: float | Array
) -> Natural:
    """A natural-gradient step of the ELBO towards the optimal natural parameter (eq:nat-grad).

    `step = 1` is the coordinate update (eq:exp-fam-cavi). Entries of `natural` that have no target
    are constants of the support and stay.
    """
    fixed = {name: array for name, array in natural.items() if name not in target}
    if isinstance(step, float) and step == 1.0:
        return {**target, **fixed}
    moved = {name: (1.0 - step) * natural[name] + step * t for name, t in target.items()}
    return {**moved, **fixed}

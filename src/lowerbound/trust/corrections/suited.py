"""Coordinates in which trajectories go: those without a funnel (Papaspiliopoulos et al. 2007)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.compiled.host import lightly
from lowerbound.cost import mapped
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.methods.gaussian.centring import location_scale_sites
from lowerbound.methods.gaussian.target import target_for
from lowerbound.rewrite.noncentred import centring_name, is_positive
from lowerbound.trust.against import Against

DRAWS = 256
CENTRED = 0.9  # from which a site keeps its own coordinates


def suited(view: Against, values: Mapping[str, Array]) -> Against:
    """The same density, with sites z = loc + scale^(1 - c) (v - c loc) of latent scales by v.

    What the data say of z decides: c = 1 - var(z) / scale^2 under q, which is 0 where they say
    nothing. A Gaussian has chosen its coordinates already.
    """
    model = view.coordinates.program()
    names = [n for n, depends in location_scale_sites(model).items() if depends["scale"]]
    names = [n for n in names if n in values]
    if not names or isinstance(view.family, UnconstrainedGaussian):
        return view
    whole = target_for(model, None, names, {centring_name(n): np.zeros(()) for n in names})
    coordinates, some = whole.coordinates, {n: a[:DRAWS] for n, a in values.items()}

    def squares(values: Any, data: Any) -> Any:
        def one(values: Any) -> Any:
            parts = coordinates.split(coordinates.placed(values, data)[0])
            found = {n: coordinates.affine(parts, data, n) for n in names}
            return {
                n: jnp.square(a.scale).sum(axis=-1) if a.matrix else jnp.square(a.scale)
                for n, a in found.items()
            }

        return mapped(one, values, what="one draw")

    if "squares" not in whole.compiled:
        whole.compiled["squares"] = lightly(squares)
    own = {n: jnp.asarray(some[n], float) for n in coordinates.shapes}
    found = whole.compiled["squares"](own, whole.data)
    centring = {}
    for name in names:
        drawn, law = np.asarray(values[name]), model.latent[name].distribution
        spread = np.var(np.log(drawn) if is_positive(law) else drawn, axis=0)
        share = float(np.mean(spread / np.median(np.asarray(found[name]), axis=0)))
        c = 1.0 - min(max(share, 0.0), 1.0)
        if law.startswith("Multivariate"):
            c = float(c > 0.5)  # of a matrix there are no powers
        if c < CENTRED:
            centring[name] = c
    if not centring:
        return view
    numbers = {centring_name(n): np.asarray(c) for n, c in centring.items()}
    return replace(view, target=target_for(model, None, tuple(centring), numbers))

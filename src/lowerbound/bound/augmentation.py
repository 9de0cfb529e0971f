"""What an augmentation costs: the ELBO of the original program less that of the augmented one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.compiled import quickly
from lowerbound.errors import ArgumentError
from lowerbound.family.exponential import Natural
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import energy, inputs_of, multi_affine
from lowerbound.joint.traced_program import split_inputs, trace_program
from lowerbound.model import Model
from lowerbound.model.dependence import digest


@dataclass(frozen=True)
class Gap:
    """An estimate in nats, and its standard error."""

    nats: float
    standard_error: float


def augmentation_gap(
    original: Model,
    augmented: Model,
    family: MeanField,
    naturals: Sequence[Natural],
    draws: int = 1000,
    seed: int = 0,
    compiled: dict[object, Any] | None = None,
) -> Gap:
    """How far the bound of the augmented program lies below the ELBO of the same q(z).

    With auxiliary sites u the difference is E_q(z) KL(q(u) || p(u | x, z)) >= 0: at a draw of z it
    is log p(x, z) - E_q(u)[log p(x, z, u)] - entropy of q(u), exact in u, and never negative.
    `compiled` outlives the call, and belongs to one augmented program.
    """
    own, names = set(original.latent), set(augmented.latent)
    for block in family.blocks:
        if not set(block.sites) <= own and set(block.sites) & own:
            mixed = ", ".join(block.sites)
            raise ArgumentError(
                f"The sites {mixed} share a factor.\nExpected auxiliary sites in factors of "
                "their own: give blocks=[...] with each of them alone."
            )
    auxiliary = [b.number for b in family.blocks if not set(b.sites) <= own]
    missing = own - names
    if missing:
        raise ArgumentError(
            f"The augmented model lacks the latent sites {', '.join(sorted(missing))}.\n"
            "Expected the two models to be one program, without and with auxiliary sites."
        )
    with jax.enable_x64(True):
        keep = {} if compiled is None else compiled
        key = ("augmentation gap", digest(trace_program(original).jaxpr), draws)
        if key not in keep:
            keep[key] = _differences(original, augmented, family, auxiliary)
        keys = jax.random.split(jax.random.key(seed), draws)
        found = np.asarray(keep[key](dict(inputs_of(augmented)), tuple(naturals), keys))
    return Gap(float(found.mean()), float(found.std(ddof=1) / np.sqrt(draws)))


def _differences(
    original: Model, augmented: Model, family: MeanField, auxiliary: Sequence[int]
) -> Callable[..., Array]:
    """The difference of the two bounds at every draw, compiled."""
    joint = multi_affine(augmented, [block.sites for block in family.blocks])
    own = set(original.latent)

    @quickly
    def differences(arrays: dict[str, Array], naturals: tuple[Natural, ...], keys: Array) -> Array:
        compressed = joint.compress(arrays)
        means = family.means(naturals)
        spread = [family.entropy(naturals, means, compressed, n) for n in auxiliary]
        data, masks = split_inputs(original, arrays)

        def one(key: Array) -> Array:
            values = family.sample(naturals, key)
            point = family.statistics(values, compressed)
            mixed = tuple(means[n] if n in auxiliary else t for n, t in enumerate(point))
            inner = energy(joint.summands, compressed, mixed)
            whole = original.log_density({k: values[k] for k in own}, data, masks)
            return whole - inner - sum(spread, start=jnp.zeros(()))

        each: Array = jax.lax.map(one, keys)
        return each

    return differences

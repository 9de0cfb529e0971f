"""The certificate: the derived form equals NumPyro's own log density, checked at derive time.

A wrong rule then raises instead of giving a wrong posterior. Where both say that a point has
density zero, nothing has been compared: discrete values that the data allow, and other scales, are
looked for until both are finite. Nor has it where the program's own density is rounding: where it
changes as much as the two differ if its operations are rounded otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.compiled import quickly
from lowerbound.compiled.host import OnHost, as_traced, lightly
from lowerbound.compiled.rounding import rounded_otherwise
from lowerbound.compiled.tracing import traced
from lowerbound.errors import CertificateError, UncertifiedError
from lowerbound.joint.energy.summands import Statistics, evaluate, gradient
from lowerbound.joint.multiaffine import Joint, origin_name
from lowerbound.joint.points import MOVED, random_point, restricted
from lowerbound.joint.templates.table import TEMPLATES
from lowerbound.joint.terms.domain import DISCRETE, OTHER, REAL
from lowerbound.joint.terms.impossible import IMPOSSIBLE, is_impossible
from lowerbound.joint.traced_program import split_inputs

RELATIVE_TOLERANCE = 1e-9
# NumPyro clips probabilities away from 0, which raises its density where a predictor is far out:
# there the equality is asked for nearer to zero.
NEARER = (1.0, 0.1, 0.01, 0.001)
SINGLE_TOLERANCE = 1e-5  # where the program itself computes with float32 constants
POINTS = 4  # that are compared, about
MOST_POINTS = 40  # that are tried until both densities are finite at one
ROUNDS = 3  # of choosing the likeliest value of every discrete site in turn
CLIPPED = (
    20.0  # nats: the least that NumPyro takes off for what is impossible (log of rounding: 36)
)
NOISE = 0.05  # of a difference: so large a change of the density itself makes it one of rounding
UNDERFLOW = -600.0  # where the log of a probability that has underflown is -inf in the program

Values = dict[str, Any]


def certificate(
    joint: Joint,
    data: Mapping[str, Any],
    statistics: Callable[[Mapping[str, jax.Array], Sequence[jax.Array]], Statistics],
    draws: int = 2,
    seed: int = 0,
    varied: Callable[[int], Mapping[str, Any]] | None = None,
) -> Callable[[], None]:
    """A check, traced now, compiled and run when it is called: energy(t(z)) = log p(x, z).

    It raises CertificateError unless they are equal at random points z, and UncertifiedError where
    no point with a positive density is found. `statistics` maps site values and compressed data to
    the blocks' point statistics,
    `varied(number)` a point's number to those of the data that are not the same at every point.

    NumPyro's handlers are not safe to use from several threads, XLA's compiler is.
    """
    tables = {
        latent.name: np.asarray(latent.support_values)
        for latent in joint.program.latents
        if latent.domain is DISCRETE
    }

    def both(arrays: Mapping[str, Any], values: Values) -> tuple[jax.Array, ...]:
        compressed, point = _at(joint, statistics, arrays, values)
        parts = jnp.stack([evaluate(s, compressed, point) for s in joint.summands])
        named = {n: jnp.asarray(tables[n])[v] if n in tables else v for n, v in values.items()}
        derived = parts.sum() + _base_measure(joint, values)
        # Summands may cancel, so rounding is judged on the scale of their absolute sum.
        expected = joint.model.log_density(named, *split_inputs(joint.model, arrays))
        return derived, expected, abs(parts).sum(), parts

    within = restricted(joint, data)
    other = {
        latent.name: [
            np.asarray(joint.model.draw(jax.random.key(seed + number))[latent.name])
            for number in range(draws)
        ]
        for latent in joint.program.latents
        if latent.domain is OTHER
    }

    def point(number: int) -> Values:
        rng = np.random.default_rng((seed, number))
        moved = MOVED[number % len(MOVED)]
        return {
            latent.name: other[latent.name][number % draws]
            if latent.name in other
            else random_point(latent, rng, within.get(latent.name), moved)
            for latent in joint.program.latents
        }

    closed, shapes = traced(both, return_shape=True)(dict(data), point(0))
    program = as_traced(closed, shapes, POINTS)
    lowered = None if isinstance(program, OnHost) else quickly(program).lower(dict(data), point(0))
    real = {latent.name for latent in joint.program.latents if latent.domain is REAL}
    curved = any(summand.curved for summand in joint.summands)
    tolerance, likelier = _tolerance(joint), _likelier(joint, statistics)

    def check() -> None:
        compiled = program if lowered is None else lowered.compile()

        def compared(inputs: Values, values: Values) -> _Compared:
            """Both densities at a point, beginning where it is and then nearer to zero."""
            for share in NEARER:
                scaled = {n: share * v if n in real else v for n, v in values.items()}
                *totals, parts = compiled(inputs, scaled)
                derived, expected, size = map(float, totals)
                nothing = _nothing(derived, expected)
                if not nothing and abs(derived - expected) <= tolerance * (
                    size + abs(expected) + 1.0
                ):
                    return _Compared(expected, agree=True)
                # Clips of the program, or a predictor that is far out.
                again = nothing or (curved and expected > derived)
                if not again:
                    break
            if nothing:
                low = [not value > 0.5 * IMPOSSIBLE for value in np.asarray(parts)]
                zero = [s.site for s, at in zip(joint.summands, low, strict=True) if at]
                return _Compared(expected, zero=tuple(dict.fromkeys(zero)))
            for otherwise in rounded_otherwise(closed):
                near = float(otherwise(*jax.tree.leaves((inputs, scaled)))[1])
                if abs(near - expected) >= NOISE * abs(derived - expected):
                    return _Compared(expected, rounded=True)
            raise CertificateError(derived, expected)

        def agreement(number: int) -> _Compared:
            """What a point says; with likelier values of discrete sites, where it says nothing."""
            values, inputs = point(number), dict(data)
            if varied is not None:
                inputs |= varied(number)
            before = compared(inputs, values)
            if before.agree or before.rounded or not tables:
                return before
            chosen = likelier(inputs, values)
            after = compared(inputs, {n: np.asarray(value) for n, value in chosen.items()})
            if after.agree and before.expected > after.expected - CLIPPED:
                raise CertificateError(-math.inf, before.expected)
            return after

        agreed = rounded = 0
        zero: tuple[str, ...] = ()
        for number in range(MOST_POINTS):
            found = agreement(number)
            agreed, rounded = agreed + found.agree, rounded + found.rounded
            zero = found.zero or zero
            if agreed == draws:
                return
        if not agreed:
            raise UncertifiedError(MOST_POINTS, zero, rounded)

    return check


class _Compared(NamedTuple):
    """NumPyro's log density at a point, and what its comparison with the derived one says.

    agree: they are equal. zero: the sites that are impossible there. rounded: their difference is
    one of rounding.
    """

    expected: float
    agree: bool = False
    zero: tuple[str, ...] = ()
    rounded: bool = False


def _nothing(derived: float, expected: float) -> bool:
    """Whether a comparison of two log densities would say nothing: at least one is log 0."""
    if math.isnan(expected) or is_impossible(expected):
        return not math.isfinite(derived) or derived < UNDERFLOW or math.isnan(expected)
    return bool(is_impossible(derived))


def _tolerance(joint: Joint) -> float:
    if " f32[" in str(joint.program.jaxpr) or ":f32[" in str(joint.program.jaxpr):
        return SINGLE_TOLERANCE
    known = [TEMPLATES.get(fixed["kind"]) for fixed in joint.program.static.values()]
    return max((template.tolerance for template in known if template), default=RELATIVE_TOLERANCE)


def _at(
    joint: Joint,
    statistics: Callable[..., Statistics],
    arrays: Mapping[str, Any],
    values: Mapping[str, Any],
) -> tuple[tuple[jax.Array, ...], Statistics]:
    """The compressed data, and the statistics of a point."""
    compressed = joint.compress(arrays)
    centred = {n: v - arrays.get(origin_name(n), 0) for n, v in values.items()}
    return compressed, statistics(centred, compressed)


def _likelier(
    joint: Joint, statistics: Callable[..., Statistics]
) -> Callable[[Mapping[str, Any], Values], Values]:
    """The point with every discrete site at its likeliest value given the others, in turn.

    The derivative of the energy at a point is the complete conditional (eq:exp-fam-cavi).
    """
    discrete = [block for block in joint.blocks if block.family.enumerable]

    def chosen(arrays: Mapping[str, Any], values: Values) -> Values:
        compressed, point = _at(joint, statistics, arrays, values)
        # Elements that meet in one term take turns: the even ones, then the odd ones.
        for turn in range(ROUNDS):
            for block in discrete:
                logits = gradient(joint.summands, compressed, point, block.number)
                best = block.family.likeliest(logits)
                if block.sequential:
                    old = block.pack(values)["z"]
                    own = jnp.arange(best.size).reshape(best.shape) % 2 == turn % 2
                    best = jnp.where(own, best, old)
                values = {**values, **block.unpack({"z": best})}
                _, point = _at(joint, statistics, arrays, values)
        return values

    return lightly(chosen, POINTS)


def _base_measure(joint: Joint, values: Mapping[str, jax.Array]) -> jax.Array:
    """The base measures of the factors, which energy and entropy leave out."""
    parts = [
        block.family.log_base(values[site]).sum()
        for block in joint.blocks
        if block.family.based
        for site in block.sites
    ]
    return sum(parts, start=jnp.zeros(()))

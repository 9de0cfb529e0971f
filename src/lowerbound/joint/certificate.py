"""The certificate: the derived form equals NumPyro's own log density, checked at derive time.

A wrong rule then raises instead of giving a wrong posterior.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from lowerbound.compiled import quickly
from lowerbound.errors import CertificateError
from lowerbound.joint.derive import Latent, split_inputs
from lowerbound.joint.energy import Statistics, evaluate
from lowerbound.joint.multiaffine import Joint, origin_name

RELATIVE_TOLERANCE = 1e-9
# NumPyro's densities of these use JAX's betaln, which has seven digits where an argument exceeds 8.
_SEVEN_DIGITS = {"GammaPoisson", "NegativeBinomial2", "NegativeBinomialProbs", "BetaBinomial"}
SEVEN_DIGITS_TOLERANCE = 1e-6
# NumPyro clips probabilities away from 0, which raises its density where a predictor is far out:
# there the equality is asked for nearer to zero.
NEARER = (1.0, 0.1, 0.01, 0.001)
SINGLE_TOLERANCE = 1e-5  # where the program itself computes with float32 constants


def check_certificate(
    joint: Joint,
    data: Mapping[str, Any],
    statistics: Callable[[Mapping[str, jax.Array], Sequence[jax.Array]], Statistics],
    draws: int = 2,
    seed: int = 0,
) -> None:
    """Raise CertificateError unless energy(t(z)) = log p(x, z) at random points z.

    `statistics` maps site values and compressed data to the blocks' point statistics.
    """
    certificate(joint, data, statistics, draws, seed)()


def certificate(
    joint: Joint,
    data: Mapping[str, Any],
    statistics: Callable[[Mapping[str, jax.Array], Sequence[jax.Array]], Statistics],
    draws: int = 2,
    seed: int = 0,
) -> Callable[[], None]:
    """The check of `check_certificate`, traced now; compiled and run when it is called.

    NumPyro's handlers are not safe to use from several threads, XLA's compiler is.
    """

    @quickly
    def both(arrays: Mapping[str, Any], values: dict[str, jax.Array]) -> tuple[jax.Array, ...]:
        compressed = joint.compress(arrays)
        centred = {n: v - arrays.get(origin_name(n), 0) for n, v in values.items()}
        point = statistics(centred, compressed)
        parts = jnp.stack([evaluate(s, compressed, point) for s in joint.summands])
        derived = parts.sum() + _base_measure(joint, values)
        # Summands may cancel, so rounding is judged on the scale of their absolute sum.
        expected = joint.model.log_density(values, *split_inputs(joint.model, arrays))
        return derived, expected, abs(parts).sum()

    extras = _extras(joint, data)
    points = []
    for number in range(draws):
        rng = np.random.default_rng((seed, number))
        points.append(
            {
                latent.name: random_point(latent, rng, extras.get(latent.name, {}))
                if latent.domain != "other"
                else np.asarray(joint.model.draw(jax.random.key(seed + number))[latent.name])
                for latent in joint.program.latents
            }
        )
    lowered = both.lower(dict(data), points[0])
    curved = any(summand.curved for summand in joint.summands)
    real = {latent.name for latent in joint.program.latents if latent.domain == "real"}
    single = " f32[" in str(joint.program.jaxpr) or ":f32[" in str(joint.program.jaxpr)
    kinds = {fixed["kind"] for fixed in joint.program.static.values()}
    tolerance = RELATIVE_TOLERANCE
    if kinds & _SEVEN_DIGITS:
        tolerance = SEVEN_DIGITS_TOLERANCE
    if single:
        tolerance = SINGLE_TOLERANCE

    def check() -> None:
        compiled = lowered.compile()
        for values in points:
            for share in NEARER:
                scaled = {n: share * v if n in real else v for n, v in values.items()}
                derived, expected, size = map(float, compiled(dict(data), scaled))
                if abs(derived - expected) <= tolerance * (size + abs(expected) + 1.0):
                    break
                clipped = curved and expected > derived and share > NEARER[-1]
                if not clipped:
                    raise CertificateError(derived, expected)

    return check


def random_point(
    latent: Latent, rng: np.random.Generator, extras: Mapping[str, np.ndarray]
) -> np.ndarray:
    """A random point of a latent site's support, inside what the data allow."""
    shape = latent.shape
    match latent.domain:
        case "positive" | "polya_gamma" | "inverse_gaussian":
            return np.exp(rng.normal(size=shape))
        case "unit":
            return rng.uniform(0.05, 0.95, size=shape)
        case "interval":
            return _between(latent.lower, latent.upper, rng, shape)
        case "simplex":
            return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])
        case "matrix":
            root = rng.normal(size=shape)
            return root @ np.swapaxes(root, -1, -2) + np.eye(shape[-1])
        case "discrete":
            return rng.choice(np.asarray(latent.support_values), size=shape)
        case "count" if "total" in extras:
            axis = next(a for a in range(len(shape)) if _without(shape, a) == extras["total"].shape)
            share = np.full(shape[axis], 1.0 / shape[axis])
            return np.moveaxis(rng.multinomial(extras["total"].astype(int), share), -1, axis) * 1.0
        case "count":
            return rng.poisson(2.0, size=shape) * 1.0
        case _ if "lower" in extras:
            away = np.abs(rng.normal(size=shape)) + 0.01
            above = np.isfinite(extras["lower"])
            return np.where(above, extras["lower"] + away, extras["upper"] - away)
    return rng.normal(size=shape)


def _between(
    lower: float, upper: float, rng: np.random.Generator, shape: tuple[int, ...]
) -> np.ndarray:
    if np.isfinite(lower) and np.isfinite(upper):
        return lower + (upper - lower) * rng.uniform(0.05, 0.95, size=shape)
    away = np.exp(rng.normal(size=shape))
    return lower + away if np.isfinite(lower) else upper - away


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _extras(joint: Joint, data: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    restricted = [block for block in joint.blocks if block.extras and block.kind != "free"]
    if not restricted:
        return {}
    arrays = joint.compress(data)
    return {
        site: {name: np.asarray(arrays[slot]) for name, slot in block.extras.items()}
        for block in restricted
        for site in block.sites
    }


def _base_measure(joint: Joint, values: Mapping[str, jax.Array]) -> jax.Array:
    """The base measure: the -log z! of latent counts, which energy and entropy leave out."""
    counts = [latent.name for latent in joint.program.latents if latent.domain == "count"]
    return -sum((gammaln(values[name] + 1.0).sum() for name in counts), start=jnp.zeros(()))

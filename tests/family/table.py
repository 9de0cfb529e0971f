"""The table of families the laws run over: adding a family adds a line to `CASES`.

Each case draws ordinary (not extreme) parameters, so that moments of order four exist and Monte
Carlo errors are normal; `tests/family` holds the extremes. A joint block also gives its density as
the product q(z) q(x | z) of NumPyro distributions, written from its own parameters rather than from
the natural ones.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.nn import log_softmax

from lowerbound.family import (
    Beta,
    Categorical,
    Dirichlet,
    ExponentialFamily,
    Free,
    Gamma,
    Geometric,
    MarkovChain,
    Multinomial,
    MultivariateNormal,
    Normal,
    NormalGamma,
    NormalWishart,
    Poisson,
    TruncatedNormal,
    Wishart,
)
from lowerbound.joint.terms.expression import Z

Parameters = dict[str, Any]
BATCH = (2,)


@dataclass(frozen=True)
class Case:
    """A family, its random parameters, and its density where marginals do not give it."""

    family: ExponentialFamily
    draw: Callable[[np.random.Generator], Parameters]
    natural: Callable[[Parameters], Parameters] = dict
    log_density: Callable[[Parameters, Mapping[str, Array]], Array] | None = None

    def __str__(self) -> str:
        options = [
            f"{key}={value}"
            for key, value in vars(self.family).items()
            if key not in ("batch_shape", "dim", "trees", "sizes", "axes")
            and value not in ((), False, math.inf)
        ]
        return "-".join([type(self.family).__name__, *options]).replace(" ", "")


def positive(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Positive numbers around 1."""
    return np.exp(0.5 * rng.normal(size=BATCH + shape))


def shapes(rng: np.random.Generator) -> np.ndarray:
    """Gamma shapes large enough for fourth moments of the inverse."""
    return 6 + 4 * rng.random(BATCH)


def definite(rng: np.random.Generator, dim: int) -> np.ndarray:
    """Well conditioned positive definite matrices."""
    root = rng.normal(size=(*BATCH, dim, dim + 3))
    return root @ np.swapaxes(root, -1, -2) / dim


def _truncated(rng: np.random.Generator) -> Parameters:
    lower = rng.normal(size=BATCH) - 1
    return {
        "x": rng.normal(size=BATCH),
        "x2": -positive(rng) / 2,
        "lower": np.where(rng.random(BATCH) < 0.3, -np.inf, lower),
        "upper": np.where(rng.random(BATCH) < 0.3, np.inf, lower + positive(rng)),
    }


def _gamma(power: float) -> Case:
    def draw(rng: np.random.Generator) -> Parameters:
        return {"log": power * shapes(rng) - 1, "power": -5 * positive(rng)}

    return Case(Gamma(BATCH, power), draw)


def _wishart(inverse: bool, dim: int = 3) -> Case:
    def draw(rng: np.random.Generator) -> Parameters:
        a, offset = shapes(rng) + dim / 2, (dim + 1) / 2
        logdet = -a - offset if inverse else a - offset
        return {"matrix": -5 * definite(rng, dim), "logdet": logdet}

    return Case(Wishart(BATCH, dim, inverse), draw)


def _normal_gamma(event_shape: tuple[int, ...], power: float, full: bool) -> Case:
    axes = tuple(range(-len(event_shape), 0))
    size = math.prod(event_shape)

    def draw(rng: np.random.Generator) -> Parameters:
        return {
            "a": shapes(rng),
            "b": 5 * positive(rng),
            "m": rng.normal(size=BATCH + event_shape),
            "precision": definite(rng, size) if full else positive(rng, *event_shape),
        }

    def natural(p: Parameters) -> Parameters:
        px = np.einsum("...ij,...j", p["precision"], p["m"]) if full else p["precision"] * p["m"]
        return {
            "log": power * (p["a"] + size / 2) - 1,
            "power": -p["b"] - np.sum(px * p["m"], axis=axes) / 2,
            "px": px,
            "pxx": -p["precision"] / 2,
        }

    def log_density(p: Parameters, values: Mapping[str, Array]) -> Array:
        z, x = values["z"], values["x"]
        tau = z**power
        jacobian = math.log(abs(power)) + (power - 1) * jnp.log(z)
        log_z = dist.Gamma(p["a"], p["b"]).log_prob(tau) + jacobian
        wide = jnp.expand_dims(tau, axes)
        if full:
            precision = wide[..., None] * p["precision"]
            log_x = dist.MultivariateNormal(p["m"], precision_matrix=precision).log_prob(x)
        else:
            scale = 1 / jnp.sqrt(wide * p["precision"])
            log_x = jnp.sum(dist.Normal(p["m"], scale).log_prob(x), axis=axes)
        return log_z + log_x

    return Case(NormalGamma(BATCH, event_shape, power, full), draw, natural, log_density)


def _normal_wishart(dim: int = 3) -> Case:
    def draw(rng: np.random.Generator) -> Parameters:
        return {
            "a": shapes(rng) + dim / 2,
            "B": 5 * definite(rng, dim),
            "m": rng.normal(size=(*BATCH, dim)),
            "kappa": positive(rng),
        }

    def natural(p: Parameters) -> Parameters:
        px = p["kappa"][..., None] * p["m"]
        return {
            "matrix": -p["B"] - px[..., :, None] * p["m"][..., None, :] / 2,
            "logdet": p["a"] - dim / 2,
            "px": px,
            "xpx": -p["kappa"] / 2,
        }

    def log_density(p: Parameters, values: Mapping[str, Array]) -> Array:
        precision = p["kappa"][..., None, None] * values["z"]
        log_x = dist.MultivariateNormal(p["m"], precision_matrix=precision).log_prob(values["x"])
        return dist.Wishart(2 * p["a"], rate_matrix=2 * p["B"]).log_prob(values["z"]) + log_x

    return Case(NormalWishart(BATCH, dim), draw, natural, log_density)


def _markov_chain(length: int = 4, dim: int = 3) -> Case:
    paths = jnp.asarray(list(itertools.product(range(dim), repeat=length)))

    def draw(rng: np.random.Generator) -> Parameters:
        return {
            "indicator": 0.3 * rng.normal(size=(*BATCH, length, dim)),
            "pair": 0.3 * rng.normal(size=(*BATCH, length - 1, dim, dim)),
            "absent": rng.integers(0, 3, size=BATCH).astype(float),
        }

    def log_density(p: Parameters, values: Mapping[str, Array]) -> Array:
        """Every path weighed, and those drawn looked up."""
        steps = np.arange(length)
        weights = p["indicator"][..., steps, paths].sum(-1)
        weights = weights + p["pair"][..., steps[:-1], paths[:, :-1], paths[:, 1:]].sum(-1)
        number = (values["z"] * dim ** steps[::-1]).sum(-1)
        return log_softmax(weights, axis=-1)[jnp.arange(BATCH[0]), number]

    return Case(MarkovChain(BATCH, length, dim), draw, log_density=log_density)


CASES: tuple[Case, ...] = (
    Case(Normal(BATCH), lambda rng: {"x": rng.normal(size=BATCH), "x2": -positive(rng)}),
    Case(
        MultivariateNormal(BATCH, 3),
        lambda rng: {"x": rng.normal(size=(*BATCH, 3)), "xx": -definite(rng, 3)},
    ),
    Case(TruncatedNormal(BATCH), _truncated),
    _gamma(1.0),
    _gamma(-1.0),
    _gamma(-2.0),
    Case(Beta(BATCH), lambda rng: {"log": positive(rng), "log1m": positive(rng) - 0.9}),
    Case(Dirichlet(BATCH, 4), lambda rng: {"log": 2 * positive(rng, 4) - 0.9}),
    Case(Categorical(BATCH, 4), lambda rng: {"indicator": rng.normal(size=(*BATCH, 4))}),
    _markov_chain(),
    _wishart(inverse=False),
    _wishart(inverse=True),
    _normal_gamma((), 1.0, full=False),
    _normal_gamma((2, 2), -2.0, full=False),
    _normal_gamma((3,), -1.0, full=True),
    _normal_wishart(),
    Case(
        Multinomial(BATCH, 3),
        lambda rng: {
            "count": rng.normal(size=(*BATCH, 3)),
            "total": rng.integers(1, 9, size=BATCH).astype(float),
        },
    ),
    Case(Poisson(BATCH), lambda rng: {"count": rng.normal(size=BATCH)}),
    Case(Geometric(BATCH), lambda rng: {"count": -positive(rng)}),
    Case(
        Free(BATCH, (Z, ("power", Z, ("number", -1.0))), ((), ()), ((), ()), lower=0.0),
        lambda rng: {"s0": -positive(rng), "s1": -positive(rng)},
    ),
)


def as_arrays(parameters: Mapping[str, Any], dtype: str) -> dict[str, Array]:
    """Parameters as JAX arrays of one floating type."""
    return {key: jnp.asarray(value, dtype) for key, value in parameters.items()}

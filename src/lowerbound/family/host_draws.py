"""Draws of common factors by NumPy: nothing is compiled for a few of them.

A program that draws from a Gamma law takes longer to compile than a small fit takes in all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np

from lowerbound.compiled import Kept
from lowerbound.compiled.host import Light, lightly
from lowerbound.family.exponential import ExponentialFamily
from lowerbound.family.factors.free import Free
from lowerbound.family.factors.gaussian import MultivariateNormal, Normal
from lowerbound.family.factors.normal_gamma import NormalGamma
from lowerbound.family.factors.precision import Gamma
from lowerbound.family.factors.simplex import Beta, Dirichlet

Numbers = Mapping[str, np.ndarray]
Drawn = dict[str, np.ndarray]
TINY, MOST = float(np.finfo(float).tiny), float(np.finfo(float).max)
ROUNDED = float(np.finfo(float).eps) / 4  # a shape parameter that was rounded to zero
LARGE = 200  # numbers of a Gaussian of low rank whose covariance is not factored
_inverted: Kept[Light] = Kept(32)


@singledispatch
def drawn(
    family: ExponentialFamily, natural: Numbers, rng: np.random.Generator, count: int
) -> Drawn | None:
    """Values of a factor, (count, ...); None where it has no such draws."""
    return None


def all_drawn(
    families: Sequence[ExponentialFamily],
    naturals: Sequence[Mapping[str, Any]],
    count: int,
    seed: int | np.ndarray,
) -> list[Drawn] | None:
    """Values of all factors; None where one has no such draws."""
    rng, found = np.random.default_rng(seed), []
    for family, natural in zip(families, naturals, strict=True):
        values = drawn(family, {k: np.asarray(a, float) for k, a in natural.items()}, rng, count)
        if values is None:
            return None
        found.append(values)
    return found


@drawn.register
def _(family: Normal, natural: Numbers, rng: np.random.Generator, count: int) -> Drawn | None:
    precision = -2 * natural["x2"]
    noise = rng.standard_normal((count, *family.batch_shape))
    return {"x": natural["x"] / precision + noise / np.sqrt(precision)}


@drawn.register
def _(
    family: MultivariateNormal, natural: Numbers, rng: np.random.Generator, count: int
) -> Drawn | None:
    mean, root = _gaussian(natural["x"], natural["xx"])
    return {"x": mean + _correlated(root, rng.standard_normal((count, *mean.shape)))}


@drawn.register
def _(family: Gamma, natural: Numbers, rng: np.random.Generator, count: int) -> Drawn | None:
    shape = _inside((natural["log"] + 1) / family.power)
    return {"z": _power(rng, shape, -natural["power"], family.power, (count, *family.batch_shape))}


@drawn.register
def _(family: NormalGamma, natural: Numbers, rng: np.random.Generator, count: int) -> Drawn | None:
    axes = tuple(range(-len(family.event_shape), 0))
    if family.full:
        mean, root = _gaussian(natural["px"], natural["pxx"])
    else:
        precision = -2 * natural["pxx"]
        mean, root = natural["px"] / precision, 1 / np.sqrt(precision)
    shape = _inside((natural["log"] + 1) / family.power - family.size / 2)
    rate = -natural["power"] - (natural["px"] * mean).sum(axis=axes) / 2
    z = _power(rng, shape, rate, family.power, (count, *family.batch_shape))
    noise = rng.standard_normal((count, *mean.shape))
    noise = noise * np.expand_dims(z ** (-family.power / 2), axes)
    return {"z": z, "x": mean + (_correlated(root, noise) if family.full else root * noise)}


@drawn.register
def _(family: Beta, natural: Numbers, rng: np.random.Generator, count: int) -> Drawn | None:
    a, b = _inside(natural["log"] + 1), _inside(natural["log1m"] + 1)
    z = rng.beta(a, b, (count, *family.batch_shape))
    return {"z": np.clip(z, TINY, 1 - float(np.finfo(float).epsneg))}


@drawn.register
def _(family: Dirichlet, natural: Numbers, rng: np.random.Generator, count: int) -> Drawn | None:
    logs = _log_gamma(rng, _inside(natural["log"] + 1), (count, *natural["log"].shape))
    shares = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return {"z": np.maximum(shares / shares.sum(axis=-1, keepdims=True), TINY)}


@drawn.register
def _(family: Free, natural: Numbers, rng: np.random.Generator, count: int) -> Drawn | None:
    uniform = rng.uniform(size=(count, *family.batch_shape))
    invert = _inverted.of(family, lambda: lightly(family.inverted))
    return {"z": np.asarray(invert(dict(natural), uniform))}


# --------------------------------------------------------------------------------------------------
# Gaussians of all sites together, on the unconstrained space


def gaussian_root(parameters: Mapping[str, Any]) -> np.ndarray | None:
    """A root of the covariance: (d, d), or (d,) where it is diagonal.

    None of precisions, of rows by themselves, and of large covariances of low rank.
    """
    if "scale_tril" in parameters:
        return np.asarray(parameters["scale_tril"], float)
    if "scale" not in parameters:
        return None
    scale = np.asarray(parameters["scale"], float)
    if "factor" not in parameters:
        return scale
    if len(scale) > LARGE:
        return None
    factor = np.asarray(parameters["factor"], float)
    root: np.ndarray = np.linalg.cholesky(np.diag(scale**2) + factor @ factor.T)
    return root


def gaussian_draws(
    parameters: Mapping[str, Any], seed: int, count: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Draws of u, one per row, and log q at each; None where the root is not known."""
    root, loc = gaussian_root(parameters), np.asarray(parameters["loc"], float)
    if root is None:
        return None
    noise = np.random.default_rng(seed).standard_normal((count, len(loc)))
    wide = np.abs(root if root.ndim == 1 else np.diagonal(root))
    constant = 0.5 * len(loc) * math.log(2 * math.pi) + np.log(wide).sum()
    log_q: np.ndarray = -0.5 * (noise**2).sum(axis=1) - constant
    return loc + (noise * root if root.ndim == 1 else noise @ root.T), log_q


# --------------------------------------------------------------------------------------------------
# Parts of them


def _inside(shape: np.ndarray) -> np.ndarray:
    return np.where(shape == 0, ROUNDED, shape)


def _log_gamma(rng: np.random.Generator, shape: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Logs of Gamma draws, of small shapes too: Gamma(a) is Gamma(a + 1) U^(1/a)."""
    raised, lowered = rng.standard_gamma(shape + 1, size), rng.standard_exponential(size)
    logs: np.ndarray = np.log(raised) - lowered / shape
    return logs


def _power(
    rng: np.random.Generator,
    shape: np.ndarray,
    rate: np.ndarray,
    power: float,
    size: tuple[int, ...],
) -> np.ndarray:
    """Draws of tau**(1/power), tau Gamma(shape, rate), kept positive and finite."""
    logs = _log_gamma(rng, shape, size) - np.log(rate)
    draws: np.ndarray = np.clip(np.exp(logs / power), TINY, MOST)
    return draws


def _gaussian(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and a root of the covariance, from natural parameters."""
    precision = -(second + np.swapaxes(second, -1, -2))
    cholesky = np.linalg.cholesky(precision)
    root = np.swapaxes(np.linalg.inv(cholesky), -1, -2)
    mean = (root @ np.swapaxes(root, -1, -2) @ first[..., None])[..., 0]
    return mean, root


def _correlated(root: np.ndarray, noise: np.ndarray) -> np.ndarray:
    found: np.ndarray = (root @ noise[..., None])[..., 0]
    return found

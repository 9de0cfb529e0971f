"""Whether fits are of the same data: what their programs observe, whatever they call it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import numpy as np

from lowerbound.compiled import traced
from lowerbound.errors import DifferentDataError, UnjudgedError
from lowerbound.errors.wording import entry_of
from lowerbound.model import Model
from lowerbound.model.dependence import evaluator
from lowerbound.result.fitted import Fit

CLOSE = 1e-6  # relative: single precision on the way


def check_same_data(fits: Mapping[str, Fit], in_order: bool = False) -> tuple[str, ...]:
    """Raise DifferentDataError unless all fits observe the same values; returns notes.

    The sites may have other names or be fewer; `in_order` asks for the same order as well.
    """
    notes = []
    first: tuple[str, dict[str, np.ndarray]] | None = None
    for name, fit in fits.items():
        if not fit.has_data:
            raise UnjudgedError(f"the file of '{name}' holds no data; pass them to lb.load")
        if not fit.whole:
            notes.append(f"Whether '{name}' is of the same data is not known: it kept some rows.")
            continue
        found = observations(fit)
        if not found:
            notes.append(
                f"Whether '{name}' is of the same data is not known: they enter by numpyro.factor."
            )
        elif first is None:
            first = name, found
        else:
            text = _different(first[1], found, in_order)
            if text:
                raise DifferentDataError(first[0], name, text)
    return tuple(notes)


def observations(fit: Fit) -> dict[str, np.ndarray]:
    """The values that the program of a fit observes, by site; those that are missing are NaN."""
    with jax.enable_x64(True):
        model = fit.own_model()
        names = [name for name, site in model.observed.items() if not site.is_factor]
        every = _values(model, names)
    found = {}
    for name, values in zip(names, every, strict=True):
        site = model.observed[name]
        if site.missing is not None:
            mask = site.missing.reshape(
                site.missing.shape + (1,) * (values.ndim - site.missing.ndim)
            )
            values = np.where(mask, np.nan, values)
        found[name] = values
    return found


def _values(model: Model, names: Sequence[str]) -> list[np.ndarray]:
    """What sites observe: most often an argument as it is, so that nothing is compiled."""
    data, latents = model.arguments.data, jax.eval_shape(model.draw, jax.random.key(0))

    def program(data: Mapping[str, jax.Array], latents: Mapping[str, jax.Array]) -> list[jax.Array]:
        densities = model.run(latents, data)
        return [densities[name].value for name in names]

    closed = traced(program)(data, latents)
    fillers = [np.zeros(one.shape, one.dtype) for one in jax.tree.leaves(latents)]
    found = evaluator(closed, range(len(names)))([*jax.tree.leaves(data), *fillers])
    return [np.asarray(array, float) for array in found]


def _different(
    first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray], in_order: bool
) -> str:
    """How two sets of observations differ; empty where they do not."""
    if first.keys() == second.keys():
        pairs = [(name, name) for name in first]
    elif len(first) == len(second):
        pairs = list(zip(first, second, strict=True))
    else:
        pairs = []
    if pairs and all(_equal(first[a], second[b]) for a, b in pairs):
        return ""
    every = [np.concatenate([a.ravel() for a in one.values()]) for one in (first, second)]
    if _equal(np.sort(every[0]), np.sort(every[1])):
        return "the rows are in another order" if in_order else ""
    for a, b in pairs:
        one, other = first[a], second[b]
        if one.shape != other.shape:
            return f"'{a}' has the shape {one.shape}, '{b}' {other.shape}"
        unlike = np.argwhere(~_close(one, other))
        if len(unlike):
            index = tuple(int(i) for i in unlike[0])
            left, right = (f"{array[index]:.6g}" for array in (one, other))
            return f"{entry_of(a, index)} = {left}, and {entry_of(b, index)} = {right}"
    left, right = (
        f"{len(array):,} numbers ({', '.join(one)})"
        for array, one in zip(every, (first, second), strict=True)
    )
    return f"the first observes {left}, the second {right}"


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and bool(_close(first, second).all())


def _close(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    close: np.ndarray = np.isclose(first, second, rtol=CLOSE, atol=0.0, equal_nan=True)
    return close

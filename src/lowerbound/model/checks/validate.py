"""Checks of the data and of the sites, before any work starts."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
from jax import Array
from numpyro.distributions import biject_to, constraints

from lowerbound.compiled import traced
from lowerbound.errors import (
    EmptyDataError,
    NoCoordinatesError,
    NoLatentSiteError,
    SupportError,
    UnusedDataError,
)
from lowerbound.model.dependence import dependence
from lowerbound.model.inputs.arguments import Arguments
from lowerbound.model.record import Record
from lowerbound.model.sites import Model, Site


def check_not_empty(found: Record, arguments: Arguments) -> None:
    """No site is empty because a data array is."""
    for name, array in arguments.data.items():
        if array.size:
            continue
        reached = {*found.depending_on(name)}
        for entry in found.entries:
            outputs = {entry.value, *entry.parameters}
            if 0 in entry.batch_shape + entry.event_shape and outputs & reached:
                raise EmptyDataError(name, array.shape)


def check_sites(found: Record) -> None:
    """There is something to infer."""
    latent = [entry.name for entry in found.entries if entry.kind == "latent"]
    observed = [entry.name for entry in found.entries if entry.kind == "observed"]
    if not latent:
        raise NoLatentSiteError(observed)


def check_coordinates(model: Model) -> None:
    """Real numbers can be mapped to the values of every latent site that is not discrete."""
    for site in model.latent.values():
        if site.support is None or site.support.is_discrete:
            continue
        try:
            biject_to(site.support)
        except NotImplementedError:
            raise NoCoordinatesError(
                site.name, site.distribution, site.where, describe(site.support)
            ) from None


def ignored(found: Record, model: Model) -> tuple[str, ...]:
    """The data arguments, if no density depends on the values of any; empty if one does.

    Raises where the program observes nothing else: then data were meant to be.
    """
    # Values that the program inspects in Python leave no trace in the jaxpr: they count as used.
    data = model.arguments.data
    if not data or model.concrete or found.used():
        return ()
    # Parameters that a distribution does not declare are no outputs of the record.
    if _densities_depend_on_data(model):
        return ()
    if not model.observed:
        raise UnusedDataError(tuple(data))
    return tuple(data)


def _densities_depend_on_data(model: Model) -> bool:
    def densities(latents: Mapping[str, Array], data: Mapping[str, Array]) -> list[Array]:
        return [density.log_prob() for density in model.run(latents, data).values()]

    latents = jax.eval_shape(model.draw, jax.random.key(0))
    closed = traced(densities)(latents, model.arguments.data)
    return any(max(inputs, default=0) >= len(latents) for inputs in dependence(closed.jaxpr))


class _Integers(constraints.Constraint):  # type: ignore[misc]
    """What all supports of some site are part of, though its bounds depend on latent values."""

    is_discrete = True

    def __call__(self, x: np.ndarray) -> np.ndarray:
        whole: np.ndarray = np.asarray(x) % 1 == 0
        return whole

    def tree_flatten(self) -> tuple[tuple[()], tuple[tuple[()], dict[str, object]]]:
        """It has no parameters."""
        return (), ((), {})


INTEGERS = _Integers()


def check_support(
    site: Site,
    base_event_dim: int,
    value: np.ndarray,
    mask: np.ndarray | None,
    data: Mapping[str, np.ndarray],
) -> None:
    """Every observation that counts is possible under its distribution."""
    if site.support is None or site.distribution == "ImproperUniform":
        return
    if type(site.support) is type(constraints.real):
        return  # what is no number shows in the densities (`numbers`)
    try:
        possible = _allowed(site.support, value)
    except (NotImplementedError, TypeError, ValueError):
        return
    bad = ~possible
    if site.missing is not None:
        bad = bad & ~site.missing
    if mask is not None:
        bad = bad & mask
    if not bad.any():
        return
    index = _first(bad)
    index = index[max(len(index) - (value.ndim - base_event_dim), 0) :]
    entry = value[index] if value.ndim >= len(index) else value
    argument = next(
        (n for n, a in data.items() if a.shape == value.shape and np.array_equal(a, value)), None
    )
    raise SupportError(
        site.name,
        site.where,
        site.distribution,
        describe(site.support),
        argument,
        index,
        str(np.asarray(entry).tolist()),
        int(bad.sum()),
        negative_count=_counts(site.support) and bool(np.any(np.asarray(entry) < 0)),
    )


def _allowed(support: constraints.Constraint, value: np.ndarray) -> np.ndarray:
    """Which values a support has; singles are judged with the rounding that singles have."""
    possible = _asked(support, value)
    if possible.all() or value.dtype.kind != "f":
        return possible
    single = value.astype(np.float32)
    return possible | _asked(support, single) if np.array_equal(single, value) else possible


def _asked(support: constraints.Constraint, value: np.ndarray) -> np.ndarray:
    """What a support says of every event; some of NumPyro 0.21 say one thing of all together."""
    found = np.asarray(support(value))
    batch = value.shape[: value.ndim - support.event_dim]
    if found.all() or found.ndim >= len(batch):
        return found
    events = value.reshape(-1, *value.shape[len(batch) :])
    return np.reshape([bool(np.all(support(one))) for one in events], batch)


def describe(support: constraints.Constraint) -> str:
    """A support in words."""
    plain = {
        "Boolean": "0 or 1",
        "Integers": "the integers",
        "IntegerNonnegative": "the integers 0, 1, 2, ...",
        "IntegerPositive": "the integers 1, 2, 3, ...",
        "Positive": "positive numbers",
        "Nonnegative": "numbers >= 0",
        "UnitInterval": "the interval (0, 1)",
        "Simplex": "vectors of numbers >= 0 that sum to 1",
        "PositiveDefinite": "symmetric positive definite matrices",
        "CorrCholesky": "Cholesky factors of correlation matrices",
        "Sphere": "vectors of length 1",
        "ZeroSum": "vectors of numbers that sum to 0",
        "Real": "real numbers",
    }
    kind = type(support).__name__.lstrip("_")
    if kind in plain:
        return plain[kind]
    bounds = [getattr(support, f"{side}_bound", None) for side in ("lower", "upper")]
    low, high = (None if b is None else _range(np.asarray(b)) for b in bounds)
    if kind == "Multinomial":
        return f"vectors of integers >= 0 that sum to {high}"
    whole = "the integers" if "Integer" in kind else "numbers"
    if low is not None and high is not None:
        return f"{whole} from {low} to {high}"
    if low is not None:
        return f"{whole} above {low}"
    if high is not None:
        return f"{whole} below {high}"
    return kind


def _range(bound: np.ndarray) -> str:
    low, high = bound.min(), bound.max()
    return f"{low:g}" if low == high else f"({low:g} to {high:g}, by entry)"


def _counts(support: constraints.Constraint) -> bool:
    kind = type(support).__name__
    lower = getattr(support, "lower_bound", None)
    return kind in ("_IntegerNonnegative", "_Multinomial") or (
        "Integer" in kind and lower is not None and bool(np.all(np.asarray(lower) == 0))
    )


def _first(bad: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(bad)[0])

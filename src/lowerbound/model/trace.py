"""From a NumPyro program and its arguments to a Model."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions.constraints import Constraint

from lowerbound.errors import (
    DataTypeError,
    EmptyDataError,
    LowerboundError,
    ShapeError,
    UnsupportedModelError,
)
from lowerbound.errors.wording import first_line
from lowerbound.model.checks.parameter_values import check_parameters
from lowerbound.model.checks.validate import (
    INTEGERS,
    check_coordinates,
    check_not_empty,
    check_sites,
    check_support,
    ignored,
)
from lowerbound.model.closed_over import in_any_precision
from lowerbound.model.dependence import equal_programs, restrict
from lowerbound.model.inputs.arguments import Arguments, split_arguments
from lowerbound.model.inputs.leaves import whole_array
from lowerbound.model.inputs.missing import missing_masks
from lowerbound.model.inputs.numbers import check_numbers
from lowerbound.model.looking import is_inspection, least_sight
from lowerbound.model.narrow import is_about_types, narrowed
from lowerbound.model.record import Entry, Record, is_about_shapes, record
from lowerbound.model.sites import Model, Site
from lowerbound.model.spare_entries import spare_sites, without_masks
from lowerbound.model.user_lines import counts_steps, error_line, error_site


def trace_model(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    plate: str | None = None,
) -> Model:
    """Read the joint density p(z, x) that a NumPyro program states for the given arguments.

    The program runs once, abstractly. Bad input (NaN, impossible observations, shapes that do not
    fit, ...) is named by argument and position before any work starts. `plate` names the plate of
    the rows, where that is not for the model to decide. An attribute `unsettled` of the function
    names arguments whose values stand for many others (those of a grid, say): like latent values,
    they decide nothing here.

    >>> import numpy as np, numpyro, numpyro.distributions as dist
    >>> def coin(y):
    ...     p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    ...     with numpyro.plate("tosses", len(y)):
    ...         numpyro.sample("y", dist.Bernoulli(p), obs=y)
    >>> model = trace_model(coin, (np.array([1, 0, 1]),))
    >>> [(site.name, site.kind, site.distribution, site.shape) for site in model.sites]
    [('p', 'latent', 'Beta', ()), ('y', 'observed', 'BernoulliProbs', (3,))]
    >>> model.data_plate
    Plate(name='tosses', size=3, dim=-1)
    """
    function = in_any_precision(function)
    arguments = split_arguments(function, args, kwargs or {})
    with jax.enable_x64(True):
        key = jax.random.key(0)
        program, found = _readable(function, arguments, key)
        check_sites(found)
        check_not_empty(found, arguments)
        missing = missing_masks(program, arguments, found, key)
        prior, subsampled = _prior(found, arguments), found.subsampled
        model = Model(program, arguments, (), found.sight, prior, plate, subsampled)
        check_numbers(model, missing, found)
        unsettled = getattr(function, "unsettled", ())
        sites = _sites(found, missing, arguments, key, unsettled)
        check_parameters(found, arguments, key, unsettled)
        model = dataclasses.replace(model, sites=sites, single=program is not function)
        model = dataclasses.replace(model, ignored=ignored(found, model))
        check_coordinates(model)
        spare = spare_sites(found, model)
        if spare:
            known = [entry.name for entry in found.entries]
            return trace_model(without_masks(function, spare, known), args, kwargs, plate)
        return model


def outline(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """The sites of a program from the shapes of its data, and the data whose values it inspects.

    No value is read or checked, so the data may be stand-ins of any size.
    """
    arguments = split_arguments(function, args, kwargs)
    with jax.enable_x64(True):
        _, found = _readable(function, arguments, jax.random.key(0))
        check_sites(found)
        return found.entries, found.sight.names


# ---------------------------------------------------------------------------------------------
# The run
# ---------------------------------------------------------------------------------------------


def _readable(
    function: Callable[..., Any], arguments: Arguments, key: Array
) -> tuple[Callable[..., Any], Record]:
    """The program and its run: in the types of its author, where it has no other."""
    try:
        return function, _record(function, arguments, key)
    except TypeError as error:
        if not is_about_types(error):
            raise
    program = narrowed(function)
    return program, _record(program, arguments, key)


def _record(function: Callable[..., Any], arguments: Arguments, key: Array) -> Record:
    """Run the program; where it inspects data, with as few data arguments fixed as will do."""
    try:
        found, _ = least_sight(
            lambda sight: record(function, arguments, sight, key), tuple(arguments.data)
        )
    except LowerboundError:
        raise
    except Exception as error:
        for name, array in arguments.data.items():
            if array.size == 0:  # a maximum of nothing, say
                raise EmptyDataError(name, array.shape) from error
        if isinstance(error, TypeError) and arguments.labels:  # text where a number is needed
            name, label = next(iter(arguments.labels.items()))
            array = whole_array(label)
            raise DataTypeError(name, str(array.dtype), array.shape) from error
        if is_about_types(error):
            raise
        if is_inspection(error):
            raise _control_flow(error) from error
        if not isinstance(error, TypeError | ValueError | AssertionError):
            raise
        if not is_about_shapes(error):
            raise
        where, source = error_line(error)
        shapes = [f"{name} {array.shape}" for name, array in arguments.data.items()]
        message = first_line(error)
        raise ShapeError.of_line(where, source, error_site(error), message, shapes) from error
    return found


def _control_flow(error: Exception) -> UnsupportedModelError:
    where, source = error_line(error)
    if counts_steps(error, source):
        return UnsupportedModelError(
            f"The number of steps of a loop depends on a latent value   ({where})\n  {source}\n"
            "Expected a number that is known before: the length of an array, or an argument. Take "
            "as many steps as there may be, and leave those beyond the end out by "
            "numpyro.handlers.mask."
        )
    if isinstance(error, TypeError) and "unsupported operand type" in str(error):
        said = re.sub("'[A-Za-z]*Tracer'", "a latent value", first_line(error))
        return UnsupportedModelError(
            f"Python says: {said}   ({where})\n  {source}\n"
            "Expected numbers or arrays on both sides. The other one may be a list, None, or a "
            "method that was meant to be called."
        )
    return UnsupportedModelError(
        "Python control flow, a Python number or a NumPy function depends on a latent value   "
        f"({where})\n  {source}\n"
        "Expected operations that JAX can trace: use jnp.where or jax.lax.cond instead of if, "
        "and jnp functions instead of NumPy's."
    )


def _prior(found: Record, arguments: Arguments) -> Callable[[Array], dict[str, Array]]:
    """Draws from the prior: the latent values of the recorded run, as a function of the key."""
    latent = [entry for entry in found.entries if entry.kind == "latent"]
    outputs = cache(
        lambda: equal_programs(restrict(found.closed, [entry.value for entry in latent]))
    )
    data = [arguments.data[name] for name in found.names]

    def prior(key: Array) -> dict[str, Array]:
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            key = jax.random.wrap_key_data(key)
        values = [_double(value) for value in outputs()(key, *data)]
        return {entry.name: value for entry, value in zip(latent, values, strict=True)}

    return prior


def _double(value: Array) -> Array:
    return value.astype(float) if jnp.issubdtype(value.dtype, jnp.floating) else value


# ---------------------------------------------------------------------------------------------
# The records
# ---------------------------------------------------------------------------------------------


def _sites(
    found: Record,
    missing: Mapping[str, np.ndarray],
    arguments: Arguments,
    key: Array,
    unsettled: Sequence[str],
) -> tuple[Site, ...]:
    """The sites, with supports, after the observations are checked against these."""
    facts = {e.name: _facts(e, found, {}) for e in found.entries if e.kind != "deterministic"}
    # What the shapes alone do not decide is computed, all of it in one compilation.
    wanted: list[int] = []
    for entry in found.entries:
        if entry.kind == "observed" and not entry.is_factor:
            wanted += [entry.value, *([] if entry.mask is None else [entry.mask])]
        if entry.name in facts and not facts[entry.name].complete:
            wanted += entry.parameters
    wanted = [o for o in dict.fromkeys(wanted) if found.is_settled(o, unsettled)]
    known = found.reader(wanted, key)(arguments)
    sites = []
    for entry in found.entries:
        site = Site(
            name=entry.name,
            kind=entry.kind,  # type: ignore[arg-type]
            distribution="Deterministic" if entry.base is None else entry.base.__name__,
            batch_shape=entry.batch_shape,
            event_shape=entry.event_shape,
            support=None,
            plates=entry.plates,
            where=entry.where,
            missing=missing.get(entry.name),
        )
        if entry.name in facts:
            fact = facts[entry.name]
            fact = fact if fact.complete else _facts(entry, found, known)
            site = dataclasses.replace(
                site,
                support=fact.support,
                support_values=fact.values,
                categories=None if fact.values is None else len(fact.values),
                moving=fact.moving,
            )
        if site.kind == "observed" and not site.is_factor and entry.value in known:
            mask = None if entry.mask is None else known.get(entry.mask)
            if entry.mask is None or mask is not None:
                least = dataclasses.replace(site, support=INTEGERS) if fact.whole else site
                check_support(least, entry.base_event_dim, known[entry.value], mask, arguments.data)
        sites.append(site)
    return tuple(sites)


@dataclasses.dataclass(frozen=True)
class _Facts:
    """Support and support points of a site; not complete when its parameters decide them.

    A support that is `moving` is another one where these are others; if `whole`, it then holds
    other integers.
    """

    support: Constraint | None
    values: np.ndarray | None
    complete: bool
    moving: bool = False
    whole: bool = False


def _facts(entry: Entry, found: Record, known: Mapping[int, np.ndarray]) -> _Facts:
    """Rebuild the distribution with two different fillers for what is unknown, and compare."""
    assert entry.rebuild is not None
    first, second = (
        entry.rebuild(
            [known[o] if o in known else found.filled(o, filler) for o in entry.parameters]
        )
        for filler in (0, 1)
    )
    supports = _support(first), _support(second)
    decided = _equal_trees(*supports)
    support = supports[0] if decided else None
    moving = not decided and None not in supports
    whole = moving and all(s is not None and s.is_discrete and not s.event_dim for s in supports)
    if entry.kind != "latent" or not getattr(first, "has_enumerate_support", False):
        return _Facts(support, None, decided, moving, whole)
    points = _points(first), _points(second)
    same = points[0] is not None and _equal_trees(*points)
    return _Facts(support, points[0] if same else None, decided and same, moving)


def _support(distribution: Any) -> Constraint | None:
    try:
        support: Constraint = distribution.support
    except (NotImplementedError, AttributeError, TypeError, ValueError):
        return None
    return support


def _points(distribution: Any) -> np.ndarray | None:
    """Support points of a scalar finite discrete distribution, in order."""
    if distribution.event_shape:
        return None
    try:
        return np.asarray(distribution.enumerate_support(expand=False)).reshape(-1)
    except (NotImplementedError, TypeError, ValueError):
        return None


def _equal_trees(first: Any, second: Any) -> bool:
    if type(first) is not type(second):
        return False
    leaves = jax.tree.leaves(first), jax.tree.leaves(second)
    return len(leaves[0]) == len(leaves[1]) and all(
        np.array_equal(a, b) for a, b in zip(*leaves, strict=True)
    )

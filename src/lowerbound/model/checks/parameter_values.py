"""Parameters of distributions that no law has: a negative scale, a probability beyond one.

Only those that latent values do not decide are looked at, where every element counts: numbers in
the program, and what follows from its data. NumPyro's own validation needs concrete numbers, and is
off inside a compiled program: the density is then NaN, and everything that looks at it fails in its
own words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from jax import Array
from jax.extend.core import Literal
from numpyro.distributions import Distribution, VonMises, constraints

from lowerbound.compiled.host import light
from lowerbound.errors import ParameterValueError
from lowerbound.model.dependence import restrict
from lowerbound.model.inputs.arguments import Arguments
from lowerbound.model.record import Entry, Record

SLACK: Final = 1e-5  # beyond a bound: rounding of single precision
# Where zero is no limit of laws on the line: of counts a rate of zero is one, and of angles.
NOT_ZERO: Final = ("scale", "concentration", "concentration0", "concentration1", "rate")
FACTORS: Final = (constraints.lower_cholesky, constraints.positive_definite)


def check_parameters(
    found: Record, arguments: Arguments, key: Array, unsettled: Sequence[str]
) -> None:
    """Raise ParameterValueError for the first site whose distribution cannot be meant."""
    sites = [e for e in found.entries if e.rebuild is not None and not e.is_factor]
    known = _known(found, arguments, key, [o for e in sites for o in e.parameters], unsettled)
    whole = all(np.isfinite(a).all() for a in arguments.data.values() if a.dtype.kind == "f")
    for entry in sites:
        if entry.mask is None and any(o in known for o in entry.parameters):
            _check(entry, found, known, arguments.data, whole)


def _known(
    found: Record,
    arguments: Arguments,
    key: Array,
    outputs: Sequence[int],
    unsettled: Sequence[str],
) -> dict[int, np.ndarray]:
    """Outputs that are settled, if to know them takes no compilation; else those written down."""
    settled = [o for o in dict.fromkeys(outputs) if found.is_settled(o, unsettled)]
    atoms = found.closed.jaxpr.outvars
    inputs = [key, *(arguments.data[name] for name in found.names)]
    given = dict(zip(found.closed.jaxpr.invars, inputs, strict=True))
    run = light(restrict(found.closed, settled)) if settled else None
    if run is not None:
        return dict(zip(settled, map(np.asarray, run(*inputs)), strict=True))
    written = {o: atoms[o].val for o in settled if isinstance(atoms[o], Literal)}
    passed = {o: given[a] for o in settled if not isinstance(a := atoms[o], Literal) and a in given}
    return {o: np.asarray(value) for o, value in (written | passed).items()}


def _check(
    entry: Entry,
    found: Record,
    known: Mapping[int, np.ndarray],
    data: Mapping[str, np.ndarray],
    whole: bool,
) -> None:
    assert entry.rebuild is not None
    first, second = (
        entry.rebuild(
            [known[o] if o in known else found.filled(o, filler) for o in entry.parameters]
        )
        for filler in (0, 1)
    )
    for (law, name, value), (_, _, other) in zip(*map(_parameters, (first, second)), strict=True):
        if not np.array_equal(value, other, equal_nan=True):
            continue  # latent values decide it
        bad, expected = _impossible(law, name, value)
        if not whole:
            bad &= ~np.isnan(value)  # what the data lack is a matter of its own
        if bad.any():
            index = tuple(int(i) for i in np.argwhere(bad)[0])
            same = (n for n, a in data.items() if np.array_equal(a, value))
            raise ParameterValueError(
                site=entry.name,
                where=entry.where,
                distribution=type(law).__name__,
                parameter=name,
                index=index,
                value=float(value[index]),
                count=int(bad.sum()),
                expected=expected,
                argument=next(same, None),
            )


def _parameters(law: Distribution) -> Iterator[tuple[Distribution, str, np.ndarray]]:
    """The numbers that a distribution and those within it are given."""
    held = dict(vars(law))
    for name in type(law).arg_constraints:
        value = held.get(name)
        if value is not None and np.asarray(value).dtype.kind in "fiu":
            yield law, name, np.asarray(value)
    for inner in held.values():
        for one in inner if isinstance(inner, list | tuple) else (inner,):
            if isinstance(one, Distribution):
                yield from _parameters(one)


def _impossible(law: Distribution, name: str, value: np.ndarray) -> tuple[np.ndarray, str]:
    """Which entries no such distribution has, and what it has."""
    constraint: Any = type(law).arg_constraints[name]
    while hasattr(constraint, "base_constraint"):
        constraint = constraint.base_constraint
    bad = np.isnan(value)
    if constraint in FACTORS:
        if value.ndim >= 2:
            at = np.arange(value.shape[-1])
            bad[..., at, at] |= value[..., at, at] <= 0
        return bad, f"a positive definite matrix: {name!r} is the Cholesky factor of one"
    low = 0.0 if constraint is constraints.simplex else getattr(constraint, "lower_bound", None)
    high = getattr(constraint, "upper_bound", None)
    if low is None and high is None:
        return bad, f"numbers for {name!r}"
    low, high = (-np.inf if low is None else low), (np.inf if high is None else high)
    bad |= (value < low - SLACK) | (value > high + SLACK)
    positive = constraint is constraints.positive
    if positive and name in NOT_ZERO and not isinstance(law, VonMises):
        support: Any = getattr(law, "support", None)
        bad |= (value <= 0) & (not getattr(support, "is_discrete", False))
    return bad, f"{_described(low, high, positive)} for {name!r}"


def _described(low: Any, high: Any, positive: bool) -> str:
    if positive:
        return "positive numbers"
    if np.all(np.isinf(high)):
        return "numbers >= 0" if np.all(np.equal(low, 0.0)) else "numbers above a bound"
    return f"numbers from {np.min(low):g} to {np.max(high):g}"

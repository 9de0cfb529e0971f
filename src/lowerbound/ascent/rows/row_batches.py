"""Rows of a program a batch at a time: which, how many, and whether that is the same program."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from lowerbound.ascent.rows.climb import STEPS
from lowerbound.ascent.rows.measure import chunks_of
from lowerbound.ascent.rows.objective import Objective, objective_of
from lowerbound.errors import LowerboundError
from lowerbound.model import trace_model

ALL_BELOW = 2e7  # operations of one evaluation, up to which a step takes all rows
LEAST, MOST = 64, 4096  # rows of a batch that is chosen
VISITS = 4  # steps that a batch stays for: the q of its rows is behind the parameters
ROUNDING = 1e-8


def batch_size(whole: Objective, work: float, asked: int | None) -> int:
    """The rows of a step: what was asked for, or all, or what is quick enough."""
    total = whole.rows
    if not total:
        return 0
    if asked is not None:
        return min(asked, total)
    if work <= ALL_BELOW:
        return total
    fitting = int(total * ALL_BELOW / work)
    size = int(np.clip(fitting, LEAST, MOST))
    return total if 2 * size > total else size


def of_rows(whole: Objective, size: int) -> Objective:
    """The program of some rows: the same function, called with these.

    Rows with missing entries are among them, where there are any, so that it has masks.
    """
    model = whole.model
    masks = {n: m for n, m in model.arguments.missing.items() if n in whole.sliced}
    lacking = np.zeros(whole.rows, bool)
    for mask in masks.values():
        lacking |= mask.reshape(whole.rows, -1).any(axis=1)
    rows = np.argsort(~lacking, kind="stable")[:size]
    data = {n: a[rows] for n, a in model.arguments.data.items() if n in whole.sliced}
    masked = {n: m[rows] for n, m in masks.items()}
    arguments = model.arguments.replace(data)
    args, kwargs = arguments.call(
        {
            n: np.ma.MaskedArray(a, masked[n]) if n in masked else a
            for n, a in arguments.data.items()
        }
    )
    return objective_of(trace_model(model.function, args, kwargs, whole.plate), whole.parameters)


def why_not_apart(whole: Objective, part: Objective, seed: int) -> str | None:
    """Why the densities of batches do not add up to that of all rows; None where they do."""
    if part.own.shape[1] != whole.own.shape[1] or len(part.shared) != len(whole.shared):
        return "the coordinates of a row depend on how many there are"
    rng = np.random.default_rng(seed)
    own = 0.3 * rng.standard_normal(whole.own.shape)
    shared = 0.3 * rng.standard_normal(whole.shared.shape)
    free, data = whole.start(), whole.data()
    one, program = (each.jitted("log joint", lambda o: o.log_joint) for each in (whole, part))
    every = float(one(free, own, shared, data, None))
    zeros = jnp.zeros(part.rows)
    total = None
    for index, weights in chunks_of(whole.rows, part.rows):
        given = part.take(data, index)
        value = float(program(free, own[index], shared, given, weights))
        common = float(program(free, own[index], shared, given, zeros))
        total = value if total is None else total + value - common
    if total is not None and abs(total - every) <= ROUNDING * max(abs(every), 1.0):
        return None
    return "the density of a row depends on the other rows of its batch"


def part_of(whole: Objective, size: int, seed: int) -> tuple[Objective, str | None]:
    """The program of `size` rows, or of all with the reason why it cannot be of fewer."""
    if size >= whole.rows:
        return whole, None
    try:
        part = of_rows(whole, size)
        reason = why_not_apart(whole, part, seed)
    except (LowerboundError, TypeError, ValueError) as error:
        reason = f"the program does not run on {size} rows ({str(error).splitlines()[0]})"
    return (whole, reason) if reason is not None else (part, None)


def indices(total: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Rows for window after window, (steps, size): epochs in random order, without end."""
    rng = np.random.default_rng(seed)
    order = np.zeros(0, int)
    while True:
        batches = []
        for _ in range(STEPS // VISITS):
            if len(order) < size:
                order = rng.permutation(total)
            batches.append(order[:size])
            order = order[size:]
        yield np.repeat(np.stack(batches), VISITS, axis=0)

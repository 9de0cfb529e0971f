"""Finding what to sum over: the discrete latent sites of a program, in groups that meet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.errors import DiscreteSiteError, LongSumError, UnsupportedModelError
from lowerbound.errors.wording import quoted, rounded
from lowerbound.model.sites import Model, Site
from lowerbound.rewrite.hidden_sites import Parents, parents_among
from lowerbound.rewrite.summing.chain import Chain
from lowerbound.rewrite.summing.endless_counts import bounded, first_counts, unbounded
from lowerbound.rewrite.summing.finite import Finite, Group, row_axes
from lowerbound.rewrite.summing.nested import Nested
from lowerbound.rewrite.summing.summation import Summation
from lowerbound.rewrite.summing.trial import Trial, tried

MOST_DENSITIES = 500_000_000  # that the windows of a reach beyond a row's own state may have
MOST_STATES = 1000  # of the sites that are summed over together, in one row
FEWEST = 16  # values of a count without an upper end, at first


def discrete_sites(model: Model) -> tuple[str, ...]:
    """The latent sites of whole numbers, in the order of the program."""
    known = {name: _is_discrete(site) for name, site in model.latent.items()}
    if None in known.values():
        drawn = jax.eval_shape(model.draw, jax.random.key(0))
        whole = {n: not jnp.issubdtype(drawn[n].dtype, jnp.inexact) for n in known}
        known = {name: whole[name] if own is None else own for name, own in known.items()}
    return tuple(name for name, own in known.items() if own)


def _is_discrete(site: Site) -> bool | None:
    """Whether a site has whole numbers; None where its support does not say."""
    if site.support_values is not None:
        return True
    if site.support is None or site.distribution == "Delta":
        return None
    return bool(site.support.is_discrete)


def can_be_summed(model: Model) -> bool:
    """Whether the discrete latent sites can be summed out exactly."""
    try:
        enumerated(model)
    except UnsupportedModelError:
        return False
    return True


def enumerated(model: Model, most: float = math.inf) -> Summation:
    """The program of a model with its discrete latent sites summed out exactly.

    It is made once for a model. Raises UnsupportedModelError, with the reason, where that is not
    possible; LongSumError where the states of a chain have more than `most` densities.

    >>> import numpy as np, numpyro, numpyro.distributions as dist
    >>> from lowerbound.model import trace_model
    >>> def coins(y):
    ...     p = numpyro.sample("p", dist.Beta(2.0, 2.0))
    ...     with numpyro.plate("tosses", len(y)):
    ...         fair = numpyro.sample("fair", dist.Bernoulli(0.5))
    ...         numpyro.sample("y", dist.Bernoulli(0.5 * fair + p * (1 - fair)), obs=y)
    >>> summed = enumerated(trace_model(coins, (np.array([1, 0, 1]),))).summed()
    >>> [site.name for site in summed.sites]
    ['p', 'sum over fair']
    """
    most = min(most, MOST_DENSITIES)
    if "summation" not in model.findings:
        try:
            model.findings["summation"] = _enumerated(model, most)
        except UnsupportedModelError as error:
            if isinstance(error, LongSumError) and most < MOST_DENSITIES:
                raise  # who has more time may find it
            model.findings["summation"] = str(error)
    found: Summation | str = model.findings["summation"]
    if isinstance(found, str):
        raise UnsupportedModelError(found)
    return found


def enumerated_from_zero(model: Model) -> Summation:
    """As `enumerated`, with counts without an upper end on their first values.

    Whoever asks has to see that the last of these values has no mass, or to take more of them.
    """
    counts = first_counts(model, unbounded(model), FEWEST)
    if not counts:
        return enumerated(model)
    if "summation from zero" not in model.findings:
        model.findings["summation from zero"] = bounded(model, counts)
    return enumerated(model.findings["summation from zero"])


def _enumerated(model: Model, most: float) -> Summation:
    """The program with its discrete sites summed out, from the first."""
    with jax.enable_x64(True):
        names = discrete_sites(model)
        for name in names:
            _check_finite(model.latent[name])
        parents = parents_among(model, names)
        moved = tuple(n for n in model.latent if n not in names and parents[n])
        for name in moved:
            _check_support(model.latent[name], parents[name])
        reached = [site.name for site in model.sites if parents[site.name]]
        hidden = tuple(name for name in reached if name not in moved)
        vectors = _vectors_of_rows(model, parents)
        found = Summation(model, (), hidden, moved, False, vectors)
        guarded, groups = False, []
        for members in _meeting(names, parents):
            group, impossible = _group(found, members, parents, most)
            groups.append(group)
            guarded |= impossible
        return replace(found, groups=tuple(groups), guarded=guarded)


def _check_finite(site: Site) -> None:
    if site.support_values is None:
        why = "has values that depend on latent sites" if site.support is None else "is unbounded"
        if site.support is not None and site.event_shape:
            why = "has vectors as values"
        raise DiscreteSiteError(
            site.name,
            site.distribution,
            site.where,
            "finitely many values, known beforehand, that can be summed over. Sum the site out of "
            "the model yourself, or bound it, as dist.Categorical does.",
            why,
        )


def _check_support(site: Site, parents: frozenset[str]) -> None:
    if site.support is None:
        raise UnsupportedModelError(
            f"The support of site '{site.name}' is not fixed, and the site depends on the discrete "
            f"{quoted(sorted(parents))}   ({site.where}).\n"
            "Expected a support that is the same for all discrete values. Sum them out of the "
            "model yourself."
        )


def _meeting(names: Sequence[str], parents: Parents) -> list[tuple[str, ...]]:
    """The discrete sites in groups: two that one density depends on are in the same."""
    groups = [{name} for name in names]
    for meeting in parents.values():
        joined = [group for group in groups if group & meeting]
        if len(joined) > 1:
            groups = [group for group in groups if group not in joined]
            groups.append(set().union(*joined))
    return [tuple(name for name in names if name in group) for group in groups]


def _vectors_of_rows(model: Model, parents: Parents) -> dict[str, tuple[int, ...]]:
    """The terms whose rows are the elements of one event, with their shapes.

    `to_event` makes one density of what a plate would have held apart; for discrete sites that have
    a value in every row, each element is one of its own.
    """

    def has_rows(term: Site, shape: tuple[int, ...]) -> bool:
        batches = [model.latent[name].batch_shape for name in parents[term.name]]
        return all(row_axes(batch, [shape]) == batch for batch in batches)

    terms = [s for s in model.sites if s.kind != "deterministic" and s.event_shape]
    without = [term for term in terms if not has_rows(term, term.batch_shape)]
    if not without:
        return {}
    shapes: dict[str, tuple[int, ...]] = {}

    def look(latents: Mapping[str, Array], data: Mapping[str, Array]) -> None:
        shapes.update({n: d.element_shape for n, d in model.run(latents, data).items()})

    jax.eval_shape(look, jax.eval_shape(model.draw, jax.random.key(0)), model.arguments.data)
    return {s.name: shapes[s.name] for s in without if has_rows(s, shapes[s.name])}


def _rows_of(found: Summation, term: Site) -> tuple[int, ...]:
    """The shape of a density whose rows are looked at."""
    return found.vectors.get(term.name, term.batch_shape)


def _group(
    found: Summation, members: Sequence[str], parents: Parents, most: float
) -> tuple[Group, bool]:
    """The group of some sites, by rows where that is right; and whether a state is impossible."""
    reached = [s for s in found.model.sites if s.kind != "deterministic"]
    terms = [site for site in reached if parents[site.name] & set(members)]

    def made(apart: bool) -> Group:
        sites = []
        for name in members:
            site = found.model.latent[name]
            batches = [_rows_of(found, term) for term in terms if name in parents[term.name]]
            rows = row_axes(site.batch_shape, batches) if apart else (1,) * len(site.batch_shape)
            sites.append(Finite(name, np.asarray(site.support_values), rows, site.shape))
        if len({_stripped(site.rows) for site in sites}) > 1:
            nested = Nested.of(sites, [term.name for term in terms], parents)
            if nested is not None:
                return nested
        longest = max((_stripped(site.rows) for site in sites), key=math.prod)
        return Group(tuple(sites), tuple(term.name for term in terms), longest)

    group = made(apart=True)
    meeting = max(terms, key=lambda term: (len(parents[term.name]), term.kind == "observed"))
    problem = _mismatch(group, meeting) or _too_many(group, meeting)
    if problem is None:
        trial = tried(found, group, most)
        if trial.coupled is None:
            return trial.group, trial.impossible
        problem = _coupled(found.model, group, *trial.coupled)
    together = made(apart=False)  # few entries can be summed over all at once
    if together.states <= MOST_STATES:
        return together, tried(found, together, most).impossible
    untried = None
    shapes = {term.name: _rows_of(found, term) for term in terms}
    for chain in _chains(group, shapes, parents):
        trial = tried(found, chain, most)
        if trial.coupled is None:
            return trial.group, trial.impossible
        if trial.untried and untried is None:
            untried = _untried(found.model, trial, most)
    raise untried or UnsupportedModelError(problem)


def _chains(
    group: Group, shapes: Mapping[str, tuple[int, ...]], parents: Parents
) -> Iterator[Chain]:
    """The chains that the sites of a group may be in, along some axis of the longest of them.

    `shapes` are those of the densities of terms.
    """
    rank = len(group.rows)
    along = tuple(site for site in group.sites if _stripped(site.rows) == group.rows)
    shared = tuple(site for site in group.sites if site not in along)
    moving = {site.name for site in along}
    for lag, axis, backward in itertools.product((1, 2), range(rank), (False, True)):
        apart = (*group.rows[:axis], *group.rows[axis + 1 :])
        if any(_stripped(site.rows) != _stripped(apart) for site in shared):
            continue
        whole = tuple(
            name
            for name, shape in shapes.items()
            if len(shape) < rank - axis or shape[axis - rank] != group.rows[axis]
        )
        if any(parents[name] & moving for name in whole) or group.rows[axis] <= lag:
            continue
        chain = Chain(
            (*shared, *along), group.terms, group.rows, axis, backward, len(along), whole, lag=lag
        )
        if chain.states <= MOST_STATES:
            yield chain


# ---------------------------------------------------------------------------------------------
# Why not
# ---------------------------------------------------------------------------------------------


def _mismatch(group: Group, term: Site) -> str | None:
    if isinstance(group, Nested):
        return None
    shapes = {site.name: _stripped(site.rows) for site in group.sites}
    if len(set(shapes.values())) == 1:
        return None
    text = ", ".join(f"'{name}' {shape or 'scalar'}" for name, shape in shapes.items())
    return (
        f"Discrete sites of different shapes meet in site '{term.name}': {text}   ({term.where}).\n"
        "Expected discrete sites that meet to have one value in each row of the same plate. Sum "
        "some of them out of the model yourself."
    )


def _too_many(group: Group, term: Site) -> str | None:
    if group.states <= MOST_STATES:
        return None
    names = [site.name for site in group.sites]
    many = f"sites {quoted(names)} have" if names[1:] else f"site '{names[0]}' has"
    return (
        f"Discrete {many} {rounded(group.states)} states together in a row of site '{term.name}'   "
        f"({term.where}).\n"
        f"Expected at most {MOST_STATES} to sum over. Sum some of them out of the model yourself, "
        "or let rows depend on fewer of them."
    )


def _coupled(model: Model, group: Group, term: str, row: int) -> str:
    site = next(site for site in model.sites if site.name == term)
    return (
        f"Row {row} of site '{term}' depends on {quoted(s.name for s in group.sites)} in other "
        f"rows   ({site.where}).\n"
        "Expected rows that do not affect each other, to sum over the values of each by itself. "
        "Sum over a chain of states by the forward algorithm (jax.lax.scan), and state the result "
        "by numpyro.factor."
    )


def _untried(model: Model, trial: Trial, most: float) -> LongSumError:
    """Why a chain of such a reach is not even tried."""
    assert trial.coupled is not None, "a reach is tried where a shorter one did not do"
    term, row = trial.coupled
    site = next(site for site in model.sites if site.name == term)
    sites = quoted(s.name for s in trial.group.sites)
    windows, rows = trial.group.runs(trial.untried), math.prod(site.batch_shape)
    return LongSumError(term, site.where, row, sites, trial.untried, windows, rows, most)


def _stripped(rows: Sequence[int]) -> tuple[int, ...]:
    """A shape without leading axes of length 1, which broadcast anyway."""
    first = next((i for i, n in enumerate(rows) if n != 1), len(rows))
    return tuple(rows[first:])

"""log p by site and row as a function of discrete values and of the unconstrained rest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from numpyro import handlers
from numpyro.distributions import biject_to

from lowerbound.compiled import Kept, jit, traced
from lowerbound.cost import numbers_computed
from lowerbound.errors import UnsupportedModelError
from lowerbound.model import Model, Site
from lowerbound.model.dependence import digest
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.hidden_sites import parents_among
from lowerbound.rewrite.summing.endless_counts import first_counts
from lowerbound.rewrite.summing.enumerated import discrete_sites
from lowerbound.rewrite.summing.finite import Finite, Group, is_listable, row_axes

TRIED = 8  # random states of all rows, for which rows must not affect each other
ROUNDING = 1e-9
_programs: Kept[dict[object, Any]] = Kept(16)

Cells = dict[str, Array]  # by discrete site: the index of the value of every cell, (*rows, cells)


@dataclass(frozen=True, eq=False)
class ScoreProgram:
    """The densities of all sites at given discrete values and u.

    `discrete` are the discrete sites in rows that do not affect each other; `blankets` the sites
    whose densities depend on each of them, itself included. `closed` is the traced program,
    `compiled` what equal programs share.
    """

    model: Model
    coordinates: Coordinates
    discrete: tuple[Finite, ...]
    blankets: dict[str, tuple[str, ...]]
    closed: ClosedJaxpr
    names: tuple[str, ...]
    compiled: dict[object, Any]

    @property
    def work(self) -> int:
        """Numbers computed in one run of the program."""
        return numbers_computed(self.closed.jaxpr)

    @property
    def flips(self) -> int:
        """Runs that try every value of every entry, rows at once."""
        return sum(site.cells * len(site.values) for site in self.discrete)

    @property
    def data(self) -> dict[str, Any]:
        """The data of the program."""
        return self.model.arguments.data

    def terms(self, cells: Cells, vector: Array, data: Mapping[str, Any]) -> dict[str, Array]:
        """Log densities by site and batch entry, and the log Jacobian of u."""
        indices = {site.name: site.entries(cells[site.name]) for site in self.discrete}
        leaves = jax.tree.leaves((indices, vector, dict(data)))
        return dict(zip(self.names, jaxpr_as_fun(self.closed)(*leaves), strict=True))

    def by_row(self, site: Finite, terms: Mapping[str, Array]) -> Array:
        """The densities in the blanket of a site, summed in each of its rows."""
        rows = _stripped(site.rows)
        group = Group((site,), self.blankets[site.name], rows)
        total: Array = jnp.zeros(rows)
        for name in self.blankets[site.name]:
            total = total + group.by_row(terms[name])
        return total.reshape(site.rows)


def score_program(model: Model, counts: Mapping[str, int] | None = None) -> ScoreProgram:
    """The program of a model with discrete latent sites, traced.

    `counts` are numbers of values for sites without an upper end.
    Raises UnsupportedModelError where a site has neither finitely many values nor is a count.
    """
    with jax.enable_x64(True):
        names = discrete_sites(model)
        drawn = jax.eval_shape(model.draw, jax.random.key(0))
        for name in names:
            _check_discrete(model.latent[name])
        unbounded = [n for n in names if model.latent[n].support_values is None]
        if counts is None:
            counts = first_counts(model, unbounded)
        coordinates = _continuous(model, names)
        parents = parents_among(model, names)
        together, blankets = [], {}
        for name in names:
            site = model.latent[name]
            reached = [s for s in model.sites if s.kind != "deterministic"]
            children = [s for s in reached if name in parents[s.name]]
            values = np.arange(counts[name]) if name in counts else np.asarray(site.support_values)
            rows = row_axes(site.batch_shape, [s.batch_shape for s in children])
            together.append(Finite(name, values, rows, site.shape))
            blankets[name] = tuple(s.name for s in children)
        found = _by_rows(_traced(model, coordinates, tuple(together), blankets, drawn))
        return replace(found, compiled=_shared(found))


def _traced(
    model: Model,
    coordinates: Coordinates,
    discrete: tuple[Finite, ...],
    blankets: dict[str, tuple[str, ...]],
    drawn: Mapping[str, Any],
) -> ScoreProgram:
    values = {s.name: np.asarray(s.values).astype(drawn[s.name].dtype) for s in discrete}

    def terms(indices: Cells, vector: Array, data: Mapping[str, Any]) -> dict[str, Array]:
        latents = {n: jnp.asarray(values[n])[indices[n]] for n in values}
        rest = coordinates.constrain(vector, data)
        densities = {n: d.log_prob() for n, d in model.run({**latents, **rest}, data).items()}
        volume = jnp.zeros(())
        for name, part in coordinates.split(vector).items():
            transform = biject_to(coordinates.supports[name])
            volume += jnp.sum(transform.log_abs_det_jacobian(part, rest[name]))
        return {**densities, "log |dz/du|": volume}

    indices = {s.name: np.zeros(s.shape, int) for s in discrete}
    vector = np.zeros(coordinates.size)
    closed, shapes = traced(terms, return_shape=True)(indices, vector, model.arguments.data)
    names = tuple(sorted(shapes))
    return ScoreProgram(model, coordinates, discrete, blankets, closed, names, {})


def _shared(program: ScoreProgram) -> dict[object, Any]:
    """What equal programs have compiled."""
    rows = [(s.name, s.rows, s.shape, program.blankets[s.name]) for s in program.discrete]
    key = digest(program.closed, *program.coordinates.shapes, *sorted(program.data)) + str(rows)
    return _programs.of(key, dict)


def _check_discrete(site: Site) -> None:
    """A site that has neither finitely many values nor is a single count is refused."""
    if is_listable(site):
        return
    why = "values that depend on latent sites" if site.support is None else "no known factor"
    raise UnsupportedModelError(
        f"Site '{site.name}' is discrete and has {why}: {site.distribution}   ({site.where}).\n"
        "Expected finitely many values, known beforehand, or counts 0, 1, ... such as those of "
        "dist.Poisson. Sum the site out of the model yourself."
    )


def _continuous(model: Model, discrete: tuple[str, ...]) -> Coordinates:
    """The unconstrained coordinates of the other sites, with discrete ones at some value."""
    shapes, supports, some = {}, {}, {}
    for name, site in model.latent.items():
        if name in discrete:
            values = np.arange(2) if site.support_values is None else site.support_values
            some[name] = np.full(site.shape, np.asarray(values)[len(values) // 2])
            continue
        if site.support is None:
            raise UnsupportedModelError(
                f"The support of site '{name}' depends on other latent sites, beside discrete "
                f"ones   ({site.where}).\n"
                "Expected a fixed support. Write the site as a fixed one, scaled and shifted."
            )
        supports[name] = site.support
        shapes[name] = tuple(biject_to(site.support).inverse_shape(site.shape))
    program = replace(model, function=handlers.substitute(model.function, data=some))
    return Coordinates(program, shapes, supports)


def _by_rows(program: ScoreProgram) -> ScoreProgram:
    """The program with rows where they hold: elsewhere, the entries of a site are all together.

    A row's own densities must stay as they are when the values of other rows of its site change.
    """
    tried = [s for s in program.discrete if math.prod(s.rows) > 1]
    if not tried:
        return program
    rng = np.random.default_rng(0)
    cells = {s.name: _random(rng, s) for s in program.discrete}
    vectors = rng.standard_normal((TRIED, program.coordinates.size))
    kept = {}
    for site in tried:
        stay = rng.random((TRIED, *site.rows)) < 0.5
        other = np.where(stay[..., None], cells[site.name], _random(rng, site))

        def rows(own: Array, others: Cells, vector: Array, site: Finite = site) -> Array:
            terms = program.terms({**others, site.name: own}, vector, program.data)
            return program.by_row(site, terms)

        both = jit(jax.vmap(rows, in_axes=(0, 0, 0)))
        before = np.asarray(both(cells[site.name], cells, vectors))
        after = np.asarray(both(other, cells, vectors))
        same = np.isclose(before, after, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
        kept[site.name] = bool(same[stay].all())
    discrete = tuple(
        s if kept.get(s.name, True) else replace(s, rows=(1,) * len(s.rows))
        for s in program.discrete
    )
    return replace(program, discrete=discrete)


def _random(rng: np.random.Generator, site: Finite) -> np.ndarray:
    return rng.integers(len(site.values), size=(TRIED, *site.rows, site.cells))


def _stripped(rows: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without leading axes of length 1, which broadcast anyway."""
    first = next((i for i, n in enumerate(rows) if n != 1), len(rows))
    return rows[first:]

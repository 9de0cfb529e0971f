"""Warped coordinates, for sites whose prior has no bound at an end of its support.

The logit of a share that a sparse Dirichlet makes small has a long tail, which no Gaussian has: the
law of a Beta number with the shape 0.1 is as good as exponential there. In the coordinates u with
x = T(u), T taking normal numbers to that law, a Gaussian is exact where the posterior of x is one
of its kind, whether by the prior or by counts. Which one it is, the slopes of log p at draws of q
say; both bound the same evidence, so the larger ELBO tells whether it was worth it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np

from lowerbound.ascent.gaussian_step import Ascent, begin
from lowerbound.bound.draws import draw_seed, normal_draws
from lowerbound.bound.fixed_draws import points
from lowerbound.compiled import traced
from lowerbound.methods.gaussian.centring import LEAST, TOLERANCE, Choice, elsewhere, listed
from lowerbound.methods.gaussian.climbing.climbs import begin_climbs, best_of, start_of
from lowerbound.methods.gaussian.climbing.over_draws import LIMIT, ascend, comparing
from lowerbound.methods.gaussian.target import Target
from lowerbound.methods.gaussian.unconstrained_methods import GaussianMethod
from lowerbound.model import Model
from lowerbound.model.density import strip
from lowerbound.model.dependence import dependence, evaluator
from lowerbound.model.program import Inspector
from lowerbound.rewrite.skewed import LEAST_SHAPE, LogGamma, LogitBeta, Skewed
from lowerbound.rewrite.warped import straight_table, warp_name, warp_of, warped
from lowerbound.run.walking import told

FIRST = 5  # steps in the sites' own coordinates, before any others
ROUNDS = 3  # laws that are fitted, each at draws of the Gaussian before it
PROMISED = 10.0  # times what a step promises: where that is too little, no more of them are made
UNBOUNDED = 1.0  # shapes below which a density has no bound
GAINED = 0.1  # nats by which the last law has raised the ELBO, where another is worth its time
SHAPES = {
    "Dirichlet": ("concentration",),
    "Beta": ("concentration1", "concentration0"),
    "Gamma": ("concentration",),
}

_found: WeakKeyDictionary[Model, tuple[str, ...]] = WeakKeyDictionary()


def sites_to_warp(model: Model) -> tuple[str, ...]:
    """The sites of Dirichlet, Beta and Gamma numbers, where some have a known shape below 1.

    With large shapes the coordinates are as good as the sites' own, so that all sites join in.
    """
    if model not in _found:
        _found[model] = _sparse(model)
    return _found[model]


def _sparse(model: Model) -> tuple[str, ...]:
    names = [n for n, site in model.latent.items() if site.distribution in SHAPES]
    if not names:
        return ()

    def shapes(latents: dict[str, Any], data: dict[str, Any]) -> list[Any]:
        messages = model._messages(latents, data, None, Inspector())
        bases = [strip(messages[name]["fn"]).base for name in names]
        return [getattr(one, shape) for one in bases for shape in SHAPES[type(one).__name__]]

    latents = {n: np.full(s.shape, 0.5) for n, s in model.latent.items()}
    closed = traced(shapes)(latents, model.arguments.data)
    known = [i for i, on in enumerate(dependence(closed.jaxpr)) if not _latent(on, latents)]
    values = evaluator(closed, known)(jax.tree.leaves((latents, model.arguments.data)))
    return tuple(names) if any(np.any(shape < UNBOUNDED) for shape in values) else ()


def _latent(inputs: frozenset[int], latents: Mapping[str, Any]) -> bool:
    return any(position < len(latents) for position in inputs)


def straight_tables(model: Model, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The tables, by their names among the data, with which sites have their own coordinates."""
    shapes = {name: _unconstrained(model, name) for name in names}
    return {warp_name(name): straight_table(shape) for name, shape in shapes.items()}


def _unconstrained(model: Model, name: str) -> tuple[int, ...]:
    shape = tuple(model.latent[name].shape)
    if model.latent[name].distribution == "Dirichlet":
        return (*shape[:-1], shape[-1] - 1)
    return shape


def law_of(model: Model, name: str) -> Skewed:
    """The kind of law that the unconstrained numbers of a site have."""
    shape = _unconstrained(model, name)
    if model.latent[name].distribution == "Gamma":
        return LogGamma(np.zeros(shape))
    if model.latent[name].distribution == "Beta":
        return LogitBeta(np.zeros(shape))
    return LogitBeta(np.broadcast_to(np.log(shape[-1] - np.arange(shape[-1])), shape))


def warp(
    choice: Choice, method: GaussianMethod, seed: int, diagonal: bool
) -> Generator[tuple[Choice, Ascent], None, Choice]:
    """The choice, warped as far as that raises its ELBO; where it stands is told on the way."""
    target = choice.target
    state, starts = choice.begun, choice.starts
    if state is None:
        phase = begin_climbs(target, method, seed, diagonal)
        climbs = yield from told(phase, lambda state: (choice, state))
        state, starts = best_of(climbs).state, tuple(map(start_of, climbs))
    draws = normal_draws(comparing(target, method), target.size, draw_seed(seed, 0))
    search = _Warps(choice, draws, diagonal)
    straight = yield from search.ascended(target, state, limit=FIRST)
    best, laws = straight, target
    for _ in range(ROUNDS):
        before = best.elbo
        moved = search.moved(laws, best)
        other = yield from search.ascended(moved, search.carried(best))
        if not other.elbo > before + LEAST:
            break
        best, laws = other, moved
        if not best.elbo > before + GAINED:
            break
    if laws is not target:  # as far as its own coordinates may come to that
        straight = yield from search.ascended(target, straight, best.elbo)
    gain = best.elbo - straight.elbo
    if laws is target or not gain > LEAST:
        return replace(choice, begun=straight, starts=starts)
    return replace(
        choice,
        target=laws,
        warps=_tables(laws),
        begun=best,
        starts=elsewhere(starts),
        notes=(*choice.notes, outcome(sorted(laws.coordinates.warped), gain)),
    )


class _Warps:
    """Laws of the warped sites, each fitted at the draws of one Gaussian."""

    def __init__(self, choice: Choice, draws: np.ndarray, diagonal: bool) -> None:
        self.choice, self.draws, self.diagonal = choice, draws, diagonal
        self.straight = choice.target

    def ascended(
        self, target: Target, state: Ascent, goal: float = -np.inf, limit: int = LIMIT
    ) -> Generator[tuple[Choice, Ascent], None, Ascent]:
        """The optimum over the draws, nearly; less where the steps will not come to the goal."""
        here = replace(self.choice, target=target, warps=_tables(target))
        if target is self.straight:
            here = self.choice
        for one in ascend(target, self.draws, state, TOLERANCE, self.diagonal, 0.0, limit):
            yield here, one
            state = one
            if one.elbo + PROMISED * one.gain < goal:
                break
        return state

    def moved(self, target: Target, state: Ascent) -> Target:
        """The target by the laws whose scores are nearest to those of log p at draws of q."""
        coordinates = target.coordinates
        model, rows = coordinates.program(), points(self.draws, state.loc, state.root)
        own = rows.copy()
        for name in coordinates.warped:
            part, shape = coordinates.part(name), coordinates.shapes[name]
            u = rows[:, part].reshape(-1, *shape)
            x, _ = warped(u, np.asarray(warp_of(name, target.data), float), np)
            own[:, part] = x.reshape(len(rows), -1)
        values, slopes = self.straight(own)
        fine = np.isfinite(values) & np.isfinite(slopes).all(axis=1)
        if not fine.any():
            return target
        tables = {}
        for name in coordinates.warped:
            part, shape = coordinates.part(name), coordinates.shapes[name]
            law = law_of(model, name)
            x, slope = (a[fine][:, part].reshape(-1, *shape) for a in (own, slopes))
            least = LEAST_SHAPE[target.dtype.itemsize]
            tables[warp_name(name)] = law.table(law.nearest(x, slope, least))
        single = {name: table.astype(target.dtype) for name, table in tables.items()}
        data, arguments = {**target.data, **tables}, {**target.arguments, **single}
        return replace(target, data=data, arguments=arguments)

    def carried(self, state: Ascent) -> Ascent:
        """The Gaussian with standard numbers where the laws are those of q, as correlated as q."""
        loc, root = np.array(state.loc, float), np.array(state.root, float)
        for name in self.straight.coordinates.warped:
            part = self.straight.coordinates.part(name)
            loc[part] = 0.0
            root[part] /= np.linalg.norm(root[part], axis=1, keepdims=True)
        return begin(loc, root)


def _tables(target: Target) -> dict[str, np.ndarray]:
    return {n: np.asarray(warp_of(n, target.data)) for n in target.coordinates.warped}


def plan_note(names: Sequence[str]) -> str:
    """What `explain` says of the sites that a fit may warp."""
    return (
        f"Warped coordinates, in which Beta or Gamma numbers are Gaussian, may be tried for "
        f"{listed(names)}: a prior has a shape below 1. Those of the largest ELBO are kept."
    )


def outcome(names: Sequence[str], gain: float) -> str:
    """Which sites were warped, and by how many nats that was better."""
    return (
        f"Warped coordinates kept for {listed(names)}, in which Beta or Gamma numbers are "
        f"Gaussian: {gain:+.3g} nats against logits or logs, as far as these were followed."
    )

"""Centred or not: which coordinates of a hierarchy suit a Gaussian better.

A site z ~ Normal(mu, tau) with latent mu and tau has a funnel for its density, whose width changes
with tau; that of u = (z - mu) / tau has none, unless the data say much of each z. Both bound the
same evidence, so the larger ELBO tells which Gaussian is nearer to the posterior (Gorinova, Moore &
Hoffman 2019, *Automatic reparameterisation of probabilistic programs*).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import jax
import numpy as np
from numpyro.distributions import Distribution

from lowerbound.ascent.gaussian_step import Ascent, begin
from lowerbound.bound.draws import draw_seed, normal_draws
from lowerbound.compiled import quickly, traced
from lowerbound.errors import ArgumentError, LowerboundError
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.methods.gaussian.climbing.climbs import Start, begin_climbs, best_of, start_of
from lowerbound.methods.gaussian.climbing.over_draws import ascend, comparing
from lowerbound.methods.gaussian.climbing.together import Climb
from lowerbound.methods.gaussian.target import Target
from lowerbound.methods.gaussian.unconstrained_methods import GaussianMethod
from lowerbound.model import Model, Site
from lowerbound.model.density import strip
from lowerbound.model.dependence import dependence
from lowerbound.model.program import Inspector, Message
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.noncentred import LOCATION_SCALE, auxiliary, centring_name, location_scale
from lowerbound.rewrite.warped import warp_name
from lowerbound.run.walking import told

R = TypeVar("R")
MOST_TRIED = 1000  # the largest dimension in which coordinates are compared
MOST_ALONE = 4  # sites that are also moved one by one
STEP = 0.25  # of the centring c
MARGIN = 0.1  # nats that must be gained: marginals of sites that are not centred are mixtures
LEAST = 0.01  # nats that a step must gain
TOLERANCE = 0.05  # standard deviations from the optimum at which ELBOs are compared


@dataclass(frozen=True, eq=False)
class Trial:
    """One choice of coordinates: c of every site, its ELBO, the best start and the record of all.

    There is none where no ascent goes on from it.
    """

    centring: dict[str, float]
    elbo: float
    begun: Ascent | None = None
    starts: tuple[Start, ...] = ()

    @property
    def noncentred(self) -> tuple[str, ...]:
        """The sites that are not wholly centred."""
        return tuple(name for name, c in self.centring.items() if c < 1.0)

    @property
    def worth(self) -> float:
        """The ELBO, less what leaving the sites' own coordinates must gain."""
        return self.elbo - MARGIN * bool(self.noncentred)


@dataclass(frozen=True, eq=False)
class Choice:
    """The coordinates of a fit: its target, the centring that was chosen, and how that went.

    begun, starts: the best start, and the record of all, where these have been made. warps: the
    tables of the sites that are warped.
    """

    target: Target
    centring: Mapping[str, float] = field(default_factory=dict)
    begun: Ascent | None = None
    starts: tuple[Start, ...] = ()
    trials: tuple[Trial, ...] = ()
    notes: tuple[str, ...] = ()
    warps: Mapping[str, np.ndarray] = field(default_factory=dict)

    @cached_property
    def family(self) -> UnconstrainedGaussian:
        """The Gaussians in these coordinates.

        Sites that are wholly centred, or not warped, are as though never tried.
        """
        target, warps = self.target, self.warps
        if not self.centring and warps.keys() == target.coordinates.warped:
            return UnconstrainedGaussian(target.coordinates, target.data, target.compiled)
        kept = {name: c for name, c in self.centring.items() if c < 1.0}
        numbers = {centring_name(name): np.asarray(c) for name, c in kept.items()}
        numbers |= {warp_name(name): table for name, table in warps.items()}
        compiled = target.compiled.setdefault(("kept", tuple(kept), tuple(warps)), {})
        model = target.coordinates.program()
        data = {**model.arguments.data, **numbers}
        coordinates = Coordinates.of(model, tuple(kept), warped=tuple(warps))
        return UnconstrainedGaussian(coordinates, data, compiled)


def choose(
    target: Target, method: GaussianMethod, names: Sequence[str], diagonal: bool, seed: int
) -> Generator[Choice, None, Choice]:
    """The coordinates of some sites with the largest ELBO; the best so far is told on the way."""
    target.prepare()
    search = _Search(target, method, seed, diagonal)
    latent = target.coordinates.program().latent
    partly = [n for n in names if not _matrix(latent[n])]
    return (yield from search.run(names, partly))


def sites_to_try(model: Model, method: GaussianMethod, full: bool) -> tuple[str, ...]:
    """The sites whose coordinates a fit will choose, none where the method says.

    A full covariance follows every linear dependence: then only a latent scale makes a funnel.
    """
    if method.noncentred != "auto":
        return ()
    found = location_scale_sites(model)
    return tuple(n for n, depends in found.items() if depends["scale"] or depends["loc"] > full)


def named_sites(model: Model, method: GaussianMethod) -> tuple[str, ...]:
    """The non-centred sites that the method names; each must have a location and a scale."""
    if method.noncentred == "auto" or not method.noncentred:
        return ()
    known = location_scale_sites(model)
    for name in method.noncentred:
        if name not in known:
            what = "no latent site of the model"
            if name in model.latent:
                what = f"{model.latent[name].distribution}   ({model.latent[name].where})"
            names = f"among {', '.join(known)}" if known else "of none: the model has no such site"
            raise ArgumentError(
                f"{method.name} got noncentred with the site '{name}', {what}.\n"
                "Expected names of latent sites with a location and a scale, such as Normal and "
                f"StudentT, or whose logarithm has them, {names}."
            )
    return tuple(method.noncentred)


_located: WeakKeyDictionary[Model, dict[str, dict[str, bool]]] = WeakKeyDictionary()


def location_scale_sites(model: Model) -> dict[str, dict[str, bool]]:
    """The sites that can be non-centred: whether location and scale depend on latent sites.

    A program is run once for it, whoever asks.
    """
    if model not in _located:
        _located[model] = _with_location_and_scale(model)
    return _located[model]


def _with_location_and_scale(model: Model) -> dict[str, dict[str, bool]]:
    taken = {site.name for site in model.sites}
    names = [
        name
        for name, site in model.latent.items()
        if site.distribution in LOCATION_SCALE and auxiliary(name) not in taken
    ]

    def parameters(latents: dict[str, Any], data: dict[str, Any]) -> dict[str, dict[str, Any]]:
        messages = model._messages(latents, data, None, Inspector())
        bases = {name: _plain(messages[name]) for name in names}
        found = {n: location_scale(base) for n, base in bases.items() if base is not None}
        return {n: {"loc": one.loc, "scale": one.scale} for n, one in found.items()}

    if not names:
        return {}
    latents = {n: np.zeros(s.shape) for n, s in model.latent.items()}
    closed, shape = traced(parameters, return_shape=True)(latents, model.arguments.data)
    depends = [
        any(position < len(latents) for position in inputs) for inputs in dependence(closed.jaxpr)
    ]
    found = jax.tree.unflatten(jax.tree.structure(shape), depends)
    return {name: found[name] for name in names if name in found}


def _plain(message: Message) -> Distribution | None:
    """The distribution of a site that a handler can replace by another of the same density.

    A density that is scaled or masked is not that of z = loc + scale * u, and handlers of the
    program do not enter the loop of a scan.
    """
    found = strip(message["fn"])
    looped = message.get("_control_flow_done", False)
    plain = message["scale"] is None and found.mask in (None, True) and not looped
    return found.base if plain else None


class _Search:
    """Coordinates tried one after another, each from where the best so far has come to."""

    def __init__(self, target: Target, method: GaussianMethod, seed: int, diagonal: bool) -> None:
        self.target, self.method, self.seed, self.diagonal = target, method, seed, diagonal
        self.trials: list[Trial] = []
        self.kept: Trial | None = None

    def run(self, names: Sequence[str], partly: Sequence[str]) -> Generator[Choice, None, Choice]:
        """Half-way, where all starts tend to agree; both ends; then on from the best of the three.

        The sites are moved together, and a few of them one by one.
        """
        errors = []
        half = {name: 0.5 if name in partly else 1.0 for name in names}
        ends = [dict.fromkeys(names, c) for c in (1.0, 0.0)]
        for centring in (half, *ends):
            if any(trial.centring == centring for trial in self.trials):
                continue
            try:
                near = self.trials[0] if self.trials else None
                self.trials.append((yield from self._tried(centring, near)))
            except LowerboundError as error:  # a Gaussian may run off along a funnel
                errors.append(error)
            self.kept = max(self.trials, key=lambda trial: trial.worth, default=None)
        if self.kept is None:
            raise errors[0]
        self.kept = yield from self._moved(self.kept, partly, STEP)
        if 1 < len(names) <= MOST_ALONE:
            for name in names:
                step = STEP if name in partly else 1.0
                self.kept = yield from self._moved(self.kept, [name], step)
        return replace(
            self._choice(self.kept),
            trials=tuple(self.trials),
            notes=(outcome(self.trials, self.kept),),
        )

    def _moved(
        self, best: Trial, names: Sequence[str], step: float
    ) -> Generator[Choice, None, Trial]:
        """One way while the ELBO rises, or else the other way."""
        before = best
        for direction in (-step, step):
            while names:
                moved = {n: min(max(best.centring[n] + direction, 0.0), 1.0) for n in names}
                centring = {**best.centring, **moved}
                if any(trial.centring == centring for trial in self.trials):
                    break
                self.trials.append((yield from self._tried(centring, best)))
                if not self.trials[-1].worth > best.worth + LEAST:
                    break
                best = self.trials[-1]
            if best is not before:
                break
        return best

    def _tried(
        self, centring: dict[str, float], near: Trial | None
    ) -> Generator[Choice, None, Trial]:
        """The best start, at its optimum for the first draws; the start is that of a trial `near`.

        Without one, all starts climb.
        """
        own = with_centring(self.target, centring)
        if near is None:
            phase = begin_climbs(own, self.method, self.seed, self.diagonal)
            climbs = yield from self._told(phase, centring)
        else:
            climbs = [Climb(self._carried(near, own), 0)]
        best = climbs.index(best_of(climbs))
        draws = normal_draws(comparing(own, self.method), own.size, draw_seed(self.seed, 0))
        ascent = ascend(own, draws, climbs[best].state, TOLERANCE, self.diagonal)
        state, _, _ = yield from self._told(ascent, centring)
        climbs[best] = replace(climbs[best], state=state)
        elbo = state.elbo
        starts = tuple(map(start_of, climbs)) if near is None else elsewhere(near.starts)
        elbo = elbo if np.isfinite(elbo) else -np.inf
        return Trial(centring, elbo, best_of(climbs).state, starts)

    def _carried(self, near: Trial, here: Target) -> Ascent:
        """The Gaussian of another trial, in other coordinates to first order."""
        program = self.target.compiled.setdefault("moved", quickly(_mover(self.target)))
        there, state = with_centring(self.target, near.centring), near.begun
        assert state is not None
        loc, columns = program(state.loc, np.transpose(state.root), there.data, here.data)
        moved = np.transpose(np.asarray(columns))
        covariance = moved @ moved.T
        if self.diagonal:
            covariance = np.diag(np.diagonal(covariance))
        return begin(np.asarray(loc), np.linalg.cholesky(covariance))

    def _told(
        self, phase: Generator[Ascent, None, R], centring: dict[str, float]
    ) -> Generator[Choice, None, R]:
        """A phase of a trial; what is told is the best choice so far, at first the trial's own."""
        return told(phase, lambda at: self._choice(self.kept or Trial(centring, np.nan, at)))

    def _choice(self, trial: Trial) -> Choice:
        target = with_centring(self.target, trial.centring)
        return Choice(target, trial.centring, trial.begun, trial.starts)


def _mover(target: Target) -> Callable[..., Any]:
    """A point and directions at it, in other coordinates."""

    def moved(vector: Any, directions: Any, data: Any, other: Any) -> Any:
        def move(vector: Any) -> Any:
            values = target.coordinates.constrain(vector, data)
            return target.coordinates.unconstrain(values, other)

        place, linear = jax.linearize(move, vector)
        return place, jax.vmap(linear)(directions)

    return moved


def _matrix(site: Site) -> bool:
    """Whether the scale of a site is a matrix, which has no powers between 0 and 1 here."""
    return site.distribution.startswith("Multivariate")


def with_centring(target: Target, centring: Mapping[str, float]) -> Target:
    """The target with its sites centred as far as that."""
    numbers = {centring_name(name): np.asarray(c) for name, c in centring.items()}
    single = {name: number.astype(target.dtype) for name, number in numbers.items()}
    return replace(
        target, data={**target.data, **numbers}, arguments={**target.arguments, **single}
    )


def plan_note(names: Sequence[str]) -> str:
    """What `explain` says of the sites whose coordinates a fit will choose."""
    return (
        f"Coordinates u with z = loc + scale * u, or between u and z, may be tried for "
        f"{listed(names)}; those of the largest ELBO are kept."
    )


def outcome(trials: Sequence[Trial], best: Trial) -> str:
    """Which coordinates were kept, and by how many nats."""
    centred = [trial.elbo for trial in trials if not trial.noncentred]
    if not best.noncentred:
        others = [trial.elbo for trial in trials if trial is not best]
        below = f"{max(others) - best.elbo:+.3g} nats" if others else "no place to rest"
        return f"Centred coordinates kept for {listed(best.centring)}; the others gave {below}."
    kept = ", ".join(f"'{n}' {best.centring[n]:g}" for n in best.noncentred)
    gain = f"{best.elbo - centred[0]:+.3g} nats against" if centred else "no place to rest for"
    return (
        f"Non-centred coordinates kept, centring {kept} (0: z = loc + scale * u, 1: z itself): "
        f"{gain} centred ones."
    )


def listed(names: Iterable[str]) -> str:
    """Names of sites in a text."""
    return ", ".join(f"'{name}'" for name in names)


def elsewhere(starts: tuple[Start, ...]) -> tuple[Start, ...]:
    """The record of starts in other coordinates."""
    return tuple(replace(one, loc=None) for one in starts)

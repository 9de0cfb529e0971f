"""Centred or not: which coordinates of a hierarchy suit a Gaussian better.

A site z ~ Normal(mu, tau) with latent mu and tau has a funnel for its density, whose width changes
with tau; that of u = (z - mu) / tau has none, unless the data say much of each z. Both bound the
same evidence, so the larger ELBO tells which Gaussian is nearer to the posterior (Gorinova, Moore &
Hoffman 2019, *Automatic reparameterisation of probabilistic programs*).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution

from lowerbound.ascent.gaussian_step import begin
from lowerbound.bound.draws import normal_draws
from lowerbound.compiled import quickly
from lowerbound.errors import ArgumentError, LowerboundError
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.methods.gaussian.climbs import Watch, draw_seed
from lowerbound.methods.gaussian.engines import ascend, begin_climbs, draw_sizes
from lowerbound.methods.gaussian.target import Target, target_for
from lowerbound.methods.gaussian.together import Climb
from lowerbound.methods.gaussian.unconstrained_methods import UnconstrainedMethod
from lowerbound.model import Model, Site
from lowerbound.model.density import strip
from lowerbound.model.dependence import dependence
from lowerbound.model.program import Inspector, Message
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.noncentred import (
    LOCATION_SCALE,
    auxiliary,
    centring_name,
    location_scale,
)

MOST_TRIED = 1000  # the largest dimension in which coordinates are compared
MOST_ALONE = 4  # sites that are also moved one by one
STEP = 0.25  # of the centring c
MARGIN = 0.1  # nats that must be gained: marginals of sites that are not centred are mixtures
LEAST = 0.01  # nats that a step must gain
TOLERANCE = 0.05  # standard deviations from the optimum at which ELBOs are compared


@dataclass(frozen=True, eq=False)
class Trial:
    """One choice of coordinates: c of every site, the starts, and the ELBO."""

    centring: dict[str, float]
    climbs: list[Climb]
    elbo: float

    @property
    def noncentred(self) -> tuple[str, ...]:
        """The sites that are not wholly centred."""
        return tuple(name for name, c in self.centring.items() if c < 1.0)

    @property
    def worth(self) -> float:
        """The ELBO, less what leaving the sites' own coordinates must gain."""
        return self.elbo - MARGIN * bool(self.noncentred)

    @property
    def best(self) -> Climb:
        """The best of the starts."""
        return max(self.climbs, key=lambda one: one.elbo)


@dataclass(frozen=True, eq=False)
class Choice:
    """The coordinates of a fit: target and family, the starts if made, the trials, and notes."""

    target: Target
    family: UnconstrainedGaussian
    climbs: list[Climb] | None = None
    trials: tuple[Trial, ...] = ()
    notes: tuple[str, ...] = ()


def choose(
    model: Model,
    method: UnconstrainedMethod,
    dtype: np.dtype[Any],
    seed: int,
    watch: Callable[[], Watch],
) -> Choice:
    """The coordinates that the method names, or those of the largest ELBO."""
    names = sites_to_try(model, method)
    if not names:
        return as_named(model, method, dtype)
    target = target_for(model, dtype, names, {centring_name(n): np.zeros(()) for n in names})
    target.prepare()
    search = _Search(target, method, seed, watch)
    best = search.run(names, [n for n in names if not _matrix(model.latent[n])])
    return settled(model, target, search.trials, best)


def as_named(model: Model, method: UnconstrainedMethod, dtype: np.dtype[Any]) -> Choice:
    """The coordinates that the method names, the sites' own where it names none."""
    target = target_for(model, dtype, named_sites(model, method))
    return Choice(target, UnconstrainedGaussian(target.coordinates, target.data, target.compiled))


def settled(model: Model, target: Target, trials: Sequence[Trial], best: Trial) -> Choice:
    """The choice of the best trial."""
    kept = {n: best.centring[n] for n in best.noncentred}
    numbers = {centring_name(n): np.asarray(c) for n, c in kept.items()}
    compiled = target.compiled.setdefault(("centring", best.noncentred), {})
    coordinates = Coordinates.of(model, best.noncentred)
    family = UnconstrainedGaussian(coordinates, {**model.arguments.data, **numbers}, compiled)
    notes = (outcome(trials, best),)
    own = with_centring(target, best.centring)
    return Choice(own, family, best.climbs, tuple(trials), notes)


def sites_to_try(model: Model, method: UnconstrainedMethod) -> tuple[str, ...]:
    """The sites whose coordinates a fit will choose, none where the method says."""
    size = Coordinates.of(model).size
    newton = method.by_newton(size)
    if method.noncentred != "auto" or (size > MOST_TRIED and not newton):
        return ()
    # A mode is asked for in the sites' own coordinates.
    if method.engine in ("laplace", "delta", "score"):
        return ()
    found = location_scale_sites(model)
    # A full covariance follows every linear dependence: only a latent scale makes a funnel.
    full = newton or method.chosen_rank(size) == "full"
    return tuple(n for n, depends in found.items() if depends["scale"] or depends["loc"] > full)


def named_sites(model: Model, method: UnconstrainedMethod) -> tuple[str, ...]:
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
                f"Gaussian got noncentred with the site '{name}', {what}.\n"
                "Expected names of latent sites with a location and a scale, such as Normal and "
                f"StudentT, {names}."
            )
    return tuple(method.noncentred)


def location_scale_sites(model: Model) -> dict[str, dict[str, bool]]:
    """The sites that can be non-centred: whether location and scale depend on latent sites."""
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
    closed, shape = jax.make_jaxpr(parameters, return_shape=True)(latents, model.arguments.data)
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

    def __init__(
        self, target: Target, method: UnconstrainedMethod, seed: int, watch: Callable[[], Watch]
    ) -> None:
        self.target, self.method, self.seed, self.watch = target, method, seed, watch
        self.diagonal = method.chosen_rank(target.size) != "full"
        self.trials: list[Trial] = []

    def run(self, names: Sequence[str], partly: Sequence[str]) -> Trial:
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
                self.trials.append(self._tried(centring, near))
            except LowerboundError as error:  # a Gaussian may run off along a funnel
                errors.append(error)
        if not self.trials:
            raise errors[0]
        best = max(self.trials, key=lambda trial: trial.worth)
        best = self._moved(best, partly, STEP)
        if 1 < len(names) <= MOST_ALONE:
            for name in names:
                best = self._moved(best, [name], STEP if name in partly else 1.0)
        return best

    def _moved(self, best: Trial, names: Sequence[str], step: float) -> Trial:
        """One way while the ELBO rises, or else the other way."""
        before = best
        for direction in (-step, step):
            while names:
                moved = {n: min(max(best.centring[n] + direction, 0.0), 1.0) for n in names}
                centring = {**best.centring, **moved}
                if any(trial.centring == centring for trial in self.trials):
                    break
                self.trials.append(self._tried(centring, best))
                if not self.trials[-1].worth > best.worth + LEAST:
                    break
                best = self.trials[-1]
            if best is not before:
                break
        return best

    def _tried(self, centring: dict[str, float], near: Trial | None) -> Trial:
        if near is not None:
            return self._from(near, centring)
        own = with_centring(self.target, centring)
        climbs = begin_climbs(own, self.method, self.seed, self.diagonal)
        return self._ascended(own, centring, climbs)

    def _from(self, near: Trial, centring: dict[str, float]) -> Trial:
        """From the Gaussian of another trial, in the new coordinates to first order."""
        program = self.target.compiled.setdefault("moved", quickly(_mover(self.target)))
        there, here = (
            with_centring(self.target, near.centring),
            with_centring(self.target, centring),
        )
        state = near.best.state
        loc, columns = program(state.loc, np.transpose(state.root), there.data, here.data)
        loc, moved = np.asarray(loc), np.transpose(np.asarray(columns))
        covariance = moved @ moved.T
        if self.diagonal:
            covariance = np.diag(np.diagonal(covariance))
        climbs = [Climb(begin(loc, np.linalg.cholesky(covariance)), 0, ())]
        return self._ascended(here, centring, climbs)

    def _ascended(self, own: Target, centring: dict[str, float], climbs: list[Climb]) -> Trial:
        """The best start, at its optimum for the first draws."""
        best = max(range(len(climbs)), key=lambda i: climbs[i].elbo)
        size = draw_sizes(self.method.draws, own.size)[0]
        draws = normal_draws(size, own.size, draw_seed(self.seed, 0))
        state = climbs[best].state
        state, _, _ = ascend(own, draws, state, TOLERANCE, self.diagonal, self.watch())
        climbs[best] = replace(climbs[best], state=state)
        elbo = float(state.found.elbo)
        return Trial(centring, climbs, elbo if np.isfinite(elbo) else -np.inf)


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


def plan_note(names: Sequence[str]) -> tuple[str, ...]:
    """What `explain` says of the sites whose coordinates a fit will choose."""
    if not names:
        return ()
    return (
        f"Coordinates u with z = loc + scale * u, or between u and z, may be tried for "
        f"{_names(names)}; those of the largest ELBO are kept.",
    )


def outcome(trials: Sequence[Trial], best: Trial) -> str:
    """Which coordinates were kept, and by how many nats."""
    centred = [trial.elbo for trial in trials if not trial.noncentred]
    if not best.noncentred:
        others = [trial.elbo for trial in trials if trial is not best]
        below = f"{max(others) - best.elbo:+.3g} nats" if others else "no place to rest"
        return f"Centred coordinates kept for {_names(best.centring)}; the others gave {below}."
    kept = ", ".join(f"'{n}' {best.centring[n]:g}" for n in best.noncentred)
    gain = f"{best.elbo - centred[0]:+.3g} nats against" if centred else "no place to rest for"
    return (
        f"Non-centred coordinates kept, centring {kept} (0: z = loc + scale * u, 1: z itself): "
        f"{gain} centred ones."
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)

"""Chains over theta planned for a problem: rounds of trajectories until the draws are enough."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.linalg import block_diag

from lowerbound.compiled import briskly, quickly
from lowerbound.compiled.host import lightly
from lowerbound.cost import Stopwatch, allowance
from lowerbound.errors import NoPredictorsError, PoorIntegralError
from lowerbound.family.host_seeds import words
from lowerbound.methods.chains.rounds_of_chains import (
    CHAINS,
    FEWEST_DRAWN,
    Chains,
    Mixed,
    Rounds,
    mixed,
)
from lowerbound.methods.chains.trajectories import Nuts, differentiated, trajectories
from lowerbound.methods.chains.units import Units
from lowerbound.methods.hierarchy.hierarchies import predictors_for, surface_for
from lowerbound.methods.hierarchy.places_of_theta import at_scores, entries_of, named
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.sampling.heavy_tails import without_sd
from lowerbound.methods.sampling.trajectories_value import Trajectories
from lowerbound.methods.sampling.whitened import Given, Still, Whitened, standing_still
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.plan import Plan, Row, outline
from lowerbound.run.check_input import check_observed_variance
from lowerbound.run.planned import Trace
from lowerbound.run.problem import Problem
from lowerbound.run.walking import Standing, Walking

MOST = 200  # numbers of theta, and of z
WARM, SHALLOW = 150, 6  # draws before the first that is kept, and doublings of their trajectories
FIRST = 100  # draws of a chain that the units of the others are found by
ROUNDS = 4
SPREAD = 0.5  # of the prior's normal scores, at which chains begin
MEASURED = 256  # draws that the bound is measured with
TRIES = 64  # starts that are looked at


def sampled_predictors(problem: Problem) -> Predictors:
    """The predictors of a program that chains can go over; raises NoPredictorsError."""
    found = predictors_for(problem, (), MOST)
    if not found.theta:
        raise NoPredictorsError("no site sets a scale or a shape")
    if found.size > MOST:
        raise NoPredictorsError(f"a Gaussian of {found.size} numbers given theta is too large")
    if found.meet:
        raise NoPredictorsError(f"predictors of {', '.join(found.z)} meet in one term")
    if found.straight or found.back is not None:
        what = "have bounds" if found.straight else "are sums along a path"
        raise NoPredictorsError(f"some of {', '.join(found.z)} {what}")
    return found


@dataclass(frozen=True, eq=False)
class Sampled:
    """Chains over theta and u, or over theta alone."""

    whitened: Whitened
    mixed: Mixed

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """The draws of theta, and of u."""
        rows, dimension = self.mixed.chains.rows, self.whitened.predictors.dimension
        return rows[:, :dimension], rows[:, dimension:]


class Sampling(Walking[Sampled]):
    """Rounds of NUTS over theta, or over theta and u."""

    unit, total = "round", ROUNDS

    def __init__(self, problem: Problem, method: Trajectories) -> None:
        self.problem, self.method = problem, method
        check_observed_variance(problem.model)
        with jax.enable_x64(True):
            self.predictors = sampled_predictors(problem)
            self.plan = self._plan()

    def walk(self) -> Iterator[Standing[Sampled]]:
        """A few draws that say in which units and about what to go on; then rounds, until enough.

        Each begins where the last has ended.
        """
        whitened, starts = self._begun()
        units = Units(np.zeros(whitened.size), np.eye(whitened.size))
        kernel = self._kernel(whitened)
        self._check(kernel.foreseen(starts, units, FIRST))
        watch = Stopwatch()
        draft = Sampled(whitened, self._judged(kernel(starts, units, FIRST, 0)))
        self._check(watch.own_seconds * (WARM + self._kept) / (WARM + FIRST))
        yield Standing(draft)
        whitened, starts, units = self._about(draft)
        rounds = Rounds(self._kept, ROUNDS, self._judged, self._more)
        for here in rounds.walk(self._kernel(whitened), starts, units):
            place = Sampled(whitened, here.place)
            elbo = here.elbo if here.stop is None else self._bound(place)[0]
            yield Standing(place, elbo, here.stop)

    @property
    def _more(self) -> str:
        return f"lb.Trajectories(draws={2 * self.method.draws})"

    def _judged(self, chains: Chains) -> Mixed:
        """How well chains agree; raises PoorIntegralError where time was over before they began."""
        if (found := chains.draws.shape[1]) < FEWEST_DRAWN:
            reason = f"time was over when chains had made {found} draws"
            raise PoorIntegralError(self.predictors.theta, reason)
        return mixed(chains, lambda number: named(self.predictors, number))

    def _check(self, seconds: float) -> None:
        """Raise where a round would take more time than there is."""
        if seconds > allowance().left:
            reason = f"chains would take {seconds:,.0f} s, where {allowance().left:,.0f} s are left"
            raise PoorIntegralError(self.predictors.theta, reason)

    def _about(self, place: Sampled) -> tuple[Whitened, np.ndarray, Units]:
        """Coordinates by the first draws, a start for every chain, and the units of the draws.

        Of terms that are no parabolas, one is fitted to where the draws have their predictors.
        """
        one = self.predictors
        theta = place.mixed.chains.draws[:, -1, : one.dimension]
        units = Units.of(place.parts[0]).dense
        if one.is_quadratic:
            return place.whitened, theta, units
        lines = self._lines(place)
        still = standing_still(one, units.loc, lines.mean(axis=0), lines.var(axis=0))
        whole = block_diag(units.root, np.eye(one.size))
        starts = np.hstack([theta, SPREAD * self._rng(2).normal(size=(CHAINS, one.size))])
        return Whitened(one, still), starts, Units(np.append(units.loc, np.zeros(one.size)), whole)

    # -- where chains begin ------------------------------------------------------------------------

    def _begun(self) -> tuple[Whitened, np.ndarray]:
        """The coordinates, and a start for every chain; raises PoorIntegralError."""
        one = self.predictors
        rng = self._rng(0)
        scores = SPREAD * rng.normal(size=(TRIES, one.dimension))
        scores = np.vstack([np.zeros(one.dimension), scores])
        thetas = at_scores(self.problem, one, scores)
        thetas = thetas[np.isfinite(thetas).all(axis=1)]
        whitened = Whitened(one, self._still(thetas))
        rest = whitened.size - one.dimension
        starts = np.hstack([thetas, SPREAD * rng.normal(size=(len(thetas), rest))])
        values = np.asarray(self._density(whitened)(starts, whitened.given))
        starts = starts[np.isfinite(values)][1:]
        if len(starts) < CHAINS:
            raise PoorIntegralError(one.theta, "log p is not finite where chains would begin")
        return whitened, starts[:CHAINS]

    def _still(self, thetas: np.ndarray) -> Still:
        """The parabolas of terms that have none, where theta is at its prior's median, or near."""
        one = self.predictors
        if one.is_quadratic:
            return standing_still(one, thetas[0], np.zeros(one.count), ())
        surface = surface_for(self.problem, one)
        for t in thetas[:CHAINS]:
            solved = surface(t, (), False)
            if solved is not None:
                return standing_still(one, t, one.at(t, solved.loc), solved.spread)
        raise PoorIntegralError(one.theta, "given these at their prior's median, there is no mode")

    # -- what is compiled --------------------------------------------------------------------------

    def _compiled(self, key: object, function: Any) -> Any:
        """A compiled function, one for all equal programs."""
        return self.predictors.compiled.setdefault(("sampled", key), function)

    @property
    def _kept(self) -> int:
        """Draws of a chain in a round."""
        return math.ceil(self.method.draws / CHAINS)

    def _kernel(self, whitened: Whitened) -> Nuts:
        """Trajectories over the density, in units with a matrix."""
        key, given = jax.random.key(self.problem.seed), whitened.given
        name = ("trajectories", jax.tree.structure(given))
        if ("sampled", name) not in self.predictors.compiled:
            density = differentiated(whitened.density, jnp.zeros(whitened.size), given)
            chains = trajectories(density, False, warm=WARM, shallow=SHALLOW)
            self._compiled(name, briskly(chains))
        run = self.predictors.compiled["sampled", name]
        return Nuts(run, given, key, False, warm=WARM)

    def _lines(self, place: Sampled) -> np.ndarray:
        """The predictors at the draws."""
        one, whitened = self.predictors, place.whitened

        def every(t: Array, u: Array, given: Given) -> Array:
            def at(both: tuple[Array, Array]) -> Array:
                t, u = both
                return one.lines_at(t, given.data, whitened.effects(t, u, given))

            return jnp.asarray(jax.lax.map(at, (t, u)))

        return np.asarray(self._compiled("lines", quickly(every))(*place.parts, whitened.given))

    def _density(self, whitened: Whitened) -> Any:
        def every(vectors: Array, given: Given) -> Array:
            return jax.vmap(lambda vector: whitened.density(vector, given))(vectors)

        return self._compiled("density", lightly(every))

    def _values(self, place: Sampled) -> dict[str, np.ndarray]:
        """All sites at the draws; z that was integrated out is drawn given theta."""
        one, whitened = self.predictors, place.whitened
        t, u = place.parts
        if one.is_quadratic:
            u = self._rng(1).normal(size=(len(t), one.size))
        data, coordinates = self.problem.model.arguments.data, one.coordinates
        order = entries_of(one, (*one.theta, *one.z))

        def sites(t: Array, u: Array, given: Given, data: Any) -> Any:
            z = whitened.effects(t, u, given)
            vector = jnp.zeros(coordinates.size).at[order].set(jnp.concatenate([t, z]))
            return coordinates.constrain(vector, data)

        def every(t: Array, u: Array, given: Given, data: Any) -> Any:
            return jax.lax.map(lambda both: sites(both[0], both[1], given, data), (t, u))

        run = self._compiled("values", quickly(every))
        found = run(t, u, whitened.given, dict(data))
        return {name: np.asarray(array) for name, array in found.items()}

    # -- the answer --------------------------------------------------------------------------------

    def answer(self, place: Sampled, trace: Trace, stop: Stop) -> Answer:
        """The draws, with a bound and what the chains say of themselves."""
        values = self._values(place)
        values = {name: values[name] for name in self.problem.model.latent}
        over = ", ".join(self.predictors.theta)
        over += "" if self.predictors.is_quadratic else " and u"
        notes = [
            f"{over} by {place.mixed}, after {WARM} of each chain a round.",
            "The ELBO is that of the Gaussian with the mean and the covariance of the draws in "
            f"these {place.whitened.size} numbers; the draws are nearer.",
        ]
        said = f"chains over {over} agree: {place.mixed.mixing}"
        if heavy := ", ".join(f"'{name}'" for name in without_sd(values)):
            notes.append(
                f"The tails of {heavy} are too heavy for an sd, or for a mean: look at quantiles."
            )
            said += f" (but for sds of {heavy}, whose tails are too heavy for one)"
        bound, mixed = self._bound(place), place.mixed
        return mixed.answer(values, bound, trace, stop, said=said, notes=notes, cure=self._more)

    def _bound(self, place: Sampled) -> tuple[float, float]:
        """The ELBO of the Gaussian with the moments of the draws, in t and u, and its error."""
        vectors = place.mixed.chains.rows
        loc, size = vectors.mean(axis=0), vectors.shape[1]
        root = np.linalg.cholesky(np.cov(vectors.T).reshape(size, size) + 1e-12 * np.eye(size))
        normal = self._rng(3).normal(size=(MEASURED // 2, size))
        normal = np.vstack([normal, -normal])
        log_p = self._density(place.whitened)(loc + normal @ root.T, place.whitened.given)
        entropy = 0.5 * size * (1.0 + math.log(2 * math.pi)) + np.log(np.diag(root)).sum()
        both = np.asarray(log_p).reshape(2, -1).mean(axis=0)
        return float(both.mean() + entropy), float(both.std() / math.sqrt(len(both)))

    def _rng(self, part: int) -> np.random.Generator:
        """Random numbers of the host, for one part of the run."""
        return np.random.default_rng([part, *words(jax.random.key(self.problem.seed))])

    @cached_property
    def _how(self) -> str:
        return "exact" if self.predictors.is_quadratic else "by a change of variables"

    def _plan(self) -> Plan:
        one, model = self.predictors, self.problem.model
        names = ", ".join(one.theta)
        rows = []
        for name, site in model.latent.items():
            law, update, what = "draws", "trajectories", f"functions of {name}"
            if name in one.z:
                law, update, what = "draws", f"{self._how}, given {names}", "all"
            rows.append(Row(name, site.shape, "global", law, update, names, what, site.where))
        return outline(model, f"Trajectories over {names}", rows)

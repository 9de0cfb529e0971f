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

from lowerbound.compiled import briskly, quickly
from lowerbound.compiled.host import lightly
from lowerbound.cost import Stopwatch, allowance
from lowerbound.errors import NoPredictorsError, PoorIntegralError
from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.family.numerics.host_seeds import words
from lowerbound.family.q import Q
from lowerbound.methods.hierarchy.hierarchies import predictors_for, surface_for
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.sampling.chains import Mixing, mixing
from lowerbound.methods.sampling.heavy_tails import without_sd
from lowerbound.methods.sampling.trajectories import (
    CHAINS,
    differentiated,
    inward,
    standardised,
    trajectories,
)
from lowerbound.methods.sampling.trajectories_value import Trajectories
from lowerbound.methods.sampling.whitened import Given, Still, Whitened, standing_still
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.plan import Plan, Row, outline
from lowerbound.result.posterior import History, Restart
from lowerbound.result.verdicts import Verdict
from lowerbound.run.check_input import check_observed_variance
from lowerbound.run.planned import Trace
from lowerbound.run.problem import Problem
from lowerbound.run.walking import Standing, Walking

MOST = 200  # numbers of theta, and of z
WARM, SHALLOW = 150, 6  # draws before the first that is kept, and doublings of their trajectories
FIRST = 100  # draws of a chain that the units of the others are found by
ENOUGH, AGREED = 400.0, 1.02  # effective draws of every number, and R-hat, that end the rounds
ROUNDS = 4
SPREAD = 0.5  # of the prior's normal scores, at which chains begin
DIVERGED = 0.01  # of trajectories that may diverge
MEASURED = 256  # draws that the bound is measured with
TRIES = 64  # starts that are looked at

Law = tuple[np.ndarray, np.ndarray]  # a mean, and a root of the covariance


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
    """Chains so far: (C, S, d) of theta and u; how many of how many trajectories diverged."""

    whitened: Whitened
    chains: np.ndarray
    mixed: Mixing
    diverged: int
    gradients: float

    @property
    def flaw(self) -> str:
        """Why the draws should not be trusted, where they should not."""
        count = self.chains.shape[0] * self.chains.shape[1]
        if not self.mixed.flaw and self.diverged > DIVERGED * count:
            return f"{self.diverged:,} of {count:,} trajectories diverged"
        return self.mixed.flaw

    @property
    def enough(self) -> bool:
        """Whether the chains agree, and are worth as much as is asked for."""
        return not self.flaw and self.mixed.rhat <= AGREED and self.mixed.size >= ENOUGH


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
        law = np.zeros(whitened.size), np.ones(whitened.size)
        self._drawn(whitened, starts, law, -WARM)  # which compiles, and draws nothing
        watch = Stopwatch()
        place = self._round(None, whitened, starts, law, FIRST)
        self._check(watch.own_seconds)
        yield Standing(place)
        whitened, starts, law = self._about(place)
        found = self._round(None, whitened, starts, law, self._kept, 1)
        stop = self._stop(found, 1)
        for done in range(2, ROUNDS + 1):
            if stop is not None:
                break
            yield Standing(found)
            law = standardised(found.chains.reshape(-1, whitened.size))
            found = self._round(found, whitened, found.chains[:, -1], law, self._kept, done)
            stop = self._stop(found, done)
        yield Standing(found, self._bound(found)[0], stop)

    def _check(self, took: float) -> None:
        """Raise where a round would take more time than there is, by what the first draws took."""
        longer = took * (WARM + self._kept) / (WARM + FIRST)
        if longer > allowance().left:
            reason = f"chains would take {longer:,.0f} s, where {allowance().left:,.0f} s are left"
            raise PoorIntegralError(self.predictors.theta, reason)

    def _round(
        self,
        before: Sampled | None,
        whitened: Whitened,
        starts: np.ndarray,
        law: Law,
        count: int,
        number: int = 0,
    ) -> Sampled:
        """So many draws a chain after those before, and what all of them say of themselves."""
        vectors, lost, taken = self._drawn(whitened, starts, law, count, number)
        diverged, gradients = int(lost.sum()), float(taken.mean())
        if before is not None:
            vectors = np.concatenate([before.chains, vectors], axis=1)
            diverged += before.diverged
            gradients += (before.gradients - gradients) * (number - 1) / number
        return Sampled(whitened, vectors, mixing(vectors, self._named), diverged, gradients)

    def _drawn(
        self, whitened: Whitened, starts: np.ndarray, law: Law, count: int, number: int = 0
    ) -> list[np.ndarray]:
        """Draws of every chain, in coordinates where a Gaussian of this law is standard.

        And of each how many trajectories diverged, and how many gradients they took. `number`: of
        the round, whose random numbers are its own.
        """
        key = jax.random.fold_in(jax.random.key(self.problem.seed), number)
        loc, root = law[0], np.diag(law[1]) if law[1].ndim == 1 else law[1]
        inside = inward(root, starts - loc)
        run = self._trajectories(whitened, inside[0])
        count = min(count, self._kept)
        found = run(inside, jax.random.split(key, CHAINS), loc, root, whitened.given, count)
        return [np.asarray(array)[:, : max(count, 0)] for array in found]

    def _about(self, place: Sampled) -> tuple[Whitened, np.ndarray, Law]:
        """Coordinates by the first draws, a start for every chain, and the law of the draws.

        Of terms that are no parabolas, one is fitted to where the draws have their predictors.
        """
        one = self.predictors
        theta = place.chains[:, :, : one.dimension]
        loc, root = standardised(theta.reshape(-1, one.dimension))
        root = np.diag(root) if root.ndim == 1 else root
        if one.is_quadratic:
            return place.whitened, theta[:, -1], (loc, root)
        lines = self._lines(place)
        still = standing_still(one, loc, lines.mean(axis=0), lines.var(axis=0))
        whitened, rest = Whitened(one, still), one.size
        whole = np.eye(whitened.size)
        whole[: one.dimension, : one.dimension] = root
        rng = self._rng(2)
        starts = np.hstack([theta[:, -1], SPREAD * rng.normal(size=(CHAINS, rest))])
        return whitened, starts, (np.append(loc, np.zeros(rest)), whole)

    def _stop(self, place: Sampled, done: int) -> Stop | None:
        if place.enough:
            return Stop(True, str(place.mixed))
        over = allowance().over
        if not over and done < ROUNDS:
            return None
        if not place.flaw:  # fewer than asked for, and good all the same
            return Stop(True, str(place.mixed))
        reason = allowance().reason if over else place.flaw
        remedy = f"More draws come with lb.Trajectories(draws={2 * self.method.draws})."
        return Stop(False, reason, remedy)

    # -- where chains begin ------------------------------------------------------------------------

    def _begun(self) -> tuple[Whitened, np.ndarray]:
        """The coordinates, and a start for every chain; raises PoorIntegralError."""
        one = self.predictors
        rng = self._rng(0)
        thetas = self._prior(np.vstack([np.zeros(one.dimension), *self._scores(rng)]))
        thetas = thetas[np.isfinite(thetas).all(axis=1)]
        whitened = Whitened(one, self._still(thetas))
        rest = whitened.size - one.dimension
        starts = np.hstack([thetas, SPREAD * rng.normal(size=(len(thetas), rest))])
        values = np.asarray(self._density(whitened)(starts, whitened.given))
        starts = starts[np.isfinite(values)][1:]
        if len(starts) < CHAINS:
            raise PoorIntegralError(one.theta, "log p is not finite where chains would begin")
        return whitened, starts[:CHAINS]

    def _scores(self, rng: np.random.Generator) -> np.ndarray:
        return SPREAD * rng.normal(size=(TRIES, self.predictors.dimension))

    def _prior(self, scores: np.ndarray) -> np.ndarray:
        """Theta at these normal scores of its prior, on the unconstrained space."""
        one, data = self.predictors, self.problem.model.arguments.data
        coordinates, theta, begin = one.coordinates, one.theta, 0
        normal = np.zeros((len(scores), coordinates.size))
        for name in theta:
            own = coordinates.part(name)
            normal[:, own] = scores[:, begin : begin + own.stop - own.start]
            begin += own.stop - own.start

        def spread(normal: Array, data: dict[str, Array]) -> Array:
            return jax.vmap(lambda row: coordinates.prior(row, data, theta))(normal)

        run = self._compiled("starts", quickly(spread))
        return np.asarray(run(jnp.asarray(normal), dict(data)))

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

    def _trajectories(self, whitened: Whitened, vector: np.ndarray) -> Any:
        key = ("trajectories", self._kept, jax.tree.structure(whitened.given))
        if ("sampled", key) not in self.predictors.compiled:
            density = differentiated(whitened.density, jnp.asarray(vector), whitened.given)
            chains = trajectories(density, self._kept, False, warm=WARM, shallow=SHALLOW)
            self._compiled(key, briskly(chains))
        return self.predictors.compiled["sampled", key]

    def _lines(self, place: Sampled) -> np.ndarray:
        """The predictors at the draws."""
        one, whitened = self.predictors, place.whitened
        vectors = place.chains.reshape(-1, whitened.size)

        def every(t: Array, u: Array, given: Given) -> Array:
            def at(both: tuple[Array, Array]) -> Array:
                t, u = both
                return one.lines_at(t, given.data, whitened.effects(t, u, given))

            return jnp.asarray(jax.lax.map(at, (t, u)))

        t, u = vectors[:, : one.dimension], vectors[:, one.dimension :]
        return np.asarray(self._compiled("lines", quickly(every))(t, u, whitened.given))

    def _density(self, whitened: Whitened) -> Any:
        def every(vectors: Array, given: Given) -> Array:
            return jax.vmap(lambda vector: whitened.density(vector, given))(vectors)

        return self._compiled("density", lightly(every))

    def _values(self, place: Sampled) -> dict[str, np.ndarray]:
        """All sites at the draws; z that was integrated out is drawn given theta."""
        one, whitened = self.predictors, place.whitened
        vectors = place.chains.reshape(-1, whitened.size)
        t, u = vectors[:, : one.dimension], vectors[:, one.dimension :]
        if one.is_quadratic:
            u = self._rng(1).normal(size=(len(t), one.size))
        data, coordinates = self.problem.model.arguments.data, one.coordinates
        parts = {name: coordinates.part(name) for name in (*one.theta, *one.z)}
        order = np.concatenate([np.arange(own.start, own.stop) for own in parts.values()])

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
        count = len(next(iter(values.values())))
        elbo, error = self._bound(place)
        q = Q(WeightedDraws(), {"values": values, "weights": np.full(count, 1.0 / count)})
        over = "theta" if self.predictors.is_quadratic else "theta and u"
        notes: tuple[str, ...] = (
            f"{CHAINS} chains of {count // CHAINS:,} trajectories over {over}, after {WARM} a "
            f"round: {place.diverged:,} diverged, {place.gradients:.0f} gradients each; "
            f"{place.mixed}.",
            "The ELBO is that of the Gaussian with the mean and the covariance of the draws in "
            f"these {place.whitened.size} numbers; the draws are nearer.",
        )
        heavy = ", ".join(f"'{name}'" for name in without_sd(values))
        if heavy:
            text = (
                f"The tails of {heavy} are too heavy for an sd, or for a mean: look at quantiles."
            )
            notes = (*notes, text)
        sds = f" (but for sds of {heavy}, whose tails are too heavy for one)" if heavy else ""
        known = Verdict("all", f"chains of NUTS agree: {place.mixed}{sds}")
        if place.flaw:
            known = Verdict("nothing", place.flaw, f"lb.Trajectories(draws={2 * count})")
        history = History(trace.values, trace.seconds, step="round")
        restarts = (Restart(elbo, len(trace.values), str(stop)),)
        return Answer(q, elbo, history, restarts, error=error, notes=notes, known=known)

    def _bound(self, place: Sampled) -> tuple[float, float]:
        """The ELBO of the Gaussian with the moments of the draws, in t and u, and its error."""
        vectors = place.chains.reshape(-1, place.whitened.size)
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

    def _named(self, number: int) -> str:
        one, begin = self.predictors, 0
        for name in one.theta:
            own = one.coordinates.part(name)
            if number < begin + own.stop - own.start:
                return one.coordinates.owner(own.start + number - begin)
            begin += own.stop - own.start
        return f"u[{number - begin}]"

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

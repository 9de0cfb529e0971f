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

from lowerbound.compiled import jit, quickly
from lowerbound.compiled.host import lightly
from lowerbound.cost import allowance
from lowerbound.errors import NoPredictorsError, PoorIntegralError
from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.family.q import Q
from lowerbound.methods.hierarchy.hierarchies import predictors_for, surface_for
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.sampling.mixing import Mixing, mixing
from lowerbound.methods.sampling.trajectories import CHAINS, WARM, trajectories
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
DENSE = 200  # numbers up to which the metric adapts as a matrix
ENOUGH, AGREED = 400.0, 1.02  # effective draws of every number, and R-hat, that end the rounds
ROUNDS = 4
SPREAD = 0.5  # of the prior's normal scores, at which chains begin
DIVERGED = 0.01  # of trajectories that may diverge
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
        """Rounds, each from where the last has ended, until the draws are enough."""
        whitened, starts = self._begun()
        loc, root = np.zeros(whitened.size), np.ones(whitened.size)
        kept = math.ceil(self.method.draws / CHAINS)
        run = self._compiled(("trajectories", kept), self._trajectories(whitened, kept))
        chains, diverged, steps, done = np.zeros((CHAINS, 0, whitened.size)), 0, 0.0, 0
        while True:
            keys = jax.random.split(jax.random.key(self.problem.seed + 17 * done), CHAINS)
            inside = (starts - loc) / root
            vectors, lost, taken = map(
                np.asarray, run(inside, keys, loc, root, whitened.given)
            )
            done += 1
            chains = np.concatenate([chains, vectors], axis=1)
            diverged += int(lost.sum())
            steps += float(taken.mean())
            place = Sampled(
                whitened, chains, mixing(chains, self._named), diverged, steps / done
            )
            stop = self._stop(place, done)
            if stop is not None:
                yield Standing(place, self._bound(place)[0], stop)
                return
            yield Standing(place)
            starts = vectors[:, -1]
            every = chains.reshape(-1, whitened.size)
            loc, root = every.mean(axis=0), np.maximum(every.std(axis=0), 1e-6)

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
        rng = np.random.default_rng(self.problem.seed)
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
            return standing_still(one, thetas[0], np.zeros(one.size), ())
        surface = surface_for(self.problem, one)
        for t in thetas[:CHAINS]:
            solved = surface(t, (), False)
            if solved is not None:
                return standing_still(one, t, solved.loc, solved.spread)
        raise PoorIntegralError(one.theta, "given these at their prior's median, there is no mode")

    # -- what is compiled --------------------------------------------------------------------------

    def _compiled(self, key: object, function: Any) -> Any:
        """A compiled function, one for all equal programs."""
        return self.predictors.compiled.setdefault(("sampled", key), function)

    def _trajectories(self, whitened: Whitened, kept: int) -> Any:
        return jit(trajectories(whitened.density, kept, whitened.size <= DENSE))

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
            u = np.random.default_rng([self.problem.seed, 1]).normal(size=(len(t), one.size))
        data, coordinates = self.problem.model.arguments.data, one.coordinates
        parts = {name: coordinates.part(name) for name in (*one.theta, *one.z)}
        order = np.concatenate([np.arange(own.start, own.stop) for own in parts.values()])

        def sites(t: Array, u: Array, given: Given, data: Any) -> Any:
            z = whitened.effects(t, u, given)
            vector = jnp.zeros(coordinates.size).at[order].set(jnp.concatenate([t, z]))
            return coordinates.constrain(vector, data)

        def every(t: Array, u: Array, given: Given, data: Any) -> Any:
            return jax.lax.map(lambda both: sites(*both, given, data), (t, u))

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
        notes = (
            f"{CHAINS} chains of {count // CHAINS:,} trajectories over {over}, after {WARM} a "
            f"round: {place.diverged:,} diverged, {place.gradients:.0f} gradients each; "
            f"{place.mixed}.",
            "The ELBO is that of the Gaussian with the mean and the covariance of the draws in "
            f"these {place.whitened.size} numbers; the draws are nearer.",
        )
        known = Verdict("all", f"chains of NUTS agree: {place.mixed}")
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
        normal = np.random.default_rng(self.problem.seed).normal(size=(MEASURED // 2, size))
        normal = np.vstack([normal, -normal])
        log_p = self._density(place.whitened)(loc + normal @ root.T, place.whitened.given)
        entropy = 0.5 * size * (1.0 + math.log(2 * math.pi)) + np.log(np.diag(root)).sum()
        both = np.asarray(log_p).reshape(2, -1).mean(axis=0)
        return float(both.mean() + entropy), float(both.std() / math.sqrt(len(both)))

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

"""The density that a fit is judged against: log p(x, z) of its continuous sites, beside log q.

Discrete sites are summed out of the program exactly, and auxiliary ones are not in it: what is left
of q is the marginal of the sites that a user reads. Both densities are of one real vector u.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from numpyro.distributions import constraints

from lowerbound.compiled import Kept, traced
from lowerbound.compiled.host import lightly
from lowerbound.cost import machine, mapped, numbers_computed
from lowerbound.errors import LongSumError, UnjudgedError
from lowerbound.family.completed.completing import Completed
from lowerbound.family.densities.conditioned import Conditioned
from lowerbound.family.densities.product import Product
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian, covariance, variances
from lowerbound.family.host_draws import gaussian_draws, gaussian_root
from lowerbound.family.meanfield import MeanField
from lowerbound.family.variational import Parameters, Variational, marginal_without
from lowerbound.joint import inputs_of
from lowerbound.joint.traced_program import trace_program
from lowerbound.methods.gaussian.target import Target, target_for
from lowerbound.model import Model, trace_model
from lowerbound.result.fitted import Fit
from lowerbound.result.verdicts import Drawn
from lowerbound.rewrite.augment import auxiliary_of
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.hidden_sites import Elimination
from lowerbound.rewrite.summing.enumerated import discrete_sites, enumerated

TOGETHER = 512  # rows that are mapped to sites at a time
SLOWER = 20.0  # times, than an ordinary core: from there on the clock counts
SPARE, MOST_SPARE = 4096, 400_000  # draws of q for its moments, and numbers in them
SMALL = 200  # numbers of a Gaussian whose covariance is factored for more draws
FEW_SUMS = 16  # over discrete sites, without which nothing is known
IN_A_DENSITY = 20  # numbers that one density of such a sum takes, about
MOST_KEPT = 100_000  # numbers of data of a program whose log p is kept for another fit
_targets: Kept[Target] = Kept(8)


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and sd of the elements of a site under q, flat, with their standard errors.

    Those of a Gaussian are exact, and so are those of its exponentials; else they are of draws.
    """

    mean: np.ndarray
    sd: np.ndarray
    mean_error: np.ndarray
    variance_error: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """The square of the sd."""
        square: np.ndarray = self.sd**2
        return square

    @classmethod
    def of_draws(cls, draws: np.ndarray) -> Moments:
        """Of draws with their axis first."""
        x = draws.reshape(len(draws), -1).astype(float)
        mean, sd = x.mean(axis=0), x.std(axis=0)
        squares = (x - mean) ** 2
        root = np.sqrt(len(x))
        return cls(mean, sd, sd / root, squares.std(axis=0) / root)


@dataclass(frozen=True, eq=False)
class Against:
    """A target density, and q of the same sites."""

    target: Target
    family: Variational
    parameters: Parameters

    @property
    def coordinates(self) -> Coordinates:
        """How the sites lie in u."""
        return self.target.coordinates

    def points_in(self, seconds: float) -> int:
        """Points of log p that take so many seconds on an ordinary core.

        They are counted, not timed: a verdict is the same when the machine is busy. Where this
        machine is far slower than an ordinary one, or the count is wrong, they are fewer.
        """
        points, pace = int(seconds / self.target.ordinary), self.target.seconds(1)
        return points if points * pace <= SLOWER * seconds else int(SLOWER * seconds / pace)

    def drawn(self, count: int, seed: int = 0) -> Drawn:
        """Draws of q with log p and log q at each."""
        with jax.enable_x64(True), np.errstate(all="ignore"):
            if isinstance(self.family, UnconstrainedGaussian):
                u, log_q = self._gaussian(self.family, seed, count)
            else:
                every = max(count, min(SPARE, MOST_SPARE // max(self.coordinates.size, 1)))
                values, density = self._weighed(seed, every, count)
                u, volume = (np.asarray(part) for part in self.placed(values))
                log_q = np.asarray(density)[:count] + volume[:count]
            vectors, spare = u[:count], u[count:]
            log_p, gradients = self.target(vectors, few=True)
        return Drawn(vectors, log_p, gradients, log_q, spare)

    def places(self, seed: int, count: int) -> np.ndarray:
        """Draws of q as vectors, without their densities."""
        return np.asarray(self.placed(self.sites(seed, count))[0])

    def sites(self, seed: int, count: int) -> dict[str, np.ndarray]:
        """Draws of q by site."""
        with jax.enable_x64(True):
            values, _ = self._weighed(seed, count, 1)
        return {name: np.asarray(values[name]) for name in self.coordinates.shapes}

    def _gaussian(
        self, family: UnconstrainedGaussian, seed: int, count: int
    ) -> tuple[np.ndarray, np.ndarray]:
        found = gaussian_draws(self.parameters, seed, count)
        if found is not None:
            return found
        u = family.sample_unconstrained(self.parameters, jax.random.key(seed), count)
        return np.asarray(u), np.asarray(family.log_prob_unconstrained(self.parameters, u))

    def _weighed(self, seed: int, every: int, count: int) -> tuple[Mapping[str, Any], Any]:
        """Draws of q, and its log density at the first of them or more."""
        family = self.family
        if isinstance(family, MeanField):
            found = family.weighed(self.parameters, seed, every)
            if found is not None:
                return found
        values = family.sample(self.parameters, jax.random.key(seed), (every,))
        known: dict[str, Any] = {n: np.asarray(a) for n, a in values.items()}
        log_q = family.log_prob(self.parameters, {n: a[:count] for n, a in known.items()})
        return known, log_q

    def moments(self, values: Mapping[str, np.ndarray], drawn: Drawn) -> dict[str, Moments]:
        """Those of q by site; `values` are the sites at the draws."""
        found = {site: self._exactly(site) for site in values}
        more = drawn.spare if len(drawn.spare) else self._spare(drawn)
        told = all(one is not None for one in found.values()) or not len(more)
        spare = {} if told else self.values(more)
        every = {n: np.concatenate([a, spare[n]]) if spare else a for n, a in values.items()}
        return {n: one or Moments.of_draws(every[n]) for n, one in found.items()}

    def _spare(self, drawn: Drawn) -> np.ndarray:
        """More draws of a Gaussian of not too many numbers."""
        size, family = self.coordinates.size, self.family
        if not isinstance(family, UnconstrainedGaussian) or size > SMALL:
            return np.zeros((0, size))
        seed = len(drawn.vectors)
        found = gaussian_draws(self.parameters, seed, SPARE)
        if found is not None:
            return found[0]
        with jax.enable_x64(True):
            loc = np.asarray(self.parameters["loc"], float)
            spread = np.asarray(covariance(self.parameters), float)
        rng = np.random.default_rng(seed)
        drawn_more: np.ndarray = rng.multivariate_normal(loc, spread, SPARE, method="eigh")
        return drawn_more

    def _exactly(self, site: str) -> Moments | None:
        """The moments of a site of real or positive numbers under a Gaussian of u."""
        kind, part = self._kind(site), self.coordinates.part(site)
        if kind is None or not isinstance(self.family, UnconstrainedGaussian):
            return None
        mean = np.asarray(self.parameters["loc"], float)[part]
        root = gaussian_root(self.parameters)
        if root is None:
            with jax.enable_x64(True):
                variance = np.asarray(variances(self.parameters), float)[part]
        else:
            variance = (root[part] ** 2).reshape(len(mean), -1).sum(axis=1)
        if kind is constraints.positive:
            mean = np.exp(mean + 0.5 * variance)
            variance = np.expm1(variance) * mean**2
        return Moments(mean, np.sqrt(variance), np.zeros_like(mean), np.zeros_like(mean))

    def values(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        """The sites at rows u."""
        parts = {name: self._plainly(name, vectors) for name in self.coordinates.shapes}
        known = {name: part for name, part in parts.items() if part is not None}
        if len(known) == len(parts):
            return known
        coordinates, compiled = self.coordinates, self.target.compiled

        def constrained(vectors: Any, data: Any) -> Any:
            return mapped(lambda one: coordinates.constrain(one, data), vectors, what="one draw")

        if "constrained" not in compiled:
            compiled["constrained"] = lightly(constrained)
        found = []
        with jax.enable_x64(True):
            for begin in range(0, len(vectors), TOGETHER):  # one program, however many rows
                some = vectors[begin : begin + TOGETHER]
                whole = np.concatenate([some, np.repeat(some[-1:], TOGETHER - len(some), axis=0)])
                each = compiled["constrained"](whole, self.target.data)
                found.append({name: np.asarray(a)[: len(some)] for name, a in each.items()})
        return {name: np.concatenate([one[name] for one in found]) for name in found[0]}

    def _plainly(self, site: str, vectors: np.ndarray) -> np.ndarray | None:
        """A site of real or positive numbers, which needs no program."""
        kind, coordinates = self._kind(site), self.coordinates
        shape = (len(vectors), *coordinates.shapes[site])
        part = vectors[:, coordinates.part(site)].reshape(shape)
        if kind is None:
            return None
        return part if kind is constraints.real else np.exp(part)

    def _kind(self, site: str) -> Any:
        """Whether a site is its own coordinate, or the exponential of it; else None."""
        coordinates = self.coordinates
        support: Any = coordinates.supports.get(site)
        while hasattr(support, "base_constraint"):
            support = support.base_constraint
        if site in coordinates.noncentred | coordinates.straight | coordinates.warped:
            return None
        return support if support in (constraints.real, constraints.positive) else None

    def placed(self, values: Mapping[str, Any]) -> tuple[Any, Any]:
        """The vectors u of draws, and log |dz/du| at each."""
        coordinates, compiled = self.coordinates, self.target.compiled

        def placed(values: Mapping[str, Any], data: Any) -> Any:
            return mapped(lambda one: coordinates.placed(one, data), values, what="one draw")

        if "placed" not in compiled:
            compiled["placed"] = lightly(placed)
        own = {name: np.asarray(values[name], float) for name in coordinates.shapes}
        u, volume = compiled["placed"](own, self.target.data)
        return u, volume


def against(fit: Fit, model: Model | None = None, seconds: float = math.inf) -> Against:
    """The density a fit is judged against. Raises UnjudgedError where there is none.

    `model` is the program of the fit as it was traced, where that is at hand and not augmented.
    Neither is there one where to sum out discrete sites at a few draws takes more than `seconds`.
    """
    if not fit.has_data:
        raise UnjudgedError("the file of the fit holds no data; pass them to lb.load")
    if not fit.whole:
        raise UnjudgedError("the fit keeps the factors of global sites alone")
    with jax.enable_x64(True):
        if model is None or fit.answer.augment:
            assert fit.call.args is not None
            model = trace_model(fit.original, fit.call.args, fit.call.kwargs, fit.answer.plate)
        known = fit.q.family
        gone = known.elimination.names if isinstance(known, Completed) else discrete_sites(model)
        own = [*fit.sites, *auxiliary_sites(fit)]
        extra = [name for name in own if name not in model.latent]
        family, parameters = marginal_of(fit, [*gone, *extra])
        key = _key(fit, model, family)
        made = partial(_target, fit, model, family, gone, seconds)
        target = made() if key is None else _targets.of(key, made)
        return Against(target.afresh(), family, parameters)


def auxiliary_sites(fit: Fit) -> list[str]:
    """The sites that augmentation has added to q; log p as it was written has none of them."""
    family, choices = fit.q.family, fit.answer.augment or {}
    if isinstance(family, Conditioned):
        family = family.inner
    if isinstance(family, Product):
        family = family.exact
    blocks = family.blocks if isinstance(family, MeanField) else ()
    return [site for block in blocks for site in block.sites if auxiliary_of(site) in choices]


def _summed(model: Model, names: Collection[str], seconds: float) -> Elimination:
    """Discrete sites summed out; UnjudgedError where to find how takes too long already."""
    most = seconds / (FEW_SUMS * IN_A_DENSITY * machine().number)
    try:
        return enumerated(model, most)
    except LongSumError as error:
        raise UnjudgedError(f"to sum out {', '.join(names)} takes too long for it") from error


def _check_sum(elimination: Elimination, seconds: float) -> None:
    """Raise UnjudgedError where a few sums over discrete sites take longer than that."""
    model, names = elimination.model, elimination.names
    theta = {n: np.zeros(site.shape) for n, site in model.latent.items() if n not in names}
    closed = traced(elimination.conditional)(theta, model.arguments.data)
    one = numbers_computed(closed.jaxpr) * machine().number
    if FEW_SUMS * one > seconds:
        raise UnjudgedError(f"to sum out {', '.join(names)} takes about {one:.2g} s for one draw")


def _key(fit: Fit, model: Model, family: Variational) -> str | None:
    """What equal programs with equal data share; None where the data are large, or q is a Gaussian.

    A Gaussian has traced its target itself; a fit by coordinates knows its program already, which
    is what is digested.
    """
    data = inputs_of(model)
    traced = isinstance(family, UnconstrainedGaussian) or isinstance(fit.q.family, Completed)
    if traced or sum(array.size for array in data.values()) > MOST_KEPT:
        return None
    total = hashlib.sha256(f"{trace_program(model).key} {model.single}".encode())
    for name, array in sorted(data.items()):
        total.update(f"{name}{array.shape}{array.dtype}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def marginal_of(fit: Fit, sites: Collection[str]) -> tuple[Variational, Parameters]:
    """Q without some sites. Raises UnjudgedError where it has no density of the others."""
    found = marginal_without(fit.q.family, fit.q.parameters, sites)
    if found is None:
        raise UnjudgedError(
            f"q has no density of the other sites without {', '.join(sites)}, which have a factor "
            "with them"
        )
    return found


def _target(
    fit: Fit, model: Model, family: Variational, gone: Collection[str], seconds: float
) -> Target:
    """Log p without sites that are summed or integrated out, in the coordinates of a Gaussian q."""
    if gone:
        known = fit.q.family
        found: Elimination = (
            known.elimination if isinstance(known, Completed) else _summed(model, gone, seconds)
        )
        if len(found.names) == len(model.latent):
            raise UnjudgedError(
                "all latent sites are discrete", "lb.fit(..., method=lb.Enumeration())"
            )
        _check_sum(found, seconds)
        model = trace_model(found.function, *found.call)
    if not isinstance(family, UnconstrainedGaussian):
        return target_for(model)
    own = family.coordinates
    numbers = {n: np.asarray(a) for n, a in family.data.items() if n not in model.arguments.data}
    return target_for(model, None, own.noncentred, numbers, own.warped)

"""The rest of a program given a few of its scalars: the conditioned program, and its solver.

With theta observed, a program is an ordinary model whose data include theta: it is derived and
certified once, and the same engine then runs for every value of theta.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import Transform

from lowerbound.ascent import State
from lowerbound.compiled import Kept, traced
from lowerbound.compute.bounded_loops import bounded
from lowerbound.compute.engine import Engine, engine_for
from lowerbound.compute.prior_state import from_prior, narrowed
from lowerbound.errors import ChosenSitesError, UnknownSiteError
from lowerbound.family.densities.nothing import Nothing
from lowerbound.family.meanfield import MeanField
from lowerbound.family.variational import Inner, Parameters, Variational
from lowerbound.joint import inputs_of
from lowerbound.joint.energy.summands import evaluate
from lowerbound.joint.terms.impossible import is_impossible
from lowerbound.joint.traced_program import split_inputs
from lowerbound.methods.coordinate.begin import assignments
from lowerbound.methods.coordinate.start import Chance, chances, start
from lowerbound.model import Model
from lowerbound.model.dependence import digest
from lowerbound.rewrite.given_values import given_name, with_given
from lowerbound.run.problem import Problem

TOLERANCE = 1e-9  # relative change of the conditional ELBO in a sweep
ROUNDING = 1.0  # nats; the estimate is a hundred times the error that is seen
MOST_SITES = 3


@dataclass(frozen=True, eq=False)
class Solver:
    """How q(z | theta) is found: an `Inner` made from (traced) inputs, and what compiles it.

    `inner(inputs)` is called while a program is traced, so that other data of the same shapes
    compile nothing; `compiled` outlives the fit. `size` counts the numbers that one theta takes.
    Instead of `inner`, `on_host(points, theta, jacobian)` solves a batch outside compiled code.
    """

    inner: Callable[[Any], Inner] | None
    family: Variational
    inputs: Any
    compiled: dict[object, Any]
    size: int
    finish: Callable[[], None] = field(default=lambda: None)  # raises where a derivation is wrong
    on_host: Callable[..., tuple[Parameters, np.ndarray]] | None = None


# --------------------------------------------------------------------------------------------------
# The conditioned program


def given_inputs(theta: Mapping[str, Array]) -> dict[str, Array]:
    """Values of the conditioned sites as data of the conditioned program."""
    return {given_name(site): jnp.reshape(value, (1,)) for site, value in theta.items()}


def transforms_of(model: Model, sites: Sequence[str]) -> tuple[Transform, ...]:
    """The maps from the real line to the supports of the sites to condition on, all checked."""
    if not 1 <= len(sites) <= MOST_SITES or len(set(sites)) < len(sites):
        raise ChosenSitesError.number(sites, MOST_SITES)
    for name in sites:
        if name not in model.latent:
            raise UnknownSiteError("condition got", name, tuple(model.latent))
        site = model.latent[name]
        if site.shape:
            raise ChosenSitesError.not_scalar(name, site.shape, site.where)
        if site.support is None or site.support.is_discrete:
            found = "that depends on other sites" if site.support is None else "of integers"
            raise ChosenSitesError.no_interval(name, found, site.where)
    return tuple(biject_to(_plain(model.latent[name].support)) for name in sites)


def _plain(support: Any) -> Any:
    """The support without the wrapper that counts event dimensions."""
    while isinstance(support, type(constraints.independent(constraints.real, 1))):
        support = support.base_constraint
    return support


def conditioned(
    model: Model, sites: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Model:
    """The program with `sites` observed, at data arguments of its own (`given_name`)."""
    middle = {
        site: np.asarray(transform(jnp.zeros(1)))
        for site, transform in zip(sites, transforms_of(model, sites), strict=True)
    }
    return with_given(model, middle, args, kwargs)


def problem_given(problem: Problem, sites: Sequence[str]) -> Model:
    """The program of a problem with `sites` observed."""
    names = tuple(sites)

    def find() -> Model:
        return conditioned(problem.model, names, *problem.call)

    return problem.once(("given", names), find)


# --------------------------------------------------------------------------------------------------
# Exact coordinate ascent given theta


@dataclass(frozen=True, eq=False)
class ExactInner:
    """Coordinate ascent (alg:cavi) given theta, to convergence; parameters are naturals."""

    engine: Engine
    inputs: Mapping[str, Array]
    chance: Chance | None = None
    seeded: int | None = None

    @property
    def family(self) -> MeanField:
        """The mean-field family of the sites that are left."""
        return self.engine.family

    def first(self, theta: Mapping[str, Array]) -> Parameters:
        """The natural parameters at which coordinate ascent starts."""
        arrays = self._arrays(theta)
        if self.chance is None:
            return narrowed(self.engine, arrays, from_prior(self.engine, arrays)).naturals
        state = start(self.engine, arrays, self.chance, "auto", {}, self.seeded)
        swept, _ = self.engine.sweep(arrays, state)  # a start may scatter the means alone
        return swept.naturals

    def solve(
        self, theta: Mapping[str, Array], parameters: Parameters, sweeps: Array
    ) -> tuple[Parameters, Array]:
        """Sweep until the ELBO has settled; one sweep is exact where one block is left."""
        arrays, sweep = self._arrays(theta), self.engine.sweep
        families = self.family.families
        means = tuple(f.mean(n) for f, n in zip(families, parameters, strict=True))
        blocks = self.engine.joint.blocks
        curved = any(summand.curved for summand in self.engine.joint.summands)
        if len(blocks) == 1 and not blocks[0].sequential and not curved:
            state, bound = sweep(arrays, State(parameters, means))
            return state.naturals, self._checked(arrays, state, bound)

        def more(loop: tuple[Array, State, Array, Array]) -> Array:
            t, _, bound, change = loop
            moving = change > TOLERANCE * jnp.maximum(abs(bound), 1.0)
            return (t < sweeps) & ((t == 0) | moving)

        def body(loop: tuple[Array, State, Array, Array]) -> tuple[Array, State, Array, Array]:
            t, state, before, _ = loop
            state, bound = sweep(arrays, state)
            return t + 1, state, bound, bound - before

        first = (jnp.zeros((), int), State(parameters, means), -jnp.inf, jnp.inf)
        first = jax.tree.map(jnp.asarray, first)
        _, state, bound, _ = jax.lax.while_loop(more, body, first)
        return state.naturals, self._checked(arrays, state, bound)

    def _checked(self, arrays: tuple[Array, ...], state: State, bound: Array) -> Array:
        """The bound; -inf where theta has no density or q cannot be, NaN where rounding may decide.

        Far from the posterior large terms cancel, of one summand too (a matrix and its
        coefficients): at mu^2 / tau^2 = 1e20 nothing is left. Where
        a part of the density that theta alone decides is NaN (a covariance that is not positive
        definite), it is NaN whatever the other sites are: samplers reject such values.
        """
        sizes = jax.tree.map(abs, (arrays, state.means))
        parts = [
            abs(evaluate(s, *((arrays, state.means) if s.curved else sizes)))
            for s in self.engine.joint.summands
        ]
        rounding = float(np.finfo(float).eps) * sum(parts, start=jnp.zeros(()))
        settled = jnp.where(rounding < ROUNDING, bound, jnp.nan)
        given = [array for array in arrays if jnp.issubdtype(array.dtype, jnp.floating)]
        void = jnp.asarray([jnp.isnan(array).any() for array in given], bool).any()
        return jnp.where(void | is_impossible(bound), -jnp.inf, settled)

    def _arrays(self, theta: Mapping[str, Array]) -> tuple[Array, ...]:
        return self.engine.joint.compress({**self.inputs, **given_inputs(theta)})


def exact_solver(
    model: Model, sites: Sequence[str], transforms: Sequence[Transform], seed: int
) -> Solver:
    """Exact updates of what is left in a conditioned program.

    Raises NotConjugateError where some term fits no factor.
    """

    def varied(number: int) -> dict[str, Array]:
        """Values of theta, wider apart from one point of the certificate to the next."""
        u = np.random.default_rng(number).normal(size=len(sites)) * number**0.5
        return given_inputs(
            {s: t(u[i]) for i, (s, t) in enumerate(zip(sites, transforms, strict=True))}
        )

    engine = engine_for(model, np.dtype(float), varied=varied)
    seeded = assignments(engine, model)
    chance = None
    if len(engine.joint.blocks) > 1 or engine.joint.blocks[0].sequential:
        drawn = chances(engine, seed, 1, "auto", seeded)
        chance = jax.tree.map(lambda a: a[0], drawn)
    names = {given_name(site) for site in sites}
    data = {name: array for name, array in inputs_of(model).items() if name not in names}

    def inner(inputs: tuple[dict[str, Array], Chance | None]) -> Inner:
        return ExactInner(engine, *inputs, seeded)

    size = sum(np.size(array) for array in data.values())
    return Solver(inner, engine.family, (data, chance), engine.compiled, size, engine.certified)


# --------------------------------------------------------------------------------------------------
# Nothing left to infer


@dataclass(frozen=True, eq=False)
class PointInner:
    """All latent sites are given: the conditional ELBO is log p(x, theta)."""

    model: Model
    inputs: Mapping[str, Array]
    family: Nothing = field(default_factory=Nothing)

    def first(self, theta: Mapping[str, Array]) -> Parameters:
        """No parameters."""
        return ()

    def solve(
        self, theta: Mapping[str, Array], parameters: Parameters, sweeps: Array
    ) -> tuple[Parameters, Array]:
        """The log density of the program."""

        def density(theta: Mapping[str, Array]) -> Array:
            return self.model.log_density(theta, *split_inputs(self.model, self.inputs))

        return (), bounded(density, theta)(theta)


_points: Kept[dict[object, Any]] = Kept(32)


def point_solver(model: Model) -> Solver:
    """The log density of a program whose latent sites are all given."""
    inputs = inputs_of(model)

    def inner(inputs: Mapping[str, Array]) -> Inner:
        return PointInner(model, inputs)

    def density(theta: dict[str, Array], inputs: Mapping[str, Array]) -> Array:
        return PointInner(model, inputs).solve(theta, (), jnp.ones(()))[1]

    theta = {name: jnp.zeros(()) for name in model.latent}
    key = digest(traced(density)(theta, inputs), *theta, *sorted(inputs))
    compiled = _points.of(key, dict)
    size = sum(np.size(array) for array in inputs.values())
    return Solver(inner, Nothing(), inputs, compiled, size)

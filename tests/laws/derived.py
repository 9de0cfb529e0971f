"""A model of the zoo, derived, and the numbers that the laws are about.

Compiling is the cost of these tests, so each group of laws has one function per model, called once,
and NumPy runs it where it can. The derivation here is not taken from the cache of `lb.fit` and is
not certified by it: a planted fault shows in the laws themselves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln

from lowerbound.ascent import State, Sweep
from lowerbound.bound import elbo
from lowerbound.compiled import quickly
from lowerbound.compiled.host import lightly
from lowerbound.compute.prior_state import gaussian_at
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import Block, Joint, energy, gradient, inputs_of, multi_affine
from lowerbound.joint.points import random_point, restricted
from lowerbound.joint.terms.domain import COUNT, OTHER
from lowerbound.model import Model, trace_model
from tests.models.case import Arguments, Case

POINTS = 2  # pairs of random points of the certificate
RESTARTS, SWEEPS = 3, 5  # random starts, and sweeps from each
SEED = 1000  # the derive-time certificate uses small seeds


@dataclass(frozen=True, eq=False)
class Derived:
    """A derived model with its data."""

    name: str
    model: Model
    joint: Joint
    family: MeanField
    sweep: Sweep
    dtype: str = "float64"

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.joint.blocks

    def cast(self, tree: Any) -> Any:
        """Floating arrays in the precision of the run."""

        def one(array: Any) -> Array:
            array = jnp.asarray(array)
            return array.astype(self.dtype) if jnp.issubdtype(array.dtype, float) else array

        return jax.tree.map(one, tree)

    def evaluated(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that is called once: by NumPy, where sums need not be rounded as XLA does."""
        return lightly(function) if self.dtype == "float64" else quickly(function)

    @property
    def curved(self) -> frozenset[int]:
        """The blocks in whose mean the energy is not affine: expectations by quadrature."""
        return frozenset[int]().union(*(s.curved for s in self.joint.summands))

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        """The compressed data."""
        return self.compress(self.model)

    def compress(self, model: Model) -> tuple[Array, ...]:
        """The compressed data of a model of the same program and shapes."""
        with jax.enable_x64(True):
            return self.cast(self._compress(inputs_of(model)))

    @cached_property
    def _compress(self) -> Any:
        return self.evaluated(self.joint.compress)

    @cached_property
    def points(self) -> dict[str, Any]:
        """The energy and NumPyro's log density at random points; see `_points`."""
        with jax.enable_x64(True):
            pairs = [random_pair(self, SEED + number) for number in range(POINTS)]
            values = jax.tree.map(lambda *leaves: np.stack(leaves), *pairs)
            evaluate = self.evaluated(jax.vmap(partial(_points, self), in_axes=(None, None, 0)))
            return _numpy(evaluate(self.arrays, dict(self.model.arguments.data), values))

    @cached_property
    def climb(self) -> dict[str, Any]:
        """Sweeps from random starts; see `_climb`."""
        with jax.enable_x64(True):
            return self.climb_from(self.starts)

    @cached_property
    def steps(self) -> dict[str, Any]:
        """Updates and the gradient of the ELBO at a state of no special kind; see `_steps`."""
        with jax.enable_x64(True):
            return _numpy(self.evaluated(partial(_steps, self))(self.arrays, self.climb["between"]))

    @cached_property
    def starts(self) -> dict[str, np.ndarray]:
        """Random points z to start from, with a leading axis of starts."""
        points = [random_values(self, SEED + number) for number in range(RESTARTS)]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *points)

    def climb_from(
        self, values: Mapping[str, np.ndarray], arrays: tuple[Array, ...] | None = None
    ) -> dict[str, Any]:
        """`climb` from point values, on other compressed data of the same program if given."""
        with jax.enable_x64(True):
            return _numpy(self._climb(self.arrays if arrays is None else arrays, dict(values)))

    @cached_property
    def _climb(self) -> Any:
        return self.evaluated(jax.vmap(partial(_climb, self), in_axes=(None, 0)))


def derive(case: Case, arguments: Arguments | None = None) -> Derived:
    """Derive a case afresh."""
    args, kwargs = arguments or case.arguments(0)
    with jax.enable_x64(True):
        model = trace_model(case.model, args, kwargs)
        joint = multi_affine(model)
        assert not joint.structure.residuals, joint.structure.residuals
        family = MeanField.of(joint.blocks)
        order = tuple(reversed(range(len(joint.blocks))))
        return Derived(case.name, model, joint, family, Sweep(family, joint.summands, order))


def in_single_precision(derived: Derived) -> Derived:
    """The same derivation, run in float32."""
    return replace(derived, dtype="float32")


def _numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)


# --------------------------------------------------------------------------------------------------
# Points


def random_values(derived: Derived, seed: int) -> dict[str, np.ndarray]:
    """A random point z of positive density."""
    rng = np.random.default_rng(seed)
    within = restricted(derived.joint, inputs_of(derived.model))
    return {
        latent.name: random_point(latent, rng, within.get(latent.name))
        if latent.domain is not OTHER
        else np.asarray(derived.model.draw(jax.random.key(seed))[latent.name])
        for latent in derived.joint.program.latents
    }


def extras(derived: Derived, arrays: Any) -> tuple[dict[str, Array], ...]:
    """The constants of the supports, by block."""
    return tuple({k: arrays[slot] for k, slot in b.extras.items()} for b in derived.blocks)


def random_pair(derived: Derived, seed: int) -> dict[str, np.ndarray]:
    """A point, then that point with one block moved, for every block; last, all blocks moved.

    Elements of a sequential block meet in one term: only the first of them moves.
    """
    here, there = (random_values(derived, s) for s in (seed, seed + 100_000))
    moved = []
    for block in derived.blocks:
        new = dict(here)
        for site in block.sites:
            new[site] = there[site]
            if block.sequential:
                layout = block.layouts[site]
                first = tuple(
                    0 if a in layout.batch else slice(None) for a in range(here[site].ndim)
                )
                new[site] = here[site].copy()
                new[site][first] = there[site][first]
        moved.append(new)
    return {site: np.stack([p[site] for p in (here, *moved, there)]) for site in here}


def base_measure(derived: Derived, values: Mapping[str, Array]) -> Array:
    """log h(z): the -log z! of latent counts, which energy and entropy both leave out."""
    latents = derived.joint.program.latents
    counts = [latent.name for latent in latents if latent.domain is COUNT]
    return -sum((gammaln(values[name] + 1.0).sum() for name in counts), start=jnp.zeros(()))


def _points(
    derived: Derived, arrays: Any, data: Mapping[str, Any], values: Mapping[str, Array]
) -> dict[str, Any]:
    """Everything the certificate compares, at the points of one `random_pair`."""
    summands = derived.joint.summands
    statistics = jax.vmap(lambda v: derived.family.statistics(v, arrays))(values)

    def parts(point: Any) -> Array:
        return jnp.stack([energy([summand], arrays, point) for summand in summands])

    def at(scenario: int) -> Any:
        return jax.tree.map(lambda a: a[scenario], statistics)

    # Half-way between two points the statistics are those of no point: there the energy must still
    # be affine in each block.
    here, moved, there = at(0), [at(1 + b.number) for b in derived.blocks], at(-1)
    middle = jax.tree.map(lambda a, b: 0.5 * (a + b), here, there)
    line = [middle]
    for block in derived.blocks:
        n = block.number
        change = jax.tree.map(lambda a, b: 0.5 * (a - b), moved[n][n], here[n])
        for sign in (-1.0, 1.0):
            own = jax.tree.map(lambda m, c, s=sign: m + s * c, middle[n], change)
            line.append((*middle[:n], own, *middle[n + 1 :]))
    values_of_line = jax.vmap(parts)(jax.tree.map(lambda *a: jnp.stack(a), *line))
    energies = jax.vmap(parts)(statistics)

    def conditional(number: int) -> Array:
        natural = gradient(summands, arrays, here, number)
        change = jax.tree.map(jnp.subtract, moved[number][number], here[number])
        return sum(jnp.sum(natural[name] * change[name]) for name in change)

    return {
        "energy": energies.sum(-1),
        "size": abs(energies).sum(-1),
        "log_density": jax.vmap(lambda v: derived.model.log_density(v, data))(values),
        "base_measure": jax.vmap(partial(base_measure, derived))(values),
        "line": values_of_line.sum(-1),
        "line_size": abs(values_of_line).sum(-1),
        "conditional": jnp.stack([conditional(b.number) for b in derived.blocks]),
    }


# --------------------------------------------------------------------------------------------------
# Updates


def fresh_elbo(derived: Derived, arrays: Any, naturals: Any) -> Array:
    """The ELBO as a function of the natural parameters alone."""
    family = derived.family
    means = means_of(derived, naturals)
    return elbo(family, derived.joint.summands, arrays, naturals, means)


def means_of(derived: Derived, naturals: Any) -> Any:
    families = derived.family.families
    return tuple(family.mean(natural) for family, natural in zip(families, naturals, strict=True))


def _climb(derived: Derived, arrays: Any, values: Mapping[str, Array]) -> dict[str, Any]:
    """The ELBO after every update of some sweeps from the point z, and the last state.

    `elbo` has one row per sweep and one column per update, evaluated afresh from the natural
    parameters; `reported` is the ELBO that the sweeps report. `between` are natural parameters
    half-way from the family's default to those after the sweeps: in the domain, optimal for none.
    """
    family = derived.family
    default = derived.cast(
        tuple(
            {**factor.default(extra), **extra}
            for factor, extra in zip(family.families, extras(derived, arrays), strict=True)
        )
    )
    state = State(default, derived.cast(family.statistics(values, arrays)))
    for number in derived.curved:  # no point mass: the update looks at the ELBO of where it stands
        factor = family.families[number]
        around = gaussian_at(factor, state.means[number]["x"], 1.0)
        state = state.replaced(number, around, factor.mean(around))

    def sweep(state: State, _: None) -> tuple[State, tuple[Array, Array]]:
        visited = []
        bound = energy([s for s in derived.joint.summands if not s.blocks], arrays, state.means)
        for number in derived.sweep.order:
            state, score = derived.sweep.update(arrays, state, number)
            visited.append(state.naturals)
            bound += score
        for number in derived.sweep.order:
            bound += family.entropy(state.naturals, state.means, arrays, number)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *visited)
        return state, (jax.vmap(partial(fresh_elbo, derived, arrays))(stacked), bound)

    last, (bounds, reported) = jax.lax.scan(sweep, state, None, length=SWEEPS)
    between = jax.tree.map(lambda a, b: 0.5 * (a + b), default, last.naturals)
    return {"elbo": bounds, "reported": reported, "state": last, "between": between}


def _steps(derived: Derived, arrays: Any, naturals: Any) -> dict[str, Any]:
    """The gradient of the ELBO, and F (target - natural) of every block, at one state.

    F is the Fisher information: the Jacobian of the mean parameters.
    """
    families = derived.family.families
    naturals = jax.tree.map(lambda a: a[0], naturals)
    state = State(naturals, means_of(derived, naturals))

    def own(block: Block, natural: Mapping[str, Array]) -> dict[str, Array]:
        return {k: natural[k] for k in families[block.number].statistic_names}

    def bound(free: Any) -> Array:
        both = [{**natural, **part} for natural, part in zip(naturals, free, strict=True)]
        return fresh_elbo(derived, arrays, tuple(both))

    free = tuple(own(block, naturals[block.number]) for block in derived.blocks)
    gradients = jax.grad(bound)(free)
    products = []
    for block in derived.blocks:
        n = block.number
        if block.sequential:  # its elements are updated one after the other: no single step
            target = gradient(derived.joint.summands, arrays, state.means, n)
        else:
            updated, _ = derived.sweep.update(arrays, state, n)
            target = own(block, updated.naturals[n])
        step = jax.tree.map(jnp.subtract, target, free[n])
        mean = partial(_mean, families[n], naturals[n])
        products.append(jax.jvp(mean, (free[n],), (step,))[1])
    return {
        "gradient": tuple(map(_symmetric, gradients, free)),
        "fisher_times_step": tuple(products),
    }


def _mean(family: Any, natural: Mapping[str, Array], free: Mapping[str, Array]) -> Any:
    return family.mean({**natural, **free})


def _symmetric(arrays: dict[str, Array], like: dict[str, Array]) -> dict[str, Array]:
    """The symmetric part of gradients with respect to matrices, which are symmetric."""
    square = {"xx", "matrix"}
    if "pxx" in like and like["pxx"].ndim > like["px"].ndim:
        square.add("pxx")
    return {k: 0.5 * (a + jnp.swapaxes(a, -1, -2)) if k in square else a for k, a in arrays.items()}

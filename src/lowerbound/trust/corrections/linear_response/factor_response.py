"""Linear response of a product of factors.

At the optimum lambda = d energy / d mu (eq:exp-fam-cavi). With V the covariance of the statistics
under q, block by block, and H the Hessian of the energy in the means mu, a pull at the statistics
moves mu by (I - V H)^-1 V: their covariance by linear response. A number w of a site moves as its
regression B on the statistics of its factor does: Cov(w) = B (I - V H)^-1 V B' + what B leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from lowerbound.compiled.host import CALLS, lightly
from lowerbound.compute.engine import Engine, engine_for
from lowerbound.errors import FlatDirectionError, NotConjugateError, UncorrectableError
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import energy, inputs_of
from lowerbound.result.fitted import Fit
from lowerbound.trust.against import Against
from lowerbound.trust.corrections.linear_response.conjugate_gradients import solved
from lowerbound.trust.corrections.linear_response.curvatures import check_optimum, response
from lowerbound.trust.corrections.linear_response.own_scales import OwnScales
from lowerbound.trust.corrections.linear_response.regressed import Regressed, regressed

DENSE = 1200  # statistics up to which matrices are formed
RANK = 1e-10  # of a correlation matrix of statistics, below which they depend on each other


Combined = Callable[[np.ndarray], Regressed]


@dataclass(frozen=True, eq=False)
class Found:
    """Draws of u and of sites under q; the mean of w, its covariances under q and by response."""

    vectors: np.ndarray
    values: dict[str, np.ndarray]
    mean: np.ndarray
    before: np.ndarray
    after: np.ndarray
    text: str


def factor_response(fit: Fit, view: Against, draws: int, seed: int) -> Found:
    """The covariance of the sites' own numbers by the response of the best factors."""
    family = fit.q.family
    assert isinstance(family, MeanField)
    model = fit.model()
    engine = _engine(fit, model, family)
    arrays = engine.prepare(inputs_of(model))
    naturals = engine.cast_tree(fit.q.parameters)
    values = family.sample(naturals, jax.random.key(seed), (draws,))
    vectors = np.asarray(view.placed(values)[0])
    if not np.isfinite(vectors).all():
        raise UncorrectableError(
            "linear-response",
            "draws of q lie on the edge of their support",
            "Use lb.correct(fit, 'psis'), or 'nuts'.",
        )
    system = _System(engine, arrays, naturals)
    own = OwnScales.of(view.coordinates, view.target.data)(vectors)

    def combined(means: np.ndarray) -> Regressed:
        return regressed(engine.family, view.coordinates, naturals, arrays, values, own, means)

    solve = _dense if system.size <= DENSE else _iterated
    linear, after, before = solve(system, combined)
    text = (
        f"covariances by linear response of {len(family.blocks)} factors with {system.size:,} "
        "expected statistics"
    )
    drawn = {name: np.asarray(values[name]) for name in view.coordinates.shapes}
    return Found(vectors, drawn, linear.centre, before + linear.left, after + linear.left, text)


def _engine(fit: Fit, model: Any, family: MeanField) -> Engine:
    """The derivation that the factors of the fit belong to."""
    for apart in (False, True):
        try:
            engine = engine_for(model, np.dtype(float), fit.answer.blocks, apart=apart)
        except NotConjugateError:
            continue
        if [b.sites for b in engine.family.blocks] == [b.sites for b in family.blocks]:
            return engine
    raise UncorrectableError(
        "linear-response",
        "the factors of q are not those that its program has",
        "Use lb.correct(fit, 'psis'), or 'nuts'.",
    )


class _System:
    """The derivatives of the factors and of the energy, as functions of flat vectors."""

    def __init__(self, engine: Engine, arrays: Any, naturals: Any) -> None:
        self.engine, self.arrays, self.naturals = engine, arrays, naturals
        family = engine.family
        chosen = [
            {name: natural[name] for name in factor.statistic_names}
            for factor, natural in zip(family.families, naturals, strict=True)
        ]
        self.natural, self._back = ravel_pytree(chosen)
        self.size = len(self.natural)

    def names(self, number: int) -> str:
        """The sites of a statistic, by its place."""
        for block, factor in zip(
            self.engine.family.blocks, self.engine.family.families, strict=True
        ):
            own = sum(int(np.prod(s)) for s in factor.statistic_shapes().values())
            if number < own:
                return ", ".join(block.sites)
            number -= own
        raise IndexError(number)

    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """V times a vector, H times a vector, and the slope, each with naturals and data last."""
        family, summands = self.engine.family, self.engine.joint.summands

        def filled(flat: Array, naturals: Any) -> Any:
            return tuple({**n, **new} for n, new in zip(naturals, self._back(flat), strict=True))

        def means(flat: Array, naturals: Any) -> Array:
            found = [
                {name: factor.mean(natural)[name] for name in factor.statistic_names}
                for factor, natural in zip(family.families, filled(flat, naturals), strict=True)
            ]
            return ravel_pytree(found)[0]

        def pulls(mean: Array, arrays: Any) -> Array:
            def total(mean: Array) -> Array:
                return energy(summands, arrays, tuple(self._back(mean)))

            return jnp.asarray(jax.grad(total)(mean))

        def spread(direction: Array, natural: Array, naturals: Any, arrays: Any) -> Array:
            return jnp.asarray(jax.jvp(lambda n: means(n, naturals), (natural,), (direction,))[1])

        def bent(direction: Array, mean: Array, naturals: Any, arrays: Any) -> Array:
            return jnp.asarray(jax.jvp(lambda m: pulls(m, arrays), (mean,), (direction,))[1])

        def slope(natural: Array, naturals: Any, arrays: Any) -> tuple[Array, Array]:
            mean = means(natural, naturals)
            target = self._back(pulls(mean, arrays))
            present = [
                family.present({**held, **new}, arrays, number)
                for number, (held, new) in enumerate(zip(naturals, target, strict=True))
            ]
            kept = [
                {name: new[name] for name in factor.statistic_names}
                for factor, new in zip(family.families, present, strict=True)
            ]
            return ravel_pytree(kept)[0] - natural, mean

        return spread, bent, slope

    def run(self, key: str, function: Callable[..., Any], *args: Any) -> Any:
        """A compiled function of arguments, the naturals and the data."""
        compiled = self.engine.compiled
        if ("response", key) not in compiled:
            compiled["response", key] = lightly(function, CALLS)
        return compiled["response", key](*args, self.naturals, self.arrays)


def _dense(system: _System, combined: Combined) -> tuple[Regressed, np.ndarray, np.ndarray]:
    """B, and the covariances of w by linear response and under q, from dense matrices."""
    spread, bent, slope = system.functions()

    def every(natural: Array, naturals: Any, arrays: Any) -> tuple[Array, ...]:
        pull, mean = slope(natural, naturals, arrays)
        eye = jnp.eye(len(natural))
        rows = jax.lax.map(lambda e: spread(e, natural, naturals, arrays), eye, batch_size=32)
        bend = jax.lax.map(lambda e: bent(e, mean, naturals, arrays), eye, batch_size=32)
        return pull, mean, rows, bend

    found = system.run("dense", every, system.natural)
    pull, mean, V, H = (np.asarray(a, float) for a in found)
    V, H = 0.5 * (V + V.T), 0.5 * (H + H.T)
    _check_finite(V, H)
    sds = np.sqrt(np.maximum(np.diag(V), 0.0))
    safe = np.where(sds > 0, sds, 1.0)
    values, vectors = np.linalg.eigh(V / np.outer(safe, safe))
    kept = values > RANK * max(values[-1], 1.0)
    root = safe[:, None] * vectors[:, kept] * np.sqrt(values[kept])
    linear = combined(mean)
    found = response(root, np.eye(int(kept.sum())) - root.T @ H @ root, system.names)
    whole = found.matrix
    step = found.moved(pull)
    norm = float(np.sqrt(max(pull @ V @ pull, 0.0)))
    check_optimum(step, np.zeros_like(step), np.sqrt(np.diag(whole)), norm, system.names)
    columns = linear.matrix().T
    return linear, linear.carried(whole @ columns), linear.carried(V @ columns)


def _iterated(system: _System, combined: Combined) -> tuple[Regressed, np.ndarray, np.ndarray]:
    """The same by conjugate gradients, for the directions that sites need alone."""
    spread, bent, slope = system.functions()
    pull, mean = (np.asarray(a, float) for a in system.run("slope", slope, system.natural))
    linear = combined(mean)

    def both(directions: Array, natural: Array, mean: Array, naturals: Any, arrays: Any) -> Any:
        return solved(
            lambda d: jax.vmap(lambda e: spread(e, natural, naturals, arrays))(d),
            lambda d: jax.vmap(lambda e: bent(e, mean, naturals, arrays))(d),
            directions,
        )

    wanted = np.concatenate([linear.matrix(), pull[None]])
    parts = []
    for begin in range(0, len(wanted), 32):
        some = np.zeros((32, system.size))
        some[: len(wanted) - begin] = wanted[begin : begin + 32]
        parts.append(system.run("iterated", both, some, system.natural, mean))
    after, before, done, curvature, flat = (
        np.concatenate([np.asarray(p[k], float) for p in parts])[: len(wanted)] for k in range(5)
    )
    _check_finite(after, before)
    bad = int(np.argmin(np.where(done > 0, 1.0, curvature)))
    if not done.all():
        raise FlatDirectionError(
            f"'{system.names(int(np.abs(flat[bad]).argmax()))}'", float(curvature[bad])
        )
    step, norm = after[-1], float(np.sqrt(max(float(pull @ before[-1]), 0.0)))
    covariance = linear.carried(after[:-1].T)
    sds = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    check_optimum(linear.carried(step[:, None])[:, 0], np.zeros(len(sds)), sds, norm, linear.names)
    return linear, covariance, linear.carried(before[:-1].T)


def _check_finite(*matrices: np.ndarray) -> None:
    if not all(np.isfinite(matrix).all() for matrix in matrices):
        raise UncorrectableError(
            "linear-response",
            "a statistic of q has no finite variance",
            "Use lb.correct(fit, 'psis'), or 'nuts'.",
        )

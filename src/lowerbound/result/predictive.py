"""What draws from a fitted q say of other sites: deterministic ones, replicated and new data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.ascent import State
from lowerbound.compiled import jit
from lowerbound.cost import mapped
from lowerbound.em import local as gaussian_rows
from lowerbound.errors import ArgumentError, NotConjugateError
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.family.meanfield import MeanField
from lowerbound.model import Model, trace_model
from lowerbound.model.arguments import split_arguments
from lowerbound.result.closed_form import exact_densities
from lowerbound.result.new_rows import (
    Rows,
    global_statistics,
    log_densities,
    log_mean_exp,
    predictive_draws,
    row_axes,
    rows_in,
    rows_of,
    simulated_densities,
)
from lowerbound.result.posterior import Posterior
from lowerbound.result.summed_rows import summed_densities

if TYPE_CHECKING:
    from lowerbound.result.fitted import Fit

Values = Mapping[str, jax.Array]


# --------------------------------------------------------------------------------------------------
# Deterministic sites and missing entries


def derived_sites(fit: Fit, values: Values, key: jax.Array) -> dict[str, jax.Array]:
    """Deterministic sites and completed observations, for draws of the latent ones."""
    if not fit.has_data:
        return {}
    model = fit.model()
    if not fit.whole:
        return _from_global(model, values)
    extra: dict[str, jax.Array] = {}

    def of_one(values: Values) -> dict[str, jax.Array]:
        return model.deterministic_values(values, data)

    data = {n: jnp.asarray(a) for n, a in model.arguments.data.items()}
    if model.deterministic:
        extra = jit(lambda v: mapped(of_one, v, what="one draw"))(dict(values))
    for name, mask in model.missing.items():
        own = fit.own_sites(values)
        count = len(next(iter(values.values())))
        drawn = predictive_draws(fit.original, model.arguments, own, key, (name,), count)[name]
        first = {n: v[0] for n, v in values.items()}
        observed = model.run(first, data)[name]
        where = mask.reshape(mask.shape + (1,) * (drawn.ndim - 1 - mask.ndim))
        extra[name] = jnp.where(where, drawn, observed.value)
    return extra


def _from_global(model: Model, values: Values) -> dict[str, jax.Array]:
    """Deterministic sites outside the rows that the global sites decide."""
    plate = model.data_plate
    names = [n for n, s in model.deterministic.items() if plate not in s.plates]
    if not names:
        return {}
    data = {n: jnp.asarray(a) for n, a in model.arguments.data.items()}
    count = rows_in(model)
    alike = {n: jnp.broadcast_to(a[:1], a.shape) if len(a) == count else a for n, a in data.items()}
    found = []
    for seed, rows in enumerate((data, alike)):
        own = {n: a for n, a in model.draw(jax.random.key(seed)).items() if n in model.local}

        def values_of(v: Any, own: Any = own, rows: Any = rows) -> dict[str, jax.Array]:
            return model.deterministic_values({**own, **v}, rows)

        every = jit(lambda v, of=values_of: mapped(of, v, what="one draw"))
        found.append(every(dict(values)))
    # What changes with the rows or their local variables is theirs, and they are not all here.
    return {n: found[0][n] for n in names if jnp.array_equal(found[0][n], found[1][n])}


MOST_NUMBERS = 20_000_000  # that the draws of a decomposition hold


def terms_from_draws(fit: Fit, model: Model, draws: int = 2048) -> dict[str, float]:
    """The ELBO by site: E_q[log p] of each density from draws, the entropy shared by the latents.

    What the densities leave of the ELBO is the entropy of q, so that the terms sum to the ELBO.
    """
    size = sum(int(np.prod(site.shape)) for site in model.latent.values())
    draws = int(np.clip(MOST_NUMBERS // max(size, 1), 2, draws))
    data = {n: jnp.asarray(a) for n, a in model.arguments.data.items()}

    def energies(values: Values) -> dict[str, jax.Array]:
        return {n: density.log_prob().sum() for n, density in model.run(values, data).items()}

    values = fit.latent_draws(draws, jax.random.key(0))
    found = jit(lambda v: mapped(energies, v, most=64, what="one draw"))(dict(values))
    # As in the ELBO itself, draws without a density are left out (bound.restricted).
    fine = np.isfinite(sum(np.asarray(array) for array in found.values()))
    terms = {name: float(np.mean(np.asarray(array)[fine])) for name, array in found.items()}
    share = (fit.elbo - sum(terms.values())) / len(model.latent)
    return {n: t + (share if n in model.latent else 0.0) for n, t in terms.items()}


# --------------------------------------------------------------------------------------------------
# Replicated and new data


def predictive_sites(
    fit: Fit, args: tuple[Any, ...], kwargs: Mapping[str, Any], draws: int, seed: int
) -> dict[str, np.ndarray]:
    """Posterior predictive draws of the observed sites."""
    with jax.enable_x64(True):
        if not (args or kwargs or fit.whole):
            raise ArgumentError(
                "The fit holds global factors alone, not those of the rows it was made from, "
                "so it cannot replicate these.\nExpected rows to predict: "
                "fit.predictive(x_new)."
            )
        key = jax.random.key(seed)
        values = fit.latent_draws(draws, key)
        call = fit.call_with(args, kwargs)
        if args or kwargs:
            local = [n for n, site in fit.sites.items() if site["scope"] == "local"]
            values = {n: v for n, v in values.items() if n not in local}
        # Auxiliary sites know the old data: new data are those of the original program.
        arguments = split_arguments(fit.original, *call)
        values = fit.own_sites(values)
        drawn = predictive_draws(
            fit.original, arguments, values, jax.random.fold_in(key, 1), fit.plan.observed, draws
        )
        return {name: np.asarray(array) for name, array in drawn.items()}


def row_densities(
    fit: Fit, args: tuple[Any, ...], kwargs: Mapping[str, Any], draws: int, seed: int
) -> np.ndarray:
    """Held-out log predictive density, one value per row of the data plate."""
    with jax.enable_x64(True):
        model = _new_rows(fit, args, kwargs)
        if fit.parameters and model.local and isinstance(fit.family, UnconstrainedGaussian):
            naturals = fit.state.naturals
            return gaussian_rows.row_densities(fit.family, naturals, model, draws, seed)
        if fit.augment and "indicator" not in fit.augment.values():
            # Without auxiliary sites a row may have none of its own: no bound is needed then.
            plain = trace_model(fit.original, *fit.call_with(args, kwargs), fit.plate)
            if not plain.local and not any(s.is_factor for s in plain.observed.values()):
                values = fit.own_sites(_shared(fit, model, draws, seed))
                densities = simulated_densities(plain, values, jax.random.key(seed + 1))
                return np.asarray(log_mean_exp(densities))
        try:
            rows = rows_of(model, np.dtype(float))
        except NotConjugateError:
            values = fit.latent_draws(draws, jax.random.key(seed))
            shared = {n: values[n] for n in model.latent if n not in model.local}
            summed = summed_densities(model, shared)
            if summed is None:
                summed = simulated_densities(model, shared, jax.random.key(seed + 1))
            return np.asarray(log_mean_exp(summed))
        if isinstance(fit.family, MeanField):
            exact = exact_densities(rows, fit.family, fit.state)
            if exact is not None:
                return exact
        return np.asarray(log_mean_exp(log_densities(rows, _shared(fit, model, draws, seed))))


def local_factors(fit: Fit, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Posterior:
    """The factors of the local variables of new rows, with the global factors as fitted."""
    with jax.enable_x64(True):
        model = _new_rows(fit, args, kwargs)
        sites = tuple(s for s in model.latent if s in model.local)
        if not sites:
            raise ArgumentError(
                "The model has no local latent sites: none is inside the data plate.\n"
                "Use fit.posterior for the global ones."
            )
        if fit.parameters and isinstance(fit.family, UnconstrainedGaussian):
            found = gaussian_rows.local_gaussians(fit.family, fit.state.naturals, model)
            return Posterior(*found, sites)
        rows = rows_of(model, np.dtype(float))
        means = _global_means(fit, rows)
        data = {n: jnp.asarray(a) for n, a in rows.data().items()}

        @jit
        def solve(data: Values) -> State:
            arrays = tuple(rows.engine.cast(a) for a in rows.engine.joint.compress(data))
            return rows.solve(arrays, means)

        state = solve(data)
        return Posterior(rows.engine.family, state.naturals, sites)


def _new_rows(fit: Fit, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Model:
    model = trace_model(fit.program, *fit.call_with(args, kwargs), fit.plate)
    row_axes(model)  # raises where rows are not defined
    return model


def _shared(fit: Fit, model: Model, draws: int, seed: int) -> dict[str, jax.Array]:
    """Draws of the global sites."""
    values = fit.family.sample(fit.state.naturals, jax.random.key(seed), (draws,))
    return {n: values[n] for n in model.latent if n not in model.local}


def _global_means(fit: Fit, rows: Rows) -> Any:
    """E_q of the global statistics: exact where the fit has the same block, else from draws."""
    mine: dict[tuple[str, ...], Any] = {}
    if isinstance(fit.family, MeanField):
        # The functions in a free-form factor may hold the data of the rows.
        named = [b for b in fit.family.blocks if not b.family.free_form]
        mine = {b.sites: fit.state.means[b.number] for b in named}
    blocks, local = rows.engine.joint.blocks, rows.local
    if all(b.number in local or b.sites in mine for b in blocks):  # draws may be costly
        return tuple({} if b.number in local else mine[b.sites] for b in blocks)
    arrays = rows.engine.joint.compress({n: jnp.asarray(a) for n, a in rows.data().items()})
    drawn = jax.vmap(lambda v: global_statistics(rows.engine.family, local, v, arrays))(
        _shared(fit, rows.model, 1000, 0)
    )
    return tuple(
        mine[b.sites]
        if b.sites in mine and b.number not in local
        else jax.tree.map(lambda a: a.mean(axis=0), drawn[b.number])
        for b in blocks
    )

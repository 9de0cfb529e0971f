"""What draws from a fitted q say of other sites: deterministic ones, replicated and new data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.ascent import State
from lowerbound.ascent.rows import local as gaussian_rows
from lowerbound.cost import mapped
from lowerbound.errors import ArgumentError, NotConjugateError, ShapeError
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.family.meanfield import MeanField
from lowerbound.model import Model, trace_model
from lowerbound.model.dependence import once
from lowerbound.model.inputs.arguments import split_arguments
from lowerbound.result.unseen.closed_form import exact_densities
from lowerbound.result.unseen.new_rows import (
    log_densities,
    log_mean_exp,
    predictive_draws,
    row_axes,
    rows_in,
    rows_of,
)
from lowerbound.result.unseen.row_integrals import (
    proposal_of,
    simulated_densities,
    summed_densities,
)

if TYPE_CHECKING:
    from lowerbound.result.fitted import Fit

Values = Mapping[str, jax.Array]


# --------------------------------------------------------------------------------------------------
# Deterministic sites and missing entries


def derived_sites(fit: Fit, values: Values, key: jax.Array) -> dict[str, jax.Array]:
    """Deterministic sites and completed observations, for draws of the latent ones."""
    if not fit.has_data:
        return {}
    model, values = fit.own_model(), fit.own_sites(values)
    if not fit.whole:
        return _from_global(model, values)
    extra: dict[str, jax.Array] = {}

    def of_each(values: Values, data: Values) -> dict[str, jax.Array]:
        found: dict[str, jax.Array] = mapped(
            lambda v: model.deterministic_values(v, data), values, what="one draw"
        )
        return found

    data = {n: jnp.asarray(a) for n, a in model.arguments.data.items()}
    if model.deterministic:
        extra = once(of_each)(dict(values), data)
    for name, mask in model.missing.items():
        count = len(next(iter(values.values())))
        drawn = predictive_draws(fit.original, model.arguments, values, key, (name,), count)[name]
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

        def of_each(values: Values, own: Values, rows: Values) -> dict[str, jax.Array]:
            drawn: dict[str, jax.Array] = mapped(
                lambda v: model.deterministic_values({**own, **v}, rows), values, what="one draw"
            )
            return drawn

        found.append(once(of_each)(dict(values), own, rows))
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

    def energies(values: Values, data: Values) -> dict[str, jax.Array]:
        def one(values: Values) -> dict[str, jax.Array]:
            return {n: density.log_prob().sum() for n, density in model.run(values, data).items()}

        found: dict[str, jax.Array] = mapped(one, values, most=64, what="one draw")
        return found

    values = fit.latent_draws(draws, jax.random.key(0))
    found = once(energies)(dict(values), data)
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
        call = fit.call_with(args, kwargs)
        wanted = [n for n, s in fit.sites.items() if s["scope"] != "local" or not (args or kwargs)]
        values = fit.latent_draws(draws, key, wanted) if wanted else {}
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
        model = new_model(fit, args, kwargs)
        family, naturals, augment = fit.q.family, fit.q.parameters, fit.answer.augment
        if fit.parameters and model.local and isinstance(family, UnconstrainedGaussian):
            return gaussian_rows.row_densities(family, naturals, model, draws, seed)
        plain = model
        if augment:
            plain = trace_model(fit.original, *fit.call_with(args, kwargs), fit.answer.plate)
        factors = any(s.is_factor for s in plain.observed.values())
        key = jax.random.key(seed + 1)
        if any(n not in fit.sites for n in plain.latent if n not in plain.local):
            values = with_new_sites(fit, plain, draws, seed)
            return np.asarray(log_mean_exp(simulated_densities(plain, values, key, draws)))
        if augment and "indicator" not in augment.values() and not (plain.local or factors):
            # Without auxiliary sites a row may have none of its own: no bound is needed then.
            values = fit.own_sites(shared_draws(fit, model, draws, seed))
            return np.asarray(log_mean_exp(simulated_densities(plain, values, key, draws)))
        try:
            rows = rows_of(model, np.dtype(float))
        except NotConjugateError:
            values = fit.latent_draws(draws, jax.random.key(seed))
            shared = {n: values[n] for n in model.latent if n not in model.local}
            summed = summed_densities(model, shared)
            if summed is None:
                summed = simulated_densities(model, shared, key, draws)
            return np.asarray(log_mean_exp(summed))
        if isinstance(family, MeanField):
            exact = exact_densities(rows, family, State.of(family, naturals))
            if exact is not None:
                return exact
        if rows.exact or factors or not plain.local:
            values = shared_draws(fit, model, draws, seed)
            return np.asarray(log_mean_exp(log_densities(rows, values)))
        values = fit.own_sites(fit.latent_draws(draws, jax.random.key(seed)))
        shared = {n: values[n] for n in plain.latent if n not in plain.local}
        proposal = proposal_of(rows, tuple(plain.local))
        return np.asarray(log_mean_exp(simulated_densities(plain, shared, key, draws, proposal)))


def new_model(fit: Fit, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Model:
    """The program as it was fitted, on new rows."""
    model = trace_model(fit.program, *fit.call_with(args, kwargs), fit.answer.plate)
    row_axes(model)  # raises where rows are not defined
    for name, site in model.latent.items():
        fitted = tuple(fit.sites[name]["shape"]) if name in fit.sites else site.shape
        if name not in model.local and site.shape != fitted:
            raise ShapeError.of_new_data(name, site.where, fitted, site.shape)
    return model


def with_new_sites(fit: Fit, model: Model, draws: int, seed: int) -> dict[str, jax.Array]:
    """Draws of the global sites; those that the fit does not have are drawn given the others.

    Groups that only the new rows have, say: their effects come from the groups' distribution.
    """
    key = jax.random.key(seed)
    values = fit.own_sites(fit.latent_draws(draws, key))
    shared = {n: values[n] for n in model.latent if n in values and n not in model.local}
    new = tuple(n for n in model.latent if n not in values and n not in model.local)
    program, arguments = fit.original, model.arguments
    return shared | predictive_draws(
        program, arguments, shared, jax.random.fold_in(key, 1), new, draws
    )


def shared_draws(fit: Fit, model: Model, draws: int, seed: int) -> dict[str, jax.Array]:
    """Draws of the global sites."""
    shared = [name for name in model.latent if name not in model.local]
    family, parameters, key = fit.q.family, fit.q.parameters, jax.random.key(seed)
    if isinstance(family, MeanField):
        values = family.sample(parameters, key, (draws,), shared)
    else:
        values = family.sample(parameters, key, (draws,))
    return {name: values[name] for name in shared}

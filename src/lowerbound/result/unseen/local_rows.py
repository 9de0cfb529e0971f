"""The factors of the local variables of new rows, given what a fit says of the global ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.ascent.rows import local as gaussian_rows
from lowerbound.compiled import jit
from lowerbound.compute.collapsing import collapse
from lowerbound.cost import mapped
from lowerbound.errors import ArgumentError, NotConjugateError
from lowerbound.family.completed.collapsed_sites import Collapsed
from lowerbound.family.completed.summed import Summed
from lowerbound.family.densities.averaged import Averaged
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.family.meanfield import MeanField
from lowerbound.family.q import Q
from lowerbound.model import Model
from lowerbound.model.dependence import once
from lowerbound.result.posterior import Posterior
from lowerbound.result.unseen.new_rows import Rows, global_statistics, rows_of
from lowerbound.result.unseen.predictive import new_model, shared_draws
from lowerbound.rewrite.summing.enumerated import enumerated

if TYPE_CHECKING:
    from lowerbound.result.fitted import Fit

Values = Mapping[str, jax.Array]
DRAWS, FEWEST = 1000, 50  # of the global sites, where q is no product of factors
MOST_NUMBERS = 50_000_000  # in the factors that belong to all of them


def local_factors(fit: Fit, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Posterior:
    """The factors of the local variables of new rows, with the global ones as fitted.

    Under a product of factors they are the coordinate update (eq:optimal-qj). Any other q ties the
    rows to what they share: their factors are then averaged over draws of the global sites.
    """
    with jax.enable_x64(True):
        model = new_model(fit, args, kwargs)
        sites = tuple(fit.own_sites({s: s for s in model.latent if s in model.local}))
        if not sites:
            raise ArgumentError(
                "The model has no local latent sites: none is inside the data plate.\n"
                "Use fit.posterior for the global ones."
            )
        family, naturals = fit.q.family, fit.q.parameters
        if fit.parameters and isinstance(family, UnconstrainedGaussian):
            return Posterior(Q(*gaussian_rows.local_gaussians(family, naturals, model)), sites)
        if isinstance(family, Summed | Collapsed):
            return _completed(fit.q, family, model, sites)
        try:
            rows = rows_of(model, np.dtype(float))
        except NotConjugateError as error:
            raise _without_factor(sites, error) from None
        data = {n: jnp.asarray(a) for n, a in rows.data().items()}
        own = rows.engine.family
        if not isinstance(family, MeanField):
            return Posterior(Q(Averaged(own), _by_draws(fit, rows, data)), sites)
        means = _global_means(fit, family, rows)
        solve = rows.engine.compiled.setdefault("local factors", jit(_solver(rows)))
        return Posterior(Q(own, solve(data, means)), sites)


def _solver(rows: Rows) -> Callable[[Values, Any], Any]:
    """The natural parameters of the rows' factors, from data and means of the global factors."""

    def solve(data: Values, means: Any) -> Any:
        arrays = tuple(rows.engine.cast(a) for a in rows.engine.joint.compress(data))
        return rows.solve(arrays, means).naturals

    return solve


def _completed(q: Q, family: Summed | Collapsed, model: Model, sites: tuple[str, ...]) -> Posterior:
    """Sites of new rows that are integrated out: exactly, given each draw of the others."""
    names = family.elimination.names
    others = tuple(name for name in sites if name not in names)
    if others:
        raise _without_factor(others)
    shared = [name for name in names if name not in sites]
    if shared:
        how = "summed over" if isinstance(family, Summed) else "integrated out"
        raise _without_factor(sites, together=tuple(shared), how=how)
    whole: Summed | Collapsed
    if isinstance(family, Collapsed):
        whole = Collapsed(family.inner, collapse(model, names))
    else:
        whole = Summed(family.inner, enumerated(model))
    return Posterior(replace(q, family=whole), sites)


def _without_factor(
    sites: tuple[str, ...],
    error: NotConjugateError | None = None,
    together: tuple[str, ...] = (),
    how: str = "summed over",
) -> ArgumentError:
    names = ", ".join(f"'{name}'" for name in sites)
    why = "they share a Gaussian with global sites, and new rows are not in it"
    if error is not None:
        first = error.residuals[0]
        why = f"they enter '{first.site}' through {first.operation}"
    if together:
        shared = ", ".join(f"'{name}'" for name in together)
        why = f"they are {how} together with {shared}, which all rows share"
    return ArgumentError(
        f"The local sites {names} of new rows have no factor of their own: {why}.\n"
        "Expected local sites with an exact update given the global ones. Use fit.predictive(...), "
        "which draws them."
    )


def _by_draws(fit: Fit, rows: Rows, data: Values) -> Any:
    """The natural parameters of the rows' factors for every draw of the global sites."""
    size = sum(int(np.prod(rows.model.latent[n].shape)) for n in rows.model.local)
    count = int(np.clip(MOST_NUMBERS // max(size, 1), FEWEST, DRAWS))
    family, local = rows.engine.family, rows.local

    def every(data: Values, draws: Values) -> Any:
        arrays = tuple(rows.engine.cast(a) for a in rows.engine.joint.compress(data))

        def one(values: Values) -> Any:
            return rows.solve(arrays, global_statistics(family, local, values, arrays)).naturals

        return mapped(one, draws, what="one draw")

    return once(every)(data, dict(shared_draws(fit, rows.model, count, 0)))


def _global_means(fit: Fit, family: MeanField, rows: Rows) -> Any:
    """E_q of the global statistics: exact where the fit has the same block, else from draws."""
    means = family.means(fit.q.parameters)
    # The functions in a free-form factor may hold the data of the rows.
    mine: dict[tuple[str, ...], Any] = {
        b.sites: means[b.number] for b in family.blocks if not b.family.free_form
    }
    blocks, local = rows.engine.joint.blocks, rows.local
    if all(b.number in local or b.sites in mine for b in blocks):  # draws may be costly
        return tuple({} if b.number in local else mine[b.sites] for b in blocks)
    arrays = rows.engine.joint.compress({n: jnp.asarray(a) for n, a in rows.data().items()})
    drawn = jax.vmap(lambda v: global_statistics(rows.engine.family, local, v, arrays))(
        shared_draws(fit, rows.model, 1000, 0)
    )
    return tuple(
        mine[b.sites]
        if b.sites in mine and b.number not in local
        else jax.tree.map(lambda a: a.mean(axis=0), drawn[b.number])
        for b in blocks
    )

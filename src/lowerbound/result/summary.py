"""A fit in a table, and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from lowerbound.errors import ArgumentError
from lowerbound.result.saved import needs_data

if TYPE_CHECKING:
    import pandas as pd

    from lowerbound.result.fitted import Fit

MOMENT_DRAWS = 10_000  # for moments of deterministic sites

Moments = Mapping[str, tuple[np.ndarray, np.ndarray]]  # means and sds by site


def site_moments(fit: Fit, site: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation under q: exact for latent sites, else from draws."""
    if site in fit.sites:
        mean, variance = fit.q.moments(site)
        return mean, np.sqrt(variance)
    known = _drawn.get(fit) or _drawn.setdefault(fit, _by_draws(fit, site))
    if site not in known:
        names = ", ".join([*fit.sites, *known])
        raise ArgumentError(f"'{site}' is no site of the fit.\nExpected one of {names}.")
    mean, sd = known[site]
    return mean.copy(), sd.copy()


def _by_draws(fit: Fit, site: str) -> Moments:
    """Those of all deterministic sites, since the same draws tell them."""
    if not fit.has_data:
        raise needs_data(f"'{site}' is no latent site; deterministic sites")
    drawn = {n: a for n, a in fit.sample(MOMENT_DRAWS).items() if n not in fit.sites}
    return {name: (draws.mean(axis=0), draws.std(axis=0)) for name, draws in drawn.items()}


_drawn: WeakKeyDictionary[Fit, Moments] = WeakKeyDictionary()


def summary_table(fit: Fit, sites: list[str] | None, draws: int) -> pd.DataFrame:
    """One row per element: mean, sd and quantiles under q."""
    import pandas as pd

    shared = [n for n in fit.sites if fit.sites[n]["scope"] == "global"]
    latent = sites or shared or list(fit.sites)
    sample = fit.sample(draws, sites=latent if _are_all(fit, sites, latent) else None)
    names = sites or [*latent, *(n for n in sample if n not in fit.sites)]
    rows: dict[str, dict[str, float]] = {}
    for name in names:
        mean, sd = site_moments(fit, name)
        quantiles = np.quantile(sample[name], [0.05, 0.5, 0.95], axis=0)
        for index in np.ndindex(np.shape(mean)):
            label = f"{name}[{', '.join(map(str, index))}]" if index else name
            low, median, high = (float(q[index]) for q in quantiles)
            rows[label] = {
                "mean": float(mean[index]),
                "sd": float(sd[index]),
                "q5": low,
                "median": median,
                "q95": high,
            }
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.columns.name = f"trust: {fit.verdict.trust}"
    return table


def _are_all(fit: Fit, sites: list[str] | None, latent: list[str]) -> bool:
    """Whether these latent sites are all that a table shows, and others need not be drawn."""
    if sites is not None or len(latent) == len(fit.sites) or not fit.has_data:
        return set(latent) < set(fit.sites)
    model = fit.own_model()
    return not (model.deterministic or model.missing)


def described(fit: Fit) -> str:
    """What `print(fit)` says: how good q is, why the run stopped, what was found."""
    state = "converged" if fit.converged else "not converged"
    head = (
        f"Fit of {fit.plan.model} by {fit.method}: ELBO {fit.elbo:.6g} nats"
        f"{f' (+- {fit.elbo_error:.2g})' if fit.elbo_error else ''}, {state} after {_length(fit)}"
    )
    lines = [head, f"  {fit.stop_reason}", f"  {fit.verdict}"]
    if len(fit.restarts) > 1:
        elbos = sorted((r.elbo for r in fit.restarts), reverse=True)
        others = f"; next {elbos[1]:.6g}, worst {elbos[-1]:.6g}" if not fit.elbo_error else ""
        lines.append(f"  best of {len(elbos)} restarts{others}")
    kept = [r for r in fit.plan.rows if r.site in fit.sites]
    lines += [f"  {r.site}: {r.family}, shape {r.shape}" for r in kept]
    lines += [f"  {note}" for note in fit.notes]
    return "\n".join(lines)


def _length(fit: Fit) -> str:
    if fit.whole:
        count = len(fit.history.elbo)
        return f"{count} {fit.history.step}{'' if count == 1 else 's'}"
    rows = int(fit.history.rows[-1]) if len(fit.history.rows) else 0
    return f"{fit.restarts[0].sweeps} steps ({rows:,} rows)"

"""What a fit holds for ArviZ: draws by group, and why a group is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.cost import mapped
from lowerbound.errors import ArgumentError, NoDrawsError, SettingError
from lowerbound.model import Model
from lowerbound.model.dependence import once
from lowerbound.result.exchange.shown_sites import log_density

if TYPE_CHECKING:
    from lowerbound.result.fitted import Fit

Arrays = dict[str, np.ndarray]
NO_DATA = "the file of the fit holds no data; pass them to lb.load"
GLOBAL = "the fit keeps the factors of global sites alone, not those of the rows"
NOTHING_OBSERVED = "the program observes nothing; its data enter through factors"


@dataclass(frozen=True, eq=False)
class Groups:
    """Draws by group and site, with a leading draw axis; `observed_data` as they are.

    dims: the names of the axes of a site, its plates' where they have one. missing: what is not
    there, and why.
    """

    draws: dict[str, Arrays]
    dims: dict[str, list[str]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def groups_of(fit: Fit, wanted: Sequence[str] | None, draws: int, seed: int) -> Groups:
    """The groups that are wanted, or all that the fit has. Raises where a wanted one is not there.

    The same draws of q are behind all of them.
    """
    unknown = [name for name in wanted or () if name not in GROUPS]
    if unknown or (wanted is not None and not wanted):
        expected = f"some of {', '.join(GROUPS)}"
        raise SettingError("to_arviz", "groups", tuple(wanted or ()), expected)
    found, missing = {}, {}
    made = _Made(fit, draws, seed)
    for name in GROUPS if wanted is None else wanted:
        reason = made.absent(name)
        if reason and wanted is not None:
            raise ArgumentError(
                f"to_arviz was asked for {name}, and {reason}.\n"
                "Expected groups that the fit has: leave `groups` out, and it takes those."
            )
        if reason:
            missing[name] = reason
        else:
            try:
                found[name] = GROUPS[name](made)
            except NoDrawsError as error:
                if wanted is not None:
                    raise
                missing[name] = str(error).splitlines()[0]
    return Groups(found, made.dims(found), {**missing, **made.missing})


class _Made:
    """What several groups share: the draws of q, the model, and its densities at them."""

    def __init__(self, fit: Fit, draws: int, seed: int) -> None:
        self.fit, self.count, self.seed = fit, draws, seed
        self.sample = fit.sample(draws, seed)
        self.model = fit.own_model() if fit.has_data else None
        self.missing: dict[str, str] = {}
        self._densities: tuple[np.ndarray, Arrays] | None = None

    def absent(self, group: str) -> str:
        """Why the fit cannot have a group; empty where it can."""
        if group == "posterior":
            return ""
        if self.model is None:
            return NO_DATA
        if not self.fit.whole:
            return GLOBAL
        return "" if group == "sample_stats" or _observed(self.model) else NOTHING_OBSERVED

    def latent(self) -> Arrays:
        """The draws of the latent sites."""
        return {name: self.sample[name] for name in self.fit.sites}

    def densities(self) -> tuple[np.ndarray, Arrays]:
        """Log p(x, z) of every draw, and the log density of every observation given it."""
        if self._densities is None:
            assert self.model is not None
            latent = self.latent()
            with jax.enable_x64(True):
                self._densities = _densities(self.model, latent)
        return self._densities

    def dims(self, found: Mapping[str, Arrays]) -> dict[str, list[str]]:
        """The axes of every site that is inside plates, with the plates' names."""
        if self.model is None:
            return {}
        taken = {name for arrays in found.values() for name in arrays} | {"chain", "draw"}
        sizes: dict[str, int] = {}
        named: dict[str, list[str]] = {}
        for site in self.model.sites:
            axes = [f"{site.name}_dim_{axis}" for axis in range(len(site.shape))]
            for plate in site.plates:
                axis = len(site.batch_shape) + plate.dim
                # A name that is a site's would be its coordinates; one of two sizes, no axis.
                free = plate.name not in taken and sizes.get(plate.name, plate.size) == plate.size
                if free and 0 <= axis < len(axes) and site.shape[axis] == plate.size:
                    axes[axis], sizes[plate.name] = plate.name, plate.size
            named[site.name] = axes
        return named


def _observed(model: Model) -> list[str]:
    return [name for name, site in model.observed.items() if not site.is_factor]


def _densities(model: Model, latent: Mapping[str, Any]) -> tuple[np.ndarray, Arrays]:
    names = _observed(model)

    def one(values: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        each = {name: density.log_prob() for name, density in model.run(values, data).items()}
        return sum(a.sum() for a in each.values()), {name: each[name] for name in names}

    def every(values: Mapping[str, Any], data: Mapping[str, Any]) -> Any:
        return mapped(lambda v: one(v, data), values, what="the densities of one draw")

    data = {name: jnp.asarray(array) for name, array in model.arguments.data.items()}
    values = {name: jnp.asarray(latent[name]) for name in model.latent}
    joint, each = once(every)(values, data)
    return np.asarray(joint), {name: np.asarray(array) for name, array in each.items()}


# --------------------------------------------------------------------------------------------------
# The groups


def _posterior(made: _Made) -> Arrays:
    return made.sample


def _predictive(made: _Made) -> Arrays:
    return made.fit.predictive(draws=made.count, seed=made.seed)


def _log_likelihood(made: _Made) -> Arrays:
    return made.densities()[1]


def _statistics(made: _Made) -> Arrays:
    """Log p(x, z) and log q(z) of every draw: their difference is a log importance ratio."""
    found, log_q = {"log_p": made.densities()[0]}, log_density(made.fit, made.latent())
    if isinstance(log_q, str):
        made.missing["log_q"] = log_q
    else:
        found["log_q"] = log_q
    return found


def _observed_data(made: _Made) -> Arrays:
    assert made.model is not None
    return observed_values(made.model)


def observed_values(model: Model) -> Arrays:
    """The observed values by site, NaN where an entry is missing."""
    with jax.enable_x64(True):
        data = {name: jnp.asarray(array) for name, array in model.arguments.data.items()}
        found = model.run(model.draw(jax.random.key(0)), data)
        values = {name: np.asarray(found[name].value) for name in _observed(model)}
    for name, mask in model.missing.items():
        array = values[name].astype(float)
        where = mask.reshape(mask.shape + (1,) * (array.ndim - mask.ndim))
        values[name] = np.where(where, np.nan, array)
    return values


GROUPS: dict[str, Callable[[_Made], Arrays]] = {
    "posterior": _posterior,
    "posterior_predictive": _predictive,
    "log_likelihood": _log_likelihood,
    "sample_stats": _statistics,
    "observed_data": _observed_data,
}

"""q(z) as a guide: a program that draws all sites together, for NumPyro's own tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro.distributions import Delta

from lowerbound.errors import NoDensityError, UnknownSiteError
from lowerbound.result.exchange.shown_sites import log_density

if TYPE_CHECKING:
    from lowerbound.result.fitted import Fit

Guide = Callable[..., dict[str, jax.Array]]


def guide_of(fit: Fit, sites: Sequence[str] | None, draws: int, seed: int) -> Guide:
    """A program whose latent sites are one draw of q; it takes any arguments, and ignores them.

    The draws are made here, and a run picks one of them: NumPyro traces and maps guides, in the
    precision of the caller, which no q on points or by summation could follow. Each site is a point
    mass at its part of the draw, and the first carries log q of them all, so that the log density
    of a run is log q(z).
    """
    names = tuple(fit.own_sites(fit.sites))
    chosen = names if sites is None else tuple(sites)
    for name in chosen:
        if name not in names:
            raise UnknownSiteError("guide got", name, names)
    drawn = fit.sample(draws, seed, chosen)
    known = log_density(fit, drawn)
    log_q = None if isinstance(known, str) else known

    def guide(*args: Any, **kwargs: Any) -> dict[str, jax.Array]:
        del args, kwargs
        picked = jax.random.randint(numpyro.prng_key(), (), 0, draws)
        density = None if log_q is None else jnp.asarray(log_q)[picked]
        found = {}
        for name, array in drawn.items():
            found[name] = numpyro.sample(name, _at(jnp.asarray(array)[picked], density))
            density = None if density is None else jnp.zeros_like(density)
        return found

    return guide


def _at(value: jax.Array, log_q: jax.Array | None) -> Delta:
    if log_q is None:
        return WithoutDensity(value, event_dim=value.ndim)
    return Delta(value, log_q, event_dim=value.ndim)


class WithoutDensity(Delta):  # type: ignore[misc]
    """A point mass at a draw whose density is not known."""

    def log_prob(self, value: jax.Array) -> jax.Array:
        """There is none."""
        del value
        raise NoDensityError("The guide of these sites")

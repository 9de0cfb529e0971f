"""Points that the prior makes likely, without random numbers: quantiles of every site in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Beta, Distribution, Gamma, StudentT, biject_to
from numpyro.primitives import Messenger

from lowerbound.model.density import strip
from lowerbound.model.program import Message, execute
from lowerbound.model.sites import Model, Site

SOUGHT = (Beta, Gamma, StudentT)  # whose quantiles NumPyro searches for, if it can at all
WORLDS = 20.0  # on the unconstrained scale, between a quantile and the mean


def prior_point(
    model: Model, normal: Mapping[str, Array], data: Mapping[str, Any]
) -> dict[str, Array]:
    """The sites of `normal` at the quantiles of these standard normal numbers, all others central.

    The numbers are of the unconstrained shapes; discrete sites take some value of their support.
    """
    args, kwargs = model.arguments.call(model._inputs(data))
    with model._mode():
        messages = execute(model.function, args, kwargs, AtQuantile(normal))
    return {name: jnp.asarray(messages[name]["value"]) for name in normal}


def off_centre(model: Model, normal: float, data: Mapping[str, Any]) -> dict[str, Array]:
    """All latent sites at the quantile of one standard normal number."""
    messages = _run_at(model, normal, data)
    return {
        name: jnp.asarray(message["value"])
        for name, message in messages.items()
        if message["type"] == "sample" and not message["is_observed"]
    }


def distribution_at(model: Model, site: str, normal: float) -> Distribution:
    """The innermost distribution of a site, with the model's data, at such a point."""
    found: Distribution = strip(_run_at(model, normal, model.arguments.data)[site]["fn"]).base
    return found


def _run_at(model: Model, normal: float, data: Mapping[str, Any]) -> dict[str, Message]:
    args, kwargs = model.arguments.call(model._inputs(data))
    with model._mode():
        return execute(model.function, args, kwargs, AtQuantile({}, others=normal))


class AtQuantile(Messenger):  # type: ignore[misc]
    """Gives every latent site a quantile of its prior; those that are not named the median.

    `others` is the standard normal number of these: 0 at the median.
    """

    def __init__(self, normal: Mapping[str, Array], others: float = 0.0) -> None:
        super().__init__()
        self.normal, self.others = normal, others

    def process_message(self, msg: Message) -> None:
        """Give a latent site its value."""
        if msg["type"] == "prng_key" and msg["value"] is None:
            msg["value"] = jax.random.key(0)
        if msg["type"] == "control_flow" and msg["kwargs"]["rng_key"] is None:
            msg["kwargs"]["rng_key"] = jax.random.key(0)
        if msg["type"] != "sample" or msg["value"] is not None:
            return
        fn = msg["fn"]
        if fn.support.is_discrete:
            zeros = jnp.zeros(fn.shape(), jnp.result_type(int))
            msg["value"] = fn.support.feasible_like(zeros)
            return
        shape = biject_to(fn.support).inverse_shape(fn.shape())
        msg["value"] = quantile(fn, self.normal.get(msg["name"], jnp.full(shape, self.others)))


def quantile(fn: Any, normal: Array) -> Array:
    """A likely value of a distribution, for standard normal numbers of the unconstrained shape.

    Where quantiles are not known in closed form it is near the mean, for whatever searches for them
    takes longer to compile than a fit. So it is where they are worlds away from the mean: half of
    LogNormal(-60, 10) is below e^-60, where no data lead anywhere.
    """
    transform = biject_to(fn.support)
    try:
        centre = transform.inv(jnp.broadcast_to(fn.mean, fn.shape()))
    except (NotImplementedError, AttributeError, TypeError, ValueError, ZeroDivisionError):
        centre = jnp.zeros_like(normal)  # flat priors, and tails without a mean
    near: Array = transform(jnp.where(jnp.isfinite(centre), centre, 0.0) + normal)
    base = strip(fn).base
    if base.event_dim or isinstance(base, SOUGHT):
        return near
    try:
        found = jnp.broadcast_to(base.icdf(jax.scipy.special.ndtr(normal)), fn.shape())
    except (NotImplementedError, AttributeError, ImportError, TypeError):
        return near  # no quantile function in closed form
    u = transform.inv(found)
    if u.shape != centre.shape:
        return found
    away = (jnp.abs(u - centre) > WORLDS) & (jnp.abs(centre) < jnp.abs(u))
    return jnp.where(away, near, found)


def improper_sites(sites: Mapping[str, Site]) -> tuple[str, ...]:
    """The latent sites with a flat prior, which does not integrate to one."""
    return tuple(name for name, site in sites.items() if site.distribution == "ImproperUniform")

"""A model of the zoo, fitted through the public interface, with draws of its posterior."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import lowerbound as lb
from lowerbound.compiled import quickly
from lowerbound.compiled.host import lightly
from tests.laws.derived import Derived, base_measure, derive, fresh_elbo
from tests.models.case import Arguments, Case

SEEDS = (0, 1, 2)
DRAWS = 500
METHOD = lb.CAVI(tolerance=0.0, max_sweeps=20)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fit of the case; on its small arguments, if it has them, where the evidence is known."""

    case: Case
    arguments: Arguments
    fit: lb.Fit

    @property
    def evidence(self) -> float:
        args, kwargs = self.arguments
        return self.case.evidence(*args, **kwargs)

    @cached_property
    def derived(self) -> Derived:
        return derive(self.case, self.arguments)

    @cached_property
    def log_weights(self) -> dict[str, Any]:
        """log p(x, z) and log q(z) at `DRAWS` draws z of q for each of `SEEDS`; see `_weights`.

        Also `elbo`, evaluated afresh from the fitted natural parameters.
        """
        alone = [b for b in self.derived.blocks if len(b.sites) == 1 and b.presence is None]
        laws = {b.sites[0]: self.fit.posterior[b.sites[0]] for b in alone}
        with jax.enable_x64(True):
            data, naturals = dict(self.derived.model.arguments.data), self.fit.q.parameters
            draw, each = quickly(partial(_drawn, self)), lightly(partial(_evaluate, self))
            found = [
                # This generator compiles in half the time of the default one.
                each(
                    laws,
                    self.derived.arrays,
                    data,
                    naturals,
                    draw(naturals, jax.random.key(seed, impl="rbg")),
                )
                for seed in SEEDS
            ]
            return jax.tree.map(lambda *leaves: np.stack(leaves), *found)


def fit_case(case: Case) -> Fitted:
    args, kwargs = arguments = (case.small or case.arguments)(0)
    return Fitted(case, arguments, lb.fit(case.model, *args, method=METHOD, **kwargs))


def _drawn(fitted: Fitted, naturals: Any, key: Array) -> dict[str, Array]:
    """Draws as `fit.sample` makes them."""
    values: dict[str, Array] = {}
    family = fitted.fit.q.family
    keys = jax.random.split(key, len(family.blocks))
    for block, factor, natural, k in zip(
        family.blocks, family.families, naturals, keys, strict=True
    ):
        values |= block.unpack(factor.sample(natural, k, (DRAWS,)))
    return values


def _evaluate(
    fitted: Fitted, laws: Any, arrays: Any, data: Any, naturals: Any, values: dict[str, Array]
) -> dict[str, Any]:
    """The densities of draws, and the ELBO."""
    found = jax.vmap(partial(_weights, fitted, laws, arrays, data))(values)
    return {**found, "elbo": fresh_elbo(fitted.derived, arrays, naturals)}


def _weights(
    fitted: Fitted, laws: dict[str, Any], arrays: Any, data: Any, values: dict[str, Array]
) -> dict[str, Any]:
    """log p(x, z); log q(z) from the families; log q of single sites, twice.

    The factors say <natural, t(z)> - A(natural) + log h(z); `posterior` is what the reported
    NumPyro distributions say of sites that are a factor by themselves, `factors` the same density
    from the family.
    """
    family, naturals = fitted.fit.q.family, fitted.fit.q.parameters
    statistics = family.statistics(values, arrays)
    total, factors = base_measure(fitted.derived, values), {}
    for block, factor, natural, point in zip(
        family.blocks, family.families, naturals, statistics, strict=True
    ):
        log_q = factor.inner(natural, point) - factor.log_normalizer(natural)
        if block.presence is not None:
            log_q = jnp.where(arrays[block.presence], log_q, 0.0)
        total += log_q.sum()
        if block.sites[0] in laws:
            own = {site: values[site] if site in block.sites else jnp.zeros(()) for site in values}
            factors[block.sites[0]] = log_q.sum() + base_measure(fitted.derived, own)
    return {
        "log_p": fitted.derived.model.log_density(values, data),
        "log_q": total,
        "factors": factors,
        "posterior": {site: law.log_prob(values[site]).sum() for site, law in laws.items()},
    }

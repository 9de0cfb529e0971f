"""Whether a fit that was derived as the posterior is the posterior.

Then log p(x, z) - log q(z) = log p(x) at every z, which is its ELBO (eq:elbo): a few draws of q
show it, by NumPyro's own density, in milliseconds. The certificate compares densities before there
is a q; this is the same of where q has ended, with all that came between, rounding included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from lowerbound.compiled.host import lightly
from lowerbound.family.densities.conditioned import Conditioned
from lowerbound.family.densities.integrated import Integrated
from lowerbound.family.meanfield import MeanField
from lowerbound.family.sparse.sparse_gaussian import SparseGaussian
from lowerbound.joint.traced_program import inputs_of, split_inputs
from lowerbound.model import Model
from lowerbound.result.fitted import Fit

DRAWS = 4
LIMIT = 0.01  # nats between log p - log q and the ELBO, of densities that are known everywhere
# Of those that are known at points, and follow these between them: many draws, near few of the
# points at which z has a law of its own, and their middle.
BETWEEN, LAWS, LIMIT_BETWEEN = 16, 4, 0.5
DIGITS = {"float64": 1e-9, "float32": 1e-4}  # of a sum of log densities, to its size

Values = Mapping[str, Any]


def holds(fit: Fit, model: Model) -> bool:
    """Whether log p - log q is the ELBO at draws of q; True where q has no density to ask.

    model: the program of the fit, as it was traced.
    """
    with jax.enable_x64(True), np.errstate(all="ignore"):
        found = _drawn(fit)
        if found is None:
            return True
        draws, log_q = found
        log_p = _log_densities(fit, model, draws, len(log_q))
        away = np.abs(log_p - log_q - fit.elbo)
    rounding = DIGITS[fit.precision] * abs(fit.elbo)
    if isinstance(fit.q.family, Integrated):
        return bool(np.median(away) <= LIMIT_BETWEEN + rounding)
    return bool(np.all(away <= LIMIT + rounding))


def _drawn(fit: Fit) -> tuple[Values, np.ndarray] | None:
    """Draws of all sites, and log q at each."""
    family, parameters = fit.q.family, fit.q.parameters
    if isinstance(family, MeanField):
        return _weighed(family, parameters, fit.seed, DRAWS)
    if isinstance(family, Conditioned):
        return _at_nodes(family, parameters, fit.seed)
    if isinstance(family, Integrated):
        return family.weighed(parameters, fit.seed, BETWEEN, LAWS)
    if isinstance(family, SparseGaussian):
        draws = family.sample(parameters, jax.random.key(fit.seed), (DRAWS,))
        return draws, np.asarray(family.log_prob(parameters, draws))
    return None


def _weighed(
    family: MeanField, parameters: Any, seed: int, count: int
) -> tuple[Values, np.ndarray] | None:
    found = family.weighed(parameters, seed, count)
    return None if found is None else (found[0], np.asarray(found[1]))


def _at_nodes(
    family: Conditioned, parameters: Mapping[str, Any], seed: int
) -> tuple[Values, np.ndarray] | None:
    """A draw given each of some nodes of a grid, where q(theta) is known without interpolation."""
    nodes = _nodes(np.exp(np.asarray(parameters["log_weights"], float)).ravel())
    scalars, log_theta = family.at_nodes(parameters, nodes)
    if not jax.tree.leaves(parameters["inner"]):
        return scalars, log_theta
    if not isinstance(family.inner, MeanField):
        return None
    parts = []
    solved = np.asarray(parameters["solved"])[nodes] if "solved" in parameters else nodes
    for node in solved:
        own = jax.tree.map(lambda a, node=node: np.asarray(a)[node], parameters["inner"])
        one = _weighed(family.inner, own, seed, 1)
        if one is None:
            return None
        parts.append(one)
    rest = {name: np.concatenate([one[name] for one, _ in parts]) for name in parts[0][0]}
    return {**scalars, **rest}, log_theta + np.concatenate([log_q for _, log_q in parts])


def _nodes(weights: np.ndarray) -> np.ndarray:
    """The nodes at which some shares of all mass are reached, and that with the most of it."""
    shares = (np.arange(DRAWS - 1) + 0.5) / (DRAWS - 1)
    reached = np.searchsorted(np.cumsum(weights) / weights.sum(), shares)
    return np.append(np.minimum(reached, len(weights) - 1), weights.argmax())


def _log_densities(fit: Fit, model: Model, draws: Values, count: int) -> np.ndarray:
    """NumPyro's log p(x, z) at the draws."""
    inputs = {name: np.asarray(array) for name, array in inputs_of(model).items()}
    values = fit.q.values  # a family knows the indices of discrete sites alone

    def density(one: Values, inputs: Values) -> Any:
        return model.log_density(one, *split_inputs(model, inputs))

    program = lightly(density, count)
    named = {n: np.asarray(a) for n, a in draws.items()}
    named |= {n: own[named[n]] for n, own in values.items() if n in named}
    found = [float(program({n: a[i] for n, a in named.items()}, inputs)) for i in range(count)]
    return np.where(np.isnan(found), -math.inf, found)

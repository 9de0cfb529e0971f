"""Everything that is compared of a program with discrete sites, by enumeration and by summation."""

import itertools

import jax
import numpy as np
from jax.scipy.special import logsumexp

from lowerbound.compiled import quickly
from lowerbound.model import trace_model
from lowerbound.rewrite.summing.enumerated import discrete_sites, enumerated

DRAWS, STEP = 4000, 1e-5


def assignments(model):
    """Every joint value of the discrete sites: their indices, and their values."""
    sites = [model.latent[name] for name in discrete_sites(model)]
    cells = [
        np.arange(len(s.support_values))
        for s in sites
        for _ in range(max(1, np.prod(s.shape, dtype=int)))
    ]
    rows = np.array(list(itertools.product(*cells)))
    indices, start = {}, 0
    for site in sites:
        size = int(np.prod(site.shape, dtype=int))
        indices[site.name] = rows[:, start : start + size].reshape((-1, *site.shape))
        start += size
    return indices, {s.name: np.asarray(s.support_values)[indices[s.name]] for s in sites}


def moved(theta, by):
    """Values a step along a direction with a part of every entry."""
    return {n: v + by * np.cos(1.0 + np.arange(v.size)).reshape(v.shape) for n, v in theta.items()}


def compared(program, args):
    """The summation of a program, values of its continuous sites, and all that is found there."""
    rng = np.random.default_rng(3)
    with jax.enable_x64(True):
        model = trace_model(program, args)
        summation = enumerated(model)
        summed = summation.summed()
        theta = {n: np.exp(0.5 * rng.standard_normal(s.shape)) for n, s in summed.latent.items()}
        indices, values = assignments(model)

        def everything(theta, data, key):
            def brute(theta):
                return jax.vmap(lambda z: model.log_density({**theta, **z}, data))(values)

            weights = summation.conditional(theta, data)
            draws = jax.vmap(lambda key: summation.draw(weights, key))(jax.random.split(key, DRAWS))
            return {
                "densities": brute(theta),
                "near": [logsumexp(brute(moved(theta, h))) for h in (-STEP, STEP)],
                "summed": jax.value_and_grad(summed.log_density)(theta, data),
                "probabilities": summation.probabilities(weights),
                "draws": draws,
            }

        found = quickly(everything)(theta, model.arguments.data, jax.random.key(0))
        return summation, theta, indices, jax.tree.map(np.asarray, found)


def check_density(found):
    """The density is the sum over all values."""
    assert abs(found["summed"][0] - np.logaddexp.reduce(found["densities"])) < 1e-10


def check_slope(theta, found):
    """Enumeration by automatic differentiation has none at impossible values: by differences."""
    ahead = moved({n: np.zeros_like(v) for n, v in theta.items()}, 1.0)
    slope = sum(np.sum(found["summed"][1][name] * ahead[name]) for name in theta)
    below, above = found["near"]
    np.testing.assert_allclose(slope, (above - below) / (2 * STEP), rtol=1e-6, atol=1e-7)


def check_probabilities_and_draws(indices, found):
    """A frequency of 4000 draws is off by 5 standard errors less than once in a million times."""
    share = np.exp(found["densities"] - np.logaddexp.reduce(found["densities"]))
    assert set(found["probabilities"]) == set(indices)
    for name, probabilities in found["probabilities"].items():
        chosen = np.eye(probabilities.shape[-1])[indices[name]]
        np.testing.assert_allclose(probabilities, np.tensordot(share, chosen, 1), atol=1e-12)
        np.testing.assert_allclose(probabilities.sum(axis=-1), 1.0, rtol=1e-12)
        frequency = np.eye(probabilities.shape[-1])[found["draws"][name]].mean(axis=0)
        error = 5 * np.sqrt(probabilities * (1 - probabilities) / DRAWS) + 1e-9
        assert (abs(frequency - probabilities) <= error).all()

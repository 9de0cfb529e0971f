"""Elements of one site that meet in one term: the energy is still the exact expectation."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from lowerbound.compiled import quickly
from lowerbound.family import MarkovChain
from lowerbound.joint import energy, multi_affine
from lowerbound.model import trace_model
from tests.joint import models

RNG = np.random.default_rng(3)


def enumerated(model: Any, data: dict[str, Any], values: dict[str, Any], phi: np.ndarray) -> float:
    """E_q[log p(x, z)] over all assignments z, each element drawn from its row of phi."""
    n, K = phi.shape
    z = np.array(list(itertools.product(range(K), repeat=n)))
    weights = np.prod(phi[np.arange(n), z], axis=1)
    values = {name: jnp.asarray(value) for name, value in values.items()}
    data = {name: jnp.asarray(array) for name, array in data.items()}
    density = quickly(jax.vmap(lambda one: model.log_density({**values, "z": one}, data)))
    return float(weights @ density(z))


def pairs_with_data_indices(i: Any, j: Any, y: Any) -> None:
    """Which elements meet is known only when running; some pairs are of one element."""
    B = numpyro.sample("B", dist.Beta(1.0, 2.0).expand([2, 2]).to_event(2))
    z = numpyro.sample("z", dist.Categorical(jnp.array([0.3, 0.7])).expand([3]))
    numpyro.sample("y", dist.Bernoulli(B[z[i], z[j]]), obs=y)


def triples(y: Any) -> None:
    """Three elements of one site in one term."""
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2, 2, 2]).to_event(3))
    z = numpyro.sample("z", dist.Categorical(jnp.array([0.3, 0.7])).expand([3]))
    mean = b[z[:, None, None], z[None, :, None], z[None, None, :]]
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


I, J = np.array([0, 1, 2, 1]), np.array([1, 1, 0, 2])
MODELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "all pairs": (models.blockmodel, ((RNG.uniform(size=(3, 3)) < 0.5).astype(int),)),
    "pairs by data": (pairs_with_data_indices, (I, J, np.array([0, 1, 1, 0]))),
    "chain": (models.markov_chain, (RNG.normal(size=3),)),
    "triples": (triples, (RNG.normal(size=(3, 3, 3)),)),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_energy_is_the_expectation_over_assignments(name: str) -> None:
    function, args = MODELS[name]
    model = trace_model(function, args, {})
    joint = multi_affine(model)
    assert not joint.structure.residuals
    phi = RNG.dirichlet(np.ones(2), size=3)
    values, statistics = {}, []
    for block in joint.blocks:
        (site,) = block.sites
        shape = block.layouts[site].shape
        match block.kind:
            case "categorical":
                statistics.append({"indicator": jnp.asarray(phi)})
            case "markov_chain":
                statistics.append(MarkovChain((), 3, 2).assigned(jnp.asarray(phi)))
            case "dirichlet":
                values[site] = RNG.dirichlet(np.ones(shape[-1]), size=shape[:-1])
                statistics.append({"log": jnp.log(values[site])})
            case "beta":
                values[site] = RNG.uniform(0.1, 0.9, size=shape)
                logs = {"log": jnp.log(values[site]), "log1m": jnp.log1p(-values[site])}
                statistics.append(logs)
            case _:
                values[site] = RNG.normal(size=shape)
                x = block.pack(values)["x"]
                squares = {"xx": x[..., None] * x[..., None, :], "x2": x**2}
                second = "xx" if block.kind == "gaussian" else "x2"
                statistics.append({"x": x, second: squares[second]})
    data = dict(model.arguments.data)
    found = energy(joint.summands, joint.compress(data), tuple(statistics))
    np.testing.assert_allclose(found, enumerated(model, data, values, phi), rtol=1e-10)


def softened(x: Any, y: Any) -> None:
    """A function of a positive site that is no power, with every pair of its elements."""
    local = numpyro.sample("local", dist.HalfCauchy(1.0).expand([3]).to_event(1))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ (z * jnp.sqrt(local**2 / (2.0 + local**2))), 1.0), obs=y)


def saturated(x: Any, y: Any) -> None:
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0).expand([3]))
    numpyro.sample("y", dist.Normal(x @ jnp.log1p(rate), 1.0), obs=y)


@pytest.mark.parametrize("function", [softened, saturated])
def test_functions_of_one_element_that_meet_are_one(function: Callable[..., Any]) -> None:
    model = trace_model(function, (RNG.normal(size=(4, 3)), RNG.normal(size=4)), {})
    structure = multi_affine(model).structure
    known = {site for block in structure.blocks for site in block.sites}
    assert known | {name for one in structure.residuals for name in one.latents} == set(
        model.latent
    )


@pytest.mark.parametrize(
    "prior", [dist.Wishart, dist.InverseWishart], ids=lambda prior: prior.__name__
)
def test_two_entries_of_one_matrix_fit_no_factor(prior):
    """Squares of entries were parted into distinct and equal pairs without an end."""

    def entries(t: Any) -> None:
        z = numpyro.sample("z", prior(4.0, scale_matrix=1.2 * jnp.eye(2)))
        numpyro.sample("t", dist.Normal(z, 0.5).to_event(2), obs=t)

    joint = multi_affine(trace_model(entries, (np.eye(2),)))
    assert {residual.latents for residual in joint.structure.residuals} == {("z",)}

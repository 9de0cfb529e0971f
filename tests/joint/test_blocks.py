"""Which sites share a factor: decisions of `find_blocks` on small models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from lowerbound.errors import BlockError
from lowerbound.family import (
    Dirichlet,
    Multinomial,
    MultivariateNormal,
    Normal,
    NormalGamma,
    Wishart,
)
from lowerbound.joint import multi_affine
from lowerbound.joint.blocks import gaussians
from lowerbound.joint.blocks.block import Block, Layout
from lowerbound.model import trace_model
from tests.joint.models import (
    blockmodel,
    crossed_effects,
    diagonal_mixture,
    distances,
    factorisation,
    intercept_and_slopes,
    inverse_gamma_variance,
    multivariate_precision,
    poisson_sums,
    shared_precision,
    spherical_mixture,
    swapped_normal_gamma,
    swapped_normal_wishart,
    transposed_effects,
    truncated,
    wishart_mixture,
)

Found = dict[tuple[str, ...], Block]


def blocks_of(model: Callable[..., Any], *args: Any, partition: Any = None, **kwargs: Any) -> Found:
    joint = multi_affine(trace_model(model, args, kwargs), partition)
    assert not joint.structure.residuals, joint.structure.residuals
    return {block.sites: block for block in joint.blocks}


def kinds(found: Found) -> dict[tuple[str, ...], str]:
    return {sites: block.kind for sites, block in found.items()}


RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 2))
Y = RNG.normal(size=8)


def test_diagonal_normal_gamma() -> None:
    found = blocks_of(diagonal_mixture, X)
    assert kinds(found) == {
        ("pi",): "dirichlet",
        ("mu", "tau"): "normal_gamma",
        ("c",): "categorical",
    }
    block = found["mu", "tau"]
    assert (block.batch_shape, block.static["full"], block.static["power"]) == ((3, 2), False, 1.0)
    assert block.static["event_shape"] == ()


def test_full_normal_gamma() -> None:
    block = blocks_of(shared_precision, X, Y)["beta", "tau"]
    assert (block.kind, block.batch_shape) == ("normal_gamma", ())
    assert block.static == {"power": 1.0, "full": True, "event_shape": (2,)}


def test_spherical_precision_of_each_cluster() -> None:
    block = blocks_of(spherical_mixture, X)["mu", "tau"]
    assert (block.kind, block.batch_shape, block.scale) == ("normal_gamma", (3,), "tau")
    assert (block.static["full"], block.static["event_shape"]) == (False, (2,))
    assert block.layouts["mu"] == Layout((3, 2), (0,), (1,))


def test_inverse_gamma_variance() -> None:
    block = blocks_of(inverse_gamma_variance, Y)["mu", "v"]
    assert (block.kind, block.static["power"]) == ("normal_gamma", -1.0)


def test_normal_wishart() -> None:
    block = blocks_of(wishart_mixture, X)["mu", "L"]
    assert (block.kind, block.batch_shape, block.static["dim"]) == ("normal_wishart", (3,), 2)


def test_shared_wishart_leaves_the_means_apart() -> None:
    def model(x: Any) -> None:
        L = numpyro.sample("L", dist.Wishart(3.0, jnp.eye(2)))
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0).expand([3, 2]).to_event(2))
        c = numpyro.sample("c", dist.Categorical(jnp.ones(3) / 3).expand([len(x)]))
        numpyro.sample("x", dist.MultivariateNormal(mu[c], precision_matrix=L), obs=x)

    assert kinds(blocks_of(model, X)) == {
        ("L",): "wishart",
        ("mu",): "gaussian",
        ("c",): "categorical",
    }


def test_axes_of_equal_size_are_told_apart() -> None:
    block = blocks_of(swapped_normal_gamma, X)["mu", "tau"]
    assert (block.kind, block.layouts["mu"]) == ("normal_gamma", Layout((2, 2), (1,), (0,)))
    found = blocks_of(swapped_normal_wishart, X)
    assert kinds(found) == {("L",): "wishart", ("mu",): "gaussian", ("c",): "categorical"}
    assert found["mu",].layouts["mu"] == Layout((2, 2), (1,), (0,))


def test_elements_that_meet_are_one_vector() -> None:
    i, j = np.triu_indices(4, 1)
    block = blocks_of(distances, i, j, RNG.normal(size=(6, 2)))["u",]
    assert (block.kind, block.batch_shape, block.static["dim"]) == ("gaussian", (2,), 4)


def test_a_known_scale_leaves_no_precision() -> None:
    def model(y: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0 / jnp.sqrt(tau)), obs=y)

    assert kinds(blocks_of(model, Y)) == {("mu",): "normal", ("tau",): "gamma"}


def test_intercept_and_slopes_are_one_gaussian() -> None:
    found = blocks_of(intercept_and_slopes, X, Y)
    assert kinds(found) == {("alpha", "beta"): "gaussian", ("tau",): "gamma"}
    block = found["alpha", "beta"]
    assert block.static["dim"] == 3
    assert block.layouts["beta"].start == 1


def test_gaussians_beyond_the_limit_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaussians, "MAX_JOINT_DIMENSION", 2)
    assert kinds(blocks_of(intercept_and_slopes, X, Y)) == {
        ("alpha",): "normal",
        ("beta",): "gaussian",
        ("tau",): "gamma",
    }
    monkeypatch.setattr(gaussians, "MAX_JOINT_DIMENSION", 512)
    monkeypatch.setattr(gaussians, "MAX_JOINT_NUMBERS", 8)
    assert ("alpha",) in blocks_of(intercept_and_slopes, X, Y)


def test_blocks_as_asked() -> None:
    apart = blocks_of(intercept_and_slopes, X, Y, partition=[("alpha",), ("beta",), ("tau",)])
    assert kinds(apart) == {("alpha",): "normal", ("beta",): "gaussian", ("tau",): "gamma"}
    split = blocks_of(shared_precision, X, Y, partition=[("beta",), ("tau",)])
    assert kinds(split) == {("beta",): "gaussian", ("tau",): "gamma"}
    named = blocks_of(diagonal_mixture, X, partition=[("mu", "tau")])
    assert named["mu", "tau"].kind == "normal_gamma"


@pytest.mark.parametrize(
    ("model", "args", "part"),
    [
        (intercept_and_slopes, (X, Y), ("alpha", "tau")),
        (diagonal_mixture, (X,), ("pi", "c")),
        (factorisation, (X,), ("U", "V")),
    ],
)
def test_impossible_blocks_are_an_error(model: Any, args: Any, part: tuple[str, ...]) -> None:
    with pytest.raises(BlockError, match=part[0]):
        multi_affine(trace_model(model, args, {}), [part])


def test_matrices_are_gaussian_rows() -> None:
    found = blocks_of(factorisation, RNG.normal(size=(5, 4)))
    assert kinds(found) == {("U",): "gaussian", ("V",): "gaussian", ("tau",): "gamma"}
    assert (found["U",].batch_shape, found["V",].batch_shape) == ((5,), (4,))
    assert (found["U",].static["dim"], found["V",].static["dim"]) == (2, 2)


def test_a_vector_axis_may_come_first() -> None:
    found = blocks_of(transposed_effects, RNG.normal(size=(6, 2)), RNG.normal(size=(6, 4)))
    layout = found["beta",].layouts["beta"]
    assert (found["beta",].batch_shape, layout.batch, layout.vector) == ((4,), (1,), (0,))


def test_crossed_effects_are_one_gaussian() -> None:
    i, j = np.arange(8) % 3, np.arange(8) % 4
    found = blocks_of(crossed_effects, i, j, Y)
    assert found["m", "a", "b"].static["dim"] == 8


def test_coupled_assignments_are_updated_in_turn() -> None:
    adjacency = (RNG.uniform(size=(5, 5)) < 0.4).astype(int)
    found = blocks_of(blockmodel, adjacency)
    assert found["z",].sequential
    assert not found["pi",].sequential


@pytest.mark.parametrize("side", ["above", "below", "mirrored", "closed"])
def test_truncation(side: str) -> None:
    y = (Y > 0).astype(int)
    joint = multi_affine(trace_model(truncated, (X, y), {"side": side}))
    block = joint.structure.block_of("z")
    assert block.kind == "truncated_normal"
    arrays = joint.compress({"x": X, "y": y})
    up = y == 1 if side != "below" else y == 0
    np.testing.assert_array_equal(arrays[block.extras["lower"]], np.where(up, 0.0, -np.inf))
    np.testing.assert_array_equal(arrays[block.extras["upper"]], np.where(up, np.inf, 0.0))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sums_of_counts(axis: int) -> None:
    shape = tuple(n for a, n in enumerate((3, 4, 5)) if a != axis)
    y = RNG.poisson(6.0, size=shape)
    joint = multi_affine(trace_model(poisson_sums, (y,), {"axis": axis}))
    block = joint.structure.block_of("n")
    assert (block.kind, block.batch_shape) == ("multinomial", shape)
    assert block.static["dim"] == (3, 4, 5)[axis]
    np.testing.assert_array_equal(joint.compress({"y": y})[block.extras["total"]], y)


def test_precision_matrix_of_one_row() -> None:
    block = blocks_of(multivariate_precision, X)["mu", "L"]
    assert (block.kind, block.batch_shape) == ("normal_wishart", ())


LAYOUTS = {
    "normal": Block(0, Normal, {"x": Layout((2, 3), (0, 1))}, (2, 3)),
    "two sites": Block(
        0,
        MultivariateNormal,
        {"a": Layout((4,), (0,), (), 0), "b": Layout((3, 4, 2), (1,), (0, 2), 1)},
        (4,),
        {"dim": 7},
    ),
    "permuted": Block(
        0, MultivariateNormal, {"b": Layout((3, 4, 2), (2, 0), (1,))}, (2, 3), {"dim": 4}
    ),
    "precision": Block(
        0,
        NormalGamma,
        {"m": Layout((3, 4, 2), (2, 0), (1,))},
        (2, 3),
        {"full": False, "power": 1.0, "event_shape": (4,)},
        scale="t",
    ),
    "counts": Block(0, Multinomial, {"n": Layout((3, 4, 2), (0, 2), (1,))}, (3, 2), {"dim": 4}),
    "simplex": Block(0, Dirichlet, {"p": Layout((3, 4), (0,), (1,))}, (3,), {"dim": 4}),
    "wishart": Block(0, Wishart, {"L": Layout((3, 2, 2), (0,), (1, 2))}, (3,), {"dim": 2}),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("lead", [(), (5,)])
def test_unpack_undoes_pack(name: str, lead: tuple[int, ...]) -> None:
    block = LAYOUTS[name]
    shapes = {site: layout.shape for site, layout in block.layouts.items()}
    if block.scale:
        shapes[block.scale] = block.batch_shape
    values = {site: RNG.normal(size=(*lead, *shape)) for site, shape in shapes.items()}
    packed = [block.pack({s: a[i] for s, a in values.items()}) for i in np.ndindex(lead)]
    stacked = {
        key: jnp.stack([p[key] for p in packed]).reshape((*lead, *packed[0][key].shape))
        for key in packed[0]
    }
    restored = block.unpack(stacked)
    assert set(restored) == set(values)
    for site, array in values.items():
        np.testing.assert_array_equal(restored[site], array)

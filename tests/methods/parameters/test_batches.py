"""Batches of rows: densities that add up, and programs whose rows cannot be taken apart."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from lowerbound.ascent.rows.climb import STEPS
from lowerbound.ascent.rows.measure import chunks_of
from lowerbound.ascent.rows.objective import objective_of
from lowerbound.ascent.rows.row_batches import batch_size, indices, part_of
from lowerbound.rewrite.parameters import find_parameters, parametrised_model
from tests.methods.parameters import programs


def objective(model, *args):
    parameters = find_parameters(model, args)
    return objective_of(parametrised_model(model, parameters, args, {}), parameters)


def shifted(x, y):
    """Global and local sites, missing entries, and data that no row owns."""
    a = numpyro.param("a", jnp.ones(3))
    m = numpyro.sample("m", dist.Normal())
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.HalfNormal(1.0))
        numpyro.sample("y", dist.Normal(jnp.sinh(m * z) + jnp.sum(a * x), 1.0), obs=y)


def test_the_densities_of_batches_add_up_to_that_of_all_rows():
    with jax.enable_x64(True):
        y = np.ma.MaskedArray(np.arange(10.0), np.arange(10) == 7)
        images = programs.squares(0, 10)
        for whole in (
            objective(shifted, np.ones(3), y),
            objective(programs.autoencoder, images),
        ):
            part, reason = part_of(whole, 4, 0)
            assert reason is None
            assert part.rows == 4
            assert part.own.shape[1] == whole.own.shape[1]


def test_the_log_density_is_linear_in_the_weights_of_rows():
    with jax.enable_x64(True):
        whole = objective(shifted, np.ones(3), np.arange(6.0))
        rng = np.random.default_rng(0)
        own, shared = rng.normal(size=whole.own.shape), rng.normal(size=whole.shared.shape)

        def value(weights):
            return whole.log_joint(whole.start(), own, shared, whole.data(), jnp.asarray(weights))

        single = jax.grad(value)(np.ones(6))
        nothing = value(np.zeros(6))
        weights = rng.uniform(size=6)
        assert value(weights) == pytest.approx(float(nothing + weights @ single))
        assert value(np.ones(6)) == pytest.approx(
            float(whole.log_joint(whole.start(), own, shared, whole.data(), None))
        )
        assert nothing == pytest.approx(float(dist.Normal().log_prob(shared[0])))


def test_rows_that_know_of_each_other_stay_together():
    """As batch normalisation does: a batch would be another program."""

    def normalised(y):
        a = numpyro.param("a", 1.0)
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Normal())
            mean = a * (z - z.mean()) / z.std()
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    def counted(y, n):
        a = numpyro.param("a", 1.0)
        with numpyro.plate("rows", n):
            z = numpyro.sample("z", dist.Normal())
            numpyro.sample("y", dist.Normal(jnp.sinh(a * z), 1.0), obs=y)

    with jax.enable_x64(True):
        whole = objective(normalised, np.arange(8.0))
        part, reason = part_of(whole, 4, 0)
        assert part is whole
        assert reason == "the density of a row depends on the other rows of its batch"
        whole = objective(counted, np.arange(8.0), 8)
        part, reason = part_of(whole, 4, 0)
        assert part is whole
        assert reason.startswith("the program does not run on 4 rows (")


def test_how_many_rows_a_step_takes():
    with jax.enable_x64(True):
        whole = objective(programs.autoencoder, programs.squares(0, 300))
    assert batch_size(whole, 1e6, None) == 300
    assert batch_size(whole, 1e6, 32) == 32
    assert batch_size(whole, 1e6, 1000) == 300
    assert batch_size(whole, 1e12, None) == 64


def test_every_row_is_visited_in_an_epoch():
    windows = indices(100, 10, 0)
    first = next(windows)
    assert first.shape == (STEPS, 10)
    visits = first[::4]  # a batch stays for four steps
    np.testing.assert_array_equal(first[0], first[3])
    assert sorted(visits[:10].ravel()) == list(range(100))
    assert not np.array_equal(visits[10:20], visits[:10])


def test_chunks_hold_every_row_once():
    chunks = chunks_of(10, 4)
    assert [len(index) for index, _ in chunks] == [4, 4, 4]
    counted = np.concatenate([index[weights > 0] for index, weights in chunks])
    np.testing.assert_array_equal(counted, np.arange(10))

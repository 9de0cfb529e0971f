"""Gaussians of independent rows: against the dense Gaussian with the same covariance."""

import jax
import numpy as np
import pytest
from scipy import stats

from lowerbound import errors
from lowerbound.compiled import quickly
from lowerbound.family.densities.rowwise import (
    covariance_rows,
    log_prob_rows,
    marginal_rows,
    sample_rows,
    variances_rows,
)

ROWS, WIDTH, SHARED = 4, 3, 2
SIZE = ROWS * WIDTH + SHARED


def parameters(own_full, shared_full):
    """Two shared entries first, then the rows: a site of one number, then one of two."""
    rng = np.random.default_rng(0)
    scale = np.exp(0.3 * rng.normal(size=SIZE))
    first = SHARED + np.arange(ROWS)[:, None]
    second = SHARED + ROWS + np.arange(2 * ROWS).reshape(ROWS, 2)
    own = np.concatenate([first, second], axis=1)
    lower = np.tril(rng.normal(size=(ROWS, WIDTH, WIDTH)), -1) + np.eye(WIDTH)
    shared = np.arange(SHARED)
    half = np.tril(rng.normal(size=(SHARED, SHARED)), -1) + np.eye(SHARED)
    return {
        "loc": rng.normal(size=SIZE),
        "own": own,
        "own_root": scale[own][..., None] * lower if own_full else scale[own],
        "shared": shared,
        "shared_root": scale[shared][:, None] * half if shared_full else scale[shared],
    }


def dense(q):
    """The covariance matrix of all entries, by hand."""
    whole = np.zeros((SIZE, SIZE))
    for entries, root in zip(q["own"], q["own_root"], strict=True):
        root = root if root.ndim == 2 else np.diag(root)
        whole[np.ix_(entries, entries)] = root @ root.T
    root = q["shared_root"] if q["shared_root"].ndim == 2 else np.diag(q["shared_root"])
    whole[np.ix_(q["shared"], q["shared"])] = root @ root.T
    return whole


@pytest.mark.parametrize("own_full", [True, False])
@pytest.mark.parametrize("shared_full", [True, False])
def test_it_is_the_gaussian_with_that_covariance(own_full, shared_full):
    q = parameters(own_full, shared_full)
    whole = dense(q)
    points = np.random.default_rng(1).normal(size=(5, SIZE))

    def everything(points, key):
        return (
            covariance_rows(q, slice(None)),
            covariance_rows(q, slice(3, 9)),
            variances_rows(q),
            log_prob_rows(q, points),
            sample_rows(q, key, 40_000),
        )

    with jax.enable_x64(True):
        found = jax.tree.map(np.asarray, quickly(everything)(points, jax.random.key(0)))
    covariance, part, variances, log_prob, draws = found
    np.testing.assert_allclose(covariance, whole, atol=1e-12)
    np.testing.assert_allclose(part, whole[3:9, 3:9], atol=1e-12)
    np.testing.assert_allclose(variances, np.diag(whole), rtol=1e-12)
    law = stats.multivariate_normal(q["loc"], whole)
    np.testing.assert_allclose(log_prob, law.logpdf(points), rtol=1e-9)
    # Standard errors are 0.5% of the variances, or less: off by eight of them at most.
    spread = np.sqrt(np.outer(np.diag(whole), np.diag(whole)))
    np.testing.assert_allclose(np.cov(draws.T) / spread, whole / spread, atol=0.04)


@pytest.mark.parametrize("own_full", [True, False])
def test_marginals_of_sites(own_full):
    q = parameters(own_full, True)
    whole = dense(q)

    def everything():
        scalars = marginal_rows(q, slice(SHARED, SHARED + ROWS), (ROWS,), 0)
        pairs = marginal_rows(q, slice(SHARED + ROWS, SIZE), (ROWS, 2), 1)
        assert pairs.batch_shape == (ROWS,)
        flat = marginal_rows(q, slice(0, SHARED), (SHARED,), 0)
        return scalars.scale, pairs.covariance_matrix, flat.covariance_matrix

    with jax.enable_x64(True):
        scale, pairs, flat = map(np.asarray, quickly(everything)())
    np.testing.assert_allclose(scale**2, np.diag(whole)[SHARED : SHARED + ROWS])
    one = slice(SHARED + ROWS, SHARED + ROWS + 2)
    np.testing.assert_allclose(pairs[0], whole[one, one], atol=1e-12)
    np.testing.assert_allclose(flat, whole[:SHARED, :SHARED], atol=1e-12)


def test_many_rows_have_no_matrix_in_one_piece():
    q = {"loc": np.zeros(3000), "own": np.arange(3000).reshape(-1, 3)}
    q |= {"own_root": np.ones((1000, 3)), "shared": np.zeros(0, int), "shared_root": np.ones(0)}
    with pytest.raises(errors.UnsupportedModelError) as caught:
        covariance_rows(q, slice(None))
    assert str(caught.value) == (
        "A covariance matrix of 3000 numbers of many rows was asked for.\n"
        "Expected at most 2000. Use draws: fit.sample(1000)."
    )

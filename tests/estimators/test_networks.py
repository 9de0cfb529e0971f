"""Blockmodels: planted blocks, the evidence in tiny graphs, fixed points, input of all forms."""

import pickle
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest
import scipy.sparse
from scipy.special import betaln, gammaln, logsumexp
from sklearn.metrics import adjusted_rand_score

import lowerbound as lb
from lowerbound.estimators import MixedMembershipBlockModel, StochasticBlockModel
from tests.estimators.rising import assert_rises


def graph(rng, rate, directed=False):
    """Links with these rates, none of a node to itself."""
    links = (rng.random(rate.shape) < rate).astype(float)
    upper = np.triu(links, 1)
    return upper + (np.tril(links, -1) if directed else upper.T)


def planted(seed, inside=0.5, outside=0.1, n=60, directed=False):
    rng = np.random.default_rng(seed)
    z = rng.integers(3, size=n)
    return graph(rng, np.where(z[:, None] == z, inside, outside), directed), z


def without_diagonal(A):
    return np.where(np.eye(len(A), dtype=bool), np.nan, A)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("inside", "outside", "directed"), [(0.5, 0.1, False), (0.1, 0.5, False), (0.5, 0.15, True)]
)
def test_planted_blocks_are_found(inside, outside, directed, seed):
    """Of 60 nodes one or two lie between blocks.

    In 18 runs (6 seeds of each kind) the least index was 0.947.
    """
    A, z = planted(seed, inside, outside, directed=directed)
    model = StochasticBlockModel(3, directed=directed).fit(A)
    assert_rises(model)
    assert adjusted_rand_score(z, model.labels_) > 0.8


@pytest.fixture(scope="module")
def fitted():
    A, z = planted(1)
    return A, z, StochasticBlockModel(3, tol=1e-6).fit(A)


def test_memberships_are_the_optimal_factors(fitted):
    """A node that is taken out and joins again has the factor that it had (eq:optimal-qj)."""
    A, _, model = fitted
    np.testing.assert_allclose(
        model.predict_proba(without_diagonal(A)), model.memberships_, atol=1e-4
    )


def test_densities_are_those_of_the_blocks(fitted):
    A, _, model = fitted
    phi, known = model.memberships_, np.triu(np.ones_like(A), 1)
    links, pairs = phi.T @ (known * A) @ phi, phi.T @ known @ phi
    both = ~np.eye(3, dtype=bool)
    links, pairs = links + both * links.T, pairs + both * pairs.T
    np.testing.assert_allclose(model.densities_, (1 + links) / (2 + pairs), atol=1e-4)
    np.testing.assert_allclose(model.weights_, (1 + phi.sum(0)) / (3 + len(A)), atol=1e-4)
    np.testing.assert_allclose(model.link_proba(), phi @ model.densities_ @ phi.T)


def log_blocks(z, K):
    counts = np.bincount(z, minlength=K)
    return gammaln(K) - gammaln(K + len(z)) + gammaln(counts + 1).sum()


def evidence(A, K, directed):
    """All assignments, weights and densities integrated: Beta(1, 1) of each pair of blocks."""
    i, j = np.nonzero(~np.eye(len(A), dtype=bool) if directed else np.triu(np.ones_like(A), 1))
    total = []
    for flat in product(range(K), repeat=len(A)):
        z = np.array(flat)
        own, other = z[i], z[j]
        if not directed:
            own, other = np.minimum(own, other), np.maximum(own, other)
        cell = own * K + other
        pairs = np.bincount(cell, minlength=K * K)
        links = np.bincount(cell, A[i, j], K * K)
        total.append(log_blocks(z, K) + betaln(1 + links, 1 + pairs - links).sum())
    return logsumexp(total)


@pytest.mark.parametrize("directed", [False, True])
def test_the_bound_is_the_evidence_of_one_block_and_below_that_of_two(directed):
    z = np.arange(7) % 2
    A = graph(np.random.default_rng(3), np.where(z[:, None] == z, 0.9, 0.1), directed)
    for kind in (StochasticBlockModel, MixedMembershipBlockModel):
        alone = kind(1, directed=directed, n_init=1).fit(A)
        assert alone.lower_bound_ == pytest.approx(evidence(A, 1, directed), abs=1e-8)
    two = StochasticBlockModel(2, directed=directed, tol=1e-6).fit(A)
    exact = evidence(A, 2, directed)
    # log 2 is the price of one of the two labellings; the rest is that of independence.
    assert exact - np.log(2) - 3.0 < two.lower_bound_ < exact - np.log(2) + 0.05


def test_links_that_are_unknown_sparse_matrices_and_counts(fitted):
    A, z, model = fitted
    holes = A.copy()
    i, j = np.nonzero(np.triu(np.random.default_rng(0).random(A.shape) < 0.1, 1))
    holes[i, j] = holes[j, i] = np.nan
    with_holes = StochasticBlockModel(3).fit(holes)
    assert adjusted_rand_score(with_holes.labels_, z) > 0.8
    held = with_holes.link_proba()[i, j]
    assert held[A[i, j] == 1].mean() > held[A[i, j] == 0].mean() + 0.1
    sparse = StochasticBlockModel(3, tol=1e-6).fit(scipy.sparse.csr_matrix(A))
    np.testing.assert_allclose(sparse.memberships_, model.memberships_)
    counts = np.random.default_rng(0).poisson(np.where(z[:, None] == z, 2.0, 0.4))
    counts = np.triu(counts, 1) + np.triu(counts, 1).T
    poisson = StochasticBlockModel(3, likelihood="poisson", tol=1e-6).fit(counts)
    assert adjusted_rand_score(poisson.labels_, z) > 0.8
    again = poisson.predict_proba(without_diagonal(counts.astype(float)))
    np.testing.assert_allclose(again, poisson.memberships_, atol=1e-4)


def test_new_nodes_are_scored_drawn_and_kept_in_files(fitted):
    A, _, model = fitted
    rows = A[:10]
    shuffled = np.random.default_rng(0).permutation(rows.T).T
    assert model.score(rows) > model.score(shuffled)
    drawn, blocks = model.sample(50)
    assert drawn.shape == (50, 50)
    assert (drawn == drawn.T).all()
    assert blocks.shape == (50,)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(back.predict_proba(rows), model.predict_proba(rows))


def membership_error(found, theta):
    orders = permutations(range(theta.shape[1]))
    return min(abs(found[:, list(order)] - theta).mean() for order in orders)


@cache
def mixed(seed):
    rng = np.random.default_rng(seed)
    theta = rng.dirichlet(np.full(3, 0.3), size=60)
    A = graph(rng, theta @ (0.05 + 0.85 * np.eye(3)) @ theta.T)
    return A, theta, MixedMembershipBlockModel(3).fit(A)


@pytest.mark.parametrize("seed", range(4))
def test_planted_memberships_are_found(seed):
    """Nearer to the planted shares than blocks are.

    In 8 runs errors were 0.05 to 0.09, and those of `StochasticBlockModel` 0.14 to 0.18.
    """
    A, theta, model = mixed(seed)
    assert_rises(model)
    blocks = StochasticBlockModel(3).fit(A)
    errors = [membership_error(m.memberships_, theta) for m in (model, blocks)]
    assert errors[0] < 0.8 * errors[1]


def test_new_nodes_and_draws_of_mixed_memberships():
    A, _, model = mixed(3)
    again = model.predict_proba(without_diagonal(A)[:16])
    assert abs(again - model.memberships_[:16]).mean() < 0.05
    assert np.isfinite(model.score(A[:16]))
    drawn, shares = model.sample(20)
    assert (drawn == drawn.T).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)


ERRORS = [
    (
        np.zeros((4, 3)),
        {},
        "StochasticBlockModel got a matrix of shape (4, 3).\n"
        "Expected an adjacency matrix, square: row i has the links of node i.",
    ),
    (
        np.triu(np.ones((3, 3)), 1),
        {},
        "StochasticBlockModel got an adjacency matrix that is not symmetric: entries (0, 1) and "
        "(1, 0) differ.\nExpected a symmetric one, or directed=True.",
    ),
    (
        2.0 * np.ones((3, 3)),
        {},
        "StochasticBlockModel got a link of 2 from node 0 to node 0.\n"
        'Expected 0 and 1; NaN where it is unknown, or likelihood="poisson" for counts.',
    ),
    (
        np.full((3, 3), 0.5),
        {"likelihood": "poisson"},
        "StochasticBlockModel got a link of 0.5 from node 0 to node 0.\n"
        "Expected whole numbers of 0 or more; NaN where it is unknown.",
    ),
]


@pytest.mark.parametrize(("matrix", "settings", "text"), ERRORS)
def test_what_is_no_adjacency_matrix(matrix, settings, text):
    with pytest.raises(lb.errors.ArgumentError) as error:
        StochasticBlockModel(2, **settings).fit(matrix)
    assert str(error.value) == text

"""A' W A and the diagonal of A C A' against dense products."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lowerbound.family.sparse.gram import gram_pattern


@st.composite
def matrices(draw):
    count, size = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    places = st.tuples(st.integers(0, count - 1), st.integers(0, size - 1))
    entries = draw(st.lists(places, max_size=25))  # in any order, some of them more than once
    rows, columns = np.array(entries, int).reshape(-1, 2).T
    return rows, columns, count, size, np.random.default_rng(draw(st.integers(0, 99)))


@given(matrices())
@settings(max_examples=200, deadline=None)
def test_agrees_with_dense_products(made):
    rows, columns, count, size, rng = made
    entries, weights = rng.normal(size=len(rows)), rng.normal(size=count)
    gram = gram_pattern(rows, columns, count, size)
    products = gram.products(entries)
    matrix, found = np.zeros((count, size)), np.zeros((size, size))
    np.add.at(matrix, (rows, columns), entries)
    found[gram.rows, gram.columns] = gram.values(products, weights)
    np.testing.assert_allclose(found, np.tril(matrix.T @ (weights[:, None] * matrix)), atol=1e-12)
    root = rng.normal(size=(size, size))
    covariance = root @ root.T
    variances = gram.quadratic(products, covariance[gram.rows, gram.columns])
    np.testing.assert_allclose(
        variances, np.einsum("ni,ij,nj->n", matrix, covariance, matrix), atol=1e-11
    )


@given(matrices())
@settings(max_examples=100, deadline=None)
def test_has_each_pair_once(made):
    rows, columns, count, size, _ = made
    gram = gram_pattern(rows, columns, count, size)
    keys = gram.rows.astype(int) * size + gram.columns
    assert (np.diff(keys) > 0).all()
    assert np.count_nonzero(gram.rows == gram.columns) == size
    again = columns[gram.first] == columns[gram.second]
    pairs = set(zip(gram.first.tolist(), gram.second.tolist(), strict=True))
    assert len(pairs) == len(gram.first)
    assert (gram.first <= gram.second)[~again].all()
    expected = {(i, j) for i in range(len(rows)) for j in range(i, len(rows)) if rows[i] == rows[j]}
    assert {(min(pair), max(pair)) for pair in pairs} == expected
    np.testing.assert_array_equal(rows[gram.first], gram.owner)
    assert (np.diff(gram.owner) >= 0).all()
    both = np.stack([columns[gram.first], columns[gram.second]])
    np.testing.assert_array_equal(gram.rows[gram.place], both.max(axis=0))
    np.testing.assert_array_equal(gram.columns[gram.place], both.min(axis=0))


def test_counts_are_small_integers():
    gram = gram_pattern(np.array([0, 0, 1]), np.array([0, 1, 1]), 2, 2)
    for indices in (gram.rows, gram.columns, gram.first, gram.second, gram.place, gram.owner):
        assert indices.dtype == np.int32

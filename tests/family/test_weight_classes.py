"""Rows reduced to statistics, against sums over all of them."""

import numpy as np
import pytest

from lowerbound.family.sparse.elimination import Pattern
from lowerbound.family.sparse.gram import gram_pattern
from lowerbound.family.sparse.weight_classes import reduced, weight_classes

COUNT, SIZE = 60, 12


def weights(rng, label, own, times):
    """Weights of rows at some parameters: a number for each class times their own."""
    return [own * np.exp(rng.normal(size=label.max() + 1))[label] for _ in range(times)]


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    label, own = rng.integers(0, 3, COUNT), rng.uniform(0.2, 5.0, COUNT)
    label[-SIZE:] = 3
    rows = np.repeat(np.arange(COUNT), 3)
    columns = rng.integers(0, SIZE, (COUNT, 3))  # some twice in a row
    columns[-SIZE:] = np.arange(SIZE)[:, None]  # a prior: a class with a diagonal only
    return rng, label, own, (rows, columns.ravel(), rng.normal(size=3 * COUNT))


def test_rows_whose_weights_move_together_are_one_class(drawn):
    rng, label, own, _ = drawn
    own[:2] = 0.0
    found = weight_classes(weights(rng, label, own, 4))
    assert len(found.first) == 4
    assert (found.label[:2] == -1).all()
    for number in range(4):
        assert len(np.unique(label[found.label == number])) == 1
    ahead = weights(rng, label, own, 1)[0]
    foreseen = found.common(ahead)[found.label] * found.own
    np.testing.assert_allclose(foreseen[2:], ahead[2:], rtol=1e-12)


def test_weights_that_do_not_move_together_are_not_reduced(drawn):
    rng, label, own, _ = drawn
    samples = weights(rng, label, own, 4)
    assert weight_classes([np.exp(t * np.arange(500)) for t in (0.0, 0.01, 0.02, 0.03)]) is None
    assert weight_classes([*samples[:-1], samples[-1] * (1 + 1e-6 * label * own)]) is None
    assert weight_classes([-samples[0], *samples[1:]]) is None
    assert weight_classes([samples[0], np.full(COUNT, np.nan), *samples[1:]]) is None
    silent = [np.where(np.arange(COUNT) == 5, sample * (k > 0), sample) for k, sample in
              enumerate(samples)]  # fmt: skip
    assert weight_classes(silent) is None  # a row without a weight at first


def test_the_sums_are_those_over_rows(drawn):
    rng, label, own, (rows, columns, entries) = drawn
    classes = weight_classes(weights(rng, label, own, 4))
    gram = gram_pattern(rows, columns, COUNT, SIZE)
    found = reduced(rows, columns, entries, SIZE, classes)
    np.testing.assert_array_equal(found.rows, gram.rows)
    np.testing.assert_array_equal(found.columns, gram.columns)
    ahead = weights(rng, label, own, 1)[0]
    np.testing.assert_allclose(
        found.values(classes.common(ahead)), gram.values(gram.products(entries), ahead), atol=1e-12
    )
    assert 0 < found.pairs <= 4 * len(gram.rows)


@pytest.mark.parametrize("several", [True, False])
def test_traces_and_squares_are_sums_over_the_rows_of_each_class(drawn, several):
    """Whether one class has entries off the diagonal, or more: then covariances are needed."""
    rng, label, own, (rows, columns, entries) = drawn
    if not several:
        label[:-SIZE] = 0
    classes = weight_classes(weights(rng, label, own, 4))
    found = reduced(rows, columns, entries, SIZE, classes)
    common = classes.common(weights(rng, label, own, 1)[0])
    factor = Pattern.of(found.rows, found.columns, SIZE, np.zeros(SIZE, int)).factor(
        found.values(common)
    )
    traces, variance = found.traces(common, factor)
    gram = gram_pattern(rows, columns, COUNT, SIZE)
    spread = gram.quadratic(gram.products(entries), factor.covariance())
    z = rng.normal(size=SIZE)
    lines = np.bincount(rows, entries * z[columns], minlength=COUNT)
    for number, row in enumerate(classes.first):
        alike = label == label[row]
        np.testing.assert_allclose(traces[number], classes.own[alike] @ spread[alike])
        np.testing.assert_allclose(found.squares(z)[number], classes.own[alike] @ lines[alike] ** 2)
    np.testing.assert_allclose(variance, factor.covariance()[found.rows == found.columns])

"""Sparse factors against dense ones, over the designs that people write."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chi2

from lowerbound.compute.threads import one_thread
from lowerbound.errors import ArgumentError, TooDenseError
from lowerbound.family.sparse import elimination, independent_sets
from lowerbound.family.sparse.elimination import Pattern
from lowerbound.family.sparse.stages import Stage

FAILURE_RATE = 1e-6  # of each statistical assertion, at its fixed seed


def design(rng: np.random.Generator, *factors: tuple[np.ndarray, int]) -> tuple[np.ndarray, ...]:
    """Rows with one random entry in the columns of each factor, and the factor of each column."""
    count, size = len(factors[0][0]), sum(levels for _, levels in factors)
    matrix, begin = np.zeros((count, size)), 0
    for codes, levels in factors:
        matrix[np.arange(count), begin + codes] += rng.normal(size=count)
        begin += levels
    return matrix, np.repeat(np.arange(len(factors)), [levels for _, levels in factors])


def crossed(rng):
    rows = np.zeros(400, int)
    first, second = rng.integers(0, 110, 400), rng.integers(0, 30, 400)
    return design(rng, (first, 110), (second, 30), (rows, 1), (rows, 1))


def nested(rng):
    cask = rng.integers(0, 120, 400)
    rows = np.zeros(400, int)
    return design(rng, (cask, 120), (cask // 4, 30), (cask // 40, 3), (rows, 1))


def slopes(rng):
    """Blocks of up to four: an intercept and three slopes of each group."""
    group, other = rng.integers(0, 30, 400), rng.integers(0, 12, 400)
    rows = np.zeros(400, int)
    return design(rng, *[(group, 30)] * 4, (other, 12), (rows, 1))


def membership(rng):
    """Each row has two levels of one factor."""
    one, two = rng.integers(0, 80, (2, 200))
    matrix, _ = design(rng, (one, 80))
    again, _ = design(rng, (two, 80))
    return matrix + again, np.zeros(80, int)


def scattered(rng):
    """Any three columns in a row, and sites that say nothing."""
    columns = rng.integers(0, 130, (60, 3))
    matrix = np.zeros((60, 130))
    np.add.at(matrix, (np.arange(60)[:, None], columns), rng.normal(size=(60, 3)))
    return matrix, rng.integers(0, 4, 130)


def chain(rng):
    steps = np.eye(150) - 0.9 * np.eye(150, k=1)
    return np.concatenate([np.eye(150), steps]), np.zeros(150, int)


def second_order(rng):
    steps = np.eye(90) - 2 * np.eye(90, k=1) + np.eye(90, k=2)
    shared = np.concatenate([np.ones((90, 1)), np.zeros((90, 1))])
    chain = np.concatenate([np.eye(90), steps])
    return np.concatenate([chain, shared], axis=1), np.repeat([0, 1], [90, 1])


def lattice(rng):
    rows = np.arange(100).reshape(10, 10)
    pairs = np.concatenate(
        [
            np.stack([rows[1:], rows[:-1]], -1),
            np.stack([rows[:, 1:], rows[:, :-1]], -1).swapaxes(0, 1),
        ]
    ).reshape(-1, 2)
    matrix = np.zeros((len(pairs), 100))
    matrix[np.arange(len(pairs))[:, None], pairs] = [1.0, -1.0]
    return matrix, np.zeros(100, int)


def full(rng):
    return rng.normal(size=(40, 30)), np.repeat([0, 1], 15)


def apart(rng):
    """Nothing meets anything."""
    return np.diag(rng.normal(size=25)), np.zeros(25, int)


def pieces(rng):
    """Sets that do not meet: some small, some too large for a block, and one by itself."""
    matrix, begin = np.zeros((60, 61)), 0
    for size in (2, 3, 8, 9, 11, 1, 1, 2, 23):
        matrix[begin : begin + size, begin : begin + size] = rng.normal(size=(size, size))
        begin += size
    return matrix, np.repeat([0, 1], [30, 31])


def one(rng):
    return np.ones((1, 1)), np.zeros(1, int)


DESIGNS = [
    crossed,
    nested,
    slopes,
    membership,
    scattered,
    chain,
    second_order,
    lattice,
    full,
    apart,
    pieces,
    one,
]
ELIMINATED = [crossed, nested, slopes, chain, second_order, lattice, apart, pieces]


@pytest.fixture(autouse=True)
def small_matrices():
    with one_thread():
        yield


@pytest.fixture(params=["small ones are dense", "elimination is free"])
def priced(request, monkeypatch):
    """Small patterns are dense; where a stage costs nothing they are eliminated like large ones."""
    if request.param == "elimination is free":
        monkeypatch.setattr(independent_sets, "STAGE", 0.0)
        monkeypatch.setattr(independent_sets, "SCATTERED", 1.0)
    return request.param


def made(draw: Callable, seed: int) -> tuple[Pattern, np.ndarray, np.ndarray]:
    """A pattern with entries in some random order, its matrix, and its values."""
    rng = np.random.default_rng(seed)
    matrix, groups = draw(rng)
    size = matrix.shape[1]
    precision = matrix.T @ matrix + np.diag(rng.uniform(0.5, 2.0, size))
    entries = np.stack(np.nonzero(np.tril(precision)))
    rows, columns = entries[:, rng.permutation(entries.shape[1])]
    return Pattern.of(rows, columns, size, groups), precision, precision[rows, columns]


def stages(pattern: Pattern) -> list[Stage]:
    found, stage = [], pattern.stage
    while isinstance(stage, Stage):
        found.append(stage)
        stage = stage.rest
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("draw", DESIGNS)
def test_agrees_with_dense_algebra(draw, seed, priced):
    pattern, precision, values = made(draw, seed)
    factor = pattern.factor(values)
    covariance = np.linalg.inv(precision)
    rhs = np.random.default_rng(seed).normal(size=(pattern.size, 3))
    near = {"rtol": 1e-10, "atol": 1e-11 * np.abs(covariance).max()}
    np.testing.assert_allclose(
        factor.log_det, np.linalg.slogdet(precision)[1], rtol=1e-11, atol=1e-10
    )
    np.testing.assert_allclose(factor.solve(rhs), covariance @ rhs, **near)
    np.testing.assert_allclose(factor.solve(rhs[:, 0]), covariance @ rhs[:, 0], **near)
    np.testing.assert_allclose(
        factor.covariance(), covariance[pattern.rows, pattern.columns], **near
    )
    root = factor.coloured(np.eye(pattern.size))
    np.testing.assert_allclose(root @ root.T, covariance, **near)
    np.testing.assert_allclose(factor.coloured(rhs[:, 1]), factor.coloured(rhs)[:, 1], **near)


@pytest.mark.parametrize("draw", ELIMINATED)
def test_eliminates_what_is_independent(draw, monkeypatch):
    monkeypatch.setattr(independent_sets, "STAGE", 0.0)
    monkeypatch.setattr(independent_sets, "SCATTERED", 1.0)
    pattern = made(draw, 0)[0]
    first, *_ = stages(pattern)
    assert sum(front.members.size for front in first.fronts) > 0.3 * pattern.size


def test_small_or_full_patterns_are_dense(monkeypatch):
    assert not made(crossed, 0)[0].stage.fronts
    monkeypatch.setattr(independent_sets, "STAGE", 0.0)
    assert not made(full, 0)[0].stage.fronts


def test_nested_levels_are_eliminated_in_turn():
    """10,000 in 1,000 in 10: what is left of the largest would be too many to be dense."""
    size = 11_011
    leaf = np.arange(10_000)
    middle, top = 10_000 + leaf // 10, 11_000 + leaf // 1000
    pairs = [(leaf, leaf), (middle, leaf), (top, leaf), (np.full(10_000, 11_010), leaf)]
    middle, top = np.arange(10_000, 11_000), 11_000 + np.arange(1000) // 100
    pairs += [(middle, middle), (top, middle), (np.full(1000, 11_010), middle)]
    top = np.arange(11_000, 11_010)
    pairs += [(top, top), (np.full(10, 11_010), top), (np.array([11_010]), np.array([11_010]))]
    rows, columns = (np.concatenate(side) for side in zip(*pairs, strict=True))
    groups = np.repeat(np.arange(4), [10_000, 1000, 10, 1])
    pattern = Pattern.of(rows, columns, size, groups)
    assert [len(stage.kept) for stage in stages(pattern)] == [1011, 11]
    assert str(pattern) == "11,000 eliminated in small blocks, 11 dense"
    values = np.where(rows == columns, 100.0, -0.001) * np.where(columns < 10_000, 1.0, 10.0)
    factor = pattern.factor(values)
    from scipy.sparse import coo_array

    lower = coo_array((values, (rows, columns)), (size, size)).tocsr()
    rhs = np.random.default_rng(0).normal(size=size)
    solution = factor.solve(rhs)
    product = lower @ solution + lower.T @ solution - lower.diagonal() * solution
    np.testing.assert_allclose(product, rhs, atol=1e-12)
    some = np.arange(0, len(rows), 3001)
    unit = (np.arange(size)[:, None] == columns[some]).astype(float)
    expected = factor.solve(unit)[rows[some], np.arange(len(some))]
    np.testing.assert_allclose(factor.covariance()[some], expected, rtol=1e-10)


@pytest.mark.parametrize("draw", DESIGNS)
def test_none_where_not_positive_definite(draw, priced):
    pattern, precision, values = made(draw, 5)
    diagonal = np.flatnonzero(pattern.rows == pattern.columns)
    for bad in (diagonal[0], diagonal[-1], diagonal[len(diagonal) // 2]):
        for value in (-1.0, 0.0, np.nan, np.inf):
            assert pattern.factor(np.where(np.arange(len(values)) == bad, value, values)) is None
    shift = np.linalg.eigvalsh(precision)[0] * 1.001  # only just not
    assert pattern.factor(values - shift * (pattern.rows == pattern.columns)) is None
    assert pattern.factor(values) is not None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("draw", [crossed, nested, slopes, chain])
def test_draws_have_the_covariance(draw, seed, monkeypatch):
    monkeypatch.setattr(independent_sets, "STAGE", 0.0)
    pattern, precision, values = made(draw, seed)
    rng, draws = np.random.default_rng(100 + seed), 500
    found = pattern.factor(values).coloured(rng.normal(size=(pattern.size, draws)))
    total = np.sum(found * (precision @ found))
    low, high = chi2.ppf([FAILURE_RATE / 2, 1 - FAILURE_RATE / 2], pattern.size * draws)
    assert low < total < high
    direction = rng.normal(size=pattern.size)
    variance = direction @ np.linalg.solve(precision, direction)
    low, high = chi2.ppf([FAILURE_RATE / 2, 1 - FAILURE_RATE / 2], draws)
    assert low < np.sum((direction @ found) ** 2) / variance < high


@pytest.mark.parametrize("draw", [crossed, slopes, lattice])
def test_fronts_may_be_done_in_parts(draw, monkeypatch):
    monkeypatch.setattr(independent_sets, "STAGE", 0.0)
    monkeypatch.setattr(independent_sets, "SCATTERED", 1.0)
    pattern, _, values = made(draw, 2)
    monkeypatch.setattr(elimination, "_AT_ONCE", 40)
    parts, _, _ = made(draw, 2)
    assert len(parts.stage.fronts) > len(pattern.stage.fronts)
    found, whole = parts.factor(values), pattern.factor(values)
    rhs = np.random.default_rng(0).normal(size=pattern.size)
    np.testing.assert_allclose(found.log_det, whole.log_det, rtol=1e-12)
    np.testing.assert_allclose(found.solve(rhs), whole.solve(rhs), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.covariance(), whole.covariance(), rtol=1e-9, atol=1e-12)


def test_is_remade_from_its_arrays(monkeypatch):
    monkeypatch.setattr(independent_sets, "STAGE", 0.0)
    pattern, _, values = made(crossed, 1)
    again = Pattern.of(pattern.rows, pattern.columns, pattern.size, pattern.groups)
    np.testing.assert_array_equal(
        again.factor(values).covariance(), pattern.factor(values).covariance()
    )


def test_too_many_that_meet(monkeypatch):
    monkeypatch.setattr(independent_sets, "STAGE", 0.0)
    monkeypatch.setattr(elimination, "MOST_DENSE", 20)
    text = (
        r"Of 30 effects, 30 are left that meet each other once those that are independent given "
        r"the others are eliminated.\nExpected at most 20 such effects, whose covariance is dense, "
        r"or effects of which most meet few others. Use fewer basis functions, levels or knots, or "
        r"a method without a joint covariance, e.g. method=lb.CAVI\(\)."
    )
    with pytest.raises(TooDenseError) as caught:
        made(full, 0)
    assert re.fullmatch(text, str(caught.value))


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        ([0, 1], [0, 0]),
        ([0, 1, 0], [0, 1, 1]),
        ([0, 1, 1, 1], [0, 1, 0, 0]),
        ([0, 1, 2], [0, 1, 2]),
    ],
)
def test_a_pattern_has_each_pair_once_below_a_full_diagonal(rows, columns):
    text = (
        f"{len(rows)} entries are no pattern of a symmetric matrix of 2 rows.\nExpected each pair"
    )
    with pytest.raises(ArgumentError, match=re.escape(text)):
        Pattern.of(np.array(rows), np.array(columns), 2, np.zeros(2, int))

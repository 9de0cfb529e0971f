"""What is left of crossed factors without its matrix, against dense algebra."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from lowerbound.compute.threads import one_thread
from lowerbound.errors import IllConditionedError
from lowerbound.family.sparse import elimination, implicit, independent_sets, stages
from lowerbound.family.sparse.deflated import Deflated
from lowerbound.family.sparse.elimination import Pattern
from lowerbound.family.sparse.implicit import Implicit
from lowerbound.family.sparse.krylov import combined
from lowerbound.family.sparse.on_device import DeviceFactor, device_border
from tests.laws.compilations import counted

Design = tuple[np.ndarray, np.ndarray]  # A, and the site of each column


def matrix_of(*factors: tuple[np.ndarray, np.ndarray]) -> Design:
    """Rows with an entry in one column of each factor: codes, and values."""
    count = len(factors[0][0])
    parts = []
    for codes, values in factors:
        part = np.zeros((count, int(codes.max()) + 1))
        part[np.arange(count), codes] = values
        parts.append(part)
    sizes = [part.shape[1] for part in parts]
    return np.concatenate(parts, axis=1), np.repeat(np.arange(len(sizes)), sizes)


def crossed(rng: np.random.Generator) -> Design:
    """Two factors with slopes, and two columns that all rows have."""
    count = 3000
    first, second = rng.integers(0, 300, count), rng.integers(0, 100, count)
    ones, x, all_rows = np.ones(count), rng.normal(size=count), np.zeros(count, int)
    return matrix_of(
        (first, ones), (first, x), (second, ones), (second, x), (all_rows, ones), (all_rows, x)
    )


def three_factors(rng: np.random.Generator) -> Design:
    """Of the two that are left, levels meet each other in P itself."""
    count = 3000
    codes = [rng.integers(0, levels, count) for levels in (400, 120, 90)]
    return matrix_of(*((code, np.ones(count)) for code in codes))


def uneven(rng: np.random.Generator) -> Design:
    """Levels of very different sizes, some with a row or two, as raters and films have."""
    count = 2500
    shares = 1.0 / np.arange(1, 121)
    first = rng.choice(400, count)
    second = rng.choice(120, count, p=shares / shares.sum())
    second[:120] = np.arange(120)
    return matrix_of((first, np.ones(count)), (second, np.ones(count)), (0 * first, np.ones(count)))


def memberships(rng: np.random.Generator) -> Design:
    """Each row has two levels of the smaller factor."""
    count = 2000
    one, two = rng.integers(0, 90, (2, count))
    many, sites = matrix_of((rng.integers(0, 300, count), np.ones(count)), (one, np.ones(count)))
    again, _ = matrix_of((two, np.ones(count)))
    many[:, many.shape[1] - 90 : many.shape[1] - 90 + again.shape[1]] += again
    return many, sites


DESIGNS = [crossed, three_factors, uneven, memberships]


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    """As though fifty were too many to be dense."""
    monkeypatch.setattr(elimination, "MOST_DENSE", 50)
    monkeypatch.setattr(elimination, "_MOST_ENTRIES", 0.0)
    monkeypatch.setattr(independent_sets, "STAGE", 0.0)
    monkeypatch.setattr(independent_sets, "SCATTERED", 1.0)
    with one_thread():
        yield


def made(
    draw: Callable[[np.random.Generator], Design], seed: int = 0
) -> tuple[Pattern, np.ndarray]:
    rng = np.random.default_rng(seed)
    matrix, groups = draw(rng)
    precision = matrix.T @ matrix + np.diag(rng.uniform(0.5, 8.0, groups.max() + 1)[groups])
    rows, columns = np.nonzero(np.tril(precision))
    return Pattern.of(rows, columns, len(groups), groups), precision


def values_of(pattern: Pattern, precision: np.ndarray) -> np.ndarray:
    return precision[pattern.rows, pattern.columns]


@pytest.mark.parametrize("draw", DESIGNS)
def test_agrees_with_dense_algebra(draw):
    pattern, precision = made(draw)
    assert isinstance(pattern.last, Implicit)
    assert pattern.last.size > 50
    factor = pattern.factor(values_of(pattern, precision))
    covariance = np.linalg.inv(precision)
    rhs = np.random.default_rng(1).normal(size=(pattern.size, 3))
    near = {"rtol": 1e-6, "atol": 1e-7 * abs(covariance).max()}
    np.testing.assert_allclose(factor.solve(rhs), covariance @ rhs, **near)
    np.testing.assert_allclose(factor.solve(rhs[:, 0]), covariance @ rhs[:, 0], **near)
    root = factor.coloured(np.eye(pattern.size))
    np.testing.assert_allclose(root @ root.T, covariance, **near)


@pytest.mark.parametrize("draw", DESIGNS)
@pytest.mark.parametrize("seed", range(3))
def test_log_determinants_are_within_their_errors(draw, seed):
    pattern, precision = made(draw, seed)
    factor = pattern.factor(values_of(pattern, precision))
    assert 0.0 < factor.error < 0.5
    assert abs(factor.log_det - np.linalg.slogdet(precision)[1]) < 4.0 * factor.error


@pytest.mark.parametrize("draw", DESIGNS)
def test_variances_are_within_their_errors(draw):
    pattern, precision = made(draw)
    factor = pattern.factor(values_of(pattern, precision))
    exact = np.linalg.inv(precision)
    sds = np.sqrt(np.diag(exact))
    assert 0.0 < factor.variance_error < 0.05
    off = factor.variance() / np.diag(exact) - 1.0
    assert np.sqrt(np.mean(off**2)) < 2.0 * factor.variance_error
    found = factor.covariance()
    diagonal = pattern.rows == pattern.columns
    np.testing.assert_allclose(found[diagonal], factor.variance()[pattern.rows[diagonal]])
    scale = sds[pattern.rows] * sds[pattern.columns]
    errors = (found - exact[pattern.rows, pattern.columns]) / scale
    assert np.sqrt(np.mean(errors**2)) < 0.03


@pytest.mark.parametrize("draw", DESIGNS)
def test_the_slope_of_the_log_determinant_is_a_trace_with_the_covariances(draw):
    """The same probes at every value: differences are those of a smooth function."""
    pattern, precision = made(draw)
    rng = np.random.default_rng(2)
    groups, values = pattern.groups, values_of(pattern, precision)
    diagonal = pattern.rows == pattern.columns
    change = np.where(diagonal, rng.uniform(0.5, 8.0, groups.max() + 1)[groups[pattern.rows]], 0.0)
    size = 1e-3
    ends = [pattern.factor(values + sign * size * change).log_det for sign in (1.0, -1.0)]
    factor = pattern.factor(values)
    slope = change[diagonal] @ factor.variance()[pattern.rows[diagonal]]
    assert abs((ends[0] - ends[1]) / (2 * size) - slope) < 2.0 * factor.variance_error * slope
    assert pattern.factor(values).log_det == factor.log_det


@pytest.mark.parametrize("draw", DESIGNS)
def test_an_accelerator_computes_what_the_host_does(draw, monkeypatch):
    pattern, precision = made(draw)
    values = values_of(pattern, precision)
    host = pattern.factor(values)
    monkeypatch.setattr(stages, "has_accelerator", lambda: True)
    device = pattern.factor(values)
    assert isinstance(device, DeviceFactor)
    assert device.log_det == pytest.approx(host.log_det, rel=1e-12)
    assert device.error == pytest.approx(host.error, rel=1e-6)
    assert device.variance_error == pytest.approx(host.variance_error, rel=1e-6)
    rhs = np.random.default_rng(1).normal(size=(pattern.size, 3))
    near = {"rtol": 1e-8, "atol": 1e-9}
    np.testing.assert_allclose(device.solve(rhs), host.solve(rhs), **near)
    np.testing.assert_allclose(device.solve(rhs[:, 0]), host.solve(rhs[:, 0]), **near)
    np.testing.assert_allclose(device.coloured(rhs), host.coloured(rhs), **near)
    np.testing.assert_allclose(device.variance(), host.variance(), **near)
    np.testing.assert_array_equal(device.covariance(), host.covariance())


def both(pattern: Pattern, values: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> list[Deflated]:
    """N on the host and on a device."""
    host = pattern.factor(values).rest.deflated
    monkeypatch.setattr(stages, "has_accelerator", lambda: True)
    return [host, pattern.factor(values).rest.deflated]


@pytest.mark.parametrize(("width", "room"), [(1, 3), (3, 32), (8, 3)])
def test_bases_are_those_of_the_host(width, room, monkeypatch):
    """Columns that are nothing, and more vectors than there was room for, included."""
    monkeypatch.setattr(device_border, "_ROOM", room)
    pattern, precision = made(uneven)
    operators = both(pattern, values_of(pattern, precision), monkeypatch)
    start = np.random.default_rng(3).normal(size=(pattern.last.size, width))
    if width > 1:
        start[:, 1] = 0.0
    start = operators[0].begun(start)
    for tolerance, most in ((1e-8, 40), (1e-8, 5), (0.5, 40)):
        host, device = (one.border.space(one, start, tolerance, most) for one in operators)
        steps = len(host.diagonal)
        assert len(device.diagonal) == steps <= most
        assert device.residual == pytest.approx(host.residual, rel=1e-5)
        assert (host.residual <= tolerance) == (most == 40)
        near = {"rtol": 1e-7, "atol": 1e-9}
        np.testing.assert_allclose(device.diagonal, host.diagonal, **near)
        np.testing.assert_allclose(device.beside, host.beside, **near)
        np.testing.assert_allclose(device.basis[:steps], host.basis, rtol=0, atol=1e-7)
        host, device = (
            np.asarray(combined(one.basis, one.weights(np.sqrt))) for one in (host, device)
        )
        np.testing.assert_allclose(device, host, **near)


def test_a_basis_ends_where_there_is_nothing_more(monkeypatch):
    pattern, precision = made(uneven)
    for one in both(pattern, values_of(pattern, precision), monkeypatch):
        space = one.border.space(one, np.zeros((pattern.last.size, 2)), 1e-8, 40)
        assert (len(space.diagonal), space.residual) == (1, 0.0)
        assert not np.asarray(combined(space.basis, space.weights(np.sqrt))).any()


def test_no_basis_where_not_positive_definite(monkeypatch):
    """It is seen by what a step finds, as S itself is not there."""
    pattern, precision = made(uneven)
    host, device = both(pattern, values_of(pattern, precision), monkeypatch)
    size = pattern.last.size
    rows, columns = pattern.last.rows, pattern.last.columns
    less = np.append(40.0 * (rows == columns), 0.0)
    start = host.begun(np.random.default_rng(3).normal(size=(size, 8)))
    border = host.border
    low = replace(border, own=pattern.last.whole(border.values[:-1] - less[:-1]))
    host = host._replace(border=low)
    border = device.border
    low = border._replace(values=np.asarray(border.values) - less)
    device = device._replace(border=low)
    assert [one.border.space(one, start, 1e-8, 40) for one in (host, device)] == [None, None]


def test_an_accelerator_compiles_a_part_once(monkeypatch):
    """Ahead of need; other matrices, and other numbers of columns up to eight, take no more."""
    monkeypatch.setattr(stages, "has_accelerator", lambda: True)
    pattern, precision = made(memberships)
    values = values_of(pattern, precision)
    with counted() as first:
        pattern.prepare()
    with counted() as again:
        factor = pattern.factor(1.5 * values)
        factor.solve(np.ones(pattern.size))
        assert factor.variance_error < 1.0
        assert (factor.variance() > 0).all()
        wide = factor.coloured(np.eye(pattern.size)[:, :19])
        assert wide.shape == (pattern.size, 19)
        assert factor.coloured(np.ones((pattern.size, 0))).shape == (pattern.size, 0)
        factor.solve(np.ones((pattern.size, 1)))
    assert len(first) <= 14
    assert not again
    factor.solve(np.ones((pattern.size, 2)))
    with counted() as again:
        pattern.factor(values).solve(np.ones((pattern.size, 7)))
    assert not again


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("draw", DESIGNS)
def test_none_where_not_positive_definite(draw, accelerated, monkeypatch):
    monkeypatch.setattr(stages, "has_accelerator", lambda: accelerated)
    pattern, precision = made(draw)
    values = values_of(pattern, precision)
    diagonal = np.flatnonzero(pattern.rows == pattern.columns)
    for bad in (diagonal[0], diagonal[-1]):
        for value in (-1.0, np.nan):
            assert pattern.factor(np.where(np.arange(len(values)) == bad, value, values)) is None
    assert pattern.factor(values - 50.0 * (pattern.rows == pattern.columns)) is None


def lattice(rng: np.random.Generator) -> Design:
    """Neighbours in a square, which lean on each other."""
    rows = np.arange(144).reshape(12, 12)
    one = np.concatenate([rows[1:].ravel(), rows[:, 1:].ravel()])
    other = np.concatenate([rows[:-1].ravel(), rows[:, :-1].ravel()])
    matrix = np.zeros((len(one), 144))
    matrix[np.arange(len(one)), one], matrix[np.arange(len(one)), other] = 1.0, -1.0
    return matrix, np.zeros(144, int)


@pytest.mark.parametrize("entries", [0.0, 1e7])
def test_errors_are_stated_where_they_are_large(monkeypatch, entries):
    """Whether or not it is tried to eliminate more of what is left."""
    monkeypatch.setattr(elimination, "_MOST_ENTRIES", entries)
    monkeypatch.setattr(elimination, "MOST_DENSE", 10)
    pattern, precision = made(lattice)
    assert isinstance(pattern.last, Implicit)
    factor = pattern.factor(values_of(pattern, precision))
    assert abs(factor.log_det - np.linalg.slogdet(precision)[1]) < 4.0 * factor.error
    off = factor.variance() / np.diag(np.linalg.inv(precision)) - 1.0
    assert np.sqrt(np.mean(off**2)) < 2.0 * factor.variance_error
    assert (factor.variance() > 0).all()


def test_intercept_and_slope_of_a_level_are_one_block():
    pattern, _ = made(crossed)
    blocks, last = pattern.last.blocks, pattern.last
    assert np.array_equal(np.unique(np.bincount(blocks), return_counts=True), [[1, 2], [2, 100]])
    assert last.exactly == 4  # two columns that all rows have, and two means
    assert str(pattern) == (
        "600 eliminated in small blocks; 202 left, more than the 50 that may be dense: by "
        "conjugate gradients, 4 directions exactly, log-determinants by 8 fixed probes"
    )


def test_what_is_not_solved_is_an_error(monkeypatch):
    """Two steps, begun anew twice, do not solve for levels of very different sizes."""
    monkeypatch.setattr(implicit, "steps_for", lambda vectors: 2)
    monkeypatch.setattr(implicit, "RESTARTS", 2)
    pattern, precision = made(three_factors)
    factor = pattern.factor(values_of(pattern, precision))
    text = (
        r"\d+ effects that meet each other, too many for a dense covariance, were not solved for: "
        r"after 4 steps of conjugate gradients a residual of 0.0\d+ is left.\nExpected effects "
        r"that the data tell apart about equally well. Drop what is collinear, give effects "
        r"narrower priors, or use a method without a joint covariance, e.g. method=lb.CAVI\(\)."
    )
    with pytest.raises(IllConditionedError) as caught:
        factor.solve(np.random.default_rng(0).normal(size=pattern.size))
    assert re.fullmatch(text, str(caught.value))
    assert abs(factor.log_det - np.linalg.slogdet(precision)[1]) < 4.0 * factor.error

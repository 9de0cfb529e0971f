"""Tables hold every document once, in few shapes, without much room to spare."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowerbound.topics.xla.buckets import SHORT, buckets, length_class, rows_of, size_class


def drawn_lengths(seed: int, documents: int) -> np.ndarray:
    """Lengths as they occur: most around 60, a few in the thousands, some empty."""
    rng = np.random.default_rng(seed)
    return np.minimum(rng.lognormal(4, 0.8, size=documents), 5000).astype(int) * (
        rng.random(documents) > 0.02
    )


@given(
    st.lists(st.integers(0, 3000), max_size=80),
    st.sampled_from([256, 4096, 1 << 20]),
    st.integers(1, 8),
    st.integers(1, 5),
)
def test_every_document_is_in_one_row_that_holds_it(distinct, slots, parts, multiple):
    tables = buckets(np.asarray(distinct, int), slots, parts=parts, multiple=multiple)
    placed = np.concatenate([np.zeros(0, int), *(table.documents for table in tables)])
    assert sorted(placed.tolist()) == list(range(len(distinct)))
    for table in tables:
        assert 0 < len(table.documents) <= table.rows
        assert table.rows % multiple == 0
        assert np.asarray(distinct)[table.documents].max() <= table.length


@given(st.integers(0, 10**7))
def test_a_length_is_the_least_of_the_ladder_and_at_most_half_empty(distinct):
    length = int(length_class(np.asarray([distinct]))[0])
    assert length >= distinct
    if distinct > SHORT[0]:
        assert length < 2 * distinct
    if distinct > 64:
        assert length <= 1.5 * distinct + 1
    # 2^k or 3 * 2^(k - 1)
    assert length // (length & -length) in (1, 3)


def test_a_document_longer_than_all_others_has_a_table_of_its_own():
    tables = buckets(np.asarray([5, 7, 100_000, 6]), 1 << 17)
    assert [table.documents.tolist() for table in tables] == [[0, 1, 3], [2]]
    assert tables[1].length >= 100_000
    assert tables[1].rows == 1


@pytest.mark.parametrize("seed", range(4))
def test_shapes_are_the_same_for_batches_of_one_size(seed):
    """Which lengths occur in the tail varies; the rows of a length do not."""
    rows: dict[int, set[int]] = {}
    for batch in range(5):
        for table in buckets(drawn_lengths(10 * seed + batch, 1000 - batch), 1 << 17):
            rows.setdefault(table.length, set()).add(table.rows)
    assert all(len(found) == 1 for found in rows.values())


@pytest.mark.parametrize(("documents", "most"), [(100, 3.5), (1000, 3.5), (20_000, 1.6)])
def test_places_are_not_many_more_than_entries(documents, most):
    """Of these draws, up to 2.6, 2.9 and 1.5; rounding lengths up alone takes 1.25."""
    for seed in range(3):
        distinct = drawn_lengths(seed, documents)
        places = sum(table.rows * table.length for table in buckets(distinct, 1 << 17))
        assert places / distinct.sum() < most


def test_no_documents_need_no_tables():
    assert buckets(np.zeros(0, int), 1 << 17) == []


def test_size_classes_are_powers_of_two_from_eight_on():
    assert [size_class(n) for n in (0, 1, 8, 9, 16, 1000)] == [8, 8, 8, 16, 16, 1024]


@pytest.mark.parametrize(
    ("length", "documents", "slots", "parts", "multiple", "rows"),
    [
        (128, 65536, 1 << 17, 8, 1, 1024),  # as many places as a table has
        (128, 1000, 1 << 20, 8, 1, 128),  # a part of the documents
        (128, 10, 1 << 20, 8, 1, 8),  # at least eight
        (1 << 18, 1000, 1 << 17, 8, 1, 1),  # one that is too long
        (1 << 18, 1000, 1 << 17, 8, 3, 3),  # one for each device
        (128, 1000, 1 << 20, 8, 3, 129),
    ],
)
def test_rows_of_a_table(length, documents, slots, parts, multiple, rows):
    assert rows_of(length, documents, slots, parts, multiple) == rows

"""Laws of the sequence of minibatches of rows in memory."""

from __future__ import annotations

import gc
import threading
from itertools import islice

import numpy as np
import pytest
from scipy.stats import chi2

from lowerbound.errors import BatchSizeError
from lowerbound.source.batches import Batches, workers
from lowerbound.source.call import open_call
from lowerbound.source.permutation import TABLE, network_permutation, permutation
from lowerbound.source.read_ahead import read_ahead


def rows(n):
    """A source whose rows are their own numbers."""
    return open_call(lambda x: None, (np.arange(n),), {}).source(["x"])


def drawn(batches, start, stop, steps=3):
    return np.concatenate([chunk["x"] for chunk in batches.chunks(start, steps, stop)])


@pytest.mark.parametrize("n", [1, 2, 3, 1000, TABLE, TABLE + 1, 100_003, 1 << 17])
def test_a_permutation_is_a_bijection_that_belongs_to_its_key(n):
    images = [permutation(n, key)(np.arange(n)) for key in ((0, 1), (0, 2), (1, 1))]
    for image in images:
        np.testing.assert_array_equal(np.sort(image), np.arange(n))
    again = permutation(n, (0, 1))
    some = np.arange(n)[:: max(1, n // 10)]
    np.testing.assert_array_equal(again(some), images[0][some])
    if n > 3:
        assert not np.array_equal(images[0], images[1])
        assert not np.array_equal(images[0], images[2])


@pytest.mark.parametrize("bits", range(2, 18))
def test_networks_of_any_width_are_bijections(bits):
    for n in {2, (1 << bits) - 1, 1 << bits, (1 << (bits - 1)) + 1}:
        network = network_permutation(n, np.random.default_rng(bits))
        np.testing.assert_array_equal(np.sort(network(np.arange(n))), np.arange(n))


@pytest.mark.parametrize("seed", range(3))
def test_images_of_a_network_are_uniform_over_keys(seed):
    # Chi-square of where two neighbours go, over 4000 keys and 8 x 8 cells; each of the three
    # seeds would fail a uniform permutation with probability 1e-5.
    n, keys, cells = 100_000, 4000, 8
    generator = np.random.default_rng(seed)
    images = np.stack(
        [network_permutation(n, generator)(np.array([777, 778])) for _ in range(keys)]
    )
    cell = images * cells // n
    counts = np.bincount(cell[:, 0] * cells + cell[:, 1], minlength=cells**2)
    expected = keys / cells**2
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < chi2.ppf(1 - 1e-5, cells**2 - 1)


@pytest.mark.parametrize("seed", range(3))
def test_one_network_scatters_the_order(seed):
    # Chi-square of (position, image) over 16 x 16 cells of one permutation: its cells are a
    # little less dispersed than independent draws. False-failure rate below 1e-5 per seed.
    n, cells = 100_000, 16
    image = network_permutation(n, np.random.default_rng(seed))(np.arange(n))
    cell = (np.arange(n) * cells // n) * cells + image * cells // n
    counts = np.bincount(cell, minlength=cells**2)
    expected = n / cells**2
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert chi2.ppf(1e-5, (cells - 1) ** 2) < statistic < chi2.ppf(1 - 1e-5, (cells - 1) ** 2)


@pytest.mark.parametrize("n", [50, TABLE + 100])
def test_every_epoch_draws_every_row_once_and_no_batch_is_short(n):
    size, aside = 7, 10
    batches = Batches(rows(n), size, seed=3, held_out=aside)
    assert batches.total == n - aside
    epochs = 2
    steps = -(-epochs * batches.total // size)
    sequence = drawn(batches, 0, steps, steps=1000).ravel()
    held = batches.held_out_rows()["x"]
    assert len(held) == aside
    left = np.setdiff1d(np.arange(n), held)
    first, second = sequence[: batches.total], sequence[batches.total : 2 * batches.total]
    np.testing.assert_array_equal(np.sort(first), left)
    np.testing.assert_array_equal(np.sort(second), left)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("sampling", ["epochs", "uniform"])
def test_batch_t_depends_on_the_seed_and_t_alone(sampling):
    batches = Batches(rows(50), 8, seed=5, sampling=sampling, held_out=3)
    straight = drawn(batches, 0, 40)
    np.testing.assert_array_equal(drawn(batches, 0, 40, steps=40), straight)
    np.testing.assert_array_equal(drawn(batches, 23, 40, steps=2), straight[23:])
    other = Batches(rows(50), 8, seed=6, sampling=sampling, held_out=3)
    assert not np.array_equal(drawn(other, 0, 40), straight)


def test_chunks_stack_batches_and_the_last_may_be_shorter():
    chunks = list(Batches(rows(50), 8, seed=0).chunks(2, 4, 12))
    assert [chunk["x"].shape for chunk in chunks] == [(4, 8), (4, 8), (2, 8)]
    assert list(Batches(rows(50), 8, seed=0).chunks(5, 4, 5)) == []


@pytest.mark.parametrize("seed", range(3))
def test_uniform_batches_draw_rows_with_equal_frequency_and_never_those_held_out(seed):
    # Chi-square over 20 rows of 20000 draws; false-failure rate 1e-5 per seed.
    batches = Batches(rows(25), 20, seed=seed, sampling="uniform", held_out=5)
    sequence = drawn(batches, 0, 1000, steps=100).ravel()
    held = batches.held_out_rows()["x"]
    counts = np.bincount(sequence, minlength=25)
    assert not counts[held].any()
    counts = np.delete(counts, held)
    assert ((counts - 1000) ** 2 / 1000).sum() < chi2.ppf(1 - 1e-5, 19)


@pytest.mark.parametrize("sampling", ["epochs", "uniform"])
def test_the_parts_of_a_batch_make_up_the_batch(sampling):
    whole = Batches(rows(50), 12, 1, sampling, 4)
    parts = [Batches(rows(50), 12, 1, sampling, 4, (p, 3)) for p in range(3)]
    shares = [drawn(part, 2, 9) for part in parts]
    np.testing.assert_array_equal(np.concatenate(shares, axis=1), drawn(whole, 2, 9))
    for part in parts:
        np.testing.assert_array_equal(part.held_out_rows()["x"], whole.held_out_rows()["x"])


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [12, 13, 49, 50])
def test_a_lap_gives_every_drawn_row_once(n, parts):
    size = 12 if parts != 1 else 5
    processes = [Batches(rows(n), size, 0, held_out=0, part=(p, parts)) for p in range(parts)]
    laps = [[batch["x"] for batch in process.lap()] for process in processes]
    assert len({len(lap) for lap in laps}) == 1
    assert all(len(batch) <= size // parts for lap in laps for batch in lap)
    found = np.concatenate([np.concatenate(lap) for lap in laps])
    np.testing.assert_array_equal(np.sort(found), np.arange(n))
    if parts == 1:
        assert all(len(batch) == size for batch in laps[0][:-1])
        assert len(laps[0][-1]) > 0


@pytest.mark.parametrize("parts", [2, 3, 4])
@pytest.mark.parametrize("n", [16, 17, 20, 53, 64])
def test_the_parts_of_a_lap_make_up_its_batches(n, parts):
    """Also where the last batch is too short for every process to have a share of it."""
    whole = Batches(rows(n), 12, 0, held_out=4)
    processes = [Batches(rows(n), 12, 0, held_out=4, part=(p, parts)) for p in range(parts)]
    laps = [[batch["x"] for batch in process.lap()] for process in processes]
    shared = [np.concatenate(shares) for shares in zip(*laps, strict=True)]
    expected = [batch["x"] for batch in whole.lap()]
    assert len(shared) == len(expected)
    for one, other in zip(shared, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    for batches in (whole, *processes):
        np.testing.assert_array_equal(batches.lap_sizes, [len(batch) for batch in expected])


def test_a_lap_leaves_out_what_is_held_out():
    batches = Batches(rows(50), 7, seed=2, held_out=20)
    found = np.concatenate([batch["x"] for batch in batches.lap()])
    np.testing.assert_array_equal(found, np.setdiff1d(np.arange(50), batches.held_out_rows()["x"]))


def test_nothing_held_out_is_an_empty_set_of_rows():
    assert Batches(rows(5), 2, seed=0).held_out_rows()["x"].shape == (0,)


def readers():
    return [t for t in threading.enumerate() if t.name.startswith("lowerbound-rows")]


def test_closing_or_dropping_the_iterator_ends_its_thread():
    for close in (True, False):
        chunks = Batches(rows(50), 8, seed=0).chunks(0, 1, 10**9)
        assert len(list(islice(chunks, 3))) == 3
        assert 1 <= len(readers()) <= workers()
        if close:
            chunks.close()
        del chunks
        gc.collect()
        assert readers() == []


def test_a_thread_stays_at_most_two_items_ahead_and_hands_over_errors_in_place():
    made = []

    def make():
        for i in range(5):
            made.append(i)
            yield i
        raise KeyError("source")

    items = read_ahead(make)
    assert made == []
    assert next(items) == 0
    # Two wait in the queue, one is in the hands of the thread.
    assert len(made) <= 4
    assert list(islice(items, 4)) == [1, 2, 3, 4]
    with pytest.raises(KeyError, match="source"):
        next(items)
    assert readers() == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"size": 11},
            "The batch size is 11, for 10 rows of data.\n"
            "Expected between 1 and 10. Use a smaller batch_size; with all rows in every batch, "
            "method=lb.CAVI() is the same algorithm without noise.",
        ),
        (
            {"size": 9, "held_out": 2},
            "The batch size is 9, for 8 rows of data (2 of 10 are held out).\n"
            "Expected between 1 and 8. Use a smaller batch_size; with all rows in every batch, "
            "method=lb.CAVI() is the same algorithm without noise.",
        ),
        (
            {"size": 1, "held_out": 10},
            "10 rows are to be held out of 10.\nExpected some rows to remain. Hold out fewer.",
        ),
        (
            {"size": 5, "part": (0, 2)},
            "The batch size is 5, for 2 processes.\nExpected a multiple of 2, so that every "
            "process has an equal share. Use batch_size=6.",
        ),
        (
            {"size": 5, "sampling": "random"},
            "sampling = 'random'.\nExpected 'epochs' (without replacement) or 'uniform' (with "
            "replacement).",
        ),
    ],
)
def test_batches_that_cannot_be_drawn_are_refused(settings, text):
    with pytest.raises(BatchSizeError) as error:
        Batches(rows(10), seed=0, **settings)
    assert str(error.value) == text
